"""Two shared engines in a row, each with a part of the layers, against one for all: cycles by the exact model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.networks import NETWORKS
from nnhw.boards import load_board
from nnhw.errors import MappingError
from nnhw.flow.budget import SPARE_EBR
from nnhw.frontend import capture
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.family import FAMILIES, Family
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared import network_of
from nnhw.mapping.shared.network import Network
from nnhw.mapping.shared.partition import partitions
from nnhw.mapping.shared.search import Choice, choose_array
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
SHARES = (1 / 8, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 7 / 8)
"""Of a device, what the first engine gets."""
LEAST = 0.1
"""Of the products, what the smaller part has at least, to be worth an engine that runs programs."""
FAR = 0.3
"""How far an engine's share of the device may be from its share of the products."""


@dataclass(frozen=True)
class Cut:
    """A network on two shared engines.

    Parameters
    ----------
    layers: on the first one.
    share: of the device, that it gets.
    engines: both.
    """

    layers: int
    share: float
    engines: tuple[Choice, Choice]

    @property
    def cycles(self) -> list[int]:
        """Of each; the slower one decides."""
        return [engine.compiled.cycles for engine in self.engines]

    @property
    def products(self) -> list[int]:
        """That each makes in a cycle."""
        return [engine.compiled.config.array.products for engine in self.engines]


def run(board: str) -> Row:
    """Return a row with the result of each network on its board; `board` limits them to those on it."""
    return {"networks": [compare(name, on) for name, on in CASES if board in (on, None)]}


def compare(name: str, board: str) -> Row:
    """Return the cycles of a network on one shared engine, and on two, at the best cut and share."""
    model, example = NETWORKS[name].load()
    body = split(lower(capture(model, example, name))).body
    found = load_board(board)
    family, given = FAMILIES[found.family], found.resources
    budget = Budget(given.lc * family.usable_shared, given.ebr - SPARE_EBR[found.family], given.dsp, given.spram)
    one = choose_array(network_of(body), budget, family)
    best = min(cuts(body, budget, family), key=lambda cut: max(cut.cycles), default=None)
    return {
        "network": name,
        "board": board,
        "one": {"cycles": one.compiled.cycles, "products": one.compiled.config.array.products},
        "two": None
        if best is None
        else {"layers": best.layers, "share": best.share, "products": best.products, "cycles": best.cycles},
        "ratio": None if best is None else max(best.cycles) / one.compiled.cycles,
    }


def cuts(body: Graph, budget: Budget, family: Family) -> Iterator[Cut]:
    """Yield all ways of cutting a network in two that fit, each with shares of the device about those of the work."""
    for way in partitions(body, len(read_layers(body)) - 1):
        if way.front is None:
            continue
        try:
            first, second = network_of(way.front), network_of(way.shared)
        except MappingError:
            continue
        part = first.products / (first.products + second.products)
        if min(part, 1 - part) < LEAST:
            continue
        shares = [share for share in SHARES if abs(share - part) <= FAR]
        for own, blocks in ((share, blocks) for share in shares for blocks in (share, 0.0, 1.0)):
            if (pair := both(first, second, own, blocks, budget, family)) is not None:
                yield Cut(way.counts[0], own, pair)


def both(
    first: Network, second: Network, share: float, dsp: float, budget: Budget, family: Family
) -> tuple[Choice, Choice] | None:
    """Return two engines that fit a device together, or None.

    Parameters
    ----------
    share, dsp: of the device and of its DSP blocks, what the first one gets.
    """
    own = replace(
        budget,
        lc=budget.lc * share,
        ebr=int(budget.ebr * share),
        dsp=int(budget.dsp * dsp),
        spram=budget.spram // 2,
    )
    rest = Budget(budget.lc - own.lc, budget.ebr - own.ebr, budget.dsp - own.dsp, budget.spram - own.spram)
    try:
        return choose_array(first, own, family), choose_array(second, rest, family)
    except MappingError:
        return None


def show(row: Row) -> None:
    """Print a line for each network."""
    table = Table("network", "board", "one engine", "two engines", "cut behind layer", "times")
    for one in row["networks"]:
        two = one["two"]
        table.add_row(
            one["network"],
            one["board"],
            f"{one['one']['cycles']:,} cycles, {one['one']['products']} products",
            f"{two['cycles'][0]:,} and {two['cycles'][1]:,}, {two['products'][0]} and {two['products'][1]}"
            if two
            else "do not fit",
            str(two["layers"]) if two else "",
            f"{one['ratio']:.2f}" if two else "",
        )
    Console().print(table)
