"""Carry chains of ECP5 in the form that takes fewest cells.

nextpnr puts a CCU2C of its own in front of every chain, which brings the carry in, and one behind it, which brings it
out, used or not: four logic cells for each adder. Both do with half a cell of the chain: one whose first table is 0
gives the second table's value to the next half, whatever carry comes in, and one whose tables are 0 gives the carry as
its sum. Where nothing is connected to the ends of a chain, nextpnr adds nothing.

Source: yosys `techlibs/lattice/ccu2c_sim.vh`; nextpnr `ecp5/pack.cc`, whose own cells in front are of the same kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from nnhw.families.ecp5 import CARRY
from nnhw.flow.implementation.cells import Bit, Cell, Module, loads_of
from nnhw.flow.implementation.chain_groups import Ends, in_rows

_VALUES = ("0", "1", "x", "z")
"""Bits of yosys's JSON that are constants; all other bits are numbers of nets."""
_OPEN = "x"
"""What stands in a netlist for a port to which nothing is connected."""


@dataclass(frozen=True)
class Half:
    """One bit of a chain.

    Parameters
    ----------
    inputs: A, B, C and D.
    table: INIT: bits 0..3 are the second table, of A and B, all of them the first one, of A to D.
    total: the net of the sum, or `_OPEN`.
    """

    inputs: tuple[Bit, Bit, Bit, Bit]
    table: int
    total: Bit = _OPEN


# Its first table is 0, so its sum is the carry that comes in, and the carry that it gives is 0. Its inputs are 1, which
# open ones are: nextpnr connects C and D of a bit with both at 0 to a net of zeros. In a ResNet-8 for an ECP5-85F this
# had 7,570 loads all over the device, and more wires in dispute than any other net.
_EMPTY = Half(("1", "1", "1", "1"), 0)


@dataclass(frozen=True)
class CarryChain:
    """A chain in its shortest form.

    Parameters
    ----------
    names, cells: of which it was made.
    halves: its bits, the first of which ignores the carry that comes in.
    """

    names: list[str]
    cells: list[Cell]
    halves: list[Half]

    @property
    def ends(self) -> Ends:
        """The nets that the chain is connected to."""
        inputs = tuple(net for half in self.halves for net in half.inputs)
        return Ends(len(self.halves), inputs, tuple(half.total for half in self.halves))


def shorten_chains(module: Module) -> bool:
    """Bring the chains of a module into the shortest form, and into rows; return whether there are any."""
    cells: dict[str, Cell] = module.get("cells", {})
    # Counted while all cells are there: below, the chains are taken out of the module.
    uses = Counter({bit: len(loads) for bit, loads in loads_of(module).items()})
    chains = [
        CarryChain(names, old := [cells.pop(name) for name in names], _shortest(old, uses))
        for names in list(_chains(cells, uses))
    ]
    # Numbers for new nets, above all that the module has.
    fresh = count(
        1 + max((bit for net in module["netnames"].values() for bit in net["bits"] if bit not in _VALUES), default=1)
    )
    for row in in_rows([chain.ends for chain in chains], module, uses):
        names = [name for index in row for name in chains[index].names]
        old = [cell for index in row for cell in chains[index].cells]
        halves = [half for index in row for half in chains[index].halves]
        # A row may take several cells more than its chains did.
        names += [f"{names[-1]}$carry_{number}" for number in range(len(halves))]
        cells |= zip(names, _joined(halves, old, fresh), strict=False)
    return bool(chains)


def _chains(cells: dict[str, Cell], uses: Counter[Bit]) -> Iterator[list[str]]:
    """Yield the names of the cells of each chain, without chains that have a carry in the middle read elsewhere."""
    carries = {name: cell["connections"] for name, cell in cells.items() if cell["type"] == CARRY}
    sources = {ports["COUT"][0] for ports in carries.values()}
    readers = {ports["CIN"][0]: name for name, ports in carries.items() if ports["CIN"][0] in sources}
    for name, ports in carries.items():
        if ports["CIN"][0] in sources or ports["CIN"][0] == _OPEN:
            continue
        chain = [name]
        # A net has one entry among the readers even if two chains read it: its `uses` then rule the chain out.
        while (carry := carries[chain[-1]]["COUT"][0]) in readers:
            chain.append(readers[carry])
        inner = [carries[part]["COUT"][0] for part in chain[:-1]]
        # A carry that something else reads has to stay where it is.
        if all(uses[carry] == 1 for carry in inner) and all(_is_plain(cells[part]) for part in chain):
            yield chain


