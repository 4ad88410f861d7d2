"""Warnings to the user, each given once, by the logger 'nnhw.dynamo'."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("nnhw.dynamo")
_SAID: set[str] = set()


def note(text: str) -> None:
    """Log a warning, unless the same text has been logged in this process."""
    if text not in _SAID:
        _SAID.add(text)
        LOGGER.warning("%s", text)


def forget() -> None:
    """Let every warning be logged again."""
    _SAID.clear()
