"""A design without the contents of its memories: synthesis, place and route see markers; contents are put in last.

So the layout of a design does not depend on its weights: another network of the same shape has the same layout, and
needs nothing but other words in it (`nnhw.flow.implementation.patching`).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnhw.families import Family
from nnhw.hdl.names import BLOCK, RAM_STYLE, TABLE_ATTRIBUTE

TABLE = "NNHW_TABLE"
"""Type that lookup tables have while synthesis must not see their contents."""
TABLE_BITS = 16
_TRIES = 16
_DEPTHS = (256, 512, 1024, 2048)
"""Words of an iCE40's block RAM."""


@dataclass(frozen=True)
class Parted:
    """A design, and apart from it the contents of its memories and tables.

    Parameters
    ----------
    skeleton: RTLIL with a marker in each memory of `memories`, and no content in the tables.
    memories: bits [words, bits of a word] by the memory's path, as flattening names it.
    tables: bits [16] of lookup tables by path.
    """

    skeleton: str
    memories: Mapping[str, np.ndarray]
    tables: Mapping[str, np.ndarray]


@dataclass
class _Memory:
    """A memory of a module, with the line that has its initial words, if there is one."""

    block: bool
    depth: int
    bits: int
    rom: bool = True
    line: int | None = None


@dataclass
class _Module:
    """A module: memories by name, lookup tables by name with the line of their content, cells with their modules."""

    memories: dict[str, _Memory] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    cells: list[tuple[str, str]] = field(default_factory=list)


def part(rtlil: str, family: Family, kept: Collection[str] = (), top: str = "top") -> Parted:
    """Take the contents out of a design.

    Which contents are taken out depends on the design and not on the contents, except that a memory which is written
    keeps words that are all zero. Memories that are not block RAMs keep theirs, as they are logic.

    Parameters
    ----------
    rtlil: as Amaranth writes it.
    family: of the device: which cells are tables, and whether block RAMs can be filled.
    kept: memories that keep their contents, by path.
    """
    lines = rtlil.split("\n")
    modules = _modules(lines, family)
    memories: dict[str, np.ndarray] = {}
    tables: dict[str, np.ndarray] = {}
    for path, module in _paths(modules, top):
        for name, memory in module.memories.items() if family.tools.fills_block_rams else ():
            words = _words(lines, memory)
            # A RAM that starts with zeros has no contents to fill in.
            if words is None or path + name in kept or not (memory.rom or words.any()):
                continue
            memories[path + name] = words
            lines[_line(memory)] = f"    connect \\DATA {_constant(marker(path + name, *words.shape))}"
        for name, line in module.tables.items():
            tables[path + name] = _bits(lines[line].split("'")[1])
            lines[line] = ""  # yosys wants no parameters of a type that it knows no more of
            lines[_cell_above(lines, line)] = f"  cell \\{TABLE} \\{name}"
    return Parted("\n".join(lines) + (_black_box(family) if tables else ""), memories, tables)


def _black_box(family: Family) -> str:
    """Return the module, without content, that tables are cells of while synthesis must not see their contents."""
    output, *inputs = family.models.luts[family.tools.table]
    ports = [f"input {number} \\{name}" for number, name in enumerate(inputs, 1)]
    ports.append(f"output {len(inputs) + 1} \\{output}")
    wires = "".join(f"  wire {port}\n" for port in ports)
    return f"\nattribute \\blackbox 1\nmodule \\{TABLE}\n{wires}end\n"


