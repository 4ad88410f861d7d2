"""Attention in ONNX: each operator alone, with the greatest numbers that its type allows, by `==`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.export.onnx_running import check_export
from tests.export.test_c_attention import graphs

GRAPHS = graphs()


@pytest.mark.parametrize("name", GRAPHS)
def test_attention_operators_give_the_same_integers(name: str) -> None:
    graph = GRAPHS[name]
    kind = graph.inputs[0].type.int_dtype
    codes = np.random.default_rng(0).integers(kind.low, kind.high + 1, (5, *graph.inputs[0].type.shape))
    codes[0], codes[-1] = kind.low, kind.high
    check_export(graph, codes, reference=True)
