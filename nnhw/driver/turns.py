"""A lock for threads that share a device: each waits for its turn, until the device is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnhw.errors import LinkError


class Turns:
    """Gives a device to one thread at a time.

    Parameters
    ----------
    name: of the link, for messages.
    check: raises the error of a closed device, or of one that another process has opened.
    """

    def __init__(self, name: str, check: Callable[[], None]) -> None:
        self._name = name
        self._check = check
        self._lock = threading.Lock()
        self._owner: int | None = None

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait until the device is free, and keep it for the `with` block.

        Raises
        ------
        ClosedError: the device is closed, or was closed during the wait.
        LinkError: this thread has the device already, and would wait for itself; or another process has opened it.
        """
        # In a forked process, a thread that has the lock does not exist: nobody would ever release it.
        self._check()
        if self.mine:
            raise LinkError(
                f"link '{self._name}': the device is in the middle of a batch or a program that this thread itself "
                "has begun; use it when that has ended, not in the function that is told about progress"
            )
        with self._lock:
            self._check()
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    @property
    def mine(self) -> bool:
        """Whether this thread has the device."""
        return self._owner == threading.get_ident()

    def end(self, free: Callable[[], None]) -> None:
        """Call `free` once no other thread has the device; at once if this thread has it, such as in `progress`."""
        if self.mine:
            free()
            return
        with self._lock:
            free()
