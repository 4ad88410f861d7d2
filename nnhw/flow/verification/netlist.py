"""The placed netlist as a virtual board: the driver talks to the pins of its link.

Simulated RTL says nothing about what synthesis makes of it. Here the cells of the netlist are simulated, with yosys's
own models of them. So a cut clock, a wrong word in a memory or a lost register is found without a board.
"""

from __future__ import annotations

import dataclasses
import json
import math
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
from nnhw.families.tools import CellModels, PinCell
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.tools.progress import Progress
from nnhw.flow.tools.toolchain import find_tool, share_folder
from nnhw.flow.verification.comparison import boundary_values
from nnhw.flow.verification.simulate import sample_codes
from nnhw.flow.virtual.compiled import (
    LIBRARY,
    CompiledProduct,
    Compiler,
    compile_product,
    library_cache,
    taps_header,
)
from nnhw.flow.virtual.sensor import HEADERS, PRODUCT
from nnhw.flow.virtual.virtual_board import CompiledHardware
from nnhw.hdl.sensors.pins import RESULT, SENSOR
from nnhw.hdl.sensors.results import LABEL_BITS
from nnhw.links import BoardLink

_HERE = Path(__file__).parent
_TIMESCALE = "`timescale 1ps / 1ps\n"


@dataclass(frozen=True)
class Bench:
    """What stands between the pins of a link and byte streams.

    Parameters
    ----------
    file: of Verilog.
    idle_bits: time without a byte, in bits of the link, after which an answer counts as complete.
    waits: bytes that the device cannot take yet wait in the bench.
    """

    file: str
    idle_bits: int = 128
    waits: bool = False

    @property
    def text(self) -> str:
        """Its Verilog."""
        return (_HERE / self.file).read_text(encoding="utf-8")


BENCHES: Mapping[str, Bench] = {
    "uart": Bench("netlist.v"),
    "spi": Bench("netlist_spi.v"),
    "ftdi": Bench("netlist_ftdi.v"),
    # Between two packets of an answer there may be a full one in the other direction.
    "usb": Bench("netlist_usb.v", idle_bits=2048, waits=True),
}
"""The benches by kind of the link."""
Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Pins:
    """The ports of a netlist that are driven or watched.

    Parameters
    ----------
    clock: port of the oscillator's pin.
    inputs, outputs: ports that are driven, and that are watched, by their names in the bench: {name: port}.
    """

    clock: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class NetlistRun:
    """The result of a netlist's run.

    Parameters
    ----------
    samples: number of frames.
    mismatches: number of frames whose result differs from the IR's.
    bad_frames: number of frames of the protocol that the device refused, after its first answer.
    cycles: clock cycles of the whole run, most of which the link takes.
    """

    samples: int
    mismatches: int
    bad_frames: int
    cycles: int

    @property
    def equal(self) -> bool:
        """Whether all results are the IR's, and no frame of the protocol was lost."""
        return not self.mismatches and not self.bad_frames


def run_netlist(folder: Path, board: Board, clock_hz: int, frames: int, progress: Progress) -> NetlistRun:
    """Run frames of a build's own samples through its netlist with the driver; compare them with the IR.

    Parameters
    ----------
    folder: a build folder with a bitstream.
    clock_hz: clock of the bitstream, in Hz.

    Raises
    ------
    BuildError: see `compile_netlist`. ToolError: a tool is missing, or failed. LinkError: the netlist does not answer.
    """
    accelerator = Accelerator.load(folder)
    codes = sample_codes(folder, accelerator, frames)
    body = ir.load(folder / "lower.ir")
    # Of a sequence, each step's result.
    is_step = accelerator.input_format.headed
    values = boundary_values(body, codes)[accelerator.output_node] if is_step else ir.run(body, codes)[0]
    with open_netlist(folder, board, clock_hz, progress) as device:
        # Levels of the pins while the device starts may count as a bad frame, which is no fault.
        before = device.status().bad_frames
        results = device.every_result(codes)
        bad_frames = device.status().bad_frames - before
        cycles = device.link.hardware.cycles
    differ = (results != values.reshape(results.shape)).reshape(frames, -1).any(axis=1)
    return NetlistRun(frames, int(differ.sum()), bad_frames, cycles)


