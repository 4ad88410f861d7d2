"""A residual network with the arithmetic of TFLite through cocotb: both styles equal the graph before lowering."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnhw.boards import load_board
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.verification.simulate import boundary_values, simulate_accelerator
from nnhw.ir import Graph, IntType, run
from nnhw.ir.ops import Pad, Rescale, SumPool2d, WeightedSum
from nnhw.passes import lower
from tests.mapping.bodies import codes_of
from tests.mapping.networks import Network
from tests.sim.test_benches import pytestmark as needs_simulator

INT8, WIDE = IntType(-128, 127), 1 << 30
INT32 = IntType(-(1 << 31), (1 << 31) - 1)
PATTERNS = [("none", "none"), ("random", "rare")]


def rescaled(net: Network, x: str, op: Rescale, multiplier: int, exponent: int, bias: int = 0) -> str:
    """Add a rescaling with one multiplier for all channels."""
    channels = net.builder.type_of(x).shape[0]
    names = [net.constant(np.full(channels, number), INT32) for number in (multiplier, exponent, bias)]
    return net.add(op, x, *names)


def residual() -> Graph:
    """Signed codes behind two convolutions, added with unlike scales; a mean over the map, rescaled."""
    net = Network((3, 5, 4), INT8)
    codes = Rescale(-7, -128, 127, "double")
    a = rescaled(net, net.conv(net.input, 5, (1, 1), INT8), codes, 1518500250, -7, 33)
    b = rescaled(net, net.conv(net.add(Pad((1, 1), (1, 1), -7), a), 5, (3, 3), INT8), codes, 1193001477, -9, -91)
    wide = Rescale(0, -WIDE, WIDE - 1, "double")
    branches = [rescaled(net, a, wide, 1073741824, 20, 7), rescaled(net, b, wide, 1822642773, 19, 7)]
    total = net.add(WeightedSum((1, 1)), *branches)
    x = rescaled(net, total, Rescale(4, -128, 127, "double"), 1342177280, -19)
    return net.body(rescaled(net, net.add(SumPool2d((5, 4), (5, 4)), x), codes, 1717986918, -4))


@needs_simulator
@pytest.mark.parametrize("style", ["streaming", "shared"])
def test_residual_network_equals_its_graph(style: str, tmp_path: Path) -> None:
    graph = residual()
    body = lower(graph)
    kind = graph.inputs[0].type
    codes = codes_of(kind.int_dtype, (3, *kind.shape), np.random.default_rng(1))
    assert (run(body, codes)[0] == run(graph, codes)[0]).all()
    accelerator = map_on_board(body, load_board("ulx3s_85f"), Options(style=style, target_fps=2000))[0].accelerator
    values = boundary_values(body, codes)
    result = simulate_accelerator(accelerator, codes, values, PATTERNS, tmp_path, SilentProgress())
    assert result.equal
