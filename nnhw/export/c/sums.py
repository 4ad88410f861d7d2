"""What the layers that sum have in common: how the sums of pixels come about."""

from __future__ import annotations

from dataclasses import dataclass, field

from .text import Scratch


@dataclass
class Sums:
    """How the sums of one pixel, or of some in a row, come about.

    Parameters
    ----------
    ctype: of the sums, in the array `sums`, one per channel.
    body: statements that fill `sums`, in loops over `row` and `column` of the result.
    start: statements in front of the loops.
    pixels: so many are computed at a time; where `pixels` is not 1, `body` knows how many are left by that name.
    pitch: sums of a pixel; those of the next one follow.
    """

    ctype: str
    body: list[str]
    tables: list[str]
    helpers: list[str]
    scratch: list[Scratch]
    start: list[str] = field(default_factory=list)
    pixels: int = 1
    pitch: int = 0
