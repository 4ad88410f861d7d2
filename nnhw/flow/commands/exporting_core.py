"""A build as a core for another design: Verilog, an instance to copy, constraints, and a page about its ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib.wiring import Component

from nnhw.accelerator import Accelerator
from nnhw.driver.image import PROGRAM_FILE
from nnhw.errors import InputError
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.options import check_clock
from nnhw.flow.tools.progress import Progress, SilentProgress
from nnhw.flow.tools.storage import check_folder_place, reported, write_whole
from nnhw.flow.tools.toolchain import run_yosys

BUSES = ("axi-stream", "wishbone")
CLOCKS = {"axi-stream": "aclk", "wishbone": "clk_i"}
DEFAULT_CLOCK_MHZ = 50.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)


@dataclass(frozen=True)
class CoreExport:
    """An exported core.

    Parameters
    ----------
    name: of the Verilog module.
    bus: one of `BUSES`.
    paths: the files, the Verilog of the core first.
    """

    name: str
    bus: str
    paths: tuple[Path, ...]


def export_core(
    build: Path,
    *,
    bus: str = BUSES[0],
    name: str | None = None,
    clock_mhz: float = DEFAULT_CLOCK_MHZ,
    out: Path | None = None,
    progress: Progress | None = None,
) -> CoreExport:
    """Write the accelerator of a build as a core on a bus.

    Parameters
    ----------
    build: a build folder in which `map` has run.
    bus: one of `BUSES`.
    name: name of the module and stem of the files; default: `<model>_core`.
    clock_mhz: clock of the constraint files, in MHz.
    out: folder, made where it is missing; default: `core`.

    Raises
    ------
    InputError: an unknown bus, a name that is no Verilog name, or a clock that no hardware has.
    BuildError: no build folder, or not mapped; the files cannot be written.
    """
    if bus not in BUSES:
        raise InputError(f"--bus is one of {', '.join(BUSES)}; given '{bus}'")
    check_clock(clock_mhz)
    folder = BuildFolder.open(build)
    folder.require("map")
    accelerator = Accelerator.load(folder.path)
    chosen = name or f"{accelerator.name}_core"
    if not _NAME.fullmatch(chosen):
        raise InputError(
            f"--name is a Verilog name of letters, digits and _, not beginning with a digit; given '{chosen}'"
        )
    where = out or Path("core")
    check_folder_place(where)
    progress = progress or SilentProgress()
    with progress.stage(f"make {chosen}"):
        files = dict(_files(accelerator, bus, chosen, clock_mhz))
    if accelerator.image is not None:
        files[PROGRAM_FILE] = accelerator.image
    with reported(f"the folder '{where}' cannot be written", "give another one with --out"):
        where.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            write_whole(where / file, content)
    return CoreExport(chosen, bus, tuple(where / file for file in files))


def _files(accelerator: Accelerator, bus: str, name: str, clock_mhz: float) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a core by name."""
    from nnhw.hdl.verilog import to_verilog

    core = _component(bus)(accelerator)
    period = f"{1000 / clock_mhz:.3f}"
    yield f"{name}.v", to_verilog(core, run_yosys, name).encode()
    yield f"{name}_instance.v", _instance(core, name).encode()
    clock = CLOCKS[bus]
    yield f"{name}.xdc", f"create_clock -period {period} -name {clock} [get_ports {clock}]\n".encode()
    yield f"{name}.sdc", f"create_clock -period {period} -name {clock} [get_ports {{{clock}}}]\n".encode()
    yield "README.md", _page(accelerator, core, bus, name).encode()


def _component(bus: str) -> Callable[[Accelerator], Component]:
    from nnhw.hdl.core import AxiStreamCore, WishboneCore

    return {"axi-stream": AxiStreamCore, "wishbone": WishboneCore}[bus]


def _ports(core: Component) -> list[tuple[str, str, int]]:
    """Return name, direction and bits of each port."""
    return [
        (name, "input" if member.flow.name == "In" else "output", member.shape if isinstance(member.shape, int) else 1)
        for name, member in core.signature.members.items()
    ]


def _instance(core: Component, name: str) -> str:
    """Return an instance with a wire at each port."""
    ports = _ports(core)
    lines = [f"// An instance of {name} to copy: each port is at a wire of its name.", f"module {name}_instance;"]
    for port, direction, bits in ports:
        kind = "reg " if direction == "input" else "wire"
        start = " = 0" if direction == "input" else ""
        lines.append(f"  {kind} {f'[{bits - 1}:0] ' if bits > 1 else ''}{port}{start};")
    lines.append(f"  {name} core (")
    lines.append(",\n".join(f"    .{port}({port})" for port, _, _ in ports))
    lines += ["  );", "endmodule", ""]
    return "\n".join(lines)


def _steps(accelerator: Accelerator) -> str:
    """Return the lines of the page about sequences, for a network that keeps a state; empty for any other."""
    form = accelerator.input_format
    if not form.headed:
        return ""
    bits = form.stream.lanes * form.element.bits
    turns = f" The steps of {form.turns} sequences take turns, frame by frame." if form.turns > 1 else ""
    counts = (
        " Of the results of a sequence only that of its last step counts."
        if accelerator.output_format.last_step
        else ""
    )
    both = (
        " The model reads sequences in both directions: `rounds` in accelerator.json says what a frame is made of, and "
        "how often a sequence is sent (docs/sequences.md)."
        if accelerator.rounds
        else ""
    )
    return f"""- A frame is one step of a sequence, and the core keeps the state in between. The first {bits} bits of
  a frame are no element: the lowest of them is 1 in the first step of a sequence, all others are
  0.{turns}{counts}{both}
"""


def _page(accelerator: Accelerator, core: Component, bus: str, name: str) -> str:
    """Return the text of README.md: ports, formats of frames and results, and cycles."""
    i_form, o_form = accelerator.input_format, accelerator.output_format
    interval, latency = accelerator.schedule.interval_cycles, accelerator.schedule.latency_cycles
    rows = "\n".join(f"| `{port}` | {direction} | {bits} |" for port, direction, bits in _ports(core))
    factor = "" if o_form.multiplier == 1 else f", times {o_form.multiplier}"
    program = (
        f"\nA program comes first, behind each reset: the bytes of `{PROGRAM_FILE}`.\n" if accelerator.programs else ""
    )
    return f"""# {name}

The network '{accelerator.name}' as a core on {bus}, made by nnhw. What its ports and registers do stands in the page
"The core in my own design" of nnhw's documentation.

| port | | bits |
|---|---|---|
{rows}

- A frame of the input: {i_form.frame_bytes} bytes, {i_form.elements} elements of {i_form.element} in the order of
  `InputFormat.pack`, shape {list(i_form.shape)}.
- A result: {o_form.frame_bytes} bytes, {o_form.elements} elements of {o_form.element}{factor} in the order of
  `OutputFormat.unpack`, shape {list(o_form.shape)}.
- A frame every {interval:,} cycles, {latency:,} cycles from its first byte to the last one of its result, where nothing
  waits and the bus keeps up.
{_steps(accelerator)}{program}
`accelerator.json` of the build has these formats; `nnhw.accelerator.Accelerator.load(BUILD)` reads them.
"""
