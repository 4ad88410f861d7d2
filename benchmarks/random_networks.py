"""Random networks: PyTorch == the graph behind every pass == golden stages == RTL, at every boundary.

Hypothesis makes them, in blocks, each of which begins with a seed of its own: so networks have numbers, are divided
among processes, and one is repeated by its number alone. In the tests (`tests/flow/test_drawn_networks.py`) hypothesis
also makes a network that differs as small as it can be.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as begin
from hypothesis import strategies as st
from rich.console import Console
from torch import Tensor, nn

from benchmarks.draws import Drawn
from benchmarks.random_models import drawn_model
from nnhw import ir
from nnhw.accelerator import Accelerator, EngineConfig
from nnhw.boards import load_board
from nnhw.errors import ExactnessError, MappingError, NnhwError, StuckError
from nnhw.families import FAMILIES
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.tools.progress import Progress, SilentProgress, make_progress
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.passes import Parts

NETWORKS, MAPPED, SIMULATED = 1000, 305, 105
IMAGES, FRAMES = 8, 5
PATTERNS = (("none", "none"), ("random", "bursts"))
LC, EBR, DSP = 100_000, 1000, 60
"""A device that everything fits."""
FEW_EBR = (2, 4, 8, 16, 32)
"""Block RAMs of smaller ones, on which weights have to become logic."""

BLOCK = 25
"""Networks of a block."""

Row = Mapping[str, Any]
Network = tuple[nn.Sequential, Tensor]
"""A model in eval mode, and images [N, ..] that its scales were taken from."""


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Draw a network of any layers, formats, branches and orders."""
    return drawn_model(Drawn(draw), reorders=True)


