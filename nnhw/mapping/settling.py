"""Ctrl-C while mappings are sought: where a user waits for one, the best that was found so far is taken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nnhw.accelerator import Accelerator

LOGGER = logging.getLogger("nnhw.mapping")
_SETTLES = ContextVar("settles", default=False)
"""Whether the next Ctrl-C ends the search alone."""


@contextmanager
def settling() -> Iterator[None]:
    """Let the first Ctrl-C inside of a `with` block end the search alone, where a mapping was found already."""
    token = _SETTLES.set(True)
    try:
        yield
    finally:
        _SETTLES.reset(token)


def settle(found: Accelerator | None, stop: KeyboardInterrupt) -> Accelerator:
    """Return what a search that was interrupted has found.

    Parameters
    ----------
    found: the best accelerator so far; None: there is none.
    stop: what has interrupted the search.

    Raises
    ------
    KeyboardInterrupt: `stop`, if nothing was found, nobody waits for a mapping (see `settling`), an interrupt has
        ended a search before, or it was not Ctrl-C but a signal that asks for an end.
    """
    # Subclasses of KeyboardInterrupt are signals of others, such as SIGTERM, that want an end at once.
    if found is None or not _SETTLES.get() or type(stop) is not KeyboardInterrupt:
        raise stop
    # The next Ctrl-C means the build itself.
    _SETTLES.set(False)
    LOGGER.warning(
        "interrupted: the best mapping so far is taken, of %s cycles a frame; Ctrl-C again ends the build",
        f"{found.schedule.interval_cycles:,}",
    )
    return found
