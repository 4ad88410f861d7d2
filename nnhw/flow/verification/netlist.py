"""The netlist that is placed, run as a virtual board: what synthesis made of the design, entered at its serial pins.

Simulated RTL says nothing about what synthesis makes of it. Here the cells of the netlist are simulated, by yosys's own
models of them, so that a cut clock, a memory with a wrong word or a lost register shows before a board does.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.driver import open as open_link
from nnhw.driver.links.hardware import HardwareLink
from nnhw.errors import BuildError
from nnhw.families import FAMILIES
from nnhw.families.tools import CellModels
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.tools.progress import Progress
from nnhw.flow.tools.toolchain import find_tool, share_folder
from nnhw.flow.verification.boundaries import boundary_values
from nnhw.flow.verification.simulate import sample_codes
from nnhw.flow.virtual.compiled import LIBRARY, Compiler, compile_product, library_cache, taps_header
from nnhw.flow.virtual.virtual_board import CompiledHardware
from nnhw.protocol import BITS_PER_UART_BYTE

_HERE = Path(__file__).parent
_TIMESCALE = "`timescale 1ps / 1ps\n"
IDLE_BITS = 128
"""Bits of the serial line without a byte after which a transfer counts as answered."""
Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Pins:
    """The ports of a netlist that are driven or watched."""

    clock: str
    rx: str
    tx: str


@dataclass(frozen=True)
class NetlistRun:
    """What a netlist did.

    Parameters
    ----------
    samples: frames.
    mismatches: of them, those whose result is not what the IR says.
    bad_frames: of the protocol, that did not arrive once the device had answered.
    cycles: of the whole run, most of which the serial line takes.
    """

    samples: int
    mismatches: int
    bad_frames: int
    cycles: int

    @property
    def equal(self) -> bool:
        """Whether everything arrived, and equal."""
        return not self.mismatches and not self.bad_frames


def run_netlist(folder: Path, board: Board, clock_hz: int, frames: int, progress: Progress) -> NetlistRun:
    """Run frames of a build's own samples through its netlist with the driver; compare them with the IR.

    Parameters
    ----------
    folder: a build folder with a bitstream.
    clock_hz: of the bitstream.

    Raises
    ------
    BuildError: see `compile_netlist`. ToolError: a tool is missing, or failed. LinkError: the netlist does not answer.
    """
    accelerator = Accelerator.load(folder)
    codes = sample_codes(folder, accelerator, frames)
    values = boundary_values(ir.load(folder / "lower.ir"), codes)[accelerator.output_node]
    with open_netlist(folder, board, clock_hz, progress) as device:
        # What a device hears while it starts counts as a frame that did not arrive.
        before = device.status().bad_frames
        results = device.every_result(codes)
        bad_frames = device.status().bad_frames - before
        cycles = device.link.hardware.cycles
    differ = (results != values.reshape(results.shape)).reshape(frames, -1).any(axis=1)
    return NetlistRun(frames, int(differ.sum()), bad_frames, cycles)


def open_netlist(folder: Path, board: Board, clock_hz: int, progress: Progress) -> Any:
    """Return the driver's device, whose link ends at the pins of a build's netlist; see `run_netlist`."""
    baud = board.uart.baud
    progress.note("the netlist is compiled, which takes a minute or more for a full device")
    with tempfile.TemporaryDirectory() as scratch:
        library = compile_netlist(folder, board, clock_hz, library_cache(Path(scratch)))
        hardware = CompiledHardware(library, quiet_cycles=IDLE_BITS * round(clock_hz / baud))
    link = HardwareLink(hardware, clock_hz, "netlist", baud / BITS_PER_UART_BYTE)
    return open_link(folder, link, baud, clock_hz, progress=progress.advance)


def compile_netlist(folder: Path, board: Board, clock_hz: int, cache: Path, compiler: Compiler | None = None) -> Path:
    """Return the library of a build's netlist, behind a serial port, with byte streams `i` and `o`.

    Parameters
    ----------
    folder: has `design.json`.
    clock_hz: that the bitstream was made for: the serial port's speed is divided from it.
    cache: folder; a library that was made before is taken from it.

    Raises
    ------
    BuildError: the netlist has cells that cannot be simulated. ToolError: a tool is missing, or failed.
    """
    netlist = json.loads((folder / NETLIST).read_text(encoding="utf-8"))["modules"]["top"]
    bench = (_HERE / "netlist.v").read_text(encoding="utf-8")
    models = FAMILIES[board.family].models
    divisor = max(1, round(clock_hz / board.uart.baud))
    sources = {
        "top.v": _TIMESCALE + with_divisor(bench, divisor),
        "netlist.v": netlist_verilog(netlist, models, find_pins(netlist["ports"], board)),
        "cells.v": cell_models(models, {cell["type"] for cell in netlist["cells"].values()}),
        "taps.h": taps_header(()),
    }
    product = dataclasses.replace(LIBRARY, flags=tuple(f"-D{name}" for name in models.defines))
    return compile_product(product, sources, cache, compiler)


def with_divisor(bench: str, divisor: int) -> str:
    """Return the Verilog of the bench for so many cycles of a bit."""
    text, count = re.subn(r"(?<=\blocalparam DIVISOR = )\d+", str(divisor), bench)
    assert count == 1, "netlist.v has no DIVISOR"
    return text


def find_pins(ports: Mapping[str, Any], board: Board) -> Pins:
    """Return the names of the ports of the clock and of the serial line, as amaranth-boards' platforms call them.

    Raises
    ------
    BuildError: the netlist has none.
    """

    def one(pattern: str) -> str:
        found = [name for name in ports if re.fullmatch(pattern, name)]
        if len(found) != 1:
            raise BuildError(
                f"the netlist has the ports {', '.join(ports)}, and none of them is the board's '{pattern}'; this is a "
                "mistake of nnhw: please report the board"
            )
        return found[0]

    return Pins(one(rf"{board.input_clock.resource}_\d+__(io|p)"), one(r".*__rx__io"), one(r".*__tx__io"))


def netlist_verilog(netlist: Mapping[str, Any], models: CellModels, pins: Pins) -> str:
    """Return the Verilog of a netlist: module `netlist` with ports `clk`, `rx` and `tx`.

    Its clock is that of the PLL's output. Other pins that lead in are high, as a pull-up leaves them.

    Parameters
    ----------
    netlist: module `top` as yosys's `write_json` writes it.

    Raises
    ------
    BuildError: a cell at a pin does something else than to pass a bit.
    """
    cells = [cell for cell in netlist["cells"].values() if cell["type"] not in ("$scopeinfo", *models.ignored)]
    ports = {name: port["bits"][0] for name, port in netlist["ports"].items()}
    lines = [line for number, cell in enumerate(cells) for line in _cell(cell, number, models)]
    driven = {line.split()[1] for line in lines if line.startswith("assign ")}
    given = {pins.clock: "clk", pins.rx: "rx"}
    lines += [f"assign n{bit} = {given.get(name, '1')};" for name, bit in ports.items() if f"n{bit}" not in driven]
    lines.append(f"assign tx = n{ports[pins.tx]};")
    nets = {bit for cell in cells for bits in cell["connections"].values() for bit in bits if isinstance(bit, int)}
    wires = [f"wire n{net};" for net in sorted(nets | set(ports.values()))]
    return "\n".join([_TIMESCALE + "module netlist(input clk, input rx, output tx);", *wires, *lines, "endmodule", ""])


def cell_models(models: CellModels, used: set[str]) -> str:
    """Return the Verilog of yosys's models of a family's cells; where yosys has none, of our own.

    Parameters
    ----------
    used: types of cells; what else yosys has is left out where it would stand in the way.
    """
    share = share_folder(find_tool("yosys"))
    text = "\n".join(_with_includes(share / name) for name in models.files)
    own = (_HERE / models.own).read_text(encoding="utf-8") if models.own else ""
    for name in {*re.findall(r"^module (\w+)", own, re.MULTILINE), *models.plls}:
        text = re.sub(rf"^module {name}\b.*?^endmodule", "", text, flags=re.MULTILINE | re.DOTALL)
    return text + own


def _with_includes(path: Path) -> str:
    """Return the text of a Verilog file with the files that it includes, where they lie beside it."""

    def included(found: re.Match[str]) -> str:
        return _with_includes(path.with_name(found[1]))

    return re.sub(r'^`include "([\w.]+)"', included, path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _cell(cell: Cell, number: int, models: CellModels) -> Iterator[str]:
    """Yield the lines of a cell."""
    kind, ports = cell["type"], cell["connections"]
    if kind in models.luts:
        output, *inputs = models.luts[kind]
        table = cell["parameters"][models.init]
        index = ", ".join(_bit(ports.get(name, ["0"])[0]) for name in reversed(inputs))
        yield f"assign {_bit(ports[output][0])} = {len(table)}'b{table} >> {{{index}}};"
    elif kind == models.pins[0]:
        yield _pin(cell, models)
    elif kind in models.plls:
        source, outputs = models.plls[kind]
        yield from (f"assign {_bit(ports[name][0])} = {_bit(ports[source][0])};" for name in outputs if name in ports)
        if "LOCK" in ports:
            yield f"assign {_bit(ports['LOCK'][0])} = 1;"
    else:
        values = ", ".join(f".{name}({_parameter(value)})" for name, value in cell["parameters"].items())
        ways = cell.get("port_directions", {})
        wires = ", ".join(
            f".{name}({_bus(bits) if ways.get(name) != 'output' or any(isinstance(bit, int) for bit in bits) else ''})"
            for name, bits in ports.items()
        )
        yield f"{kind} {f'#({values}) ' if values else ''}c{number} ({wires});"


def _pin(cell: Cell, models: CellModels) -> str:
    """Return the line of a cell at a pin, which has no register and no state but in or out."""
    kind, pad, inside, outside = models.pins
    ports = cell["connections"]
    ways = [name for name in (inside, outside) if ports.get(name, ["x"])[0] != "x"]
    if len(ways) != 1:
        raise BuildError(f"a cell {kind} of the netlist is neither an input nor an output, so it cannot be simulated")
    pair = _bit(ports[ways[0]][0]), _bit(ports[pad][0])
    return "assign {} = {};".format(*(pair if ways[0] == inside else reversed(pair)))


def _bit(bit: int | str) -> str:
    """Return a net, or a constant; what is undefined is 0."""
    return f"n{bit}" if isinstance(bit, int) else f"1'b{bit if bit in '01' else '0'}"


def _bus(bits: Sequence[int | str]) -> str:
    return _bit(bits[0] if bits else "x") if len(bits) < 2 else f"{{{', '.join(map(_bit, reversed(bits)))}}}"


def _parameter(value: str) -> str:
    """Return a parameter as yosys writes it: bits; or text, with a blank behind it where it looks like bits."""
    return f"{len(value)}'b{value}" if value and set(value) <= set("01xz") else f'"{value.rstrip()}"'
