"""Names that the hardware gives to cells and attributes, and that the flow looks for in netlists and logs.

Names that tools and vendors give, such as types of cells, are not here but where they are used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CLOCK_ATTRIBUTE = "nnhw_clock"
"""Attribute of a cell with registers: the name of its clock port, which synthesis must leave connected."""
KEPT_APART = "nnhw_kept_apart"
"""Attribute of a register that synthesis must not merge with another one that always has the same value."""
TABLE_ATTRIBUTE = "nnhw_table"
"""Attribute of a lookup table whose content is put in after place and route (`nnhw.flow.implementation.contents`)."""
RAM_STYLE, BLOCK, LOGIC = "ram_style", "block", "logic"
"""Attribute of a memory, and its values for block RAM and for logic: yosys obeys it, and the flow reads it."""
HEAD = "head"
"""Name of the block RAM part of a `nnhw.hdl.memory.SplitRom`, which holds the ROM's first words."""


@dataclass(frozen=True)
class WeightBlock:
    """A block RAM with weights.

    Parameters
    ----------
    array: hierarchical name of the systolic array.
    group: number of the group of the array's cells.
    piece: which of the block RAMs of the group's memory: row and column.
    """

    array: str
    group: int
    piece: tuple[int, ...]


def weights_name(group: int | str, kind: str) -> str:
    """Return the name of the memory with the weights of a group of an array's cells.

    Parameters
    ----------
    group: number of the group, or a pattern for it.
    kind: where the memory is: `BLOCK` or `LOGIC`.
    """
    return f"weights_{group}_{kind}"


_GROUP, _PIECE = r"(?P<group>\d+)", r"(?P<piece>\d+(?:\.\d+)*)"
_WEIGHTS = re.compile(rf"(?P<array>.*)\.{weights_name(_GROUP, BLOCK)}(?:\.{HEAD})?\.{_PIECE}")


def parse_weight_block(cell: str) -> WeightBlock | None:
    """Return which weights a cell of a netlist holds, from its name; None if it is no block RAM with weights."""
    found = _WEIGHTS.fullmatch(cell)
    if found is None:
        return None
    return WeightBlock(found["array"], int(found["group"]), tuple(map(int, found["piece"].split("."))))


LINK_CLOCKS = {"usb": ("usb_clk", "usb_io_clk"), "ulpi": ("usb_clk",)}
"""Wires of the clocks that a link has beside that of the design, in the modules that use them, by kind of the link."""
