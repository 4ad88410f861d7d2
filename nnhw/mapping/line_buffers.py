"""The line buffer of a sliding window: its depth, and whether it is in block RAM, large RAM or LUTs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.families import Family
from nnhw.mapping.folding import Folding

MOST_BUFFER_LOG2 = 17
"""Line buffers have fewer address bits than this."""
MOST_LUT_RAM = 128
"""Most words of a line buffer in LUTs: with more, the multiplexer of its banks takes more than the memory."""


def buffered_window(
    make: Callable[[int], WindowConfig], bits: int, folding: Folding, family: Family, where: str
) -> WindowConfig:
    """Return a window whose line buffer is in the memory that a folding chooses; see `deepest_window`."""
    if folding.large:
        return large_window(make, bits, family, where)
    if folding.lut_buffer:
        return lut_window(make, family, where, folding.roomy)
    return deepest_window(make, bits, family, where, folding.roomy)


def deepest_window(
    make: Callable[[int], WindowConfig], bits: int, family: Family, where: str, roomy: bool = False
) -> WindowConfig:
    """Return the window with the deepest line buffer that takes no more block RAMs than the shallowest one.

    It must hold the rows that one row of blocks (output pixels that are pooled together) reads, and one more, so that
    the next row can come in meanwhile.

    Parameters
    ----------
    make: returns the window for a number of address bits, or raises MappingError if they are too few.
    bits: bits of a word of the line buffer.
    where: the layer, for messages.
    roomy: whether it must hold the rows of a frame's last row of blocks together with those of the next frame's first.

    Raises: MappingError if it would be too deep.
    """
    least = _least_address_bits(make, roomy)
    if least >= MOST_BUFFER_LOG2:
        raise MappingError(
            f"layer {where} needs a line buffer of more than {1 << MOST_BUFFER_LOG2 - 1} words; use a smaller input or "
            "more lanes"
        )
    # A block RAM that is only partly used has room for more rows at no cost.
    rams, most = family.block_rams(1 << least, bits), least
    while (
        1 << most < family.block_ram.modes[-1][0]
        and most + 1 < MOST_BUFFER_LOG2
        and family.block_rams(2 << most, bits) <= rams
    ):
        most += 1
    return make(most)


def large_window(make: Callable[[int], WindowConfig], bits: int, family: Family, where: str) -> WindowConfig:
    """Return the window with the smallest roomy line buffer in large RAM; see `deepest_window`.

    Raises: MappingError if the family has no large RAM, or none that deep.
    """
    least = _least_address_bits(make, True)
    if least < MOST_BUFFER_LOG2 and family.large_rams(1 << least, bits) is not None:
        return replace(make(least), large=True)
    raise MappingError(f"layer {where} has no line buffer that fits into large RAM; leave it in block RAM")


def lut_window(make: Callable[[int], WindowConfig], family: Family, where: str, roomy: bool) -> WindowConfig:
    """Return the window with the smallest line buffer in LUTs; see `deepest_window`.

    Raises: MappingError if the family has no LUT memory, or the line buffer needs too many words.
    """
    least = _least_address_bits(make, roomy)
    if family.lut_ram.words and 1 << least <= MOST_LUT_RAM:
        return replace(make(least), in_luts=True)
    raise MappingError(f"layer {where} has no line buffer that fits into LUTs; leave it in block RAM")


def _least_address_bits(make: Callable[[int], WindowConfig], roomy: bool) -> int:
    """Return the address bits of the smallest line buffer that is deep enough, at least 1; see `deepest_window`.

    Raises: MappingError if a window cannot be made even with the deepest line buffer.
    """
    # Rows and words do not depend on the depth, so any window that can be made tells them.
    window = make(MOST_BUFFER_LOG2 - 1)
    # With one row more a row can come in while a row of blocks is read.
    rows = window.block_rows + (window.rows_left if roomy else 1)
    return max(1, (rows * window.row_words - 1).bit_length())
