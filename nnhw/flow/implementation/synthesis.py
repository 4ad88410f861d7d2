"""Synthesis: RTLIL -> netlist, with a check that every memory is where it was planned."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnhw.boards import Board, Resources
from nnhw.errors import BuildError
from nnhw.families import FAMILIES, ICE40, Family
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.implementation.contents import TABLE
from nnhw.flow.implementation.floorplan import engine_order
from nnhw.flow.implementation.ram_mapping import FILE, ram_mapping
from nnhw.flow.implementation.rewriting import rewrite
from nnhw.flow.implementation.unneeded import declared_memories, unneeded_block_rams
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.sources import sources_hash
from nnhw.flow.tools.toolchain import Note, find_tool, run_yosys, share_folder, silent
from nnhw.hdl.names import BLOCK, CLOCK_ATTRIBUTE, KEPT_APART, LINK_CLOCKS, RAM_STYLE

LOG = "yosys.log"
"""File of yosys's log, in the folder of the netlist."""
_MEMORIES, _NOTES = "memories.txt", "notes.txt"
"""Files beside it: yosys's dump of the memories before they are mapped, and the lines for the user."""
INDEXED_NAMES = r"w:*\[*\]"
"""yosys's pattern for wires with a name like `payload[2]`, as Amaranth calls an element of an array."""
# An iCE40's block RAM has neither a reset nor an initial value of its output (yosys `ice40/brams.txt`).
_MEMORY_REMEDY = "its read port must be registered, without a reset or an initial value of the register"


@dataclass(frozen=True)
class Memory:
    """A memory of a design.

    Parameters
    ----------
    name: path of the memory.
    depth, bits: number of words, and bits of a word after unused ones were removed.
    planned: the design asks for block RAM.
    ebr: number of block RAMs that it takes in the netlist.
    mapped: yosys made block RAM of it. Where `ebr` is 0 all the same, nothing depends on it, and it was removed. A
        memory with `ebr` 0 that is not mapped is logic.
    """

    name: str
    depth: int
    bits: int
    planned: bool
    ebr: int
    mapped: bool = False


@dataclass(frozen=True)
class Netlist:
    """A synthesized design.

    Parameters
    ----------
    folder: has the netlist `design.json` and the log `yosys.log`.
    cells: number of cells of each type.
    memories: in the order of their names.
    family: of the device.
    unclocked: names of cells with registers whose clock input is constant.
    """

    folder: Path
    cells: Mapping[str, int]
    memories: tuple[Memory, ...]
    family: Family = ICE40
    unclocked: tuple[str, ...] = ()

    @property
    def resources(self) -> Resources:
        """Resources of the netlist; logic cells are a lower bound, as place and route packs them."""
        family, cells = self.family, self.cells
        return Resources(
            lc=family.kinds.lc(cells),
            ebr=family.kinds.count(cells, family.kinds.block_rams),
            spram=family.kinds.count(cells, family.kinds.large_rams),
            dsp=family.kinds.count(cells, family.kinds.dsps),
            ff=family.kinds.ff(cells),
        )


def synthesize(
    rtlil: str,
    board: Board,
    folder: Path,
    *,
    planned_ebr: int | None = None,
    planned_spram: int | None = None,
    dsp: bool = False,
    cache: Cache | None = None,
    note: Note = silent,
) -> Netlist:
    """Synthesize a design.

    Parameters
    ----------
    rtlil: its top module is `top`.
    folder: folder for `design.json` and `yosys.log`.
    planned_ebr, planned_spram: block RAMs and large RAMs that it must take; None: not checked.
    dsp: multiplications go into DSP blocks.
    cache: where a result of the same input and the same code is looked for.
    note: called with lines for the user.

    Raises
    ------
    ToolError: yosys is missing, or failed.
    BuildError: a memory is not where it was planned, or the design is larger than the device.
    """
    rams = ram_mapping(FAMILIES[board.family].tools.block_rams, share_folder(find_tool("yosys")))
    made, making = rams or ("", [])
    commands = synthesis_commands(board, dsp, making)
    cache = cache or Cache(None)
    tool = find_tool("yosys").title
    key = cache_key(
        stage="synthesis",
        rtlil=rtlil,
        commands=commands,
        block_rams=made,
        device=board.device,
        tool=tool,
        code=sources_hash(__name__),
    )
    if not cache.fetch(key, folder):
        (folder / "design.il").write_text(rtlil, encoding="utf-8")
        (folder / FILE).write_text(made, encoding="utf-8")
        _run(commands, folder, note)
        # Before the result is stored: what the cache has is what place and route gets.
        notes = rewrite(folder / NETLIST, board, engine_order(rtlil))
        # Kept in a file, so that a result from the cache says the same to the user.
        (folder / _NOTES).write_text("\n".join(notes), encoding="utf-8")
        cache.store(key, folder, (NETLIST, LOG, _MEMORIES, _NOTES))
    for line in (folder / _NOTES).read_text(encoding="utf-8").splitlines():
        note(line)
    netlist = read_netlist(folder, FAMILIES[board.family])
    # The RTLIL is only searched for memories that may be left out where block RAMs are in fact missing.
    unneeded: dict[str, int] = {}
    if planned_ebr is not None and netlist.resources.ebr < planned_ebr:
        used = {memory.name: memory.ebr for memory in netlist.memories}
        unneeded = unneeded_block_rams(declared_memories(rtlil), used, FAMILIES[board.family])
    check_memories(netlist, planned_ebr, planned_spram, unneeded)
    if unneeded:
        names = ", ".join(f"'{name}' {count}" for name, count in unneeded.items())
        note(f"block RAMs that synthesis left out, because what they hold changes nothing: {names}")
    check_clocks(netlist)
    check_size(netlist, board)
    return netlist


