"""Softmax of codes in fixed point: its text form, and what it refuses. Its numbers: tests/frontend/test_tflite.py."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.errors import IrError
from nnhw.ir import FLOAT, Builder, TensorType, dumps, loads, run
from nnhw.ir.ops import FixedSoftmax


def test_fixed_softmax_is_the_same_behind_its_text_form() -> None:
    builder = Builder("g")
    x = builder.input("x", (2, 5), low=-128, high=127)
    graph = builder.build(x.fixed_softmax(1, multiplier=1 << 30, left=22, least=-100))
    assert graph.nodes[-1].type == TensorType((2, 5), FLOAT)
    assert loads(dumps(graph), graph.constants) == graph
    (shares,) = run(graph, np.random.default_rng(1).integers(-128, 128, (40, 2, 5)))
    assert ((shares == np.rint(shares)) & (shares >= 0) & (shares <= 255)).all()
    assert (np.abs(shares.sum(axis=2) - 256) <= 4).all()


def test_fixed_softmax_rejects_numbers_out_of_range() -> None:
    with pytest.raises(IrError) as caught:
        FixedSoftmax(0, 1 << 31, 3, 4)
    assert str(caught.value) == (
        "fixed_softmax needs a multiplier of 0..2**31 - 1, left of 0..31 and least of 0 or below, got 2147483648, 3 "
        "and 4"
    )