def marker(seed: str, words: int, bits: int) -> np.ndarray:
    """Return pseudo-random bits [words, bits], the same for the same seed.

    No column is constant, so that synthesis leaves none out. Columns differ from each other where so many can, also in
    those last words that do not fill a block RAM.
    """
    columns: list[np.ndarray] = []
    seen: set[bytes] = set()
    # Memories longer than a block RAM are cut into pieces; the last one may be short, and must be distinct, too.
    ends = sorted({words % depth for depth in _DEPTHS if words > depth and words % depth})
    for column in range(bits):
        for attempt in range(_TRIES):
            digest = hashlib.shake_256(f"{seed}:{column}:{attempt}".encode()).digest(-(-words // 8))
            found = np.unpackbits(np.frombuffer(digest, np.uint8), count=words)
            if found.all() or not found.any():
                found[column % words] ^= 1
            slices = {found.tobytes(), *(found[-end:].tobytes() for end in ends)}
            if not slices & seen and all(found[-end:].any() for end in ends):
                break
        seen |= slices
        columns.append(found)
    return np.stack(columns, axis=1)


def _modules(lines: Sequence[str], family: Family) -> dict[str, _Module]:
    """Return the modules of a design by name."""
    modules: dict[str, _Module] = {}
    module, attributes, kind, name, memory = _Module(), dict[str, str](), "", "", ""
    for number, line in enumerate(lines):
        text = line.strip()
        word, _, rest = text.partition(" ")
        if word == "attribute":
            key, _, value = rest.partition(" ")
            attributes[key.removeprefix("\\")] = value.strip('"')
            continue
        if word == "module":
            module = modules.setdefault(rest.removeprefix("\\"), _Module())
        elif word == "memory":
            _, bits, _, depth, memory = rest.split(" ", 4)
            module.memories[memory.removeprefix("\\")] = _Memory(
                attributes.get(RAM_STYLE) == BLOCK, int(depth), int(bits)
            )
        elif word == "cell":
            kind, name = rest.split(" ", 1)
            kind, name = kind.removeprefix("\\"), name.removeprefix("\\")
            module.cells.append((kind, name))
            is_table = kind == family.tools.table and TABLE_ATTRIBUTE in attributes
        elif word == "parameter" and rest.startswith("\\MEMID "):
            memory = rest.split('"')[1].replace("\\", "")
            if kind.startswith("$memwr"):
                module.memories[memory].rom = False
        elif word == "parameter" and rest.startswith(f"\\{family.models.init} ") and is_table:
            module.tables[name] = number
        elif word == "connect" and rest.startswith("\\DATA ") and kind.startswith("$meminit"):
            module.memories[memory].line = number
        attributes.clear()
    return modules


def _paths(modules: Mapping[str, _Module], top: str) -> Iterator[tuple[str, _Module]]:
    """Yield the modules below the top that occur once, with the prefix of the paths in them."""
    places = Counter(kind for module in modules.values() for kind, _ in module.cells)
    waiting = [("", top)]
    while waiting:
        path, name = waiting.pop()
        module = modules.get(name)
        if module is None or places[name] > 1:  # one memory of RTLIL is several of the device, which cannot differ
            continue
        yield path, module
        waiting += [(f"{path}{cell}.", kind) for kind, cell in module.cells]


def _line(memory: _Memory) -> int:
    assert memory.line is not None
    return memory.line


def _words(lines: Sequence[str], memory: _Memory) -> np.ndarray | None:
    """Return the initial bits of a block RAM [words, bits], or None where it is another memory or has none."""
    if not memory.block or memory.line is None or memory.depth < 2:
        return None
    found = re.fullmatch(r"\s*connect \\DATA \d+'([01]+)", lines[memory.line])
    if found is None or len(found[1]) != memory.depth * memory.bits:
        return None
    return _bits(found[1]).reshape(memory.depth, memory.bits)


def _bits(digits: str) -> np.ndarray:
    """Return bits of which the lowest one is the last digit."""
    return np.frombuffer(digits.encode(), np.uint8)[::-1] - np.uint8(ord("0"))


def _constant(bits: np.ndarray) -> str:
    """Return the constant of RTLIL: the inverse of `_bits`."""
    flat = bits.ravel()
    return f"{flat.size}'" + (flat[::-1] + np.uint8(ord("0"))).astype(np.uint8).tobytes().decode()


def _cell_above(lines: Sequence[str], line: int) -> int:
    """Return the line with which the cell begins that a line is in."""
    while not lines[line].lstrip().startswith("cell "):
        line -= 1
    return line
