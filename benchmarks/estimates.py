"""Estimated against used resources: random networks, mapped at random rates on random shares of a board, packed.

On two busy cores a board takes about a quarter of an hour.
"""

from __future__ import annotations

import json
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count, islice
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.random_models import random_model
from nnhw.accelerator import Accelerator
from nnhw.boards import Board, Resources, load_board
from nnhw.engines.requantize import Table, Thresholds
from nnhw.errors import NnhwError
from nnhw.families import FAMILIES
from nnhw.flow.board_budget import estimate
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.implementation.timing_closure import first_clock, usable_clocks
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.tools.processes import run as run_process
from nnhw.flow.tools.progress import Progress, make_progress
from nnhw.flow.tools.toolchain import find_tool, prepare
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.frontend.capture import capture
from nnhw.hdl.top import make_top
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body

FIRST_SEED, NETWORKS = 7000, 20
"""The calibration saw seeds below 100, and what is wrong with some of 5000 and up."""
INTERVALS = (4, 5000)
"""Cycles a frame that are asked for, log-uniform."""

Row = dict[str, Any]


def run(board: str) -> Row:
    """Compare 20 random networks, none of which the calibration saw."""
    start = time.monotonic()
    progress = make_progress(Console(stderr=True))
    with progress.stage(f"{NETWORKS} random networks on {board}"):
        rows = list(islice(compare(count(FIRST_SEED), load_board(board), progress), NETWORKS))
    return {**summary(board, rows), "seconds": round(time.monotonic() - start)}


def compare(seeds: Iterable[int], board: Board, progress: Progress) -> Iterable[Row]:
    """Yield estimated and used resources of random networks; those that nnhw refuses are left out.

    So are those in which a layer always gives the same code: synthesis leaves out all that is in front of it.
    """
    for seed in seeds:
        try:
            accelerator = random_accelerator(seed, board)
        except NnhwError as error:
            progress.note(f"seed {seed} refused: {error}")
            continue
        if is_constant(accelerator):
            continue
        try:
            row = {"seed": seed, **compare_one(accelerator, board)}
        except NnhwError as error:
            row = {"seed": seed, "failure": str(error)}
            progress.note(f"seed {seed} fails: {error}")
        else:
            progress.note(describe(row))
        yield row


