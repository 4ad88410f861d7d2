"""Wide layers in halves: the same numbers, and one layer more."""

from __future__ import annotations

import numpy as np

from benchmarks.splitting import halved, largest, prime
from nnhw import ir
from nnhw.frontend.source import Source
from nnhw.ir.ops import Concat, Linear
from nnhw.passes import lower, split


def test_layer_in_halves_computes_the_same() -> None:
    model, example = prime()
    body = split(lower(Source(model, example, "m").capture())).body
    halves = halved(body, largest(body))
    rows = [len(halves.constants[node.inputs[1]]) for node in halves.nodes if isinstance(node.op, Linear)]
    assert rows == [30, 31, 10]
    assert sum(isinstance(node.op, Concat) for node in halves.nodes) == 1
    source = body.inputs[0].type
    codes = np.random.default_rng(0).integers(source.int_dtype.low, source.int_dtype.high + 1, (50, *source.shape))
    assert np.array_equal(ir.run(body, codes)[0], ir.run(halves, codes)[0])