def _run(commands: list[str], folder: Path, note: Note) -> None:
    """Run yosys; see `synthesize`."""
    try:
        run_yosys(commands, folder, note, LOG)
    except ToolFailure as failure:
        found = [line for line in failure.lines if "no valid mapping found for memory" in line]
        if found:
            line = found[0].removeprefix("ERROR: ")
            raise BuildError(f"a memory cannot be block RAM as planned: {line}; {_MEMORY_REMEDY}") from failure
        raise


def synthesis_commands(board: Board, dsp: bool, block_rams: Sequence[str] = ()) -> list[str]:
    """Return the commands for yosys: `design.il` -> `design.json`; no path of this machine is in its result.

    Parameters
    ----------
    block_rams: commands that make block RAMs, see `nnhw.flow.implementation.ram_mapping`; else yosys does.
    """
    family = FAMILIES[board.family]
    synth = family.tools.synth(board.device, dsp)
    hide, show = hiding_commands(family)
    # Modules with a clock of the link: their memories are queues between two clocks, and those of another library.
    others = [part for clock in LINK_CLOCKS.get(board.link, ()) for part in (f"w:{clock} %m", "%d")]
    return [
        "read_rtlil design.il",
        *hide,
        # The attribute is one of the signal, but what must not be merged is the register that drives it (`%ci1`): yosys
        # merges equal cells unless they have `keep`.
        f"setattr -set keep 1 a:{KEPT_APART}=1 %ci1 t:$dff %i",
        # No memory is read where it is written in the same cycle (`nnhw.hdl.memory`), but Amaranth cannot say so: its
        # ports promise the old word, which costs an iCE40 block RAM a second register and a comparator for each bit.
        " ".join(("setparam -set COLLISION_X_MASK 1'1 t:$memrd_v2 r:COLLISION_X_MASK=1'0 %i", *others)),
        # Synthesis runs in three parts, with its own steps between them: the labels are those of `help synth_ice40` and
        # `help synth_ecp5`. Memories are dumped where they are whole: all later steps see block RAMs and logic.
        f"{synth} -run begin:map_ram",
        *show,
        f"tee -q -o {_MEMORIES} dump t:$mem_v2",
        # abc9 finds a bit by the name "wire[bit]" (`abc_ops_reintegrate`, yosys 0.70). It takes a wire of that name for
        # the bit, and either stops at an assertion or, without a word, joins two signals.
        f"rename -hide {INDEXED_NAMES}",
        *block_rams,
        f"{synth} -run map_ram:map_ffs",
        *family.tools.flip_flops(board.device),
        f"{synth} -run map_ffs:",
        # Only now: earlier, synthesis would take a table of the family without its content for the constant 0.
        f"chtype -set {family.tools.table} t:{TABLE}",
        # Without the models of the family's cells, and without the lines of source, which have paths of this machine.
        "select top",
        "setattr -unset src",
        "setattr -mod -unset src",
        f"write_json -selected {NETLIST}",
    ]


def hiding_commands(family: Family) -> tuple[list[str], list[str]]:
    """Return the commands that rename a type of cells, so that synthesis leaves them alone, and those that undo it."""
    if family.tools.hidden is None:
        return [], []
    kind, library = family.tools.hidden
    other = f"NNHW_{kind}"
    return [f"read_verilog -lib {library}", f"rename {kind} {other}", f"chtype -set {other} t:{kind}"], [
        f"chtype -set {kind} t:{other}"
    ]


def read_netlist(folder: Path, family: Family) -> Netlist:
    """Return the netlist that synthesis left in a folder."""
    design = json.loads((folder / NETLIST).read_text(encoding="utf-8"))["modules"]["top"]
    # Block RAMs are called like their memory, with row and column behind it.
    blocks = Counter(
        name.rsplit(".", 2)[0]
        for name, cell in design["cells"].items()
        if cell["type"].startswith(family.kinds.block_rams)
    )
    cells = Counter(cell["type"] for cell in design["cells"].values())
    log = (folder / LOG).read_text(encoding="utf-8", errors="replace")
    memories = parse_memories((folder / _MEMORIES).read_text(encoding="utf-8"), blocks, mapped_memories(log))
    return Netlist(folder, cells, memories, family, unclocked_cells(design["cells"]))


