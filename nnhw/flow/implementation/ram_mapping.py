"""Block RAMs made in a fraction of the seconds: yosys's own file for them, with the initial bits written out.

That file has a function which picks the initial bits of each parameter one by one. yosys 0.70 evaluates it anew for
each block RAM with contents of its own, 0.3 s each: of the 16 CPU seconds of synthesis of `mnist_mlp`, 8 were these.
Here calls of the function become the bits themselves, which gives the same cells.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nnhw.families.tools import BlockRamMap

FILE = "block_rams.v"
_NUMBER = r"(?:'h([0-9A-Fa-f]+)|(\d+))"


def ram_mapping(found: BlockRamMap, share: Path) -> tuple[str, list[str]] | None:
    """Return the file that makes a family's block RAMs, and the commands that use it; None: yosys has other files.

    Parameters
    ----------
    share: yosys's folder of shared files.
    """
    path = share / found.cells
    if not path.is_file() or not all((share / name).is_file() for name in found.libraries):
        return None
    call = re.compile(rf"\b{found.function}\({_NUMBER}\)")
    text, count = call.subn(lambda number: _concatenation(found.bits(_number(number))), path.read_text("utf-8"))
    if not count:
        return None
    libraries = " ".join(f"-lib +/{name}" for name in found.libraries)
    return text, [f"memory_libmap {libraries} -no-auto-huge", f"techmap -map {FILE}"]


def _number(found: re.Match[str]) -> int:
    return int(found[1], 16) if found[1] else int(found[2])


def _concatenation(bits: Sequence[int | None]) -> str:
    """Return Verilog's concatenation of initial bits; the highest comes first in it."""
    return "{" + ", ".join("1'b0" if bit is None else f"INIT[{bit}]" for bit in reversed(bits)) + "}"
