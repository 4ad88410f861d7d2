"""The mapper: what it makes computes what the graph computes, fits, is as fast as it can be, and says why when not."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.accelerator import Accelerator
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError, ProblemList
from nnhw.families import ECP5, ICE40, Cost, Family
from nnhw.flow.verification.comparison import compare_stages
from nnhw.ir import BIPOLAR, Graph, IntType, run
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import accelerator_cost, cost
from nnhw.mapping.design_space import DesignSpace
from nnhw.mapping.folding import Folding
from nnhw.mapping.layers import MatrixLayer
from nnhw.mapping.mapper import map_body
from nnhw.mapping.placement import PartMover
from nnhw.mapping.reader import read_layers
from tests.mapping.bodies import LayerSpec, codes_of, make_body
from tests.mapping.networks import NETWORKS

LARGE = Budget(lc=100_000, ebr=1000)
U4, I8 = IntType(0, 15), IntType(-128, 127)
MLP = [LayerSpec(64), LayerSpec(64), LayerSpec(10, steps=0)]


def check_equal(body: Graph, accelerator: Accelerator, frames: int = 2, seed: int = 1) -> None:
    """Compare the stages with the interpreter at every boundary, and the byte formats at both ends."""
    rng = np.random.default_rng(seed)
    (source,) = body.inputs
    codes = codes_of(source.type.int_dtype, (frames, *source.type.shape), rng)
    result, form = run(body, codes)[0], accelerator.output_format
    found = compare_stages(accelerator, body, codes)
    assert [one.name for one in found if not one.equal] == []
    assert len(found) == len(accelerator.boundaries) + 1 > 1
    assert (accelerator.input_format.unpack(accelerator.input_format.pack(codes)) == codes).all()
    assert (form.unpack(form.pack(result)) == result).all()
    assert form.pack(result).shape == (frames, form.frame_bytes)


@pytest.mark.parametrize(
    ("shape", "element", "specs"),
    [
        ((784,), BIPOLAR, MLP),
        ((13,), IntType(-8, 7), [LayerSpec(7, weight=IntType(-4, 3), steps=3), LayerSpec(3, steps=0)]),
        (
            (1, 12, 12),
            U4,
            [
                LayerSpec(8, (3, 3), pool=2),
                LayerSpec(6, (3, 3)),
                LayerSpec(5, steps=0),
            ],
        ),
        ((3, 9, 7), IntType(0, 7), [LayerSpec(4, (3, 2), stride=(2, 1), weight=IntType(-1, 1), steps=0)]),
        ((2, 11, 11), BIPOLAR, [LayerSpec(12, (3, 3), pool=2), LayerSpec(10, (2, 2), steps=3, pool=3)]),
    ],
)
def test_mapping_equals_interpreter_at_every_boundary(
    shape: tuple[int, ...], element: IntType, specs: list[LayerSpec]
) -> None:
    body = make_body(shape, element, specs)
    check_equal(body, map_body(body, "test", LARGE))
    check_equal(body, map_body(body, "test", LARGE, target_interval=100_000))


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.integers(1, 4),
    st.integers(5, 9),
    st.integers(5, 9),
    st.sampled_from([BIPOLAR, U4, IntType(-2, 1)]),
    st.lists(st.sampled_from([2, 3, 4, 6]), min_size=1, max_size=2),
    st.sampled_from([1, 3]),
    st.integers(1, 5000),
)
def test_random_networks_equal_interpreter(
    channels: int, height: int, width: int, element: IntType, outputs: list[int], steps: int, interval: int
) -> None:
    specs = [LayerSpec(count, (2, 2), steps=steps) for count in outputs]
    body = make_body((channels, height, width), element, [*specs, LayerSpec(3, steps=0)], seed=interval)
    check_equal(body, map_body(body, "test", LARGE, target_interval=interval), frames=1)


def test_mapping_of_mlp_reaches_the_bound_of_its_weight_memory() -> None:
    body = make_body((784,), BIPOLAR, [LayerSpec(64), LayerSpec(64), LayerSpec(64), LayerSpec(10, steps=0)])
    accelerator = map_body(body, "icebreaker", Budget(lc=3800, ebr=28))
    assert accelerator.schedule.interval_cycles == 196
    first = next(stage.config for stage in accelerator.stages if isinstance(stage.config, MatmulConfig))
    assert (first.pe, first.simd, first.logic_pe) == (16, 16, 0)


@pytest.mark.parametrize("family", [ICE40, ECP5])
def test_cost_of_a_chain_is_known_before_its_schedule(family: Family) -> None:
    body = make_body((2, 11, 11), U4, [LayerSpec(4, (3, 3), pool=2), LayerSpec(3, steps=0)])
    space = DesignSpace(body, read_layers(body), family)
    placed = [candidates[0].folding for candidates in space.frontiers({})]
    assert space.expected_cost(placed) == accelerator_cost(space.accelerator(placed, "test"), family)


def test_cost_where_branches_join_is_known_once_there_are_depths() -> None:
    body = NETWORKS["residual"]()
    space = DesignSpace(body, read_layers(body), ICE40)
    placed = [candidates[0].folding for candidates in space.frontiers({})]
    assert space.expected_cost(placed) is None
    exact = accelerator_cost(space.accelerator(placed, "test"), ICE40)
    assert space.expected_cost(placed) == exact
    assert space.expected_cost(placed, movable=True) is None


def test_mapping_stays_in_its_budget() -> None:
    body = make_body(
        (1, 28, 28), U4, [LayerSpec(16, (3, 3), pool=2), LayerSpec(32, (3, 3), pool=2), LayerSpec(10, steps=0)]
    )
    budget = Budget(lc=3800, ebr=12)
    total = sum((cost(stage.config) for stage in map_body(body, "test", budget).stages), Cost())
    assert total.ebr <= budget.ebr
    assert total.lc <= budget.lc * 1.1  # converters are not counted while the mapper chooses


def test_mapping_stays_in_its_budget_of_flip_flops() -> None:
    body = make_body((784,), U4, [LayerSpec(32, weight=U4), LayerSpec(10, steps=0)])
    free = map_body(body, "test", Budget(lc=5000, ebr=40), family=ECP5)
    taken = accelerator_cost(free, ECP5)
    assert taken.ff > 1000
    bounded = map_body(body, "test", Budget(lc=5000, ebr=40, ff=taken.ff / 2), family=ECP5)
    assert accelerator_cost(bounded, ECP5).ff <= taken.ff / 2
    assert bounded.schedule.interval_cycles > free.schedule.interval_cycles
    with pytest.raises(MappingError, match=r"\(\d+ flip-flops too many\)"):
        map_body(body, "test", Budget(lc=5000, ebr=40, ff=100), family=ECP5)


def line_buffers(family: Family, ebr: int) -> tuple[list[bool], list[bool], int]:
    """Return which line buffers are in LUTs, which weights from block RAM wait in a register, and the block RAMs."""
    body = make_body(
        (4, 9, 9), IntType(-2, 1), [LayerSpec(8, (3, 3), weight=IntType(-2, 1), steps=3), LayerSpec(10, steps=0)]
    )
    accelerator = map_body(body, "test", Budget(lc=100_000, ebr=ebr), family=family, target_interval=30_000)
    check_equal(body, accelerator, frames=1)
    configs = [stage.config for stage in accelerator.stages]
    windows = [config.in_luts for config in configs if isinstance(config, WindowConfig)]
    registered = [config.registered for config in configs if isinstance(config, MatmulConfig)]
    return windows, registered, sum(cost(config, family).ebr for config in configs)


def test_short_line_buffers_go_to_luts_of_the_ecp5_where_block_rams_run_out() -> None:
    assert line_buffers(ECP5, 4)[::2] == ([False, False], 4)
    windows, _, ebr = line_buffers(ECP5, 2)
    assert any(windows)
    assert ebr <= 2
    assert line_buffers(ICE40, 20)[0] == [False, False]


@pytest.mark.parametrize(("deep", "most"), [(None, 4), ((192, 8192), 0), ((192, 40_000), 1), ((512, 0), 4)])
def test_large_and_deep_memories_of_weights_stay_in_block_ram_where_they_are_not_routed(
    deep: tuple[int, int] | None, most: int
) -> None:
    body = make_body((16, 8, 8), U4, [LayerSpec(128, (3, 3), weight=I8, steps=0)])
    family = replace(ECP5, logic=replace(ECP5.logic, deep_rom=deep))
    (layer,) = (layer for layer in read_layers(body) if isinstance(layer, MatrixLayer))
    placement = PartMover(DesignSpace(body, [layer], family), Budget(lc=100_000, ebr=2))
    # 384 words of 4 cells, each of 12 lanes of 8 bits: 36,864 bits a cell.
    folding = Folding(channel_lanes=4, row_lanes=3, pe=4, hop=1, drain=1)
    assert placement._most_logic_pe(layer, folding) == most


@pytest.mark.parametrize(("ebr", "is_crowded"), [(26, True), (30, False)])
def test_mapping_leaves_block_rams_of_the_ecp5_free_where_they_are_crowded(ebr: int, is_crowded: bool) -> None:
    hidden = LayerSpec(16, (3, 3), weight=IntType(-8, 7), steps=15)
    body = make_body((8, 12, 12), IntType(0, 15), [hidden, hidden, LayerSpec(4, steps=0)])
    whole = replace(ECP5, room=replace(ECP5.room, easy_ebr=1.0))
    budget = Budget(lc=12000, ebr=ebr, ff=12000)
    most, least = (map_body(body, "test", budget, family=family, target_interval=2000) for family in (whole, ECP5))
    assert most.schedule.interval == least.schedule.interval
    taken, less = (accelerator_cost(one, ECP5) for one in (most, least))
    assert (taken.ebr > 0.9 * ebr) == is_crowded
    assert (less.ebr <= 0.7 * ebr, less.lc > taken.lc) == (is_crowded, is_crowded)
    assert not budget.excess(less)


def test_mapping_takes_no_more_than_an_eighth_more_logic_to_leave_block_rams_free() -> None:
    hidden = LayerSpec(16, (3, 3), weight=IntType(-8, 7), steps=15)
    body = make_body((8, 12, 12), IntType(0, 15), [hidden, hidden, LayerSpec(4, steps=0)])
    budget = Budget(lc=12000, ebr=18, ff=12000)
    taken = {}
    # As many as there are, 85 % of them, and 70 %, of which the last one takes 28 % more logic.
    for share in (1.0, 0.85, 0.7):
        limited = replace(budget, ebr=int(share * budget.ebr))
        whole = replace(ECP5, room=replace(ECP5.room, easy_ebr=1.0))
        taken[share] = accelerator_cost(map_body(body, "test", limited, family=whole, target_interval=4000), ECP5)
    assert taken[0.85].lc <= 1.125 * taken[1.0].lc < taken[0.7].lc
    assert accelerator_cost(map_body(body, "test", budget, family=ECP5, target_interval=4000), ECP5) == taken[0.85]


def test_weights_in_block_ram_wait_in_a_register_on_the_ecp5() -> None:
    assert line_buffers(ECP5, 4)[1] == [True, True]
    assert line_buffers(ICE40, 20)[1] == [False, False]


@pytest.mark.usefixtures("shallow_stack")
def test_layers_are_followed_back_to_the_input_without_recursion() -> None:
    body = make_body((2,), U4, [*[LayerSpec(2, steps=15)] * 100, LayerSpec(2, steps=0)])
    space = DesignSpace(body, read_layers(body), ECP5)
    expected = space.expected_cost([Folding(channel_lanes=1, row_lanes=1, pe=1, hop=1, drain=1)] * 101)
    assert expected is not None
    assert expected.lc > 100


def test_mapping_with_target_is_the_smallest_that_reaches_it() -> None:
    body = make_body((784,), BIPOLAR, MLP)
    costs = []
    for interval in (200, 2000, 20_000):
        accelerator = map_body(body, "test", LARGE, target_interval=interval)
        assert accelerator.schedule.interval_cycles <= interval
        costs.append(sum((cost(stage.config) for stage in accelerator.stages), Cost()).lc)
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 2 * costs[-1]


def test_mapping_is_deterministic_and_survives_saving(tmp_path) -> None:  # type: ignore[no-untyped-def]
    body = make_body((784,), BIPOLAR, MLP)
    written = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        map_body(body, "test", LARGE).save(folder)
        written.append([(folder / file).read_bytes() for file in ("accelerator.json", "accelerator.npz")])
    assert written[0] == written[1]
    check_equal(body, Accelerator.load(tmp_path / "one"))


def test_overrides_are_taken() -> None:
    body = make_body((784,), BIPOLAR, MLP)
    accelerator = map_body(body, "test", LARGE, overrides={"layer0": {"pe": 8, "channel_lanes": 4}})
    first = next(stage.config for stage in accelerator.stages if isinstance(stage.config, MatmulConfig))
    assert (first.pe, first.simd) == (8, 4)
    assert accelerator.schedule.interval_cycles == 64 // 8 * 784 // 4
    check_equal(body, accelerator)


def test_overrides_reject_unknown_layer() -> None:
    with pytest.raises(MappingError) as caught:
        map_body(make_body((784,), BIPOLAR, MLP), "test", LARGE, overrides={"fc": {"pe": 8}})
    assert str(caught.value) == (
        "the overrides name layer 'fc', which the model does not have; its layers are 'layer0', 'layer1', 'layer2'"
    )


def test_overrides_reject_a_folding_that_does_not_divide() -> None:
    with pytest.raises(MappingError) as caught:
        map_body(make_body((784,), BIPOLAR, MLP), "test", LARGE, overrides={"layer0": {"pe": 7}})
    assert str(caught.value) == (
        "layer 'layer0' (net.py:10) cannot be folded as {'pe': 7}: pe must divide its 64 outputs, "
        "channel_lanes its 784 channels, row_lanes be 1 or 1"
    )


def test_mapper_rejects_a_network_that_does_not_fit() -> None:
    with pytest.raises(MappingError) as caught:
        map_body(make_body((784,), BIPOLAR, [LayerSpec(256), LayerSpec(10, steps=0)]), "test", Budget(lc=900, ebr=10))
    message = re.sub(r"takes [\d,]+ of", "takes N of", str(caught.value))
    assert re.sub("about [0-9]+%", "about N%", message) == (
        "the network does not fit: its weights are 203,264 bits, but the 10 block RAMs that the board leaves to the "
        "engines hold 40,960; with weights in logic as well, the smallest mapping takes N of 900 logic cells; the "
        "largest layer is 'layer0' (net.py:10) with 200,704 weight bits; about N% of the network's present size would "
        "fit; use fewer channels or fewer bits, or a board with more resources ('nnhw boards')"
    )


def test_mapper_rejects_a_network_whose_weights_alone_would_fit() -> None:
    with pytest.raises(MappingError) as caught:
        map_body(make_body((64,), BIPOLAR, [LayerSpec(64), LayerSpec(10, steps=0)]), "test", Budget(lc=90, ebr=10))
    message = str(caught.value)
    assert message.startswith("the network does not fit: its smallest mapping at ")
    assert "but the board leaves 90 and 10 to the engines" in message
    assert "--target-fps" not in message


def test_mapper_rejects_everything_at_once() -> None:
    specs = [LayerSpec(4, (3, 3), padding=(1, 1)), LayerSpec(4, (3, 3), padding=(1, 0)), LayerSpec(3, steps=0)]
    with pytest.raises(ProblemList) as caught:
        map_body(make_body((1, 8, 8), U4, specs), "test", LARGE)
    assert [str(problem) for problem in caught.value.problems] == [
        f"conv2d 'layer{number}' (net.py:10) has padding of its own; lower the graph first (pass 'separate_padding')"
        for number in range(2)
    ]
