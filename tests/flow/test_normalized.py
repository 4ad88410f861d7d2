"""Softmax and normalization on the device: reference, IR, every stage and RTL compare equal; what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.random_networks import check_network, extreme_codes, rtl_difference
from nnhw.engines.normalize import NormConfig
from nnhw.errors import MappingError
from nnhw.ir import BIT, Graph, IntType
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax, WeightedSum
from nnhw.mapping.mapper import map_body
from nnhw.mapping.reader import read_layers
from nnhw.mapping.shared import compile_body
from nnhw.nn import Int, QuantLayerNorm, QuantLinear, QuantRMSNorm, QuantSoftmax
from tests.flow.test_rows import Forward, Net, lowered
from tests.mapping.networks import I4, Network
from tests.mapping.shared.programs import array_of
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator

INT8 = IntType(-128, 127)


class Normalized(Net):
    """Layers of 6, 8 and 4 features, with normalizations whose weights and biases are random."""

    def __init__(self, function: Forward) -> None:
        super().__init__(function)
        codes = Int(8, scale=2**-5)
        self.norm, self.rms = QuantLayerNorm(8, input_quant=codes), QuantRMSNorm(8, eps=1e-3, input_quant=codes)
        self.inputs = QuantLayerNorm(6, elementwise_affine=False, input_quant=codes)
        for parameter in (self.norm.weight, self.norm.bias, self.rms.weight):
            nn.init.normal_(parameter, 1, 0.3)
        self.normal = Int(4, scale=2**-2)

    def normalized(self, x: Tensor) -> Tensor:
        """Return codes of normalized codes of a layer."""
        result: Tensor = self.normal(self.norm(self.again(self.first(x))))
        return result


NETWORKS: dict[str, tuple[Forward, tuple[int, ...]]] = {
    "vector": (lambda m, x: m.last(m.normalized(x)), (6,)),
    "tokens": (lambda m, x: m.last(m.normalized(x)), (5, 6)),
    "raw": (lambda m, x: m.norm(m.again(m.first(x))), (5, 6)),
    "input": (lambda m, x: m.last(m.act(torch.relu(m.first(m.normal(m.inputs(x)))))), (5, 6)),
    "rms": (lambda m, x: m.last(m.normal(m.rms(m.again(m.first(x))))), (5, 6)),
    "residual": (lambda m, x: m.last(m.again(m.again(m.first(x)) + m.again(m.same(m.normalized(x))))), (5, 6)),
    "two": (lambda m, x: m.last(m.act(torch.relu(m.normalized(x) + m.normal(m.rms(m.again(m.first(x))))))), (3, 6)),
}


def body_of(name: str) -> Graph:
    """Return the body of a network."""
    function, shape = NETWORKS[name]
    return lowered(Normalized(function), shape).body


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", NETWORKS)
def test_normalized_networks_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    body = body_of(name)
    for interval in (100, 2000):
        accelerator = map_body(body, "test", LARGE, target_interval=interval)
        check_equal(body, accelerator)
    norms = [stage.config for stage in accelerator.stages if isinstance(stage.config, NormConfig)]
    assert len(norms) == sum(node.op.name == "integer_norm" for node in body.nodes)


@needs_simulator
@pytest.mark.parametrize("name", covering(("tokens", "raw", "two"), ("raw", "two")))
def test_normalized_networks_equal_reference_in_rtl(name: str) -> None:
    body = body_of(name)
    accelerator = map_body(body, "test", LARGE, target_interval=2000)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


def test_normalization_rejects_an_axis_whose_elements_lie_apart_in_the_stream() -> None:
    net = Network((3, 2, 5), I4)
    x = net.add(IntegerNorm(2, 4), net.code(net.conv(net.input, 3, (1, 1)), I4))
    message = (
        r"integer_norm 'integer_norm3' \(net.py:3\) works along axis 2 of \[3, 2, 5\], whose elements do not follow "
        r"one another in its stream, which has channels innermost; make it axis 0, or the last axis of a value with a "
        r"single channel"
    )
    with pytest.raises(MappingError, match=message):
        read_layers(net.body(net.linear(net.code(x, I4), 2)))


def test_normalization_along_the_rows_of_a_single_channel_equals_the_interpreter() -> None:
    net = Network((3, 4, 6), I4)
    x = net.code(net.conv(net.input, 1, (1, 1)), INT8)
    plain, rms = net.add(IntegerNorm(2, 4), x), net.code(net.add(IntegerNorm(2, 4, 6, False), x), I4)
    body = net.body(net.add(WeightedSum((1, 300)), plain, rms))
    check_equal(body, map_body(body, "test", LARGE, target_interval=300))


def test_shared_engine_rejects_a_normalization_and_names_the_other_style() -> None:
    with pytest.raises(MappingError, match=r"'norm' .*\(norm\) does not run on a shared engine; use --style streaming"):
        compile_body(body_of("tokens"), array_of(8, 2, 8))


def table_of(scale: float, span: int) -> np.ndarray:
    """Return the powers of distances 0..span."""
    return np.round(65535 * np.exp(-scale * np.arange(span + 1))).astype(np.int64)


def softmax(net: Network, x: str, op: IntegerSoftmax, scale: float = 0.1, keep: np.ndarray | None = None) -> str:
    """Add a softmax to a network; return its shares."""
    kind = net.builder.type_of(x).int_dtype
    kept = net.constant(np.ones((1,), np.int64) if keep is None else keep, BIT)
    return net.add(op, x, net.constant(table_of(scale, kind.high - kind.low), IntType(0, 65535)), kept)


def features() -> Graph:
    """Shares of features, with a function behind them, of pixels and of a vector."""
    net = Network((3, 4, 2), I4)
    x = softmax(net, net.code(net.conv(net.input, 6, (1, 1)), INT8), IntegerSoftmax(0), 0.02)
    x = net.code(net.linear(net.code(x, I4), 10), INT8)
    return net.body(net.linear(softmax(net, x, IntegerSoftmax(0, 12, 3000)), 3))


def scores() -> Graph:
    """Shares of the columns of a single channel, those above the diagonal left out."""
    net = Network((3, 5, 5), I4)
    x = net.code(net.conv(net.input, 1, (1, 1)), INT8)
    masked = softmax(net, x, IntegerSoftmax(2), 0.03, np.tril(np.ones((1, 5, 5), np.int64)))
    return net.body(net.add(WeightedSum((1, 2)), masked, softmax(net, x, IntegerSoftmax(2, 15, 1 << 15))))


def masked_tokens() -> Graph:
    """Shares of some features, the same ones of each token."""
    net = Network((6, 1, 4), I4)
    keep = np.array([1, 0, 0, 1, 1, 0])[:, None, None]
    return net.body(softmax(net, net.code(net.conv(net.input, 6, (1, 1)), I4), IntegerSoftmax(0), 0.3, keep))


SOFTMAXES: dict[str, Callable[[], Graph]] = {"features": features, "scores": scores, "masked_tokens": masked_tokens}


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", SOFTMAXES)
def test_softmaxes_equal_the_interpreter_in_golden_stages(name: str) -> None:
    body = SOFTMAXES[name]()
    for interval in (150, 3000):
        check_equal(body, map_body(body, "test", LARGE, target_interval=interval))


@needs_simulator
@pytest.mark.parametrize("name", covering(SOFTMAXES, ("features", "masked_tokens")))
def test_softmaxes_equal_the_interpreter_in_rtl(name: str) -> None:
    body = SOFTMAXES[name]()
    accelerator = map_body(body, "test", LARGE, target_interval=3000)
    assert rtl_difference(accelerator, body, extreme_codes(body, np.random.default_rng(0))) == ""


def random_normalized(seed: int) -> tuple[nn.Sequential, Tensor]:
    """Return a random network with normalizations of features and softmaxes, and inputs, the same for each seed."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    rows, width = int(rng.integers(0, 5)), int(rng.integers(2, 9))
    modules: list[nn.Module] = [Int(8, scale=2**-6)]
    for _ in range(int(rng.integers(1, 4))):
        outputs, bits = int(rng.integers(1, 14)), int(rng.integers(2, 9))
        modules.append(QuantLinear(width, outputs, weight_quant=Int(bits, "max_abs", axis=int(rng.integers(-1, 1)))))
        kind = rng.choice(["layer", "rms", "softmax"] if rows == 0 else ["layer", "rms"])
        codes = Int(int(rng.integers(3, 9)), scale=2.0 ** -int(rng.integers(2, 6)))
        if kind == "softmax":
            modules += [codes, QuantSoftmax(-1, fraction_bits=int(rng.integers(8, 16)), input_quant=codes)]
        else:
            make = QuantLayerNorm if kind == "layer" else QuantRMSNorm
            norm = make(outputs, eps=float(rng.choice([1e-5, 1e-2])), input_quant=codes)
            nn.init.normal_(norm.weight, 1, 0.5)
            modules += [codes, norm]
        modules.append(Int(int(rng.integers(3, 9)), scale=2.0 ** -int(rng.integers(2, 5))))
        width = outputs
    modules.append(QuantLinear(width, 3, weight_quant=Int(4, 0.125)))
    return nn.Sequential(*modules).eval(), torch.randn(6, *([rows] if rows else []), int(modules[1].in_features))


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("seed", covering(range(12), range(3)))
def test_random_normalized_networks_equal_reference_from_ir_to_golden_stages(seed: int) -> None:
    found = check_network(seed, mapped=True, make=random_normalized)
    assert (found.refused, found.failure) == ("", "")
