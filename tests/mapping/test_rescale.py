"""Fixed-point requantizations in the mapper: read as steps, run as steps or as what they say they are."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.engines.requantize import DoubleScaler, Requantizer
from nnhw.errors import MappingError
from nnhw.families import ICE40, Cost
from nnhw.ir import Graph, IntType
from nnhw.ir.ops import Rescale
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.mapper import map_body
from nnhw.mapping.plans import Planner
from nnhw.mapping.reader import read_layers
from tests.mapping.networks import Network
from tests.mapping.test_mapper import check_equal

CODE = IntType(-35, 60)


def convolved(rounding: str) -> Graph:
    """Return a convolution with a fixed-point requantization."""
    net = Network((2, 5, 4), IntType(0, 255))
    return net.body(net.rescale(net.conv(net.input, 4, (2, 2), IntType(-128, 127)), rounding))


def datapaths(body: Graph, layer: Layer) -> list[Requantizer]:
    """Return all datapaths of a layer's function."""
    (source,) = body.inputs
    planner = Planner(read_layers(body), (source.name, source.type.int_dtype), ICE40)
    assert layer.function is not None
    return planner.datapaths.exact(layer, layer.function)


@pytest.mark.parametrize("rounding", ["double", "single"])
def test_reader_finds_the_steps_of_a_rescaling(rounding: str) -> None:
    body = convolved(rounding)
    (layer,) = read_layers(body)
    assert isinstance(layer, MatrixLayer)
    assert layer.function is not None
    (node,) = body.output_nodes
    assert isinstance(node.op, Rescale)
    sums = body.node(node.inputs[0]).type.int_dtype
    x = np.arange(sums.low, sums.high + 1, 7)
    wanted = node.op.evaluate(x[None, None].repeat(4, axis=1), *(body.constants[name] for name in node.inputs[1:]))[0]
    for channel, (steps, codes) in enumerate(zip(layer.function.thresholds, layer.function.codes, strict=True)):
        assert (codes[np.searchsorted(steps, x, side="right")] == wanted[channel]).all()
    assert len(np.unique(wanted)) > 60
    assert layer.function.code == CODE


def test_reader_bisects_the_exact_place_of_every_step() -> None:
    body = convolved("double")
    (layer,) = read_layers(body)
    (node,) = body.output_nodes
    assert layer.function is not None
    steps, constants = layer.function.thresholds, [body.constants[name] for name in node.inputs[1:]]
    sums = body.node(node.inputs[0]).type.int_dtype
    inner = (steps > sums.low) & (steps <= sums.high)
    assert inner.sum() > 200
    at, below = (
        node.op.evaluate(places.clip(sums.low, sums.high)[None], *constants)[0] for places in (steps, steps - 1)
    )
    codes = layer.function.codes[:, 1:]
    assert (at >= codes)[inner].all()
    assert (below < codes)[inner].all()


def test_double_rounding_is_a_datapath_in_logic_and_in_dsp_blocks() -> None:
    body = convolved("double")
    (layer,) = read_layers(body)
    found = [each for each in datapaths(body, layer) if isinstance(each, DoubleScaler)]
    assert [each.dsp for each in found] == [False, True]
    assert found[0].code == CODE


def test_single_rounding_has_no_datapath_with_two() -> None:
    body = convolved("single")
    (layer,) = read_layers(body)
    found = datapaths(body, layer)
    assert found
    assert not [each for each in found if isinstance(each, DoubleScaler)]


def test_scalings_leave_block_rams_to_what_has_no_other_place() -> None:
    net = Network((9, 5, 7), IntType(0, 255))
    body = net.body(net.rescale(net.conv(net.input, 9, (2, 2), IntType(-128, 127), groups=9), "double"))
    needed = {}
    for ebr in (1000, 4):
        accelerator = map_body(body, "test", Budget(lc=2000, ebr=ebr), target_interval=1000)
        check_equal(body, accelerator)
        needed[ebr] = sum((cost(stage.config, ICE40) for stage in accelerator.stages), Cost()).ebr
    assert needed[4] <= 4 < needed[1000]


def test_rescaling_to_more_codes_than_an_engine_makes_is_refused() -> None:
    net = Network((2, 5, 4), IntType(0, 255))
    sums = net.conv(net.input, 2, (2, 2), IntType(-128, 127))
    rows = [np.array([1 << 30] * 2), np.zeros(2, np.int64), np.zeros(2, np.int64)]
    names = [net.constant(row, IntType(-(1 << 31), (1 << 31) - 1)) for row in rows]
    body = net.body(net.add(Rescale(0, -(1 << 30), (1 << 30) - 1, "double"), sums, *names))
    with pytest.raises(MappingError, match=r"^rescale .* makes 2,147,483,648 codes, an engine at most 65,536; rescale"):
        read_layers(body)