def drawn_network(number: int) -> Network:
    """Return a network, the same for each number."""
    return _block(number // BLOCK)[number % BLOCK]


@lru_cache(maxsize=1)
def _block(number: int) -> list[Network]:
    """Return the networks of a block, without the first one, which is hypothesis's simplest in each."""
    found: list[Network] = []

    @begin(number)
    @settings(
        max_examples=BLOCK + 1,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(networks())
    def keep(network: Network) -> None:
        found.append(network)

    keep()
    return found[1:]


@dataclass
class Found:
    """What one network gave.

    Parameters
    ----------
    stage: the last one that was reached: 'capture', 'lower', 'map' or 'simulate'.
    refused: nnhw's own message, if it refuses the network.
    failure: what went wrong otherwise; nothing if all is equal.
    ops: of the integer graph.
    engines: of the accelerator.
    counts: what was compared.
    """

    seed: int
    stage: str = "capture"
    refused: str = ""
    failure: str = ""
    ops: Counter[str] = field(default_factory=Counter)
    engines: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


def check_network(
    seed: int,
    mapped: bool = False,
    simulated: bool = False,
    family: str = "ice40",
    make: Callable[[int], Network] = drawn_network,
) -> Found:
    """Compare everything that computes one network.

    Parameters
    ----------
    mapped: also by the golden functions of an accelerator's stages.
    simulated: also by its RTL.
    make: the generator.
    """
    found = Found(seed)
    try:
        _check(found, mapped or simulated, simulated, family, make)
    except (ExactnessError, StuckError) as error:  # a mistake of nnhw
        found.failure = str(error)
    except NnhwError as error:
        found.refused = str(error)
    except Exception as error:  # whatever it is: to be counted, and shown with its seed
        logging.getLogger(__name__).debug("seed %d", seed, exc_info=True)
        found.failure = f"{type(error).__name__}: {error}"
    return found


def _check(found: Found, mapped: bool, simulated: bool, family: str, make: Callable[[int], Network]) -> None:
    """Go as far as asked; note what differs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, example = make(found.seed)
        captured = capture_quantizers(model, example)
    rng = np.random.default_rng(found.seed)
    images = extreme_images(example.numpy(), rng)
    own_answers(model, captured, images)
    found.stage = "lower"
    parts, _ = lower_graph(captured.graph, {"inputs": images})
    found.counts += Counter(networks=1, images=len(images))
    found.ops.update(node.op.name for node in parts.body.nodes)
    if mapped and not found.failure:
        _check_accelerator(found, parts, images, simulated, family, rng)


def _check_accelerator(
    found: Found, parts: Parts, images: np.ndarray, simulated: bool, family: str, rng: np.random.Generator
) -> None:
    found.stage = "map"
    interval = round(float(np.exp(rng.uniform(np.log(30 if simulated else 4), np.log(5000)))))
    accelerator = _mapped(parts.body, interval, int(rng.integers(3)), family)
    codes = np.concatenate([extreme_codes(parts.body, rng), ir.run(parts.head, images)[0][:2]])
    found.counts += Counter(mapped=1, frames=len(codes))
    found.engines.update(f"{type(stage.config).__name__}{_datapath(stage.config)}" for stage in accelerator.stages)
    found.failure = golden_difference(accelerator, parts.body, codes)
    if simulated and not found.failure:
        found.stage = "simulate"
        found.failure = rtl_difference(accelerator, parts.body, codes)
        found.counts += Counter(simulated=1, rtl_frames=len(codes) * len(PATTERNS))


def _mapped(body: ir.Graph, interval: int, device: int, family: str) -> Accelerator:
    """Map for a large device (0), one with DSP blocks (1), or one with as few block RAMs as will do (2)."""
    for ebr in FEW_EBR if device == 2 else ():
        with contextlib.suppress(MappingError):
            return map_body(body, "any", Budget(LC, ebr), family=FAMILIES[family], target_interval=interval)
    budget = Budget(LC, EBR, DSP if device == 1 else 0)
    return map_body(body, "any", budget, family=FAMILIES[family], target_interval=interval)


def extreme_images(example: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return images [8, *shape] within the range of the model, at its ends, far beyond them, and on coarse steps."""
    shape = example.shape[1:]
    steps = rng.integers(-16, 17, (2, *shape)) / 16  # ties of quantizers whose scale is a power of two
    parts = [example[:2], np.full((1, *shape), -4), np.full((1, *shape), 4), np.zeros((1, *shape)), steps]
    parts.append(rng.normal(0, 2, (IMAGES - 7, *shape)))
    return np.concatenate(parts).astype(np.float32)


def extreme_codes(body: ir.Graph, rng: np.random.Generator) -> np.ndarray:
    """Return input codes [5, *shape]: the least, the greatest, both at random, and any."""
    kind, shape = body.inputs[0].type.int_dtype, body.inputs[0].type.shape
    low, high = np.full((1, *shape), kind.low), np.full((1, *shape), kind.high)
    ends = np.where(rng.random((1, *shape)) < 0.5, low, high)
    any_codes = rng.integers(kind.low, kind.high + 1, (FRAMES - 3, *shape))
    return np.concatenate([any_codes, low, high, ends] if not kind.bipolar else [low, high, *_signs(rng, shape)])


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> list[np.ndarray]:
    return [2 * rng.integers(0, 2, (1, *shape)) - 1 for _ in range(FRAMES - 2)]


def golden_difference(accelerator: Accelerator, body: ir.Graph, codes: np.ndarray) -> str:
    """Compare the golden functions of the stages with the interpreter, and the byte formats at both ends."""
    for comparison in compare_stages(accelerator, body, codes):
        if not comparison.equal:
            return f"golden stages differ at {comparison.name}"
    result = ir.run(body, codes)[0]
    entry, end = accelerator.input_format, accelerator.output_format
    if not np.array_equal(entry.unpack(entry.pack(codes)), codes):
        return "input format is not its own inverse"
    return "" if np.array_equal(end.unpack(end.pack(result)), result) else "output format is not its own inverse"


def rtl_difference(accelerator: Accelerator, body: ir.Graph, codes: np.ndarray) -> str:
    """Compare the RTL with the interpreter at every boundary, and its cycles with the schedule."""
    for equality in check_equality(accelerator, body, codes, PATTERNS):
        if not equality.as_predicted:
            return f"frames end in cycles {equality.run.ends}, predicted {accelerator.schedule.ends(len(codes))}"
        if not equality.equal:
            return f"RTL differs: {equality.row()}"
    return ""


def survey(seeds: Iterable[Found], total: int, progress: Progress | None = None) -> dict[str, Any]:
    """Return the counts of many networks.

    Returns
    -------
    networks: tried. ir, golden, rtl: networks and images or frames compared. refused: reasons with their number, names
        left out.
    failures: seed, stage and text of each. ops, engines: how often each occurs, so that what is missing is seen.
    """
    progress = progress or SilentProgress()
    counts: Counter[str] = Counter()
    ops: Counter[str] = Counter()
    engines: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    tried = 0
    for tried, found in enumerate(seeds, 1):
        counts += found.counts
        ops += found.ops
        engines += found.engines
        if found.refused:
            refused[f"{found.stage}: {reason(found.refused)}"] += 1
            progress.note(f"seed {found.seed} refused: {found.refused}")
        if found.failure:
            failures.append({"seed": found.seed, "stage": found.stage, "failure": found.failure})
            progress.note(f"seed {found.seed} FAILS, {found.stage}: {found.failure}")
        progress.advance(min(tried, total), total)
    return {
        "networks": tried,
        "ir": {"networks": counts["networks"], "images": counts["images"]},
        "golden": {"networks": counts["mapped"], "frames": counts["frames"]},
        "rtl": {"networks": counts["simulated"], "frames": counts["rtl_frames"]},
        "refused": dict(refused.most_common()),
        "failures": sorted(failures, key=lambda failure: failure["seed"]),
        "ops": dict(sorted(ops.items())),
        "engines": dict(sorted(engines.items())),
    }


def reason(message: str) -> str:
    """Return a message without the names, places and numbers of one network."""
    first = message.splitlines()[1] if message.splitlines()[1:] else message
    plain = re.sub(r"'[^']*'( \([^)]*\))?", "..", re.sub(r"^\s*\d+\. ", "", first))
    return re.sub(r"-?\d+(\.\d+)?", "N", plain)


def check_seed(seed: int, family: str) -> Found:
    """Check one network of the benchmark, in a process of its own: the first ones go further than the others."""
    torch.set_num_threads(1)
    return check_network(seed, seed < MAPPED, seed < SIMULATED, family)


def run(board: str) -> dict[str, Any]:
    """Check networks until 1,000 went to the IR, the first 305 up to the golden stages, the first 105 up to RTL.

    Returns
    -------
    The row of `survey`, and the seconds that it took.
    """
    check = partial(check_seed, family=load_board(board).family)
    progress, start = make_progress(Console(stderr=True)), time.monotonic()
    with progress.stage(f"{NETWORKS} random networks"), get_context("spawn").Pool(os.cpu_count()) as pool:
        row = survey(enough(pool.imap(check, range(2 * NETWORKS), BLOCK), NETWORKS), NETWORKS, progress)
    return {"board": board, **row, "seconds": round(time.monotonic() - start, 1)}


def enough(networks: Iterable[Found], count: int) -> Iterator[Found]:
    """Yield networks up to the one with which so many went to the IR."""
    for found in networks:
        yield found
        count -= found.counts["networks"]
        if not count:
            return


def show(row: Row) -> None:
    """Print a row for people."""
    print(f"{row['networks']} random networks, {len(row['failures'])} failures")
    for name, what in (("ir", "images"), ("golden", "frames"), ("rtl", "frames")):
        print(f"  {name:8} {row[name]['networks']:5} networks, {row[name][what]:6} {what}")
    for text, count in row["refused"].items():
        print(f"  refused {count:4}  {text}")
    for failure in row["failures"]:
        print(f"  seed {failure['seed']} fails, {failure['stage']}: {failure['failure']}")


def _datapath(config: EngineConfig) -> str:
    """Return how an engine makes codes, for the list of what was met."""
    return f" {type(config.requantizing).__name__}" if config.requantizing is not None else ""
