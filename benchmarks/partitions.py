"""Shared engines in a row, each with a part of the layers, against one for all: cycles by the exact model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.networks import NETWORKS
from nnhw.boards import load_board
from nnhw.families import FAMILIES
from nnhw.flow.board_budget import available
from nnhw.flow.style import left_to_shared
from nnhw.frontend import capture
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared import network_of
from nnhw.mapping.shared.search.arrays import Choice, choose_array
from nnhw.mapping.shared.search.chain import choose_chain
from nnhw.passes import lower, split

Row = Mapping[str, Any]

CASES = (
    ("ds_cnn_w8a8", "icebreaker"),
    ("resnet8_w8a8", "icebreaker"),
    ("ds_cnn_all2", "icebreaker"),
    ("resnet8_all2", "icebreaker"),
    ("ds_cnn_w8a8", "ulx3s_85f"),
    ("resnet8_w8a8", "ulx3s_85f"),
)


def run(board: str) -> Row:
    """Return a row with the result of each network on its board; `board` limits them to those on it."""
    return {"networks": [compare(name, on) for name, on in CASES if board in (on, None)]}


def compare(name: str, board: str) -> Row:
    """Return the cycles of a network on one shared engine, and on several, however much slower these are."""
    model, example = NETWORKS[name].load()
    body = split(lower(capture(model, example, name))).body
    found = load_board(board)
    family = FAMILIES[found.family]
    budget = left_to_shared(found, available(found), family)
    one, chain = choose_array(network_of(body), budget, family), choose_chain(body, budget, family)
    return {
        "network": name,
        "board": board,
        "one": _row(one),
        "several": None
        if chain is None
        else [{"layers": len(read_layers(part.graph)), **_row(part.choice)} for part in chain.parts],
        "ratio": None if chain is None else chain.cycles / one.compiled.cycles,
    }


def _row(choice: Choice) -> Row:
    """Return what an engine takes."""
    cost, compiled = choice.cost, choice.compiled
    return {
        "cycles": compiled.cycles,
        "products": compiled.config.array.products,
        "lc": round(cost.lc),
        "ebr": cost.ebr,
        "spram": cost.spram,
        "dsp": cost.dsp,
    }


def show(row: Row) -> None:
    """Print a line for each network."""
    table = Table("network", "board", "one engine", "engines in a row", "layers of each", "times")
    for one in row["networks"]:
        several = one["several"]
        table.add_row(
            one["network"],
            one["board"],
            _said(one["one"]),
            "; ".join(map(_said, several)) if several else "do not fit",
            ", ".join(str(part["layers"]) for part in several or ()),
            f"{one['ratio']:.2f}" if several else "",
        )
    Console().print(table)


def _said(engine: Row) -> str:
    return f"{engine['cycles']:,} cycles, {engine['products']} products"
