"""Logic cells per product, for each pair of number formats on each family: synthesis of cells and whole arrays."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from amaranth.back import rtlil
from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out
from rich.console import Console

from nnhw.boards import load_board
from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.requantize import Thresholds
from nnhw.families import FAMILIES
from nnhw.flow.implementation.rewriting import rewrite
from nnhw.flow.implementation.synthesis import INDEXED_NAMES
from nnhw.flow.tools.processes import run as run_process
from nnhw.flow.tools.progress import Progress, make_progress
from nnhw.flow.tools.toolchain import find_tool, prepare, run_yosys
from nnhw.hdl.arithmetic import dot_product, dsp_dot_product
from nnhw.hdl.cells import cells_of
from nnhw.hdl.matmul import MatmulEngine
from nnhw.ir.types import BIPOLAR, BIT, IntType

_Result = TypeVar("_Result")

PE, SIMD, FOLDS, STEPS = 8, 16, 2, 16
DEVICES = {
    "ice40": ("iCE40UP5K", "synth_ice40 -top top -device u -abc9"),
    "ecp5": ("LFE5U-25F", "synth_ecp5 -top top"),
}
BOARDS = {"ice40": "icebreaker", "ecp5": "ulx3s_25f"}
"""Boards with these devices."""

PACKED = ("W1A1", "W1A8", "W4A4")
"""Formats whose whole arrays nextpnr packs too, to see what the count of a netlist leaves out."""

SIZES = ((8, 16, 4), (8, 32, 4), (16, 32, 4), (16, 64, 4), (16, 64, 16), (8, 128, 8), (16, 128, 16))
"""Binary arrays whose logic cells are sorted by what they are for: cells, lanes, cells that share an activation."""

PARTS = (
    ("activations", re.compile(r"\blanes_\w+")),
    ("accumulators", re.compile(r"\barray\.sum_\d+")),
    ("drain", re.compile(r"\bdrain_\d+")),
    ("lanes", re.compile(r"\bcell_\d+\.")),
    ("thresholds", re.compile(r"\bthresholds\b|\bbuffer\b")),
)
"""What the registers of a whole array are for, by their names, the first that fits; what fits nowhere is control."""


@dataclass(frozen=True)
class Synthesized:
    """Stands for an Amaranth platform where only synthesis follows: components ask it for the device."""

    device: str


@dataclass(frozen=True)
class Format:
    """A pair of number formats.

    Parameters
    ----------
    aims: LUT4 per product with its accumulator on iCE40 and ECP5, known from other designs; None: not known.
    """

    activation: IntType
    weight: IntType
    aims: tuple[float | None, float | None] = (None, None)


def _signed(bits: int) -> IntType:
    return IntType(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _unsigned(bits: int) -> IntType:
    return IntType(0, (1 << bits) - 1)


FORMATS: dict[str, Format] = {
    "W1A1": Format(BIPOLAR, BIPOLAR, (3.3, 3.3)),
    "W1A2": Format(_unsigned(2), BIPOLAR, (6, 6)),
    "W1A4": Format(_unsigned(4), BIPOLAR, (10, 10)),
    "W1A8": Format(_unsigned(8), BIPOLAR, (18, 18)),
    "ternary A2": Format(_unsigned(2), IntType(-1, 1)),
    "ternary A8": Format(_unsigned(8), IntType(-1, 1)),
    "W2A2": Format(_signed(2), _signed(2), (18, 28)),
    "W3A3": Format(_unsigned(3), _signed(3)),
    "W4A4": Format(_signed(4), _signed(4), (53, 73)),
    "W4A8": Format(_signed(8), _signed(4), (96, 120)),
    "W6A6": Format(_unsigned(6), _signed(6)),
    "W8A1": Format(BIPOLAR, _signed(8)),
    "W8A4": Format(_unsigned(4), _signed(8)),
    "W8A8": Format(_signed(8), _signed(8), (200, 232)),
}
for _weight in range(1, 9):
    for _activation in range(1, 9):
        # Those of networks behind a ReLU, where no other design has a figure.
        _found = Format(
            BIPOLAR if _activation == 1 else _unsigned(_activation), BIPOLAR if _weight == 1 else _signed(_weight)
        )
        FORMATS.setdefault(f"W{_weight}A{_activation}", _found)


class Cell(wiring.Component):
    """One cell with its accumulator and nothing around it.

    Members
    -------
    ce, first: in. i_a, i_w: in, factors [SIMD]. o: out, the sum.
    """

    def __init__(self, arithmetic: LaneArithmetic, dsp: bool = False) -> None:
        self.arithmetic = arithmetic
        self.dsp = dsp
        bits = arithmetic.activation.bits + arithmetic.weight.bits + (SIMD * STEPS - 1).bit_length()
        super().__init__(
            {
                "ce": In(1),
                "first": In(1),
                "i_a": In(ArrayLayout(arithmetic.activation.bits, SIMD)),
                "i_w": In(ArrayLayout(arithmetic.weight.bits, SIMD)),
                "o": Out(signed(bits)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, w = [self.i_a[lane] for lane in range(SIMD)], [self.i_w[lane] for lane in range(SIMD)]
        if self.dsp:
            total = dsp_dot_product(m, self.arithmetic, a, w, self.ce)
        else:
            total = dot_product(m, self.arithmetic, a, w, self.ce, cells_of(platform))
        held = Signal(self.o.shape(), reset_less=True)
        with m.If(self.ce):
            m.d.sync += held.eq(Mux(self.first, total, held + total))
        m.d.comb += self.o.eq(held)
        return m


def engine(form: Format, dsp_pe: int = 0) -> MatmulConfig:
    """Return an array of PE cells with seeded weights."""
    rng = np.random.default_rng(1)
    shape = (PE * FOLDS, SIMD * STEPS)
    weights = rng.integers(form.weight.low, form.weight.high + 1, shape)
    if form.weight.bipolar:
        weights = 2 * rng.integers(0, 2, shape) - 1
    return MatmulConfig(PE, SIMD, 4, 1, weights, form.activation, form.weight, None, vectors=1, dsp_pe=dsp_pe)


def synthesize(component: wiring.Component, family: str, folder: Path) -> Counter[str]:
    """Return the cells of a component by kind; `lc` is how many logic cells they take.

    On iCE40 a register shares its cell with the LUT4 that drives it alone, a carry with the LUT4 beside it. On ECP5 a
    LUT4 and half a CCU2C are one each, and registers are in the same slices; chains are the shortest there are.
    """
    (device, command), board = DEVICES[family], load_board(BOARDS[family])
    text = rtlil.convert(component, name="top", platform=Synthesized(device), emit_src=False)
    (folder / "design.il").write_text(text, encoding="utf-8")
    steps = [f"{command} -run begin:map_ram", f"rename -hide {INDEXED_NAMES}", f"{command} -run map_ram:map_ffs"]
    steps += [*FAMILIES[family].tools.flip_flops(board.device), f"{command} -run map_ffs:"]
    run_yosys(["read_rtlil design.il", *steps, "write_json design.json"], folder)
    rewrite(folder / "design.json", board)
    module = json.loads((folder / "design.json").read_text(encoding="utf-8"))["modules"]["top"]
    cells = Counter(cell["type"] for cell in module["cells"].values())
    cells["lc"] = _ice40_cells(module) if family == "ice40" else ecp5_cells(module)
    return cells


def ecp5_cells(module: Mapping[str, Any]) -> int:
    """Return LUT4, and two for each CCU2C and six for each memory of 16 x 4 bits; see `synthesize`."""
    kinds = Counter(cell["type"] for cell in module["cells"].values())
    return kinds["LUT4"] + 2 * kinds["CCU2C"] + 6 * kinds["TRELLIS_DPR16X4"]


def _ice40_cells(module: Mapping[str, Any]) -> int:
    """Return LUT4 and those registers that do not share a cell with one."""
    return sum(cell["type"] == "SB_LUT4" for cell in module["cells"].values()) + len(_lone(module))


def _lone(module: Mapping[str, Any]) -> list[str]:
    """Return the names of iCE40's registers that no LUT4 drives alone."""
    uses: Counter[Any] = Counter()
    drivers: dict[Any, str] = {}
    for cell in module["cells"].values():
        for name, bits in cell["connections"].items():
            for bit in bits:
                if cell["port_directions"][name] == "input":
                    uses[bit] += 1
                elif cell["type"] == "SB_LUT4":
                    drivers[bit] = name
    for port in module["ports"].values():
        uses.update(port["bits"] if port["direction"] == "output" else [])
    return [
        name
        for name, cell in module["cells"].items()
        if cell["type"].startswith("SB_DFF")
        and not (cell["connections"]["D"][0] in drivers and uses[cell["connections"]["D"][0]] == 1)
    ]


