"""Exported C of int8 networks beside ONNX Runtime, which runs them as int8 and in float32, in one process.

The networks are the TFLite files of MLPerf Tiny. Each goes through nnhw twice: as it is, and as the ONNX file that ONNX
Runtime gets as well (`benchmarks.onnx_twin`), so that C computes what either importer makes of it. All sides run one
image on one thread, in turns, and count their least time, because other programs may disturb any of them.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.exported_c import FAST, PLAIN, SLICE_S
from benchmarks.networks.data import data_path
from nnhw import ir
from nnhw.errors import NnhwError
from nnhw.export.c import make_c
from nnhw.flow.tools.progress import make_progress
from nnhw.flow.virtual.native import NativeNetwork, compile_c
from nnhw.frontend import load_source
from nnhw.passes import lower, split

Row = dict[str, Any]

NETWORKS = {
    "pretrainedResnet_quant": "ResNet-8, images",
    "kws_ref_model": "DS-CNN, keywords",
    "ad01_int8": "autoencoder, anomalies",
    "str_ww_ref_model": "streaming wakeword",
    "vww_96_int8": "MobileNetV1 0.25, persons",
}
FRAMES, TURNS = 16, 40


def run(board: str | None) -> Row:
    """Compare and measure all networks.

    Returns
    -------
    flags, plain_flags: of the compiler. onnx_runtime: its version. networks: a row each, see `measure`.
    """
    import onnxruntime

    progress = make_progress(Console(stderr=True))
    rows = []
    for name in NETWORKS:
        with progress.stage(name):
            try:
                rows.append(measure(name, data_path("mlperf_tiny", f"{name}.tflite")))
            except NnhwError as error:
                rows.append({"network": name, "refused": str(error)})
    told = {"flags": " ".join(FAST), "plain_flags": " ".join(PLAIN), "onnx_runtime": onnxruntime.__version__}
    return {**told, "networks": rows}


def measure(name: str, file: Path) -> Row:
    """Return the row of a network.

    Returns
    -------
    frames: of random codes. c, c_of_onnx: the C from the TFLite file and from the ONNX file: `differences`, frames of
    which it differs from the interpreter; `us` and `plain_us`, of one image in C for this processor and in C for any;
    `functions`, from sums to codes, with the number of layers that compute them so. onnx_int8_us, onnx_float_us: in
    ONNX Runtime. ratio: onnx_int8_us / us of the C from the ONNX file. other_codes, distance: frames of which ONNX
    Runtime has other codes than the TFLite file, and by how much at most.
    """
    from benchmarks.onnx_twin import OnnxNetwork, channels_in_front, onnx_model
    from nnhw.frontend.tflite.parsing import read_model

    model = read_model(file)
    given = model.tensors[model.input]
    twins = [onnx_model(model, is_int8) for is_int8 in (True, False)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(twins[0].SerializeToString())
        bodies = [lowered(one) for one in (file, path)]
        programs = [make_c(body) for body in bodies]
        networks = [
            [NativeNetwork(program, body, compile_c(program, Path(folder), flags)) for flags in (FAST, PLAIN)]
            for program, body in zip(programs, bodies, strict=True)
        ]
    codes = np.random.default_rng(0).integers(-128, 128, (FRAMES, *given.shape[1:]))
    images = channels_in_front(codes.astype(np.int8))
    distances = images.astype(np.int64) - given.zero_point
    sides = [OnnxNetwork(twin) for twin in twins]
    reals = (distances[:1] * given.scale).astype(np.float32)
    onnx_s, c_s = [float("inf")] * 2, [[float("inf")] * 2, [float("inf")] * 2]
    for _ in range(TURNS):
        for k, image in enumerate((images[:1], reals)):
            onnx_s[k] = min(onnx_s[k], sides[k].seconds(image, SLICE_S))
        for own, pair in zip(c_s, networks, strict=True):
            for k, network in enumerate(pair):
                own[k] = min(own[k], network.seconds(_entry(distances[:1], bodies[0]), SLICE_S))
    rows = {}
    for key, body, program, pair, times in zip(("c", "c_of_onnx"), bodies, programs, networks, c_s, strict=True):
        entry = _entry(distances, body)
        wrong = pair[0](entry) != ir.run_in_chunks(body, entry)[0]
        rows[key] = {
            "differences": int(wrong.reshape(FRAMES, -1).any(axis=1).sum()),
            "us": round(times[0] * 1e6, 2),
            "plain_us": round(times[1] * 1e6, 2),
            "functions": _functions(program.forms),
        }
    zero_point = _last(model).zero_point
    wanted = networks[0][0](_entry(distances, bodies[0])).reshape(FRAMES, -1) + zero_point
    found = np.stack([sides[0](images[k : k + 1]).reshape(-1) for k in range(FRAMES)]).astype(np.int64)
    return {
        "network": name,
        "frames": FRAMES,
        **rows,
        "onnx_int8_us": round(onnx_s[0] * 1e6, 2),
        "onnx_float_us": round(onnx_s[1] * 1e6, 2),
        "ratio": round(onnx_s[0] / c_s[1][0], 2),
        "other_codes": int((found != wanted).any(axis=1).sum()),
        "distance": int(np.abs(found - wanted).max()),
    }


def lowered(file: Path) -> ir.Graph:
    """Return the integer graph of a model file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return split(lower(load_source(str(file)).capture_quantizers().graph)).body


def _entry(distances: np.ndarray, body: ir.Graph) -> np.ndarray:
    """Return what a network reads: the distances of codes from their zero point, in its shape."""
    return distances.reshape(len(distances), *body.inputs[0].type.shape)


def _last(model: Any) -> Any:
    """Return the tensor in front of the softmax, or the last one."""
    made = [model.made(operator) for operator in model.operators if operator.kind != "SOFTMAX"]
    return made[-1]


def _functions(forms: tuple[str, ...]) -> dict[str, int]:
    """Return how the functions from sums to codes are computed, and how many layers do it so."""
    found: dict[str, int] = {}
    for form in forms:
        kind, separator, how = form.rpartition(" by ")
        if separator and kind.rsplit(" ", 1)[-1] in ("threshold", "step_table", "rescale"):
            found[how] = found.get(how, 0) + 1
    return found


def show(row: Mapping[str, Any]) -> None:
    """Print a table."""
    console = Console()
    table = Table(title=f"us per image: exported C, {row['flags']}; ONNX Runtime {row['onnx_runtime']}, one thread")
    for name in ("network", "different", "C", "C of ONNX", "ORT int8", "ORT float", "ORT int8 / C of ONNX"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for one in row["networks"]:
        if "refused" in one:
            table.add_row(one["network"], one["refused"])
            continue
        c, other = one["c"], one["c_of_onnx"]
        numbers = (c["us"], other["us"], one["onnx_int8_us"], one["onnx_float_us"], one["ratio"])
        table.add_row(one["network"], str(c["differences"] + other["differences"]), *map(str, numbers))
    console.print(table)
