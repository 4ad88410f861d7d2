"""Hashes of the designs that results are of: a result is old when its design has changed, not when a source file has.

A design is hashed after mapping and elaboration, without synthesis, place and route, which take most of the time that
a result takes. The hashes are:

- `netlist`: the hardware of the board, with the contents of its memories and its pins; names do not count
- `program`: what shared engines load
- `schedule`: cycles from frame to frame, and of a frame
- `settings`: what the benchmark asks for, the board, the commands of synthesis, and the versions of the tools
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES, Case
from benchmarks.netlists import fingerprint
from benchmarks.networks import NETWORKS
from nnhw.accelerator import Accelerator
from nnhw.boards import Board, load_board
from nnhw.families import FAMILIES
from nnhw.flow.implementation.synthesis import synthesis_commands
from nnhw.flow.implementation.timing_closure import usable_clocks
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, build_file, run_build
from nnhw.flow.tools.toolchain import find_tool
from nnhw.flow.virtual.device_hardware import make_device, make_linked_device
from nnhw.frontend import Source
from nnhw.hdl.top import make_top
from nnhw.hdl.verilog import to_rtlil

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MNIST = ("mnist_mlp", "mnist_cnn")
"""Benchmarks that are an example, not a network of the zoo."""
MNIST_SEEDS = 5

Hashes = dict[str, str]


def has_design(name: str) -> bool:
    """Return whether the rows of a benchmark are each of one design, which `design_of` hashes."""
    return name in CASES or name in MNIST


def design_of(document: Mapping[str, Any], tools: Mapping[str, str] | None = None) -> Hashes:
    """Map the network of a result by the present code; return the hashes of its design, by their names.

    Parameters
    ----------
    document: row of a benchmark that `has_design`.
    tools: versions by name; those that are here otherwise.
    """
    name, board = document["benchmark"], load_board(document["board"]["name"])
    asked = stated(CASES[name]) if name in CASES else {"seeds": MNIST_SEEDS}
    with tempfile.TemporaryDirectory() as scratch:
        build = mapped(name, board.name, Path(scratch))
        return design_hashes(build.accelerator, board, document["clock_hz"], asked, tools)


def mapped(name: str, board: str, out: Path) -> Build:
    """Map the network of a benchmark as the benchmark does."""
    if name in MNIST:
        file = str(EXAMPLES / f"{name}.py")
        return build_file(file, board, Options(seeds=MNIST_SEEDS, fast_for="engine"), out=out, stop_at="map")
    case = CASES[name]
    chosen = case.network or name
    model, example = NETWORKS[chosen].load()
    return run_build(Source(model, example, chosen), chosen, board, options_of(case), out=out, stop_at="map")


def options_of(case: Case) -> Options:
    """Return the options of a case's build. Its frames go through the RTL apart, under each pair of stall patterns."""
    return Options(
        clock_hz=case.clock_hz,
        target_fps=case.target_fps,
        frames=0,
        netlist_frames=case.netlist,
        seeds=case.seeds,
        style=case.style,
        fast_for="engine",
    )


def design_hashes(
    accelerator: Accelerator,
    board: Board,
    clock_hz: int | None,
    asked: Mapping[str, Any],
    tools: Mapping[str, str] | None = None,
) -> Hashes:
    """Return the hashes of a mapped design, by their names.

    Parameters
    ----------
    clock_hz: of the PLL that it is placed for, in Hz; None: it is mapped alone, and has no pins.
    asked: what the benchmark asks for.
    tools: versions by name; those that are here otherwise. Only those of the board's family count.
    """
    settings: dict[str, Any] = {"asked": asked, "board": stated(board)}
    if clock_hz is None:
        hardware = to_rtlil(make_device(accelerator, board.target_clock_hz))
    else:

        def make(hz: int) -> Any:
            return make_linked_device(accelerator, hz, board.host_link, board.flash, board.fastest_clock_hz)

        top = make_top(make, board, next(pll for pll in usable_clocks(board) if pll.output_hz == clock_hz))
        hardware = top.rtlil
        needed = FAMILIES[board.family].tools.names
        found = {name: find_tool(name).title for name in needed} if tools is None else tools
        settings["tools"] = {name: found.get(name) for name in needed}
        settings["synthesis"] = [top.constraints, *synthesis_commands(board, dsp=True)]
    schedule = accelerator.schedule
    return {
        "netlist": fingerprint(hardware),
        "program": _hash(accelerator.image or b""),
        "schedule": _hash([str(schedule.interval), schedule.latency_cycles]),
        "settings": _hash(settings),
    }


def stated(instance: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that have not their default: a new field with a default changes no hash."""
    values = dataclasses.asdict(instance)
    return {one.name: values[one.name] for one in dataclasses.fields(instance) if values[one.name] != one.default}


def _hash(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, default=str).encode()
    return hashlib.sha256(data).hexdigest()[:16]
