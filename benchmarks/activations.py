"""A multilayer perceptron 8-32-32-1 of 8 bits with each activation: what it takes with and without common steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import nnhw
from benchmarks.people.mlps import ACTIVATIONS, mlp
from nnhw.accelerator import Accelerator
from nnhw.boards import Board, load_board
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.requantize import CommonSteps, Requantizer
from nnhw.families import FAMILIES, Cost, Family
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.options import Options
from nnhw.frontend import capture
from nnhw.ir import Graph
from nnhw.mapping.cost import cost
from nnhw.mapping.requantize import choose, describe, implementations

SIZES = (8, 32, 32, 1)
SEED = 30


def run(board: str) -> dict[str, Any]:
    """Map the network with each activation: with an engine for each layer, and on a shared engine."""
    return {"board": {"name": board}, "rows": {name: _row(lowered(name), board) for name in ACTIVATIONS}}


def show(row: Mapping[str, Any]) -> None:
    """Print cycles, logic cells, block RAMs and DSP blocks: as mapped, with own steps, and on a shared engine."""
    heading = (
        f"{'':12}{'cycles':>8}{'LC':>8}{'EBR':>5}{'DSP':>5}{'steps: EBR':>12}{'apart: LC':>12}{'EBR':>5}{'DSP':>5}"
    )
    print(f"{heading}{'shared: cycles':>16}{'LC':>8}{'EBR':>5}{'DSP':>5}")
    for name, one in row["rows"].items():
        taken, apart, shared = one["common"], one["apart"], one["shared"]
        steps = " + ".join(str(count) for count in one["steps_ebr"])
        first = f"{name:12}{one['cycles']:>8}{taken['lc']:>8}{taken['ebr']:>5}{taken['dsp']:>5}{steps:>12}"
        second = f"{first}{apart['lc']:>12}{apart['ebr']:>5}{apart['dsp']:>5}"
        print(f"{second}{shared['cycles']:>16}{shared['lc']:>8}{shared['ebr']:>5}{shared['dsp']:>5}")


def lowered(name: str) -> Graph:
    """Return the body of the network with an activation, random weights, and quantizers of 8 bits."""
    torch.manual_seed(SEED)
    inputs = torch.randn(32, SIZES[0])
    model = nnhw.quantize(mlp(ACTIVATIONS[name], *SIZES).eval(), inputs)
    return lower_graph(capture(model, inputs), {"inputs": inputs.numpy()})[0].body


def _row(body: Graph, name: str) -> dict[str, Any]:
    board = load_board(name)
    family = FAMILIES[board.family]
    mapped, facts = map_on_board(body, board, Options(style="streaming", fast_for="engine"))
    common = {key: facts["resources"][key] for key in ("lc", "ebr", "dsp")}
    more = sum((_more(config, family) for config in _engines(mapped.accelerator)), Cost())
    apart = {"lc": common["lc"] + round(more.lc), "ebr": common["ebr"] + more.ebr, "dsp": common["dsp"] + more.dsp}
    requantizers = [one.thresholds for one in _engines(mapped.accelerator) if one.thresholds is not None]
    return {
        "cycles": mapped.interval,
        "requantizers": [describe(one) for one in requantizers],
        "steps_ebr": [_steps_ebr(one, family) for one in requantizers],
        "common": common,
        "apart": apart,
        "shared": _shared(body, board),
    }


def _shared(body: Graph, board: Board) -> dict[str, int]:
    """Return what one array takes that runs all layers."""
    mapped, facts = map_on_board(body, board, Options(style="shared"))
    return {"cycles": mapped.interval, **{key: facts["resources"][key] for key in ("lc", "ebr", "dsp")}}


def _engines(accelerator: Accelerator) -> list[MatmulConfig]:
    return [stage.config for stage in accelerator.stages if isinstance(stage.config, MatmulConfig)]


def _steps_ebr(requantizer: Requantizer, family: Family) -> int:
    """Return the block RAMs of common steps, without those of the multipliers and addends."""
    if not isinstance(requantizer, CommonSteps):
        return 0
    sizes = [(requantizer.words, requantizer.ranked.rank_bits + (1 << requantizer.cells_log2))]
    sizes.append((len(requantizer.steps) + 1, requantizer.cell_bits))
    if not requantizer.counts_up and requantizer.turn is None:
        sizes.append((len(requantizer.codes), requantizer.code.bits))
    return sum(family.block_rams(depth, bits, rom=True) for depth, bits in sizes if depth > requantizer.logic_words)


def _more(config: MatmulConfig, family: Family) -> Cost:
    """Return what an engine takes more where each channel has its steps in memories of its own."""
    common = config.thresholds
    if not isinstance(common, CommonSteps):
        return Cost()
    falls = common.multiplier < 0
    steps = np.where(falls, common.borders[:, ::-1], common.borders).clip(common.raw.low, common.raw.high + 1)
    codes = np.where(falls, common.codes[::-1], common.codes)
    found = implementations(steps, codes, common.code, common.raw)
    other = choose([each for each in found if not isinstance(each, CommonSteps)], config.drain, family=family)
    return cost(replace(config, thresholds=other), family) + -1 * cost(config, family)