def unclocked_cells(cells: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells with registers whose clock synthesis has cut: such a design would never work.

    Parameters
    ----------
    cells: of a netlist. `nnhw.hdl.dsp` gives each such cell an attribute that names its clock.
    """
    found = []
    for name, cell in cells.items():
        port = cell["attributes"].get(CLOCK_ATTRIBUTE)
        if port is not None and not isinstance(cell["connections"][port][0], int):
            found.append(name)
    return tuple(found)


def mapped_memories(log: str) -> frozenset[str]:
    """Return the names of memories of which yosys's log says that they became block RAM."""
    return frozenset(re.findall(r"^mapping memory top\.(\S+) via \S+$", log, re.MULTILINE))


def parse_memories(dump: str, blocks: Mapping[str, int], mapped: Collection[str] = frozenset()) -> tuple[Memory, ...]:
    """Return the memories in a dump of memory cells.

    Parameters
    ----------
    blocks: block RAMs by the name of the memory.
    mapped: memories that became block RAM.
    """
    found = []
    for text in re.split(r"^ *end$", dump, flags=re.MULTILINE):
        name = re.search(r"^ *cell \$mem_v2 \\(\S+)", text, re.MULTILINE)
        if name is None:
            continue
        depth, bits = (re.search(rf"parameter \\{field} (\d+)$", text, re.MULTILINE) for field in ("SIZE", "WIDTH"))
        assert depth is not None
        assert bits is not None
        planned = f'attribute \\{RAM_STYLE} "{BLOCK}"' in text
        ebr = blocks.get(name[1], 0)
        found.append(Memory(name[1], int(depth[1]), int(bits[1]), planned, ebr, name[1] in mapped))
    return tuple(sorted(found, key=lambda memory: memory.name))


def check_memories(
    netlist: Netlist,
    planned_ebr: int | None,
    planned_spram: int | None = None,
    unneeded: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Compare the memories of a netlist with the plan of mapping.

    Parameters
    ----------
    unneeded: block RAMs that synthesis may have left out; see `unneeded_block_rams`.

    Raises
    ------
    BuildError: a memory that was planned as block RAM is logic, or the number of block RAMs is not the planned one.
    """
    # A memory that was mapped and then removed has no block RAM either, but is no mistake: nothing depends on it.
    in_logic = [memory for memory in netlist.memories if memory.planned and not (memory.ebr or memory.mapped)]
    if in_logic:
        names = ", ".join(f"'{memory.name}' ({memory.depth} x {memory.bits} bits)" for memory in in_logic)
        raise BuildError(f"synthesis put memory into logic that was planned as block RAM: {names}; {_MEMORY_REMEDY}")
    used = netlist.resources.ebr
    if planned_ebr is not None and not planned_ebr - sum(unneeded.values()) <= used <= planned_ebr:
        listed = ", ".join(f"'{memory.name}' {memory.ebr}" for memory in netlist.memories if memory.ebr)
        raise BuildError(
            f"the mapping planned {planned_ebr} block RAMs, but synthesis used {used} ({listed or 'none'}); "
            "this is a mistake in nnhw's cost model: please report it with the model"
        )
    # Large RAMs are cells of the design (`Cells.large_rams`), not memories that yosys maps: none may be missing.
    large = netlist.resources.spram
    if planned_spram is not None and large != planned_spram:
        raise BuildError(
            f"the mapping planned {planned_spram} large RAMs, but synthesis used {large}; "
            "this is a mistake in nnhw's cost model: please report it with the model"
        )


def check_clocks(netlist: Netlist) -> None:
    """Raise BuildError if synthesis has cut the clock of a cell that has registers."""
    if netlist.unclocked:
        raise BuildError(
            f"synthesis cut the clock of {len(netlist.unclocked)} DSP blocks, such as '{netlist.unclocked[0]}', so the "
            "bitstream would give wrong answers; this is a mistake in nnhw: please report it with the version of yosys"
        )


def check_size(netlist: Netlist, board: Board) -> None:
    """Compare the resources of a netlist with those of its board, as far as they are known before place and route.

    Raises
    ------
    BuildError: it cannot fit; the message says by how much.
    """
    # Place and route would say the same, but after minutes, and not what to do.
    taken, given = netlist.resources, board.resources
    names = (
        *(("lc", "logic cells"), ("ff", "flip-flops")),
        *(("ebr", "block RAMs"), ("spram", "large RAMs"), ("dsp", "DSP blocks")),
    )
    over = [
        f"{getattr(taken, field)} {name} of {getattr(given, field)}"
        for field, name in names
        if getattr(taken, field) > getattr(given, field)
    ]
    if over:
        raise BuildError(
            f"the design needs {', '.join(over)} that '{board.name}' has; "
            "use a smaller network, a slower --target-fps, smaller foldings in --overrides, or a larger board"
        )
