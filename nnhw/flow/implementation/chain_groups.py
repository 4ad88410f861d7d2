"""Rows of carry chains that share tiles on an ECP5.

nextpnr starts every chain at the first of the four carry cells of a tile, and no other chain gets those that are left
over behind its end: chains of five cells take eight. Chains that follow one another in one leave nothing between them.
They are worth most where their cells are near each other anyway, so a chain goes together with those that the same sum
reads. A carry that comes from one chain to the next is stopped there, but counts in nextpnr's timing: so no row of
them is long. It would also close loops in that timing where one chain of a row computes what another one reads in the
same cycle: so only chains whose sums go to registers alone are in rows of several.

An enable is one of an engine, and so are the chains with that enable. Without one, a row has only chains that end in
one sum: others may be counters of engines that have nothing to do with each other. A row would bring these to one
place, and join their handshakes in nextpnr's timing.

Source: nextpnr `ecp5/pack.cc`, where a chain has a place in its tile, and flip-flops of a pair one enable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nnhw.families.ecp5 import REGISTER
from nnhw.flow.implementation.cells import Bit, Cell, Module

TILE_BITS = 8
"""Bits of a carry chain that fit into a tile."""
LONGEST_TILES = 6
"""Most tiles of a row of chains; its carries take 1.7 ns from end to end (speed grade 6)."""
LENGTH_COST = 0.02
"""Cost of a row of n tiles is n + LENGTH_COST * n * n: of divisions with equal tiles, the one with short rows wins."""

_PARAMETERS = ("CLKMUX", "CEMUX", "LSRMUX", "SRMODE", "GSR")


@dataclass(frozen=True)
class Ends:
    """The nets that a chain is connected to.

    Parameters
    ----------
    bits: length of the chain.
    inputs, sums: nets that it reads and drives.
    """

    bits: int
    inputs: tuple[Bit, ...]
    sums: tuple[Bit, ...]


@dataclass(frozen=True)
class _Controls:
    """What two registers of a pair share.

    Parameters
    ----------
    clock, enable, reset: the nets, or what stands for "none".
    parameters: how they are used.
    """

    clock: Bit
    enable: Bit
    reset: Bit
    parameters: tuple[str | None, ...]

    @property
    def has_enable(self) -> bool:
        """Whether the registers do not take a value in every cycle."""
        return isinstance(self.enable, int)


@dataclass
class _Registers:
    """Registers by the net at their input: their outputs, and what they share with others."""

    outputs: dict[Bit, Bit] = field(default_factory=dict)
    controls: dict[Bit, _Controls] = field(default_factory=dict)


def in_rows(chains: Sequence[Ends], module: Module, uses: Mapping[Bit, int]) -> list[list[int]]:
    """Return the chains, by index, that follow one another in one; each is in one row.

    Chains share a row only if all their sums go to registers of one clock, enable and reset, as pairs of them have, and
    if there is an enable, or they end in the same sum.

    Parameters
    ----------
    uses: number of readers of each net.
    """
    registers = _registers_of(module["cells"])
    together: dict[tuple[_Controls, int | None], list[int]] = {}
    rows: list[list[int]] = []
    for index, end in _by_reader(chains, registers.outputs):
        sums = [net for net in chains[index].sums if isinstance(net, int)]
        controls = {registers.controls.get(net) if uses[net] == 1 else None for net in sums}
        shared = controls.pop() if len(controls) == 1 else None
        if shared is not None:
            together.setdefault((shared, None if shared.has_enable else end), []).append(index)
        else:
            rows.append([index])
    for members in together.values():
        cuts = divide([chains[index].bits for index in members])
        rows += [members[first:last] for first, last in cuts]
    return rows


def divide(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return the division of chains in a line into rows that takes the fewest tiles, as (first, behind the last).

    Parameters
    ----------
    lengths: bits of each chain.
    """
    # best[n]: the least cost of the first n chains, and the index of the first chain in the last of their rows.
    best: list[tuple[float, int]] = [(0.0, 0)]
    for last in range(1, len(lengths) + 1):
        choices = []
        bits = 0
        for first in reversed(range(last)):
            bits += lengths[first]
            tiles = -(-bits // TILE_BITS)
            # A single chain may be longer than that: it cannot be divided.
            if tiles > LONGEST_TILES and first < last - 1:
                break
            choices.append((best[first][0] + tiles + LENGTH_COST * tiles * tiles, first))
        best.append(min(choices))
    cuts = []
    last = len(lengths)
    while last:
        first = best[last][1]
        cuts.append((first, last))
        last = first
    return cuts[::-1]


def _registers_of(cells: Mapping[str, Cell]) -> _Registers:
    found = _Registers()
    for cell in cells.values():
        if cell["type"] == REGISTER:
            wires = cell["connections"]
            taken = wires["DI"][0]
            found.outputs[taken] = wires["Q"][0]
            clock, enable, reset = (wires.get(port, ["x"])[0] for port in ("CLK", "CE", "LSR"))
            parameters = tuple(cell["parameters"].get(name) for name in _PARAMETERS)
            found.controls[taken] = _Controls(clock, enable, reset, parameters)
    return found


def _by_reader(chains: Sequence[Ends], registered: Mapping[Bit, Bit]) -> Iterator[tuple[int, int]]:
    """Yield all chains, as (index, index of the chain in which its sum ends).

    Chains that one chain reads follow one another, and stand before it.

    Parameters
    ----------
    registered: the output of a register by its input.
    """
    readers_of: dict[Bit, list[int]] = {}
    for index, chain in enumerate(chains):
        for net in chain.inputs:
            if isinstance(net, int):
                readers_of.setdefault(net, []).append(index)
    read: dict[int, list[int]] = {}
    roots = []
    for index, chain in enumerate(chains):
        nets = [net for total in chain.sums for net in (total, registered.get(total)) if net is not None]
        readers = Counter(reader for net in nets for reader in readers_of.get(net, ()) if reader != index)
        if readers:
            read.setdefault(readers.most_common(1)[0][0], []).append(index)
        else:
            roots.append(index)
    seen: set[int] = set()
    for root in (*roots, *range(len(chains))):  # those of a loop have no root
        stack = [(root, False)]
        while stack:
            index, expanded = stack.pop()
            if expanded:
                yield index, root
            elif index not in seen:
                seen.add(index)
                stack.append((index, True))
                stack += [(child, False) for child in read.get(index, ())]
