"""Gates, squeeze-and-excitation, gated linear units, maxima: reference == IR == golden == RTL, and what maps where."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import nnhw
from benchmarks.random_networks import extreme_codes, rtl_difference
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.errors import MappingError
from nnhw.families import ECP5
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import cost
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import compile_body
from tests.flow.test_rows import lowered
from tests.mapping.products import PRODUCTS, squeeze_and_excitation
from tests.mapping.shared.programs import array_of
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.nn.test_pairs import BLOCKS, made
from tests.sim.test_benches import pytestmark as needs_simulator

SHAPE = (2, 4, 5)


def body_of(name: str) -> Graph:
    """Return the body of a float block that is quantized to 4 bits."""
    model, images = made(name)
    return lowered(nnhw.quantize(model, images, 4, 4), SHAPE).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", BLOCKS)
def test_gates_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=3000)
    assert any(isinstance(stage.config, PairConfig) for stage in accelerator.stages)
    check_equal(body, accelerator)


IN_RTL = ("mobilenet_v3", "classic", "glu_of_rows", "greater")


@needs_simulator
@pytest.mark.parametrize("name", covering(IN_RTL, ("mobilenet_v3", "greater")))
def test_gates_equal_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=3000)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


def test_map_waits_in_a_fifo_for_its_gate() -> None:
    accelerator = map_body(squeeze_and_excitation(), "test", LARGE, target_interval=200)
    for index, stage in enumerate(accelerator.stages):
        if not isinstance(stage.config, PairConfig):
            continue
        fifos = [accelerator.stages[source].config for source, _ in stage.sources]
        depths = [fifo.depth for fifo in fifos if isinstance(fifo, FifoConfig)]
        # The last element of a map is in the FIFO before its gate is there.
        assert max(depths) >= stage.config.i_beats, accelerator.stages[index].name


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_go_to_dsp_blocks_where_there_are_any(name: str) -> None:
    body = PRODUCTS[name]()
    products = sum(node.op.name == "product" for node in body.nodes)
    accelerator = map_body(body, "test", Budget(lc=100_000, ebr=1000, dsp=1000), family=ECP5, target_interval=400)
    check_equal(body, accelerator)
    configs = [stage.config for stage in accelerator.stages if isinstance(stage.config, PairConfig)]
    fitting = [config for config in configs if config.op == "product" and config.planes > 2]
    assert len([config for config in configs if config.op == "product"]) == products
    for config in fitting:
        assert cost(config, ECP5).dsp == (config.lanes if config.dsp else 0)
    assert any(config.dsp for config in fitting) or math.prod((products, len(fitting))) == 0


def test_shared_engine_refuses_a_product_and_names_the_other_style() -> None:
    with pytest.raises(MappingError, match=r"\(product\) does not run on a shared engine; use --style streaming"):
        compile_body(squeeze_and_excitation(), array_of(8, 2, 8))


def test_build_says_what_to_quantize() -> None:
    codes, layer, last = nnhw.nn.Int(8, 0.25), nnhw.nn.QuantConv2d(2, 6, 1), nnhw.nn.QuantLinear(60, 3)
    model = torch.nn.Sequential(codes, layer, torch.nn.GLU(1), nnhw.nn.Int(8, 0.25), torch.nn.Flatten(), last)
    with pytest.raises(nnhw.NnhwError, match=r"put a quantizer on each of the two factors"):
        lowered(model.eval(), SHAPE)
