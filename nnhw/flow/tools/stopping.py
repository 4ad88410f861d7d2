"""Signals that ask for an end are handled like Ctrl-C: tools are ended, and folders stay whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ASKING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Stopped(KeyboardInterrupt):
    """A signal that asks for an end, as an exception.

    Parameters
    ----------
    number: of the signal.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        self.number = number
        super().__init__(number)


class TimeOver(KeyboardInterrupt):
    """The end of a `time_limit`."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeOver in a `with` block once it has taken so long, wherever it is; at once for 0 or less.

    Signals are handled between two steps of Python, in the main thread. In another thread, and on systems without
    timers, the block ends by itself.
    """
    if seconds <= 0:
        raise TimeOver
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    is_running = True

    def over(number: int, frame: FrameType | None) -> None:
        if is_running:
            raise TimeOver

    before = signal.signal(signal.SIGALRM, over)
    # Again after each second, as an exception that is raised in a finalizer ends there.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        try:
            yield
        finally:
            is_running = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise `Stopped` in the main thread, except where they are ignored, as under `nohup`."""
    for number in _ASKING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    # The first signal starts the clean-up that ends the tools; a second one would interrupt it.
    for other in _ASKING:
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(number)


@contextlib.contextmanager
def not_interrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the end of a `with` block, such as one that starts and notes a process."""
    # Python runs signal handlers in the main thread alone, and only it may set them.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        number: handler for number in (signal.SIGINT, *_ASKING) if callable(handler := signal.getsignal(number))
    }
    for number in handlers:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        # One signal starts the clean-up; a further one would interrupt it.
        for number in came[:1]:
            handlers[number](number, None)
