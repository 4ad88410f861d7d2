"""Memories that synthesis made smaller or left out, because nothing depends on what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nnhw.families import Family
from nnhw.hdl.names import BLOCK, RAM_STYLE


@dataclass
class Declared:
    """A memory as the design describes it.

    Parameters
    ----------
    depth, bits: number of words, and bits of a word.
    block: it must be block RAM.
    rom: nothing writes it.
    """

    depth: int
    bits: int
    block: bool
    rom: bool = True


@dataclass
class _Scope:
    """A module: its memories, and its cells with the names of their modules."""

    memories: dict[str, Declared] = field(default_factory=dict)
    cells: list[tuple[str, str]] = field(default_factory=list)


def declared_memories(rtlil: str, top: str = "top") -> dict[str, Declared]:
    """Return the memories of a design by their path, as flattening names them."""
    return dict(_below(_scopes(rtlil), top, ""))


def unneeded_block_rams(declared: Mapping[str, Declared], used: Mapping[str, int], family: Family) -> dict[str, int]:
    """Return by how many block RAMs synthesis has shrunk each memory, where it has, compared with the design.

    Parameters
    ----------
    used: number of block RAMs of each memory in the netlist.
    """
    wanted = {
        name: family.block_rams(memory.depth, memory.bits, rom=memory.rom)
        for name, memory in declared.items()
        if memory.block
    }
    return {name: count - used.get(name, 0) for name, count in wanted.items() if count > used.get(name, 0)}


def _scopes(rtlil: str) -> dict[str, _Scope]:
    scopes: dict[str, _Scope] = {}
    scope, style, writes = _Scope(), "", False
    for line in rtlil.splitlines():
        text = line.strip()
        if text.startswith("module "):
            scope = scopes.setdefault(text.removeprefix("module \\"), _Scope())
        elif text.startswith(f"attribute \\{RAM_STYLE} "):
            style = text.split('"')[1]
        elif text.startswith("memory "):
            _, _, bits, _, depth, name = text.split(" ", 5)
            scope.memories[name.removeprefix("\\")] = Declared(int(depth), int(bits), style == BLOCK)
            style = ""
        elif text.startswith("cell "):
            kind, name = text.split(" ")[1:]
            writes = kind.startswith("$memwr")
            if kind.startswith("\\"):
                scope.cells.append((kind[1:], name.removeprefix("\\")))
        elif writes and text.startswith("parameter \\MEMID"):
            scope.memories[text.split('"')[1].removeprefix("\\\\")].rom = False
    return scopes


def _below(scopes: Mapping[str, _Scope], module: str, path: str) -> Iterator[tuple[str, Declared]]:
    scope = scopes.get(module, _Scope())
    for name, memory in scope.memories.items():
        yield path + name, memory
    for kind, name in scope.cells:
        yield from _below(scopes, kind, f"{path}{name}.")
