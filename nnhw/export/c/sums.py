"""The statements that compute the sums of a layer, for all kinds of layers."""

from __future__ import annotations

from dataclasses import dataclass, field

from .c_text import Scratch


@dataclass
class Sums:
    """The statements that compute the sums of one pixel, or of several in a row.

    Parameters
    ----------
    ctype: C type of the sums, which are in the array `sums`, one per channel.
    body: statements that fill `sums`, inside of loops over `row` and `column` of the result.
    tables: lines of constants.
    helpers: names of shared functions that are called.
    scratch: arrays that are needed meanwhile.
    start: statements in front of the loops.
    pixels: number of pixels computed at a time; if it is not 1, `body` reads their actual number as `pixels`.
    pitch: distance of the sums of neighbouring pixels in `sums`, in elements.
    """

    ctype: str
    body: list[str]
    tables: list[str]
    helpers: list[str]
    scratch: list[Scratch]
    start: list[str] = field(default_factory=list)
    pixels: int = 1
    pitch: int = 0
