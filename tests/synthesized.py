"""What yosys and nextpnr make of designs, remembered in `synthesized.json` by the hash of all that it depends on.

A row is looked up by the design's RTLIL, the commands of synthesis, the sources of what is done to netlists and the
versions of the tools. Where one of these changed, the tools run, whatever the file has; so a row that is missing costs
seconds, and a wrong one cannot be found. `python -m tests.synthesized` makes the file anew.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from inspect import getfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lanes import ecp5_cells, pack
from nnhw.boards import Board
from nnhw.families import FAMILIES
from nnhw.flow.implementation import rewriting, synthesis
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.implementation.ram_mapping import ram_mapping
from nnhw.flow.implementation.synthesis import synthesis_commands, synthesize
from nnhw.flow.tools.cache import cache_key
from nnhw.flow.tools.toolchain import find_tool, share_folder

FILE = Path(__file__).with_name("synthesized.json")
TESTS = ("tests/mapping/test_cost.py", "tests/hdl/shared/test_ecp5.py", "tests/hdl/shared/test_up5k.py")
"""Files of tests that use it."""
VARIABLE = "NNHW_SYNTHESIZED"
"""Environment variable with the path of a file to which rows are added, without a look at the old one."""


Row = dict[str, Any]


@cache
def _known() -> dict[str, Row]:
    rows: dict[str, Row] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return rows


def taken(rtlil: str, board: Board, planned_ebr: int, folder: Path, dsp: bool = False) -> dict[str, int]:
    """Return what a design takes: `lc`, packed for an iCE40, and `ebr`, `dsp`, `spram` and `ff`.

    Parameters
    ----------
    rtlil: its top module is `top`.
    planned_ebr: block RAMs that it must take, see `synthesize`.
    folder: for the files of the tools.
    dsp: multiplications go into DSP blocks.
    """
    return _remembered(_key(rtlil, board, planned_ebr, dsp), lambda: measured(rtlil, board, planned_ebr, folder, dsp))


def facts_of(rtlil: str, board: Board, folder: Path, dsp: bool = False) -> Row:
    """Return facts of a design's netlist: `lc`, `ebr` and `dsp`, `cells` of each type, and `memories`: name --> `ebr`.

    The parameters are those of `taken`.
    """

    def made() -> Row:
        netlist = synthesize(rtlil, board, folder, dsp=dsp)
        used = netlist.resources
        memories = {memory.name: memory.ebr for memory in netlist.memories}
        return {"lc": used.lc, "ebr": used.ebr, "dsp": used.dsp, "cells": dict(netlist.cells), "memories": memories}

    return _remembered(f"facts {_key(rtlil, board, None, dsp)}", made)


def _remembered(key: str, make: Callable[[], Row]) -> Row:
    """Return the row of a key, or make it."""
    if os.environ.get(VARIABLE):
        made = make()
        with Path(os.environ[VARIABLE]).open("a", encoding="utf-8") as rows:
            rows.write(json.dumps({key: made}) + "\n")
        return made
    return _known().get(key) or make()


def measured(rtlil: str, board: Board, planned_ebr: int, folder: Path, dsp: bool = False) -> dict[str, int]:
    """Return the same from the tools, which run."""
    netlist = synthesize(rtlil, board, folder, planned_ebr=planned_ebr, dsp=dsp)
    used = netlist.resources
    if board.family == "ice40":
        lc = pack(folder)
    else:
        lc = ecp5_cells(json.loads((folder / NETLIST).read_text(encoding="utf-8"))["modules"]["top"])
    return {"lc": lc, "ebr": used.ebr, "dsp": used.dsp, "spram": used.spram, "ff": used.ff}


def _key(rtlil: str, board: Board, planned_ebr: int | None, dsp: bool) -> str:
    """Return the key of a row: the hash of all that it depends on."""
    family = FAMILIES[board.family]
    rams, commands = ram_mapping(family.tools.block_rams, share_folder(find_tool("yosys"))) or ("", [])
    changes = rewriting.REWRITES.get(board.family, ())
    sources = {getfile(module) for module in (rewriting, synthesis, *changes)}
    return cache_key(
        rtlil=rtlil,
        commands=synthesis_commands(board, dsp, commands),
        block_rams=rams,
        device=board.device,
        planned_ebr=planned_ebr,
        tools=[find_tool("yosys").title, find_tool("nextpnr-ice40").title],
        sources=[Path(source).read_text(encoding="utf-8") for source in sorted(sources)],
    )[:16]


def main() -> int:
    """Make the file anew."""
    rows = FILE.with_suffix(".rows")
    rows.unlink(missing_ok=True)
    os.environ[VARIABLE] = str(rows)
    failed = pytest.main(["-q", *TESTS])
    if not failed:
        found: dict[str, Row] = {}
        for line in rows.read_text(encoding="utf-8").splitlines():
            found |= json.loads(line)
        lines = ",\n".join(f'"{key}": {json.dumps(found[key])}' for key in sorted(found))
        FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    rows.unlink(missing_ok=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
