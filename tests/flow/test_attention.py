"""Attention on the device: reference, IR, every stage and RTL compare equal; where FIFOs and holding buffers are."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from torch import nn

import nnhw
from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.families import ECP5
from nnhw.ir import Graph
from nnhw.mapping.mapper import map_body
from tests.flow.test_rows import lowered
from tests.mapping.test_mapper import LARGE, check_equal
from tests.nn.test_attention import FEATURES, FORMS, LAYERS, ROWS, Function, batch
from tests.sim.test_benches import pytestmark as needs_simulator


@functools.cache
def body_of(name: str) -> Graph:
    """Return the body of a form of attention, or of an encoder layer."""
    model: nn.Module = Function(FORMS[name]) if name in FORMS else LAYERS[name]
    return lowered(nnhw.quantize(model.eval(), [batch()]), (ROWS, FEATURES)).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", [*FORMS, *LAYERS])
def test_attention_equals_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=1000, family=ECP5)
    check_equal(body, accelerator)
    products = [stage.config for stage in accelerator.stages if isinstance(stage.config, MatrixProductConfig)]
    assert len(products) == sum(node.op.name == "matrix_product" for node in body.nodes)


@needs_simulator
@pytest.mark.parametrize("name", ["masked", "across", "written_out", "tokens", "first_gelu_0.1", "last_relu_0.1"])
def test_attention_equals_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=1000, family=ECP5)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""
