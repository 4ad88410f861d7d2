"""Names that the hardware gives and the flow looks for, in netlists and logs: each stands here, once.

Names of the tools and of the vendors, such as types of cells, are not ours: they stand where they are used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CLOCK_ATTRIBUTE = "nnhw_clock"
"""Attribute of a cell with registers: the name of its clock port, which synthesis must not cut."""
KEPT_APART = "nnhw_kept_apart"
"""Attribute of a register that synthesis must not take for another one which always has the same value."""
TABLE_ATTRIBUTE = "nnhw_table"
"""Attribute of a lookup table whose content is put in behind place and route (`nnhw.flow.implementation.contents`)."""
RAM_STYLE, BLOCK, LOGIC = "ram_style", "block", "logic"
"""Attribute of a memory, and its values where it has to be block RAM, or logic: yosys heeds them, the flow reads it."""
HEAD = "head"
"""Memory of the first words of a ROM in parts (`nnhw.hdl.memory.SplitRom`), those in block RAM."""


@dataclass(frozen=True)
class WeightBlock:
    """A block RAM with weights.

    Parameters
    ----------
    array: path of the systolic array.
    group: of the array's cells.
    piece: which of the block RAMs that the memory of the group takes: row and column.
    """

    array: str
    group: int
    piece: tuple[int, ...]


def weights_name(group: int | str, kind: str) -> str:
    """Return the name of a memory in an array: the weights of a group of its cells.

    Parameters
    ----------
    kind: where they are: `BLOCK` or `LOGIC`.
    """
    return f"weights_{group}_{kind}"


_GROUP, _PIECE = r"(?P<group>\d+)", r"(?P<piece>\d+(?:\.\d+)*)"
_WEIGHTS = re.compile(rf"(?P<array>.*)\.{weights_name(_GROUP, BLOCK)}(?:\.{HEAD})?\.{_PIECE}")


def parse_weight_block(cell: str) -> WeightBlock | None:
    """Return which weights a cell of a netlist holds, by its name; None if it is no block RAM with weights."""
    found = _WEIGHTS.fullmatch(cell)
    if found is None:
        return None
    return WeightBlock(found["array"], int(found["group"]), tuple(map(int, found["piece"].split("."))))