def _is_plain(cell: Cell) -> bool:
    """Return whether the carry passes both halves of a cell."""
    return all(cell["parameters"][f"INJECT1_{half}"] == "NO" for half in range(2))


def _halves(chain: Iterable[Cell], uses: Counter[Bit]) -> Iterator[Half]:
    """Yield the bits of a chain."""
    for cell in chain:
        ports = cell["connections"]
        for half in range(2):
            a, b, c, d = (ports.get(f"{name}{half}", ["0"])[0] for name in "ABCD")
            total = ports.get(f"S{half}", [_OPEN])[0]
            yield Half((a, b, c, d), int(cell["parameters"][f"INIT{half}"], 2), total if uses[total] else _OPEN)


def _shortest(old: list[Cell], uses: Counter[Bit]) -> list[Half]:
    """Return the bits of a chain that needs no carry in, with one more bit for the carry out if that is read."""
    halves = _shortened(list(_halves(old, uses)), old[0]["connections"]["CIN"][0])
    carry_out = old[-1]["connections"]["COUT"][0]
    if uses[carry_out]:
        halves.append(Half(_EMPTY.inputs, 0, carry_out))
    while len(halves) > 1 and halves[-1].total == _OPEN:
        # Nothing reads this sum, and no carry comes after it.
        halves.pop()
    return halves


def _shortened(halves: list[Half], carry: Bit) -> list[Half]:
    """Return the bits of the same chain in a form that needs no carry in.

    Parameters
    ----------
    carry: net of the carry that comes in now.
    """
    first = halves[0]
    if first.total == _OPEN and carry in ("0", "1") and all(bit in ("0", "1") for bit in first.inputs[2:]):
        return [_generator(first, carry == "1"), *halves[1:]]
    # The second table is input A, which is the carry. C and D at 1 choose bits 12 to 15 of the first one, which are 0:
    # the second table's value is the carry to the next bit.
    source = Half((carry, "0", "1", "1"), 0b1010) if carry != "0" else _EMPTY
    return [source, *halves]


def _generator(half: Half, carry: bool) -> Half:
    """Return a bit that gives the same carry out as `half`, whose sum is not read, whatever carry comes in.

    Parameters
    ----------
    carry: constant carry that comes into `half`.
    """
    a, b, c, d = half.inputs
    # C and D are constant, so the first table, too, is one of A and B: its four bits from `above` on.
    above = 4 * (c == "1") + 8 * (d == "1")
    passes = [half.table >> (above + index) & 1 for index in range(4)]
    made = [half.table >> index & 1 for index in range(4)]
    table = sum((int(carry) if on else own) << index for index, (on, own) in enumerate(zip(passes, made, strict=True)))
    # As for the source in `_shortened`: with C and D at 1 the carry that comes in is ignored.
    return Half((a, b, "1", "1"), table)


def _joined(halves: list[Half], old: list[Cell], fresh: Iterator[int]) -> Iterator[Cell]:
    """Yield the cells of a chain, two bits each, with nets of their own between them."""
    halves = halves + [_EMPTY] * (len(halves) % 2)
    carry: Bit = _OPEN
    for index in range(len(halves) // 2):
        pair = halves[2 * index : 2 * index + 2]
        following: Bit = next(fresh) if 2 * index + 2 < len(halves) else _OPEN
        connections: dict[str, list[Bit]] = {"CIN": [carry], "COUT": [following]}
        carry = following
        for half, one in enumerate(pair):
            connections |= {f"{name}{half}": [bit] for name, bit in zip("ABCD", one.inputs, strict=True)}
            connections[f"S{half}"] = [one.total]
        # Beside its tables a cell has the parameters that `_is_plain` has compared, so any cell of the row will do.
        template = old[min(index, len(old) - 1)]
        tables = {f"INIT{half}": f"{one.table:016b}" for half, one in enumerate(pair)}
        directions = {port: "output" if port in ("COUT", "S0", "S1") else "input" for port in connections}
        yield template | {
            "parameters": template["parameters"] | tables,
            "port_directions": directions,
            "connections": connections,
        }
