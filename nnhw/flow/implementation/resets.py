"""Copies of a reset register of ECP5, one for each part of a design that the reset reaches.

A reset comes from one register and goes to all engines, so its wires are as long as the design is large: on an
ECP5-85F, where they were the slowest paths of a ResNet-8, 15 ns. Registers with the same input are the same register;
each copy stands near the part that it resets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count

from nnhw.families.ecp5 import REGISTER
from nnhw.flow.implementation.cells import Cell, Module, loads_of

SPREAD = 1000
"""Registers above which a reset is said to go all over a device; it gets copies then."""
SHARE = 256
"""Most registers of a part that has a copy for itself."""
_RESET, _OUTPUT = "LSR", "Q"


def copy_resets(module: Module) -> int:
    """Give each part of a module a copy of a register that resets many others; return the number of copies.

    A part is an instance and all that is in it, the largest with `SHARE` of these registers at most. Registers in no
    such part, and whatever else reads the reset, stay with the register itself.
    """
    cells: dict[str, Cell] = module["cells"]
    loads = loads_of(module)
    free = count(1 + max((bit for bit in _bits(cells) if isinstance(bit, int)), default=0))
    copies: dict[str, Cell] = {}
    for name, cell in cells.items():
        if cell["type"] != REGISTER:
            continue
        (output,) = cell["connections"][_OUTPUT]
        reset = [load for load, port in loads.get(output, []) if port == _RESET]
        if len(reset) <= SPREAD:
            continue
        for index, part in enumerate(_parts(reset)):
            bit = next(free)
            copies[f"{name}_copy_{index}"] = {**cell, "connections": {**cell["connections"], _OUTPUT: [bit]}}
            for load in part:
                cells[load]["connections"][_RESET] = [bit]
    cells.update(copies)
    return len(copies)


def _bits(cells: dict[str, Cell]) -> Iterator[int | str]:
    for cell in cells.values():
        for bits in cell["connections"].values():
            yield from bits


def _parts(names: Sequence[str], depth: int = 1) -> Iterator[Sequence[str]]:
    """Divide cells by the instances that they are in, from the outermost on, until at most `SHARE` are together."""
    inside: dict[str, list[str]] = defaultdict(list)
    for name in names:
        path = name.split(".")
        if len(path) > depth:
            inside[path[depth - 1]].append(name)
    for part in inside.values():
        if len(part) > SHARE:
            yield from _parts(part, depth + 1)
        else:
            yield part
