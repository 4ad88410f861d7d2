"""Work beside other work: in a thread of its own, with a share of the tool processes; a failure ends both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType


@dataclass(frozen=True)
class Turn:
    """What the tools of one of two works that run beside each other heed.

    Parameters
    ----------
    check: called again and again while tools run; what it raises ends them.
    at_once: returns how many tool processes this work may run at a time now.
    """

    check: Callable[[], None]
    at_once: Callable[[], int]


_TURN: ContextVar[Turn | None] = ContextVar("turn", default=None)


def current_turn() -> Turn | None:
    """Return what the tools of this thread heed; None where nothing runs beside it."""
    return _TURN.get()


class EndedError(Exception):
    """The work is ended because the one beside it was; nobody sees it."""


class Beside(AbstractContextManager["Beside"]):
    """Work that runs beside that of a `with` block.

    The thread starts with the first tool that the block runs: until then both would do Python's work, of which one
    thread runs at a time, and the block's tools are what takes longest. If the work fails, the tools of the block are
    ended, and the work's exception leaves the block. If the block is left by an exception, such as that of Ctrl-C, the
    tools of the work are ended.

    Parameters
    ----------
    work: called once, without arguments.
    jobs: tool processes at a time, for both together; at least 2.
    """

    def __init__(self, work: Callable[[], None], jobs: int) -> None:
        self._work = work
        self._jobs = jobs
        self._thread = threading.Thread(target=self._run)
        self._started = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._token: Token[Turn | None] | None = None

    def __enter__(self) -> Beside:
        self._token = _TURN.set(Turn(self._check, self._left))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._token is not None
        _TURN.reset(self._token)
        if self._started:
            self._ended.set()
            self._thread.join()

    def finish(self) -> None:
        """Wait until the work has ended; raise what it raised."""
        if self._started:
            # With a timeout, so that Ctrl-C is not held up on every system.
            while self._thread.is_alive():
                self._thread.join(0.1)
        else:
            self._started = True
            self._thread.start()
            self.finish()
        self._raise()

    def _check(self) -> None:
        if not self._started:
            self._started = True
            self._thread.start()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _left(self) -> int:
        """Return the share of the block: all where the work has ended, else the larger half."""
        return self._jobs - self._jobs // 2 if self._thread.is_alive() else self._jobs

    def _run(self) -> None:
        _TURN.set(Turn(self._check_ended, lambda: self._jobs // 2))
        try:
            self._work()
        except EndedError:
            pass
        except BaseException as error:  # raised again in the thread of the block
            self._failure = error

    def _check_ended(self) -> None:
        if self._ended.is_set():
            raise EndedError