def parts(folder: Path) -> dict[str, int]:
    """Return the logic cells of an iCE40 netlist by what they are for; LUTs without a register count as `logic`."""
    module = json.loads((folder / "design.json").read_text(encoding="utf-8"))["modules"]["top"]
    names: dict[Any, list[str]] = {}
    for name, net in module["netnames"].items():
        for bit in net["bits"]:
            names.setdefault(bit, []).append(name)
    registers = [cell for cell in module["cells"].values() if cell["type"].startswith("SB_DFF")]
    found = Counter(_part(names[cell["connections"]["Q"][0]]) for cell in registers)
    luts = sum(cell["type"] == "SB_LUT4" for cell in module["cells"].values())
    found["logic"] = luts - (len(registers) - len(_lone(module)))
    return dict(found)


def _part(names: list[str]) -> str:
    return next((part for part, pattern in PARTS if any(map(pattern.search, names))), "control")


def packed(component: wiring.Component, folder: Path) -> int:
    """Return the logic cells that nextpnr packs an iCE40 design into; nothing is placed."""
    synthesize(component, "ice40", folder)
    return pack(folder)


def pack(folder: Path) -> int:
    """Return the logic cells that nextpnr packs the netlist in a folder into."""
    tool = find_tool("nextpnr-ice40")
    prepare(tool)
    arguments = ["--up5k", "--package", "sg48", "--json", "design.json", "--pack-only", "--report", "pack.json"]
    run_process(tool.command(arguments, folder, "nextpnr.log"))
    return int(json.loads((folder / "pack.json").read_text(encoding="utf-8"))["utilization"]["ICESTORM_LC"]["used"])


