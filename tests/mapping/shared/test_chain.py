"""Several shared engines in a row: they fit together, run all layers, and segments are what reading them gives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from nnhw.engines.shared import ArrayConfig
from nnhw.errors import MappingError
from nnhw.families import ECP5, ICE40, Cost, Family
from nnhw.ir import Graph, extract
from nnhw.ir.ops import Upsample
from nnhw.mapping.budget import Budget
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared import choose_array, compile_network, network_of
from nnhw.mapping.shared.program import needs
from nnhw.mapping.shared.program.task_network import TaskNetwork
from nnhw.mapping.shared.search import chain as search
from nnhw.mapping.shared.search.arrays import cost_fits
from nnhw.mapping.shared.search.chain import EngineChain, choose_chain, thinned
from nnhw.mapping.shared.search.partition import is_cut
from nnhw.mapping.shared.search.segments import frontier, segment_of
from nnhw.mapping.shared.settings import CHAINS
from tests.mapping.shared.networks import I2, I4, NETWORKS, U2, U4, Lined
from tests.mapping.shared.programs import array_of, check_program

LARGE = Budget(lc=40_000, ebr=100, dsp=70)
UP5K = Budget(lc=4400, ebr=30, dsp=8, spram=4)


def deep(codes: str = "4", size: int = 6) -> Graph:
    """Return layers that take about as long as one another, with few codes between them."""
    code, weight = {"2": (U2, I2), "4": (U4, I4)}[codes]
    net = Lined((8, size, size), code, 0)
    x = net.input
    for _ in range(4):
        x = net.line(net.conv(net.pad(x), 8, (3, 3), weight), code)
    return net.body(net.linear(x, 5))


def enlarged(seed: int) -> Graph:
    """Return layers of which one makes an upsampled map, piece by piece, that the next one reads."""
    net = Lined((2, 4, 4), U4, seed)
    x = net.line(net.conv(net.pad(net.input), 8, (3, 3), I4), U4)
    x = net.line(net.conv(net.add(Upsample((2, 2)), x), 8, (1, 1), I4), U4)
    return net.body(net.line(net.conv(x, 8, (1, 1), I4), U4))


def program_of(network: TaskNetwork, array: ArrayConfig) -> tuple[int, ...] | str:
    """Return the words of a network's program, or why there is none."""
    try:
        return tuple(compile_network(network, array).config.words)
    except MappingError as error:
        return str(error)


def check_chain(body: Graph, chain: EngineChain, budget: Budget, family: Family) -> None:
    """Require that parts fit together, run all layers, and are the programs of their graphs."""
    assert cost_fits(chain.cost, budget)
    assert chain.cycles == max(part.choice.compiled.cycles for part in chain.parts)
    assert chain.parts[0].graph.inputs[0].name == body.inputs[0].name
    assert chain.parts[-1].graph.outputs == body.outputs
    for before, behind in zip(chain.parts, chain.parts[1:], strict=False):
        assert before.graph.outputs == (behind.graph.inputs[0].name,)
    assert sum(part.choice.compiled.network.products for part in chain.parts) == network_of(body).products
    for index, part in enumerate(chain.parts):
        compiled = part.choice.compiled
        network = replace(network_of(part.graph), loaded=not index)
        again = compile_network(network, compiled.config.array)
        assert again.config.words == compiled.config.words, index
        assert cost_fits(part.choice.cost, budget)
        check_program(part.graph, compiled)


@pytest.mark.parametrize(
    "name", ["plain", "depthwise", "residual", "pooled", "bipolar", "wide", "joined", "alike", "enlarged"]
)
def test_segment_is_the_network_of_its_layers(name: str) -> None:
    body = {**NETWORKS, "enlarged": enlarged}[name](0)
    layers, network = read_layers(body), network_of(body)
    nodes = {task.node for task in network.tasks}
    ends = [end for end in range(1, len(layers)) if is_cut(layers, end, body) and layers[end - 1].node in nodes]
    places = [0, *ends, len(layers)]
    for first, end in ((first, end) for first in places for end in places if first < end):
        if not any(layer.products for layer in layers[first:end]):
            continue
        before = (layers[first - 1].node,) if first else (body.inputs[0].name,)
        graph = extract(body, "part", before, body.outputs if end == len(layers) else (layers[end - 1].node,))
        wanted, found = replace(network_of(graph), loaded=not first), segment_of(network, layers, first, end)
        assert (found.source, found.output, found.loaded) == (wanted.source, wanted.output, wanted.loaded)
        assert {name: value.range for name, value in found.values.items()} == {
            name: value.range for name, value in wanted.values.items()
        }
        array = array_of(8, 2, 8)
        assert program_of(found, array) == program_of(wanted, array), (first, end)


@pytest.mark.parametrize(
    ("body", "budget", "family"),
    [(deep(), LARGE, ECP5), (NETWORKS["wide"](0), LARGE, ECP5), (deep("2"), UP5K, ICE40)],
    ids=["ecp5", "ecp5 8 bit", "ice40"],
)
def test_chain_fits_and_runs_the_network(body: Graph, budget: Budget, family: Family) -> None:
    chain = choose_chain(body, budget, family)
    assert chain is not None
    assert 2 <= len(chain.parts) <= 4
    check_chain(body, chain, budget, family)


