"""Recurrent cells of several sizes: what they take on a board, the cycles of a step, and every value in RTL.

Those for one sequence at a time are placed and routed, too, on the UP5K, and some of them on the ECP5-25F.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import nnhw
from benchmarks.random_recurrent import random_recurrent
from nnhw.boards import load_board
from nnhw.engines.state import StateConfig
from nnhw.engines.timing import as_number
from nnhw.errors import MappingError, NnhwError, first_of
from nnhw.families import FAMILIES
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.verification.comparison import boundary_values, compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.frontend import capture
from nnhw.ir import Graph, one_direction
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import accelerator_cost
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.nn import Int, QuantGRU, QuantLinear, QuantLSTM, QuantRNN
from nnhw.passes import lower, split

CELLS: dict[str, tuple[Callable[..., nn.Module], int, int, int]] = {
    "RNN 4-8": (QuantRNN, 4, 8, 8),
    "GRU 8-16": (QuantGRU, 8, 16, 8),
    "LSTM 6-20": (QuantLSTM, 6, 20, 8),
    "LSTM 6-20, 4 bits": (QuantLSTM, 6, 20, 4),
    "GRU 16-32": (QuantGRU, 16, 32, 8),
    "GRU 16-64": (QuantGRU, 16, 64, 8),
    "GRU 16-64, 4 bits": (QuantGRU, 16, 64, 4),
    "GRU 64-64": (QuantGRU, 64, 64, 8),
    "RNN 4-8, both directions": (partial(QuantRNN, bidirectional=True), 4, 8, 8),
}
"""Cell, features, units, bits of weights, states and gates."""
PLACED: dict[str, tuple[int, tuple[str, ...]]] = {
    "icebreaker": (3, tuple(CELLS)),
    "ulx3s_25f": (1, ("RNN 4-8", "GRU 8-16", "LSTM 6-20", "LSTM 6-20, 4 bits")),
}
"""Boards on which clocks are measured, with seeds and cells: an LSTM on an ECP5 takes some twenty minutes of a core."""
TURNS = (1, 4)
LENGTHS = (1, 9, 10, 1, 1, 3)
RANDOM = 150
"""Random networks."""
ROOMY = Budget(lc=100_000, ebr=1000)
PATTERNS = (("none", "none"), ("random", "bursts"))


class Network(nn.Module):
    """A cell whose last state a linear layer reads."""

    def __init__(self, cell: Callable[..., nn.Module], features: int, units: int, bits: int) -> None:
        super().__init__()
        self.codes = Int(8, scale=2.0**-5)
        quantizers = {} if bits == 8 else {"weight_quant": Int(bits), "state_quant": Int(bits, scale=2.0 ** (1 - bits))}
        self.cell = cell(features, units, batch_first=True, **quantizers)
        self.last = QuantLinear(units * (1 + bool(self.cell.bidirectional)), 4, weight_quant=Int(bits))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, features] --> [batch, 4]."""
        states, _ = self.cell(self.codes(x))
        result: Tensor = self.last(states[:, -1])
        return result


def model_of(name: str) -> tuple[nn.Module, Tensor]:
    """Return a network with a cell, and example sequences."""
    cell, features, units, bits = CELLS[name]
    torch.manual_seed(0)
    model, example = Network(cell, features, units, bits), torch.randn(4, 10, features)
    model.train()(example)
    return model.eval(), example


def body_of(name: str) -> tuple[Graph, list[Any]]:
    """Return the integer graph of a cell, and what is sent for sequences of unlike lengths."""
    model, example = model_of(name)
    body = split(lower(capture(model, example))).body
    codes = torch.randint(-128, 128, (len(LENGTHS), max(LENGTHS), example.shape[2])).numpy()
    sequences = [sequence[:length] for sequence, length in zip(codes, LENGTHS, strict=True)]
    return body, one_direction(body).sent(sequences)


def run(board: str) -> dict[str, Any]:
    """Map each cell, for one sequence and for several in turn, compare hardware and graph, and measure clocks."""
    rows = []
    for name in CELLS:
        body, codes = body_of(name)
        for turns in TURNS:
            row = {"cell": name, "sequences": turns, **_row(body, codes, board, turns)}
            seeds, cells = PLACED.get(board, (0, ()))
            if name in cells and turns == 1 and "refused" not in row:
                row |= placed(name, board, seeds)
            print(_line(row), file=sys.stderr, flush=True)
            rows.append(row)
    return {"board": board, "rows": rows}


def placed(name: str, board: str, seeds: int) -> dict[str, Any]:
    """Return what place and route makes of a cell, with its link: Fmax of the best seed, and what is used.

    Nothing is simulated: the rows have compared the same engines with their graph before.
    """
    model, example = model_of(name)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "build"
        try:
            nnhw.build(model, example, name="cell", board=board, out=out, seeds=seeds, frames=0, fast_for="engine")
        except NnhwError as error:
            return {"not_placed": str(first_of(error)).partition(";")[0]}
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    used = {f"placed_{part}": report["resources"][part]["used"] for part in ("lc", "ebr", "spram", "dsp")}
    return {"fmax_hz": report["fmax_hz"], "clock_hz": report["clock_hz"], **used}


