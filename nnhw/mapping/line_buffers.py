"""Where the line buffer of a window is, and how deep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.families import Family
from nnhw.mapping.folding import Folding

MOST_BUFFER_LOG2 = 17
MOST_LUT_RAM = 128
"""Words of a line buffer in LUTs: beyond, what chooses among them takes more than the memory."""


def buffered_window(
    make: Callable[[int], WindowConfig], bits: int, folding: Folding, family: Family, where: str
) -> WindowConfig:
    """Return a window whose line buffer is where a folding wants it; see `deepest_window`."""
    if folding.large:
        return large_window(make, bits, family, where)
    if folding.lut_buffer:
        return lut_window(make, family, where, folding.roomy)
    return deepest_window(make, bits, family, where, folding.roomy)


def deepest_window(
    make: Callable[[int], WindowConfig], bits: int, family: Family, where: str, roomy: bool = False
) -> WindowConfig:
    """Return the window with the deepest line buffer that costs no more block RAM than the shallowest.

    It must hold the rows of one row of blocks, and one more so that the next row can come in.

    Parameters
    ----------
    make: returns the window of so many address bits; MappingError where they are too few.
    bits: of a word.
    roomy: it must hold the rows of a frame's last row of blocks and those of the next frame's first one.
    """
    fitting: list[WindowConfig] = []
    for address_bits in range(1, MOST_BUFFER_LOG2):
        try:
            window = make(address_bits)
        except MappingError:
            continue
        if window.rows < window.block_rows + (window.rows_left if roomy else 1):
            continue
        if fitting and family.block_rams(1 << address_bits, bits) > family.block_rams(
            1 << fitting[0].address_bits, bits
        ):
            break
        fitting.append(window)
        if 1 << address_bits >= family.block_ram.modes[-1][0]:
            break
    if not fitting:
        make(MOST_BUFFER_LOG2 - 1)
        raise MappingError(
            f"layer {where} needs a line buffer of more than {1 << MOST_BUFFER_LOG2 - 1} words; use a smaller input or "
            "more lanes"
        )
    return fitting[-1]


def large_window(make: Callable[[int], WindowConfig], bits: int, family: Family, where: str) -> WindowConfig:
    """Return the window with the smallest line buffer in large RAM that takes the next frame; see `deepest_window`.

    Raises: MappingError where the family has no large RAM, or none that deep.
    """
    for address_bits in range(1, MOST_BUFFER_LOG2):
        if family.large_rams(1 << address_bits, bits) is None:
            break
        try:
            window = make(address_bits)
        except MappingError:
            continue
        if window.rows >= window.block_rows + window.rows_left:
            return replace(window, large=True)
    raise MappingError(f"layer {where} has no line buffer that fits into large RAM; leave it in block RAM")


def lut_window(make: Callable[[int], WindowConfig], family: Family, where: str, roomy: bool) -> WindowConfig:
    """Return the window with the smallest line buffer in LUTs; see `deepest_window`.

    Raises: MappingError where the family has no such memory, or the line buffer needs too many words.
    """
    for address_bits in range(1, MOST_LUT_RAM.bit_length() if family.lut_ram.words else 0):
        try:
            window = make(address_bits)
        except MappingError:
            continue
        if window.rows >= window.block_rows + (window.rows_left if roomy else 1):
            return replace(window, in_luts=True)
    raise MappingError(f"layer {where} has no line buffer that fits into LUTs; leave it in block RAM")