def open_netlist(folder: Path, board: Board, clock_hz: int, progress: Progress) -> Any:
    """Return a `Device` whose link ends at the pins of a build's netlist; see `run_netlist`."""
    line, bench = board.host_link, _bench_of(board)
    cycles_per_s = line.own_clock_hz or clock_hz
    progress.note("the netlist is compiled, which takes a minute or more for a full device")
    with tempfile.TemporaryDirectory() as scratch:
        library = compile_netlist(folder, board, clock_hz, library_cache(Path(scratch)))
        # Loaded inside of the block: without a cache the library lies in the scratch folder.
        quiet_cycles = bench.idle_bits * cycles_per_s // line.rates(clock_hz)[0]
        hardware = CompiledHardware(library, quiet_cycles=quiet_cycles)
    link = HardwareLink(hardware, cycles_per_s, "netlist", _bytes_per_s(line, clock_hz), flow_controlled=bench.waits)
    return open_link(folder, link, clock_hz=clock_hz, progress=progress.advance)


def _bytes_per_s(line: BoardLink, clock_hz: int) -> float:
    """Return how many bytes per second a bench takes: its bits have whole cycles, so it may be slower than the line."""
    cycles = (line.own_clock_hz or clock_hz) / line.rates(clock_hz)[0]
    return line.bytes_per_s(clock_hz) * min(1, cycles / math.floor(cycles + 0.5))


def compile_netlist(folder: Path, board: Board, clock_hz: int, cache: Path, compiler: Compiler | None = None) -> Path:
    """Return the shared library of a build's netlist, with byte streams `i` and `o` in front of the pins of its link.

    Parameters
    ----------
    folder: has `design.json`.
    clock_hz: clock that the bitstream was made for, in Hz; the link has its fastest rate at this clock.
    cache: folder; a library that was made before is taken from it.

    Raises
    ------
    BuildError: the netlist has cells that cannot be simulated, or a link without a bench.
    ToolError: a tool is missing, or failed.
    """
    line = board.host_link
    bench = with_rate(_bench_of(board).text, line.own_clock_hz or clock_hz, line.rates(clock_hz)[0])
    return _compile(LIBRARY, folder, board, {"top.v": _TIMESCALE + bench, "taps.h": taps_header(())}, cache, compiler)


def compile_sensor_netlist(folder: Path, board: Board, cache: Path, compiler: Compiler | None = None) -> Path:
    """Return the shared library of the netlist of a build for a sensor, for `nnhw.flow.virtual.sensor.play`.

    What is inside of the device, the codes of the front end, cannot be seen at its pins.

    Raises
    ------
    BuildError, ToolError: see `compile_netlist`.
    """
    assert board.sensor is not None
    sources = {"top.v": _TIMESCALE + sensor_bench(board), "sensor.h": HEADERS.get(board.sensor.kind, "")}
    return _compile(PRODUCT, folder, board, sources, cache, compiler)


def _compile(
    product: CompiledProduct,
    folder: Path,
    board: Board,
    sources: Mapping[str, str],
    cache: Path,
    compiler: Compiler | None,
) -> Path:
    """Return the library of a build's netlist, with the sources of what stands around it."""
    netlist = json.loads((folder / NETLIST).read_text(encoding="utf-8"))["modules"]["top"]
    models = FAMILIES[board.family].models
    cells = {
        "netlist.v": netlist_verilog(netlist, models, find_pins(netlist["ports"], board)),
        "cells.v": cell_models(models, {cell["type"] for cell in netlist["cells"].values()}),
    }
    product = dataclasses.replace(product, flags=tuple(f"-D{name}" for name in models.defines))
    return compile_product(product, {**sources, **cells}, cache, compiler)


def _bench_of(board: Board) -> Bench:
    """Return the bench of a board's link. Raises BuildError: see `compile_netlist`."""
    if board.link not in BENCHES:
        raise BuildError(
            f"the netlist of a build for link '{board.link}' cannot be simulated, only those for {', '.join(BENCHES)}; "
            "leave out --netlist-frames, or build it for one of these with --link"
        )
    return BENCHES[board.link]