def binary_array(pe: int, simd: int, hop: int) -> MatmulConfig:
    """Return a binary array with thresholds and seeded weights in block RAM, two sums leaving a cycle."""
    rng = np.random.default_rng(1)
    weights = 2 * rng.integers(0, 2, (pe * FOLDS, simd * STEPS)) - 1
    steps = rng.integers(-SIMD, SIMD, (pe * FOLDS, 1))
    thresholds = Thresholds(steps, np.zeros(pe * FOLDS, dtype=bool), BIPOLAR)
    return MatmulConfig(pe, simd, hop, 2, weights, BIPOLAR, BIPOLAR, thresholds, vectors=1)


def measure(of: tuple[str, str]) -> dict[str, Any]:
    """Return the row of a format, by name, on a family; see `run`."""
    name, family = of
    form = FORMATS[name]
    arithmetic = LaneArithmetic(form.activation, form.weight)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        row = {
            "format": name,
            "family": family,
            "kind": arithmetic.kind,
            "aim": form.aims[list(FAMILIES).index(family)],
            "cell": round(synthesize(Cell(arithmetic), family, folder)["lc"] / SIMD, 2),
            "array": round(synthesize(MatmulEngine(engine(form)), family, folder)["lc"] / (PE * SIMD), 2),
        }
        if family == "ice40" and name in PACKED:
            row["packed"] = round(pack(folder) / (PE * SIMD), 2)
        return row


def serial(of: tuple[IntType, str]) -> float:
    """Return logic cells per product of a cell of one-bit activations, for weights of a type on a family."""
    weight, family = of
    with tempfile.TemporaryDirectory() as scratch:
        return synthesize(Cell(LaneArithmetic(BIT, weight)), family, Path(scratch))["lc"] / SIMD


def measure_size(size: tuple[int, int, int]) -> dict[str, Any]:
    """Return a binary array's logic cells per product on iCE40 as nextpnr packs them, and by part."""
    pe, simd, hop = size
    products = pe * simd
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        used = packed(MatmulEngine(binary_array(pe, simd, hop)), folder)
        per_product = {part: round(number / products, 2) for part, number in sorted(parts(folder).items())}
    return {"pe": pe, "simd": simd, "hop": hop, "packed": round(used / products, 2), "parts": per_product}


def run(board: str) -> dict[str, Any]:
    """Synthesize every pair of formats on every family; the board plays no part.

    Returns
    -------
    lanes: a row for each format and family. `cell`: logic cells per product of one cell with its accumulator; `array`:
    those of a whole engine of PE x SIMD products; `packed`: the same, counted by nextpnr, for a few rows of iCE40;
    `serial`: what a cell would take at least that takes activations bit by bit, for as many products a cycle: as many
    cells of one-bit activations as an activation has bits, without the shifts that join the bits and the larger drain;
    `aim`: what other designs are known to need.
    sizes: see `measure_size`.
    """
    pairs = list(product(FORMATS, FAMILIES))
    one_bit = list(dict.fromkeys((FORMATS[name].weight, family) for name, family in pairs))
    progress = make_progress(Console(stderr=True))
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        binary = _all(pool, progress, "binary arrays", measure_size, SIZES)
        cells = dict(zip(one_bit, _all(pool, progress, "cells of one-bit activations", serial, one_bit), strict=True))
        rows = _all(pool, progress, "number formats", measure, pairs)
    for row in rows:
        form = FORMATS[row["format"]]
        bits = form.activation.bits
        row["serial"] = None if bits == 1 else round(bits * cells[form.weight, row["family"]], 2)
    return {"board": board, "products": PE * SIMD, "lanes": rows, "sizes": binary}


def _all(
    pool: Pool, progress: Progress, name: str, measured: Callable[[Any], _Result], over: Sequence[Any]
) -> list[_Result]:
    """Return what a function finds for each, in order, and say how far it is."""
    found = []
    with progress.stage(name):
        for result in pool.imap(measured, over):
            found.append(result)
            progress.advance(len(found), len(over))
    return found


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    columns = ("cell", "serial", "array", "packed", "aim")
    print(f"{'logic cells per product':24} {'family':8} {'kind':8}" + "".join(f"{name:>8}" for name in columns))
    for lane in row["lanes"]:
        figures = ("" if lane.get(name) is None else f"{lane[name]:.2f}" for name in columns)
        line = f"{lane['format']:24} {lane['family']:8} {lane['kind']:8}" + "".join(f"{text:>8}" for text in figures)
        print(line.rstrip())
    for size in row.get("sizes", ()):
        found = ", ".join(f"{part} {number:.2f}" for part, number in size["parts"].items())
        shape = f"{size['pe']} x {size['simd']}, {size['hop']} cells a hop"
        print(f"W1A1 {shape} on ice40, with thresholds: packed {size['packed']:.2f} ({found})")
