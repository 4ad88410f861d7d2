"""What a user is told once, by the logger 'nnhw.dynamo'."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("nnhw.dynamo")
_SAID: set[str] = set()


def note(text: str) -> None:
    """Say something as a warning, the first time only."""
    if text not in _SAID:
        _SAID.add(text)
        LOGGER.warning("%s", text)


def forget() -> None:
    """Say everything anew."""
    _SAID.clear()