def sensor_bench(board: Board) -> str:
    """Return the Verilog between a netlist and the ports of a `SensorDevice`; bits that no pin shows are 0."""
    assert board.sensor is not None
    shown = {} if board.result is None else board.result.outputs
    labels = [name for name in shown if name != "changes"]
    ends = {"clk": "clk", "tx": "tx"}
    ends |= {f"sensor_{name}": f"pins_i[{number}]" for number, name in enumerate(board.sensor.inputs)}
    ends |= {f"sensor_{name}": f"pins_o[{number}]" for number, name in enumerate(board.sensor.outputs)}
    ends |= {f"result_{name}": f"label[{number}]" for number, name in enumerate(labels)}
    ends |= {"result_changes": "changes"} if "changes" in shown else {}
    rest = [f"assign label[{number}] = 0;" for number in range(len(labels), LABEL_BITS)]
    rest += [f"assign {name} = 0;" for name in ("written", "code", *(() if "changes" in shown else ("changes",)))]
    outputs = len(board.sensor.outputs)
    ports = [
        "input clk, rst",
        f"input [{len(board.sensor.inputs) - 1}:0] pins_i",
        *([f"output [{outputs - 1}:0] pins_o"] if outputs else []),
        "output tx, changes, written",
        f"output [{LABEL_BITS - 1}:0] label, code",
    ]
    instance = f"netlist netlist({', '.join(f'.{name}({wire})' for name, wire in ends.items())});"
    return "\n".join([f"module top({', '.join(ports)});", instance, *rest, "endmodule", ""])


def with_rate(bench: str, clock_hz: int, rate: int) -> str:
    """Return the Verilog of a bench for another clock, and another rate of the link in bits per second."""
    settings = f"localparam CLOCK_HZ = {clock_hz}, RATE = {rate};"
    text, count = re.subn(r"\blocalparam CLOCK_HZ = \d+, RATE = \d+;", settings, bench)
    assert count == 1, "the bench has no CLOCK_HZ and RATE"
    return text


def find_pins(ports: Mapping[str, Any], board: Board) -> Pins:
    """Return the ports of the clock, and of the link or sensor; their names are those of Amaranth's platforms.

    In the bench those of a link have the names of the device's ports.

    Raises
    ------
    BuildError: the netlist has no such port, or several.
    """

    def one(pattern: str) -> str:
        found = [name for name in ports if re.fullmatch(pattern, name)]
        if len(found) != 1:
            raise BuildError(
                f"the netlist has the ports {', '.join(ports)}, and none of them is the board's '{pattern}'; this is a "
                "mistake of nnhw: please report the board"
            )
        return found[0]

    def at(resource: str, names: Mapping[str, str]) -> dict[str, str]:
        return {name: one(rf"{resource}_\d+__{pin}__io") for name, pin in names.items()}

    clock = one(rf"{board.input_clock.resource}_\d+__(io|p)")
    if board.sensor is not None:
        assert board.uart is not None, "a board with a sensor has a serial port"
        shown = {} if board.result is None else board.result.outputs
        outputs = at(SENSOR, {f"sensor_{name}": name for name in board.sensor.outputs})
        outputs |= at(RESULT, {f"result_{name}": name for name in shown})
        inputs = at(SENSOR, {f"sensor_{name}": name for name in board.sensor.inputs})
        return Pins(clock, inputs, outputs | at(board.uart.resource_name, {"tx": "tx"}))
    link = board.host_link
    driven = {port.gateware: port.name for port in link.ports if "i" in port.direction}
    watched = {port.gateware_out: port.name for port in link.ports if "o" in port.direction}
    return Pins(clock, at(link.resource_name, driven), at(link.resource_name, watched))


def netlist_verilog(netlist: Mapping[str, Any], models: CellModels, pins: Pins) -> str:
    """Return the Verilog of a netlist: module `netlist` with ports `clk` and those of its link.

    Its clock `clk` is that behind the PLL, which is not simulated. A pin that nobody drives is high, as with a pull-up.

    Parameters
    ----------
    netlist: module `top` as yosys's `write_json` writes it.

    Raises
    ------
    BuildError: a cell at a pin passes no bit in or out.
    """
    cells = [cell for cell in netlist["cells"].values() if cell["type"] not in ("$scopeinfo", *models.ignored)]
    ports = {name: port["bits"][0] for name, port in netlist["ports"].items()}
    names = {pins.clock: "clk", **{port: name for name, port in pins.inputs.items()}}
    given = {bit: names.get(port, "1'b1") for port, bit in ports.items()}
    lines = [line for number, cell in enumerate(cells) for line in _cell(cell, number, models, given)]
    driven = {line.split()[1] for line in lines if line.startswith("assign ")}
    lines += [f"assign n{bit} = {level};" for bit, level in given.items() if f"n{bit}" not in driven]
    lines += [f"assign {name} = n{ports[port]};" for name, port in pins.outputs.items()]
    nets = {bit for cell in cells for bits in cell["connections"].values() for bit in bits if isinstance(bit, int)}
    wires = [f"wire n{net};" for net in sorted(nets | set(ports.values()))]
    heads = [f"input {name}" for name in ("clk", *pins.inputs)] + [f"output {name}" for name in pins.outputs]
    return "\n".join([_TIMESCALE + f"module netlist({', '.join(heads)});", *wires, *lines, "endmodule", ""])


