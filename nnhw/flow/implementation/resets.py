"""Copies of a reset register of ECP5, one for each part of a design that the reset reaches.

A reset comes from one register and goes to all engines, so its wires are as long as the design is large: 15 ns on an
ECP5-85F, where they were the slowest paths of a ResNet-8. Two registers with the same input always hold the same value,
so each part can have a copy of that register, and the placer puts the copy near the part. The registers in front, which
only delay the reset, are copied with it: with one of them for all copies, the wires from it to the copies took 14 ns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from nnhw.families.ecp5 import REGISTER
from nnhw.flow.implementation.cells import Bit, Cell, Module, loads_of

SPREAD = 1000
"""Registers above which a reset is said to go all over a device; it gets copies then."""
SHARE = 256
"""Most registers of a part that has a copy for itself."""
_RESET, _INPUT, _OUTPUT = "LSR", "DI", "Q"


def copy_resets(module: Module) -> int:
    """Give each part of a module a copy of a register that resets many others; return the number of parts.

    A part is an instance and all that is in it, the largest with `SHARE` of these registers at most. Registers in no
    such part, and whatever else reads the reset, stay with the register itself.
    """
    cells: dict[str, Cell] = module["cells"]
    loads = loads_of(module)
    registers = {name: cell for name, cell in cells.items() if cell["type"] == REGISTER}
    drivers = {cell["connections"][_OUTPUT][0]: name for name, cell in registers.items()}
    free = count(1 + max((bit for bit in _bits(cells) if isinstance(bit, int)), default=0))
    parts = 0
    for name, cell in registers.items():
        (output,) = cell["connections"][_OUTPUT]
        reset = [load for load, port in loads.get(output, []) if port == _RESET]
        if len(reset) <= SPREAD:
            continue
        chain = _in_front(name, drivers, loads, registers)
        for index, part in enumerate(_parts(reset)):
            (bit,) = registers[chain[0]]["connections"][_INPUT]
            for register in chain:
                wires = {**registers[register]["connections"], _INPUT: [bit]}
                bit = next(free)
                cells[f"{register}_copy_{index}"] = {
                    **registers[register],
                    "connections": {**wires, _OUTPUT: [bit]},
                }
            for load in part:
                cells[load]["connections"][_RESET] = [bit]
            parts += 1
    return parts


def _in_front(
    name: str, drivers: Mapping[Bit, str], loads: Mapping[Bit, list[tuple[str, str]]], registers: Mapping[str, Cell]
) -> list[str]:
    """Return a register behind those whose only reader is the next one, the first of them first."""
    chain = [name]
    while True:
        (bit,) = registers[chain[0]]["connections"][_INPUT]
        if bit not in drivers or len(loads[bit]) > 1 or drivers[bit] in chain:
            return chain
        chain.insert(0, drivers[bit])


def _bits(cells: Mapping[str, Cell]) -> Iterator[Bit]:
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
