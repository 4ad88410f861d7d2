"""The bits that weights take at least: no folding's memories have fewer, and what cannot fit is refused at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.engines.encoding import encode
from nnhw.engines.matmul import MatmulConfig
from nnhw.errors import DoesNotFitError
from nnhw.families import ICE40, Cost
from nnhw.ir import BIPOLAR, Graph, IntType
from nnhw.mapping.budget import Budget, does_not_fit
from nnhw.mapping.cost.constants import varying_columns
from nnhw.mapping.design_space import FEW_LAYERS, Candidate, DesignSpace
from nnhw.mapping.folding import Folding, foldings
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.least_weights import FEW_WEIGHTS, least_weight_bits, refuse_graph
from nnhw.mapping.mapper import Mapper, map_body
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared import shared_accelerator
from nnhw.mapping.shared.shared_accelerator import map_shared
from tests.mapping.bodies import LayerSpec, make_body

SMALL_ROMS = replace(ICE40, logic=replace(ICE40.logic, rom_words=0))
"""A family in which no layer is too small for a bound."""
UP5K = Budget(lc=4400, ebr=30, dsp=8, spram=4)


def stored_bits(config: MatmulConfig) -> int:
    """Return the bits of an array's memories of weights, without those that are the same in all words."""
    words = encode(config.weights, config.weight).reshape(config.folds, config.pe, config.steps, config.simd)
    depth = config.folds * config.steps
    return varying_columns(words.transpose(0, 2, 1, 3).reshape(depth, -1)) * depth


@pytest.mark.parametrize("spec", [LayerSpec(12, (3, 3), weight=IntType(-8, 7)), LayerSpec(6, weight=BIPOLAR)])
def test_least_weight_bits_is_the_least_of_all_foldings(spec: LayerSpec) -> None:
    body = make_body((4, 3, 4), IntType(0, 15), [spec, LayerSpec(3, steps=0)])
    read, *others = read_layers(body)
    assert isinstance(read, MatrixLayer)
    # Some memories have bits that are the same in all words: those of a channel, and the signs of every other output.
    weights = read.weights.copy()
    weights[::2] = np.abs(weights[::2])
    weights[:, 1] = weights[0, 1, 0, 0]
    layer = replace(read, weights=weights)
    space = DesignSpace(body, [layer, *others], ICE40)
    arrays = [space.engines(layer, folding) for folding in foldings(layer)]
    stored = [stored_bits(config) for engines in arrays for config in engines if isinstance(config, MatmulConfig)]
    assert len(set(stored)) > 3
    # The finest array of all may need more drained sums in a cycle than there are: then it is no folding.
    assert least_weight_bits(layer.weights, layer.weight, layer.groups, SMALL_ROMS) <= min(stored)
    assert least_weight_bits(layer.weights, layer.weight, layer.groups, ICE40) == 0


def large() -> Graph:
    """Return a network of random weights with more of them than are costed, whatever the board."""
    layers = [LayerSpec(400, weight=IntType(-8, 7), steps=15)] * 4
    return make_body((400,), IntType(0, 15), [*layers, LayerSpec(3, steps=0)])


def test_mapper_refuses_a_large_network_before_it_counts_a_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    body = large()
    assert sum(layer.weights.size for layer in read_layers(body) if isinstance(layer, MatrixLayer)) > FEW_WEIGHTS
    monkeypatch.setattr(DesignSpace, "candidate", None)
    with pytest.raises(DoesNotFitError) as caught:
        map_body(body, "test", UP5K)
    assert str(caught.value) == (
        "the network does not fit: its weights alone take at least 2,560,000 bits, but the 30 block RAMs and 4400 "
        "logic cells that the board leaves to the engines hold at most 269,312 (less than 10.5% of them); the "
        "largest layer is 'layer0' (net.py:10) with at least 640,000 bits; use fewer channels or fewer bits, or a "
        "board with more resources ('nnhw boards')"
    )


def test_captured_graph_is_refused_where_no_memory_of_a_board_holds_its_weights() -> None:
    refuse_graph(large(), replace(UP5K, spram=6), ICE40)
    with pytest.raises(DoesNotFitError) as caught:
        refuse_graph(large(), replace(UP5K, spram=1), ICE40)
    assert str(caught.value) == (
        "the network does not fit: its weights alone take at least 2,560,000 bits, but all memories and logic cells "
        "that the board leaves hold at most 531,456 (less than 20.8% of them); the largest layer is 'layer0' "
        "(net.py:10) with at least 640,000 bits; use fewer channels or fewer bits, or a board with more resources "
        "('nnhw boards')"
    )


def test_shared_engine_refuses_a_large_network_before_it_reads_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_accelerator, "network_of", None)
    with pytest.raises(DoesNotFitError) as caught:
        map_shared(large(), "test", replace(UP5K, spram=1), ICE40)
    assert str(caught.value) == (
        "the weights take 2,561,200 bits, the memory has 262,144 (2,299,056 bits too many); use fewer bits for "
        "weights, fewer channels or a larger board"
    )


def test_shared_engine_names_the_other_style_where_that_may_hold_the_weights() -> None:
    with pytest.raises(DoesNotFitError, match=r"fewer channels, a larger board, or --style streaming$"):
        map_shared(large(), "test", replace(UP5K, lc=1e6, spram=1), ICE40)


def test_mapper_refuses_many_layers_by_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    body = make_body((8,), BIPOLAR, [*[LayerSpec(8)] * 40, LayerSpec(3, steps=0)])
    looked_at, candidate = set[str](), DesignSpace.candidate

    def noted(space: DesignSpace, layer: Layer, folding: Folding) -> Candidate:
        looked_at.add(layer.name)
        return candidate(space, layer, folding)

    monkeypatch.setattr(DesignSpace, "candidate", noted)
    with pytest.raises(DoesNotFitError) as caught:
        map_body(body, "test", Budget(lc=300, ebr=4))
    assert looked_at == {layer.name for layer in read_layers(body)[:FEW_LAYERS]}
    assert [need.name for need in caught.value.layers] == [layer.name for layer in read_layers(body)[:FEW_LAYERS]]
    message = str(caught.value)
    assert message.startswith("the network does not fit: the first 16 of 41 layers' smallest mapping at 32 cycles")
    assert "; the largest of these is 'layer0' (net.py:10) with 64 weight bits; less than " in message
    roomy = Mapper.of(body, "test", ICE40, {}, budget=Budget(lc=1e6, ebr=100))
    assert len(roomy.frontiers) == len(read_layers(body))


def test_message_that_a_network_does_not_fit_says_at_least_one_cell_and_what_a_link_leaves() -> None:
    assert Budget(lc=10, ebr=1, ff=5).excess(Cost(lc=10.2, ff=5.4)) == (
        "1 logic cells too many and 1 flip-flops too many"
    )
    cause, remedy = does_not_fit((), 8, Cost(lc=10), Budget(lc=-20, ebr=3), 4096)
    assert cause.endswith("(30 logic cells too many)")
    assert remedy == (
        "what stands beside the engines, such as the link, takes more than there is: use another link (--link), or a "
        "board with more resources ('nnhw boards')"
    )