def cell_models(models: CellModels, used: set[str]) -> str:
    """Return the Verilog models of a family's cells: yosys's, except for those that nnhw has models of its own for.

    Parameters
    ----------
    used: types of the cells in the netlist.
    """
    share = share_folder(find_tool("yosys"))
    text = "\n".join(_with_includes(share / name) for name in models.files)
    own = (_HERE / models.own).read_text(encoding="utf-8") if models.own else ""
    # Two modules of one name would not compile; PLLs become assignments (`_cell`), so they need no model.
    for name in {*re.findall(r"^module (\w+)", own, re.MULTILINE), *models.plls}:
        text = re.sub(rf"^module {name}\b.*?^endmodule", "", text, flags=re.MULTILINE | re.DOTALL)
    return text + own


def _with_includes(path: Path) -> str:
    """Return the text of a Verilog file, with the files that it includes from its own folder in place."""

    def included(found: re.Match[str]) -> str:
        return _with_includes(path.with_name(found[1]))

    return re.sub(r'^`include "([\w.]+)"', included, path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _cell(cell: Cell, number: int, models: CellModels, given: Mapping[int, str]) -> Iterator[str]:
    """Yield the lines of Verilog for a cell; LUTs, pins and PLLs become assignments.

    Parameters
    ----------
    given: levels of pins that the device does not drive, by their nets.
    """
    kind, ports = cell["type"], cell["connections"]
    if kind in models.luts:
        output, *inputs = models.luts[kind]
        table = cell["parameters"][models.init]
        # Verilog concatenates from the highest bit on; an input that is not connected is 0.
        index = ", ".join(_bit(ports.get(name, ["0"])[0]) for name in reversed(inputs))
        yield f"assign {_bit(ports[output][0])} = {len(table)}'b{table} >> {{{index}}};"
    elif kind == models.pin.kind:
        yield from _pin(cell, models.pin, given)
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


def _pin(cell: Cell, pin: PinCell, given: Mapping[int, str]) -> Iterator[str]:
    """Yield the lines for a cell at a pin, which passes one bit in, one out, or both; see `_cell`."""
    nets = {name: bits[0] for name, bits in cell["connections"].items() if bits[0] != "x"}
    if pin.inside not in nets and pin.outside not in nets:
        raise BuildError(
            f"a cell {pin.kind} of the netlist is neither an input nor an output, so it cannot be simulated"
        )
    pad = nets[pin.pad]
    if pin.outside in nets:
        level, enable = _bit(nets[pin.outside]), nets.get(pin.enable, str(pin.enabled))
        if enable != str(pin.enabled):
            level = f"{_bit(enable)} == {pin.enabled} ? {level} : {given[pad]}"
        yield f"assign {_bit(pad)} = {level};"
    if pin.inside in nets:
        yield f"assign {_bit(nets[pin.inside])} = {_bit(pad)};"


def _bit(bit: int | str) -> str:
    """Return the Verilog of a net or a constant; undefined constants are 0."""
    return f"n{bit}" if isinstance(bit, int) else f"1'b{bit if bit in '01' else '0'}"


def _bus(bits: Sequence[int | str]) -> str:
    return _bit(bits[0] if bits else "x") if len(bits) < 2 else f"{{{', '.join(map(_bit, reversed(bits)))}}}"


def _parameter(value: str) -> str:
    """Return the Verilog of a parameter: bits, or text, behind which yosys puts a blank if it looks like bits."""
    return f"{len(value)}'b{value}" if value and set(value) <= set("01xz") else f'"{value.rstrip()}"'