def test_chain_is_faster_than_one_engine_where_layers_are_alike() -> None:
    body, budget = deep(size=12), Budget(lc=14_000, ebr=60, dsp=0)
    one = choose_array(network_of(body), budget, ECP5).compiled.cycles
    chain = choose_chain(body, budget, ECP5, one)
    assert chain is not None
    assert chain.cycles < one


def test_more_engines_are_no_slower() -> None:
    body = deep()
    two, three = (choose_chain(body, LARGE, ECP5, engines=engines) for engines in (2, 3))
    assert two is not None
    assert three is not None
    assert len(two.parts) == 2
    assert three.cycles <= 1.01 * two.cycles


def test_chain_takes_fewer_cycles_than_anybody_wants_or_there_is_none() -> None:
    body = deep()
    chain = choose_chain(body, LARGE, ECP5, engines=2)
    assert chain is not None
    again = choose_chain(body, LARGE, ECP5, chain.cycles + 1, 2)
    assert again is not None
    assert again.cycles <= chain.cycles
    assert choose_chain(body, LARGE, ECP5, chain.cycles // 2, 2) is None


def test_each_engine_has_products_to_make() -> None:
    chain = choose_chain(NETWORKS["depthwise"](0), LARGE, ECP5, engines=2)
    assert chain is not None
    assert all(part.choice.compiled.network.products for part in chain.parts)


def test_no_chain_where_two_engines_do_not_fit_or_nothing_can_be_cut() -> None:
    assert choose_chain(NETWORKS["wide"](0), replace(UP5K, lc=2500), ICE40) is None
    net = Lined((8, 6, 6), U4, 0)
    assert choose_chain(net.body(net.line(net.conv(net.input, 8, (3, 3), I4))), LARGE, ECP5) is None


def test_engines_share_the_large_rams() -> None:
    chain = choose_chain(deep("2"), UP5K, ICE40)
    assert chain is not None
    arrays = [part.choice.compiled.config.array for part in chain.parts]
    assert all(array.word_bits in (16, 32) for array in arrays)
    assert sum(array.word_bits for array in arrays) <= 16 * UP5K.spram


def test_frontier_keeps_what_takes_less_of_something() -> None:
    costs = [Cost(10, 3), Cost(8, 5), Cost(9, 5), Cost(8, 6), Cost(12, 3), Cost(12, 2), Cost(20, 9, spram=0)]
    assert frontier(costs) == [1, 0, 5]
    assert frontier([Cost(1, dsp=2), Cost(2, dsp=1), Cost(3, dsp=1, spram=1)]) == [0, 1]
    rng = np.random.default_rng(0)
    many = [Cost(*map(int, row)) for row in rng.integers(0, 6, (60, 4))]
    kept = [many[index] for index in frontier(many)]
    for cost in many:
        assert any(
            all(getattr(one, name) <= getattr(cost, name) for name in ("lc", "ebr", "dsp", "spram")) for one in kept
        )


@pytest.mark.parametrize(("budget", "family", "engines"), [(UP5K, ICE40, 3), (LARGE, ECP5, 4)])
def test_chain_has_no_more_engines_than_the_smallest_that_fit(budget: Budget, family: Family, engines: int) -> None:
    found = search._Search(deep(), network_of(deep()), budget, family, CHAINS.most_engines, None)
    assert found.engines == engines
    least = min(found.arrays.least_cost(shape).lc for shape in found._shapes)
    assert engines * least <= budget.lc < (engines + 1) * least or engines == CHAINS.most_engines


def test_chain_is_not_sought_where_one_engine_alone_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "weights_exceed", None)
    assert choose_chain(deep(), replace(UP5K, lc=2500), ICE40) is None


def test_needs_of_a_task_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    body = deep()
    network, layers = network_of(body), read_layers(body)
    known: needs.Known = {}
    found = needs.task_needs(network, array_of(8, 2, 4), known)
    # The task in front of the cut stores codes whose zero nobody may shift, and is looked at again.
    asked: list[str] = []
    monkeypatch.setattr(needs, "Tiler", lambda task, *_: asked.append(task.node) or found[network.tasks.index(task)])
    part = segment_of(network, layers, 0, 4)
    assert needs.task_needs(part, array_of(8, 2, 4), known)[:-1] == found[: len(part.tasks) - 1]
    assert set(asked) <= {part.tasks[-1].node}


@pytest.mark.parametrize(("count", "left"), [(0, 0), (5, 5), (200, CHAINS.most_cuts)])
def test_chain_of_a_deep_network_is_cut_at_places_that_are_evenly_spread(count: int, left: int) -> None:
    cuts = thinned(range(1, count + 1))
    gaps = {after - before for before, after in pairwise(cuts)}
    assert len(cuts) == left
    assert len(gaps) <= 2
    assert all(gap > 0 for gap in gaps)
