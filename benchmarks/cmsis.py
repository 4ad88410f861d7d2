"""Operators of CMSIS-NN: its own int8 test vectors == IR == golden stages == RTL, in every output.

The files are those of `$NNHW_DATA/cmsis_nn_int8`: one operator each, with double rounding.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from nnhw import ir
from nnhw.accelerator import Accelerator, stream_order
from nnhw.accelerator.execution import execute
from nnhw.boards import load_board
from nnhw.engines.requantize import DoubleScaler, Requantizer
from nnhw.engines.timing import as_number
from nnhw.errors import InputError
from nnhw.families import FAMILIES
from nnhw.flow.tools.progress import make_progress
from nnhw.flow.verification.equality import check_equality
from nnhw.ir import Graph, GraphBuilder, IntType, Location, TensorType
from nnhw.ir.ops import Conv2d, Linear, Pad, Rescale
from nnhw.mapping.assemble import assemble
from nnhw.mapping.budget import Budget
from nnhw.mapping.datapaths import Datapaths
from nnhw.mapping.folding import foldings
from nnhw.mapping.layers import Layer, StepFunction
from nnhw.mapping.loops import step_of
from nnhw.mapping.mapper import map_body
from nnhw.mapping.plans import Planner
from nnhw.mapping.reader import read_layers
from nnhw.mapping.requantize import describe

FOLDER = "cmsis_nn_int8"
PATTERNS = (("none", "none"), ("random", "bursts"))
INTERVALS = (1, 20_000)
"""Cycles a frame that are asked for: the fastest mapping, and one of few products a cycle, which goes to RTL."""
FRAMES = 4
"""The least number of frames in RTL; those beyond a file's own are random."""
BUDGET = Budget(lc=1_000_000, ebr=10_000)
"""A device that everything fits."""
INT8 = IntType(-128, 127)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Vector:
    """One file.

    Parameters
    ----------
    name: of the file.
    kind: 'conv', 'depthwise' or 'linear'.
    config: its parameters, without their prefix.
    arrays: its arrays, int64.
    """

    name: str
    kind: str
    config: Mapping[str, int]
    arrays: Mapping[str, np.ndarray]

    def pair(self, name: str) -> tuple[int, int]:
        """Return a parameter of rows and columns."""
        return self.config[f"{name}_Y"], self.config[f"{name}_X"]

    def sides(self, name: str) -> tuple[int, int]:
        """Return the (rows, columns) of a map."""
        return self.config[f"{name}_H"], self.config[f"{name}_W"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one frame."""
        if self.kind == "linear":
            return (self.config["ACCUMULATION_DEPTH"],)
        return (self.config["IN_CH"], *self.sides("INPUT"))

    @property
    def frames(self) -> np.ndarray:
        """Input codes int64 [N, *shape] with the input offset added, so that a border is 0."""
        codes = self.arrays["input_data"] + self.config["INPUT_OFFSET"]
        if self.kind == "linear":
            return codes.reshape(-1, *self.shape)
        return codes.reshape(-1, *self.shape[1:], self.shape[0]).transpose(0, 3, 1, 2)

    @property
    def outputs(self) -> np.ndarray:
        """Expected codes int64 [N, elements], in stream order, which is that of the file."""
        return self.arrays["output_ref_data"].reshape(len(self.frames), -1)

    @property
    def weights(self) -> np.ndarray:
        """Weights [outputs, inputs], or [outputs, channels / groups, rows, columns]."""
        outputs, data = self.config["OUT_CH"], self.arrays["weights_data"]
        if self.kind == "linear":
            return data.reshape(outputs, -1)
        if self.kind == "depthwise":
            return data.reshape(1, *self.pair("FILTER"), outputs).transpose(3, 0, 1, 2)
        return data.reshape(outputs, *self.pair("FILTER"), -1).transpose(0, 3, 1, 2)

    @property
    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Multipliers and exponents, int64 [outputs]."""
        outputs = self.config["OUT_CH"]
        if "OUTPUT_MULTIPLIER" in self.config:
            return tuple(np.full(outputs, self.config[f"OUTPUT_{name}"]) for name in ("MULTIPLIER", "SHIFT"))  # type: ignore[return-value]
        return self.arrays["output_mult_data"], self.arrays["output_shift_data"]

    @property
    def padding(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(rows, columns) in front and behind: behind, what the windows of the stated output reach."""
        before = self.pair("PAD")
        after = tuple(
            max(0, (count - 1) * stride + (span - 1) * step + 1 - size - pad)
            for count, stride, span, step, size, pad in zip(
                self.sides("OUTPUT"),
                self.pair("STRIDE"),
                self.pair("FILTER"),
                self.pair("DILATION"),
                self.sides("INPUT"),
                before,
                strict=True,
            )
        )
        return before, (after[0], after[1])


def vector_files() -> list[Path]:
    """Return the files, sorted. Raises: InputError where there are none."""
    data = os.environ.get("NNHW_DATA")
    files = sorted(Path(data, FOLDER).glob("*.npz")) if data else []
    if not files:
        raise InputError(
            f"the vectors of CMSIS-NN are needed in $NNHW_DATA/{FOLDER}, given NNHW_DATA={data or 'unset'}; "
            "set NNHW_DATA to the folder of the data sets"
        )
    return files


def load_vector(path: Path) -> Vector:
    """Read a file."""
    with np.load(path, allow_pickle=False) as stored:
        config = json.loads(str(stored["config_json"]))
        arrays = {key: stored[key].astype(np.int64) for key in stored.files if key != "config_json"}
    prefix = next(key for key in config if key.endswith("_OUT_CH")).removesuffix("OUT_CH")
    plain = {key.removeprefix(prefix): int(value) for key, value in config.items()}
    kind = "linear" if "ACCUMULATION_DEPTH" in plain else "depthwise" if "CH_MULT" in plain else "conv"
    return Vector(path.stem, kind, plain, arrays)


def vector_graph(vector: Vector) -> Graph:
    """Return the operator as an integer graph: (border,) sums, rescaling."""
    builder = GraphBuilder(vector.name)
    here = Location(vector.name, f"{vector.name}.npz", 1)
    shift = vector.config["INPUT_OFFSET"]
    value = builder.input("x", TensorType(vector.shape, IntType(INT8.low + shift, INT8.high + shift)))
    weights = _constant(builder, "weight", vector.weights, INT8)
    if vector.kind == "linear":
        value = builder.add("sum", Linear(), [value, weights], here)
    else:
        before, after = vector.padding
        if any(before + after):
            value = builder.add("pad", Pad(before, after), [value], here)
        groups = vector.config["IN_CH"] // vector.weights.shape[1]
        op = Conv2d(stride=vector.pair("STRIDE"), dilation=vector.pair("DILATION"), groups=groups)
        value = builder.add("sum", op, [value, weights], here)
    scales = zip(("multiplier", "exponent", "bias"), (*vector.scales, vector.arrays["biases_data"]), strict=True)
    names = [_constant(builder, name, row, IntType(-(1 << 31), (1 << 31) - 1)) for name, row in scales]
    ends = (vector.config["OUT_ACTIVATION_MIN"], vector.config["OUT_ACTIVATION_MAX"])
    rescale = Rescale(vector.config["OUTPUT_OFFSET"], *ends, "double")
    return builder.build([builder.add("code", rescale, [value, *names], here)])


def _constant(builder: GraphBuilder, name: str, values: np.ndarray, dtype: IntType) -> str:
    return builder.constant(name, np.ascontiguousarray(values), TensorType(values.shape, dtype))


def ir_mismatches(vector: Vector, body: Graph) -> int:
    """Return how many outputs of the interpreter differ from the file's."""
    return _differing(ir.run(body, vector.frames)[0], vector)


def golden_mismatches(vector: Vector, accelerator: Accelerator) -> int:
    """Return how many outputs of the golden stages differ from the file's."""
    left = np.stack([execute(accelerator, frame).output for frame in vector.frames])
    return _differing(accelerator.output_format.unpack_beats(left), vector)


def rtl_row(vector: Vector, body: Graph, accelerator: Accelerator) -> dict[str, Any]:
    """Return what the RTL gives: outputs that differ from the file's, whether all equals the IR, cycles."""
    given = vector.frames
    source = body.inputs[0].type
    rng = np.random.default_rng(1)
    missing = max(0, FRAMES - len(given))
    more = rng.integers(source.int_dtype.low, source.int_dtype.high + 1, (missing, *source.shape))
    codes = np.concatenate([given, more])
    results = check_equality(accelerator, body, codes, PATTERNS)
    outputs = [accelerator.output_format.unpack_beats(result.run.outputs)[: len(given)] for result in results]
    schedule, free = accelerator.schedule, results[0]
    return {
        "datapath": datapath(accelerator),
        "mismatches": max(_differing(output, vector) for output in outputs),
        "equals_ir": all(result.equal for result in results),
        "frames": len(codes) * len(PATTERNS),
        "predicted_cycles": [schedule.latency_cycles, as_number(schedule.interval)],
        "simulated_cycles": [free.run.latency_cycles, free.interval_cycles],
    }


def _differing(codes: np.ndarray, vector: Vector) -> int:
    """Return how many codes [N, *shape] differ from the file's."""
    streamed = stream_order(codes)
    assert streamed.shape == vector.outputs.shape
    return int((streamed != vector.outputs).sum())


class DoubleDatapaths(Datapaths):
    """No datapaths but the one with two roundings."""

    def exact(self, layer: Layer, function: StepFunction) -> list[Requantizer]:
        return [each for each in super().exact(layer, function) if isinstance(each, DoubleScaler)]


def double_accelerator(body: Graph, interval: int, family: str) -> Accelerator:
    """Return the smallest accelerator of one operator at an interval, its sums scaled as CMSIS-NN does it."""
    (layer,) = layers = read_layers(body)
    source = body.inputs[0]
    planner = Planner(layers, (source.name, source.type.int_dtype), FAMILIES[family])
    planner.datapaths = DoubleDatapaths(planner.encodings, FAMILIES[family])
    fitting = [each for each in foldings(layer) if planner.plan(layer, each).cycles <= interval]
    least = min(fitting, key=lambda each: (each.pe * each.simd, each.drain))
    return assemble(layers, [planner.plan(layer, least)], step_of(body), "any")


def check_vector(path: Path, family: str) -> dict[str, Any]:
    """Return the row of one file."""
    vector = load_vector(path)
    body = vector_graph(vector)
    mapped = [map_body(body, "any", BUDGET, family=FAMILIES[family], target_interval=each) for each in INTERVALS]
    accelerators = [*mapped, double_accelerator(body, INTERVALS[-1], family)]
    row: dict[str, Any] = {
        "file": vector.name,
        "op": vector.kind,
        "outputs": vector.outputs.size,
        "ir": ir_mismatches(vector, body),
        "golden": max(golden_mismatches(vector, accelerator) for accelerator in accelerators),
        "rtl": [rtl_row(vector, body, accelerator) for accelerator in accelerators[1:]],
    }
    row["equal"] = not row["ir"] and not row["golden"] and all(_is_equal(each) for each in row["rtl"])
    return row


def _is_equal(rtl: Mapping[str, Any]) -> bool:
    return not rtl["mismatches"] and rtl["equals_ir"] and rtl["predicted_cycles"] == rtl["simulated_cycles"]


def datapath(accelerator: Accelerator) -> str:
    """Return how an accelerator makes codes of sums."""
    found = [stage.config.requantizing for stage in accelerator.stages if stage.node == "code"]
    return describe(next(each for each in found if each is not None))


def run(board: str) -> dict[str, Any]:
    """Check all files, for the family of a board.

    Returns
    -------
    equal: files that are equal everywhere, cycles included. outputs, ir, golden: how many, and how many differ.
    rtl: the same of both accelerators of each file, and how many of them equal the IR. files: one row each.
    """
    files, family = vector_files(), load_board(board).family
    progress, start = make_progress(Console(stderr=True)), time.monotonic()
    rows = []
    with progress.stage(f"{len(files)} files of CMSIS-NN"), get_context("spawn").Pool(os.cpu_count()) as pool:
        for number, row in enumerate(pool.imap(partial(check_vector, family=family), files), 1):
            rows.append(row)
            progress.advance(number, len(files))
    counts = {name: sum(row[name] for row in rows) for name in ("outputs", "ir", "golden")}
    rtl = {
        name: sum(each[name] for row in rows for each in row["rtl"]) for name in ("mismatches", "frames", "equals_ir")
    }
    equal = sum(row["equal"] for row in rows)
    seconds = round(time.monotonic() - start, 1)
    return {"board": board, "family": family, "equal": equal, **counts, "rtl": rtl, "files": rows, "seconds": seconds}


def show(row: Row) -> None:
    """Print a row for people: of each file what differs, and latency and interval of each datapath in RTL."""
    print(f"{row['equal']} of {len(row['files'])} files of CMSIS-NN equal in IR, golden stages and RTL")
    print(f"{'file':28} {'op':9} {'outputs':>7} {'ir':>3} {'golden':>6} {'rtl':>3} {'cycles':>12}  datapath")
    for file in row["files"]:
        start = f"{file['file']:28} {file['op']:9} {file['outputs']:7} {file['ir']:3} {file['golden']:6}"
        for rtl in file["rtl"]:
            cycles = "/".join(map(str, rtl["simulated_cycles"])) + ("" if _is_equal(rtl) else " !")
            print(f"{start:57} {rtl['mismatches']:3} {cycles:>12}  {rtl['datapath']}")
            start = ""
