"""Exported C: the same integers as nnhw's interpreter on every image, what it takes on a Cortex-M4, and how fast it is.

PyTorch runs the quantized model eagerly, as its user has it, on one thread and one image. Both sides run in turns, and
count their least time, because other programs may disturb either. The C is compiled with -O3 -march=native, for the
processor at hand, and once more with -O3 alone, for any of its kind.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.mnist import EXAMPLES
from benchmarks.networks import NETWORKS
from benchmarks.random_networks import drawn_network, extreme_codes, extreme_images
from nnhw import ir
from nnhw.errors import NnhwError
from nnhw.export.c import make_c
from nnhw.flow.tools.progress import make_progress
from nnhw.flow.virtual.native import NativeNetwork, compile_c, measure_cortex_m4
from nnhw.frontend import load_source
from nnhw.frontend.capture import capture_quantizers
from nnhw.passes import Parts, lower, split

Row = dict[str, Any]

FRAMES, RANDOM = 64, 200
REPEATS = 30
TURN, SLICE_S = 5, 0.005
"""Images of a turn of PyTorch, the first of which finds its caches taken; and how long a turn of C takes."""
FAST = ("-O3", "-march=native")
PLAIN = ("-O3",)
QUICK = ("-O1",)


def run(board: str | None) -> Row:
    """Compare and measure both examples, the networks of the zoo, and random networks.

    Returns
    -------
    flags, plain_flags: of the compiler. networks: a row each, see `measure`. random: networks, frames, differences, and
    messages of those that nnhw or the export refuses.
    """
    progress = make_progress(Console(stderr=True))
    rows = []
    for name, load in {**_examples(), **{name: network.load for name, network in NETWORKS.items()}}.items():
        with progress.stage(name):
            try:
                rows.append(measure(name, *load(), mnist_images() if name.startswith("mnist") else None))
            except (NnhwError, FileNotFoundError, ModuleNotFoundError) as error:
                rows.append({"network": name, "refused": str(error)})
    with progress.stage(f"{RANDOM} random networks"):
        found = survey(range(RANDOM))
    return {"flags": " ".join(FAST), "plain_flags": " ".join(PLAIN), "networks": rows, "random": found}


def _examples() -> dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]]:
    def load(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
        source = load_source(EXAMPLES / f"{name}.py")
        assert isinstance(source.model, torch.nn.Module)
        return source.model.eval(), source.example_input

    return {"mnist_mlp": lambda: load("mnist_mlp"), "mnist_cnn": lambda: load("mnist_cnn")}


def mnist_images() -> np.ndarray:
    """Return all 10,000 test images."""
    from examples.mnist_data import load_mnist

    return load_mnist("test")[0]


def measure(name: str, model: torch.nn.Module, example: torch.Tensor, images: np.ndarray | None = None) -> Row:
    """Return the row of a network.

    Parameters
    ----------
    images: that are compared; `FRAMES` of the model's range and beyond otherwise.

    Returns
    -------
    frames, differences: images compared, and those whose codes differ from the interpreter's. cortex_m4: bytes of code,
    constants, scratch and stack of the form for microcontrollers. c_us, plain_us, torch_us: of one image, in C for this
    processor, in C for any, and in PyTorch; ratio, plain_ratio: how many times faster the C is.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = split(lower(capture_quantizers(model, example).graph))
    if images is None:
        images = _images(example.detach().numpy())
    codes = ir.run_in_chunks(parts.head, images)[0]
    network = _compiled(parts, FAST)
    size = measure_cortex_m4(make_c(parts.body, parts.head, parts.tail, small=True))
    image = torch.from_numpy(images[:1].astype(np.float32))
    torch_s, (c_s, plain_s) = _seconds(model, image, [network, _compiled(parts, PLAIN)], codes[:1])
    return {
        "network": name,
        "frames": len(images),
        "differences": _differing(network, parts, codes),
        "cortex_m4": asdict(size) if size else None,
        "c_us": round(c_s * 1e6, 2),
        "torch_us": round(torch_s * 1e6, 1),
        "ratio": round(torch_s / c_s, 1),
        "plain_us": round(plain_s * 1e6, 2),
        "plain_ratio": round(torch_s / plain_s, 1),
    }