def random_accelerator(seed: int, board: Board) -> Accelerator:
    """Return a random network, mapped on a random share of a board to reach a random interval.

    Raises
    ------
    NnhwError: it does not fit even the whole board, or is not supported.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, example = random_model(seed)
        graph = capture(model, example)
    parts, _ = lower_graph(graph, {"inputs": example.numpy()})
    rng, given = np.random.default_rng(seed), board.resources
    interval = round(float(np.exp(rng.uniform(*np.log(INTERVALS)))))
    family = FAMILIES[board.family]
    link = family.room.link_of(board.link)
    lc, ebr = given.lc * family.room.usable - link.lc, given.ebr - link.ebr
    ff = given.ff * family.room.usable_ff - link.ff if given.ff else inf
    share, rams, dsp = rng.uniform(0.3, 1), rng.choice([0, 2, 8, ebr]), rng.choice([0, given.dsp])
    for budget in (Budget(lc * share, min(int(rams), ebr), int(dsp), ff=ff), Budget(lc, ebr, given.dsp, ff=ff)):
        try:
            return map_body(parts.body, board.name, budget, family=family, target_interval=interval)
        except NnhwError as error:
            refused = error
    raise refused


def is_constant(accelerator: Accelerator) -> bool:
    """Return whether a layer always gives the same code: a table has a single one, or no sum crosses a threshold."""
    for stage in accelerator.stages:
        config: Any = stage.config
        requantizer = config.requantizing
        if isinstance(requantizer, Table) and np.unique(requantizer.codes).size == 1:
            return True
        if isinstance(requantizer, Thresholds):
            steps = requantizer.steps
            if ((steps <= config.raw.low) | (steps > config.raw.high)).all():
                return True
    return False


def compare_one(accelerator: Accelerator, board: Board) -> Row:
    """Return estimated and used resources, and the relative errors of logic cells and, counted apart, flip-flops."""
    estimated = estimate(accelerator, board)
    used = used_resources(accelerator, board, estimated["dsp"] > 0)
    row: Row = {"stages": len(accelerator.stages), "estimated": estimated}
    row["used"] = {"lc": used.lc, "ff": used.ff, "ebr": used.ebr, "spram": used.spram, "dsp": used.dsp}
    row["error"] = round(estimated["lc"] / used.lc - 1, 4)
    return {**row, "ff_error": round(estimated["ff"] / used.ff - 1, 4)} if used.ff else row


def used_resources(accelerator: Accelerator, board: Board, dsp: bool) -> Resources:
    """Return what a design takes, its logic cells as nextpnr packs them, which placement does not change."""
    settings = first_clock(usable_clocks(board), None, board.target_clock_hz)
    design = make_top(lambda clock_hz: make_linked_device(accelerator, clock_hz, board.host_link), board, settings)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        netlist = synthesize(design.rtlil, board, folder, dsp=dsp)
        taken, family = netlist.resources, FAMILIES[board.family]
        ending, option = family.tools.constraints
        (folder / f"top.{ending}").write_text(design.constraints, encoding="utf-8")
        tool = find_tool(family.tools.place.name)
        prepare(tool)
        options = [
            *family.tools.device_options(board.device, board.package, board.speed),
            "--json",
            NETLIST,
            option,
            f"top.{ending}",
            "--pack-only",
        ]
        run_process(tool.command([*options, "--report", "pack.json"], folder, "nextpnr.log"))
        report = json.loads((folder / "pack.json").read_text(encoding="utf-8"))["utilization"]
    counts = {kind: int(entry["used"]) for kind, entry in report.items()}
    return replace(taken, lc=family.kinds.placed_lc(counts), ff=family.kinds.placed_ff(counts))


def summary(board: str, rows: list[Row]) -> Row:
    """Return median and worst error of the logic cells, which networks have other memories than estimated or fail."""
    failed = [row for row in rows if "failure" in row]
    rows = [row for row in rows if "failure" not in row]
    errors = [abs(row["error"]) for row in rows]
    flip_flops = [abs(row["ff_error"]) for row in rows if "ff_error" in row]
    exact = ("ebr", "spram", "dsp")
    other = [row["seed"] for row in rows if any(row["estimated"][key] != row["used"][key] for key in exact)]
    row: Row = {
        "board": board,
        "networks": rows,
        "failed": failed,
        "median_error": round(float(np.median(errors)), 4),
        "worst_error": max(errors),
        **(
            {"median_ff_error": round(float(np.median(flip_flops)), 4), "worst_ff_error": max(flip_flops)}
            if flip_flops
            else {}
        ),
        "inexact_memories": other,
    }
    if flip_flops:
        row |= {"median_ff_error": round(float(np.median(flip_flops)), 4), "worst_ff_error": max(flip_flops)}
    return row


def describe(row: Row) -> str:
    """Return a network's row as a line."""
    estimated, used = row["estimated"], row["used"]
    rest = "  ".join(f"{key} {estimated[key]:3} / {used[key]:3}" for key in ("ebr", "dsp"))
    if "ff_error" in row:
        rest = f"ff {estimated['ff']:6} / {used['ff']:6} {row['ff_error']:+7.1%}  {rest}"
    return (
        f"seed {row['seed']:5}  {row['stages']:3} engines  "
        f"lc {estimated['lc']:6} / {used['lc']:6} {row['error']:+7.1%}  {rest}"
    )


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people: estimated / used."""
    for network in row["networks"]:
        print(describe(network))
    print(f"logic cells: median error {row['median_error']:.1%}, worst {row['worst_error']:.1%}")
    if "median_ff_error" in row:
        print(f"flip-flops: median error {row['median_ff_error']:.1%}, worst {row['worst_ff_error']:.1%}")
    for network in row["failed"]:
        print(f"seed {network['seed']:5}  fails: {network['failure']}")
    print(f"networks with other memories or DSP blocks than estimated: {row['inexact_memories'] or 'none'}")
