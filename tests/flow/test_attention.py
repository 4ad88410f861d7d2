"""Attention on the device: reference, IR, every stage and RTL compare equal; where FIFOs and holding buffers are."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nnhw
from benchmarks.random_networks import check_network, extreme_codes, rtl_difference
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.families import ECP5
from nnhw.ir import Graph
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import compile_body
from nnhw.nn import Int, QuantLinear, QuantSoftmax
from tests.flow.test_rows import lowered
from tests.mapping.attention import scores_of_heads
from tests.mapping.shared.programs import array_of
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.nn.test_attention import FEATURES, FORMS, LAYERS, ROWS, Function, batch
from tests.sim.test_benches import pytestmark as needs_simulator

TWICE = ("first_relu_0.0", "last_gelu_0.0")
"""Layers of which every part is in another one."""
IN_RTL = ("masked", "across", "written_out", "tokens", "first_gelu_0.1", "last_relu_0.1")


@functools.cache
def body_of(name: str) -> Graph:
    """Return the body of a form of attention, or of an encoder layer."""
    model: nn.Module = Function(FORMS[name]) if name in FORMS else LAYERS[name]
    return lowered(nnhw.quantize(model.eval(), [batch()]), (ROWS, FEATURES)).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", covering([*FORMS, *LAYERS], {*FORMS, *LAYERS} - {*TWICE}))
def test_attention_equals_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=1000, family=ECP5)
    check_equal(body, accelerator)
    products = [stage.config for stage in accelerator.stages if isinstance(stage.config, MatrixProductConfig)]
    assert len(products) == sum(node.op.name == "matrix_product" for node in body.nodes)


@needs_simulator
@pytest.mark.parametrize("name", covering(IN_RTL, ("masked", "first_gelu_0.1")))
def test_attention_equals_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=1000, family=ECP5)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


class RandomAttention(nn.Module):
    """Attention of random sizes to part of its own rows, behind a class token and positions of random rows.

    Parameters
    ----------
    rng: makes the choices.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.heads, size, mixed, self.rows, width = (int(rng.integers(1, most)) for most in (4, 5, 5, 6, 7))
        self.keys = int(rng.integers(1, self.rows + 2))
        self.width, self.token_last = width, bool(rng.random() < 0.5)
        self.input, self.codes = Int(8, scale=2**-5), Int(int(rng.integers(3, 9)), scale=2**-3)
        bits = int(rng.integers(2, 9))
        self.query, self.key, self.value = (
            QuantLinear(width, self.heads * count, weight_quant=Int(bits, "max_abs")) for count in (size, size, mixed)
        )
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, self.rows + 1, width))
        scores = Int(int(rng.integers(3, 9)), scale=2**-2)
        kept = torch.ones(self.rows + 1, self.keys).tril() if rng.random() < 0.5 else None
        self.softmax = QuantSoftmax(-1, fraction_bits=int(rng.integers(8, 12)), input_quant=scores, keep=kept)
        self.result = Int(int(rng.integers(3, 9)), scale=2**-4)
        self.out = QuantLinear(self.heads * mixed, 3, weight_quant=Int(4, 0.125))

    def split(self, x: Tensor) -> Tensor:
        """[N, rows, heads * size] --> [N, heads, rows, size]."""
        return self.codes(x).unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, rows, width] --> [N, rows + 1, 3]."""
        x, token = self.input(x), self.input(self.token).expand(x.shape[0], -1, -1)
        x = torch.cat([x, token] if self.token_last else [token, x], 1)
        x = self.input(x + self.input(self.positions))
        kept = x[:, : self.keys]
        scores = self.split(self.query(x)) @ self.split(self.key(kept)).transpose(-2, -1)
        mixed = self.softmax(scores) @ self.split(self.value(kept))
        return self.out(self.result(mixed.transpose(1, 2).flatten(2)))


def random_attention(seed: int) -> tuple[nn.Module, Tensor]:
    """Return random attention and inputs, the same for each seed."""
    torch.manual_seed(seed)
    model = RandomAttention(np.random.default_rng(seed)).eval()
    return model, torch.randn(6, model.rows, model.width)


@pytest.mark.parametrize("seed", covering(range(16), range(4)))
def test_random_attention_equals_reference_from_ir_to_golden_stages(seed: int) -> None:
    found = check_network(seed, mapped=True, make=random_attention)
    assert (found.refused, found.failure) == ("", "")


def test_queries_wait_until_all_keys_are_there() -> None:
    body = scores_of_heads()
    accelerator = map_body(body, "test", LARGE, overrides={"matrix_product7": {"channel_lanes": 2}}, family=ECP5)
    stages = accelerator.stages
    product = next(stage for stage in stages if isinstance(stage.config, MatrixProductConfig))
    windows = [stages[index] for index, _ in product.sources]
    rows, held = (stage.config for stage in windows)
    assert isinstance(rows, WindowConfig)
    assert isinstance(held, WindowConfig)
    # All keys of a frame are one row of what holds them; while it is read, the next one comes in.
    assert (held.row_words, held.rows >= 2) == (held.i_beats, True)
    queries = stages[windows[0].sources[0][0]].config
    assert isinstance(queries, FifoConfig)
    # The first key is read when the last one is there, and the queries have come in until then: all but a few.
    assert queries.depth + (1 << rows.address_bits) >= rows.i_beats - 4
    assert accelerator.schedule.interval_cycles == product.config.cycles


def test_shared_engine_refuses_products_of_computed_values() -> None:
    with pytest.raises(MappingError, match=r"\(matrixproduct\) does not run on a shared engine"):
        compile_body(scores_of_heads(), array_of(8, 2, 8))