def _images(example: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = float(example.min()), float(example.max())
    rest = rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low), (FRAMES, *example.shape[1:]))
    return np.concatenate([example, rest])[:FRAMES].astype(np.float32)


def _compiled(parts: Parts, flags: tuple[str, ...]) -> NativeNetwork:
    program = make_c(parts.body)
    with tempfile.TemporaryDirectory() as folder:
        return NativeNetwork(program, parts.body, compile_c(program, Path(folder), flags))


def _differing(network: NativeNetwork, parts: Parts, codes: np.ndarray) -> int:
    wrong = network(codes) != ir.run_in_chunks(parts.body, codes)[0]
    return int(wrong.reshape(len(codes), -1).any(axis=1).sum())


def _seconds(
    model: torch.nn.Module, image: torch.Tensor, networks: Sequence[NativeNetwork], codes: np.ndarray
) -> tuple[float, list[float]]:
    """Return the least times of one image in PyTorch and in each network, which run in turns."""
    torch.set_num_threads(1)
    torch_s, least = float("inf"), [float("inf")] * len(networks)
    with torch.no_grad():
        for _ in range(REPEATS):
            for _ in range(TURN):
                start = time.perf_counter()
                model(image)
                torch_s = min(torch_s, time.perf_counter() - start)
            least = [min(time_s, one.seconds(codes, SLICE_S)) for time_s, one in zip(least, networks, strict=True)]
    return torch_s, least


def random_parts(seeds: range) -> Iterator[tuple[int, Parts, np.ndarray] | str]:
    """Yield seed, parts and images of random networks, or nnhw's message where it refuses one."""
    for seed in seeds:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, example = drawn_network(seed)
                parts = split(lower(capture_quantizers(model, example).graph))
        except NnhwError as error:
            yield str(error)
            continue
        rng = np.random.default_rng(seed)
        yield seed, parts, extreme_codes(parts.body, rng) if seed % 2 else _codes(parts, example.numpy(), rng)


def _codes(parts: Parts, example: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return ir.run_in_chunks(parts.head, extreme_images(example, rng))[0]


def survey(seeds: range) -> Mapping[str, Any]:
    """Compare random networks.

    Returns
    -------
    networks, frames, differences: frames that differ. refused: messages.
    """
    networks = frames = differences = 0
    refused = []
    for found in islice(random_parts(seeds), len(seeds)):
        if isinstance(found, str):
            refused.append(found)
            continue
        _, parts, codes = found
        networks, frames = networks + 1, frames + len(codes)
        differences += _differing(_compiled(parts, QUICK), parts, codes)
    return {"networks": networks, "frames": frames, "differences": differences, "refused": refused}


def show(row: Mapping[str, Any]) -> None:
    """Print a table."""
    console, table = Console(), Table(title=f"exported C, {row['flags']}; plain: {row['plain_flags']}")
    for name in (
        "network",
        "frames",
        "different",
        "code",
        "constants",
        "scratch",
        "stack",
        "C us",
        "torch us",
        "ratio",
        "plain us",
        "ratio",
    ):
        table.add_column(name, justify="left" if name == "network" else "right")
    for one in row["networks"]:
        if "refused" in one:
            table.add_row(one["network"], one["refused"])
            continue
        size = one["cortex_m4"] or dict.fromkeys(("code", "data", "scratch", "stack"), "")
        numbers = (
            size["code"],
            size["data"],
            size["scratch"],
            size["stack"],
            one["c_us"],
            one["torch_us"],
            one["ratio"],
            one["plain_us"],
            one["plain_ratio"],
        )
        table.add_row(one["network"], *map(str, (one["frames"], one["differences"], *numbers)))
    console.print(table)
    found = row["random"]
    console.print(
        f"{found['networks']} random networks, {found['frames']} frames: {found['differences']} differ; "
        f"{len(found['refused'])} refused"
    )