def random_networks(_: None = None) -> dict[str, Any]:
    """Compare random loops with their graphs, stage by stage, and every third in hardware, with and without stalls."""
    found: Counter[str] = Counter()
    failures = []
    for seed in range(RANDOM):
        body = split(lower(random_recurrent(seed))).body
        try:
            accelerator = map_body(body, "random", ROOMY, sequences=1 + seed % 3)
        except MappingError as error:
            found[f"refused: {first_of(error)}"] += 1
            continue
        codes = random_codes(body, seed)
        compared = list(compare_stages(accelerator, body, codes))
        found["stage by stage"] += 1
        if seed % 3 == 0:
            results = check_equality(accelerator, body, codes, PATTERNS)
            compared += [stream for each in results for stream in each.streams]
            failures += [] if all(each.equal for each in results) else [seed]
            found["in RTL"] += 1
        found["steps compared"] += sum(each.frames for each in compared)
        failures += [] if all(each.equal for each in compared) else [seed]
    return {**found, "failures": sorted(set(failures))}


def random_codes(body: Graph, seed: int) -> list[np.ndarray]:
    """Return sequences of codes of unlike lengths."""
    rng, kind = np.random.default_rng(seed), body.inputs[0].type
    element = kind.int_dtype
    found = [rng.integers(element.low, element.high + 1, (length, *kind.shape)) for length in LENGTHS]
    return [np.where(codes < 0, -1, 1) for codes in found] if element.bipolar else found


def _row(body: Graph, codes: list[Any], board_name: str, turns: int) -> dict[str, Any]:
    board = load_board(board_name)
    try:
        mapped, _ = map_on_board(body, board, Options(sequences=turns, fast_for="engine"))
    except MappingError as error:
        return {"refused": str(first_of(error)).partition(";")[0]}
    accelerator = mapped.accelerator
    family, spram, programs = FAMILIES[board.family], board.resources.spram > 0, accelerator.programs
    taken = array_cost(programs[0].array, family, spram) if programs else accelerator_cost(accelerator, family)
    products = sum(stage.products for stage in accelerator.stages)
    slowest = max(stage.config.cycles for stage in accelerator.stages)
    results = check_equality(accelerator, body, codes, PATTERNS)
    values = boundary_values(body, codes, accelerator.input_format.order(codes))
    return {
        "rounds": accelerator.rounds.count if accelerator.rounds else 1,
        "style": mapped.style,
        "products": products,
        "cycles": as_number(accelerator.schedule.interval),
        "latency": accelerator.schedule.latency_cycles,
        "ideal_cycles": -(-products // programs[0].array.products) if programs else slowest,
        "state_bits": sum(
            stage.config.memory.width * stage.config.chunks
            for stage in accelerator.stages
            if isinstance(stage.config, StateConfig)
        ),
        "lc": round(taken.lc),
        "ebr": taken.ebr,
        "spram": taken.spram,
        "dsp": taken.dsp,
        "as_predicted": results[0].as_predicted,
        "values": len(PATTERNS) * sum(values[each.node].size for each in accelerator.boundaries),
        "differ": sum(one.mismatches for found in results for one in found.streams),
    }


def show(row: Mapping[str, Any]) -> None:
    """Print a line for each cell and number of sequences in turn."""
    figures = f"{'cycles':>8}{'ideal':>7}{'LC':>8}{'EBR':>5}{'DSP':>5}{'values':>9}"
    print(f"{row['board']}\n{'cell':25}{'in turn':>8}{figures} differ")
    for one in row["rows"]:
        print(_line(one))


def _line(row: Mapping[str, Any]) -> str:
    head = f"{row['cell']:25}{row['sequences']:>8}"
    if "refused" in row:
        return f"{head}  {row['refused']}"
    facts = f"{row['cycles']:>8,.4g}{row['ideal_cycles']:>7,}{row['lc']:>8,}{row['ebr']:>5}{row['dsp']:>5}"
    fmax = f", Fmax {row['fmax_hz'] / 1e6:.2f} MHz" if "fmax_hz" in row else row.get("not_placed", "")
    other = "" if row["as_predicted"] else " (other cycles)"
    shared = ", a program" if row["style"] == "shared" else ""
    return f"{head}{facts}{row['values']:>9,} {row['differ']}{other}{fmax}{shared}"


def show_random(drawn: Mapping[str, Any]) -> None:
    """Print what the random loops gave, on a line."""
    refused = sum(count for what, count in drawn.items() if what.startswith("refused"))
    print(
        f"{RANDOM} random loops: {drawn['stage by stage']} equal stage by stage, {drawn['in RTL']} in RTL, "
        f"{refused} with nothing to map; failures: {drawn['failures'] or 'none'}"
    )
