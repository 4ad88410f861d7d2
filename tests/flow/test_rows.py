"""Linear layers along the features of rows: reference, IR, every stage and RTL compare equal; what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from benchmarks.random_networks import check_network
from nnhw.errors import MappingError
from nnhw.flow.models.lowering import lower_graph
from nnhw.frontend import capture
from nnhw.mapping.mapper import map_body
from nnhw.mapping.shared import compile_body
from nnhw.nn import Int, QuantConv1d, QuantConv2d, QuantLinear, UInt
from nnhw.passes import Parts
from tests.mapping.shared.programs import array_of
from tests.mapping.test_mapper import LARGE, check_equal
from tests.marks import covering
from tests.sim.test_benches import pytestmark as needs_simulator

Forward = Callable[[Any, Tensor], Tensor]


class Net(nn.Module):
    """One forward function and the layers that it takes: from 6 features or channels to 8, and from there on."""

    def __init__(self, function: Forward) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.function = function
        self.codes, self.again = Int(8, scale=2**-5), Int(8, scale=2**-5)
        self.first, self.same, self.last = weighted(6, 8), weighted(8, 8, axis=-1), weighted(8, 4)
        self.flat, self.wide = weighted(40, 3), weighted(6, 40)
        self.act, self.second_act, self.mean = (UInt(8, scale=2**-6) for _ in range(3))
        self.weight, self.weight_codes = nn.Parameter(torch.randn(6, 8)), Int(4, "max_abs", axis=1)
        self.line = QuantConv1d(6, 8, 3, padding=1, weight_quant=Int(8, "max_abs", axis=0))
        self.image = QuantConv2d(8, 2, 3, weight_quant=Int(8, "max_abs", axis=0))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        """Compute what the function says, of codes."""
        return self.function(self, self.codes(x))


def weighted(inputs: int, outputs: int, axis: int = 0) -> QuantLinear:
    return QuantLinear(inputs, outputs, weight_quant=Int(8, "max_abs", axis=axis), bias=axis == 0)


def hidden(m: Any, x: Tensor) -> Tensor:
    """Return the codes of the first layer, [.., 8]."""
    result: Tensor = m.act(torch.relu(m.first(x)))
    return result


def residual(m: Any, x: Tensor) -> Tensor:
    """Return a layer along the features beside its input, summed."""
    x = hidden(m, x)
    result: Tensor = m.again(x + m.codes(functional.gelu(m.same(x))))
    return result


NETWORKS: dict[str, tuple[Forward, tuple[int, ...]]] = {
    "one": (lambda m, x: m.first(x), (5, 6)),
    "codes": (hidden, (5, 6)),
    "three": (lambda m, x: m.last(m.second_act(torch.relu(m.same(hidden(m, x))))), (5, 6)),
    "one_row": (lambda m, x: m.last(hidden(m, x)), (1, 6)),
    "many_axes": (lambda m, x: m.last(hidden(m, x).flatten(1, 2)), (2, 3, 6)),
    "matmul": (lambda m, x: m.act(torch.relu(x @ m.weight_codes(m.weight))), (5, 6)),
    "flattened": (lambda m, x: m.flat(hidden(m, x).flatten(1)), (5, 6)),
    "mean": (lambda m, x: m.last(m.mean(hidden(m, x).mean(1))), (5, 6)),
    "mean_of_many_axes": (lambda m, x: m.last(m.mean(hidden(m, x).mean((1, 2)))), (2, 3, 6)),
    "amax": (lambda m, x: m.last(m.act(torch.relu(m.first(x)).amax(1))), (5, 6)),
    "sum": (lambda m, x: hidden(m, x).sum(1), (5, 6)),
    "pooled": (lambda m, x: functional.max_pool1d(hidden(m, x).transpose(1, 2), 2), (6, 6)),
    "residual": (lambda m, x: m.flat(residual(m, x).flatten(1)), (5, 6)),
    "joined": (lambda m, x: m.again(torch.cat([x, m.codes(m.first(x))], 2)).sum(1), (5, 6)),
    "normed": (lambda m, x: m.last(m.act(m.norm(m.first(x).transpose(1, 2)).transpose(1, 2))), (5, 6)),
    "behind_series": (lambda m, x: m.last(m.act(m.line(x)).transpose(1, 2)), (6, 5)),
    "in_front_of_image": (lambda m, x: m.image(hidden(m, x).transpose(1, 2).unflatten(2, (3, 4))), (12, 6)),
    "channels_last": (lambda m, x: m.image(m.act(m.first(x)).permute(0, 3, 1, 2)), (4, 5, 6)),
    "behind_vector": (lambda m, x: m.last(m.act(m.wide(x)).view(-1, 5, 8)), (6,)),
    "vector_of_rows": (lambda m, x: m.last(m.act(m.first(x.view(-1, 5, 6)))), (30,)),
}


def lowered(model: nn.Module, shape: tuple[int, ...]) -> Parts:
    """Return the lowered parts of a model, whose every pass gives the reference's values."""
    inputs = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        graph = capture(model.eval(), inputs)
        answers = model.double()(inputs.double()).numpy()
    parts, facts = lower_graph(graph, {"inputs": inputs.numpy(), "torch_float64": answers})
    assert set(facts["passes"].values()) == {0}
    assert facts["torch_float64_ir"] == 0
    assert len(np.unique(answers)) > 6
    return parts


@pytest.mark.usefixtures("deep_fifos")
@pytest.mark.parametrize("name", NETWORKS)
def test_rows_equal_reference_from_ir_to_golden_stages(name: str) -> None:
    function, shape = NETWORKS[name]
    body = lowered(Net(function), shape).body
    check_equal(body, map_body(body, "test", LARGE, target_interval=2000))


class FloatRows(nn.Module):
    """A block along the features of patches of an image, with a sum of branches and a mean over the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, 6, 2, stride=2)
        self.wide, self.narrow, self.last = nn.Linear(6, 12), nn.Linear(12, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.narrow(functional.gelu(self.wide(x)))
        result: Tensor = self.last(x.mean(dim=1))
        return result


@pytest.mark.usefixtures("deep_fifos")
def test_rows_of_a_float_model_are_quantized_and_equal_to_golden_stages() -> None:
    torch.manual_seed(0)
    model = nnhw.quantize(FloatRows().eval(), torch.randn(40, 2, 6, 6), 8, 8)
    body = lowered(model, (2, 6, 6)).body
    check_equal(body, map_body(body, "test", LARGE, target_interval=2000))


def random_rows(seed: int) -> tuple[nn.Sequential, Tensor]:
    """Return a random network of layers along the features of rows, and inputs, the same for each seed."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    *lead, width = shape = [int(size) for size in rng.integers(1, 7, rng.integers(2, 4))]
    modules: list[nn.Module] = [Int(int(rng.integers(2, 9)), scale=2**-5)]
    for _ in range(int(rng.integers(1, 4))):
        outputs, axis, bits = int(rng.integers(1, 9)), int(rng.integers(-1, 1)), int(rng.integers(2, 9))
        weights = Int(bits, "max_abs", axis=axis)
        modules.append(QuantLinear(width, outputs, weight_quant=weights, bias=bool(rng.integers(2))))
        modules += [(nn.ReLU, nn.SiLU, nn.Identity, nn.Tanh)[int(rng.integers(4))](), Int(8, scale=2**-6)]
        width = outputs
    if rng.integers(2):
        modules.append(nn.Flatten())
        width *= int(np.prod(lead))
    modules.append(QuantLinear(width, 3, weight_quant=Int(4, 0.125)))
    return nn.Sequential(*modules).eval(), torch.randn(6, *shape)


@pytest.mark.parametrize("seed", covering(range(12), range(3)))
def test_random_rows_equal_reference_from_ir_to_golden_stages(seed: int) -> None:
    found = check_network(seed, mapped=True, make=random_rows)
    assert (found.refused, found.failure) == ("", "")


@needs_simulator
def test_rows_equal_reference_in_rtl() -> None:
    def make(seed: int) -> tuple[nn.Sequential, Tensor]:
        torch.manual_seed(seed)
        layers = [
            Int(4, scale=2**-2),
            weighted(6, 8),
            nn.ReLU(),
            UInt(4, scale=0.25),
            weighted(8, 4),
            Int(4, scale=0.25),
        ]
        return nn.Sequential(*layers, nn.Flatten(), weighted(20, 3)).eval(), torch.randn(6, 5, 6)

    found = check_network(0, simulated=True, make=make)
    assert (found.refused, found.failure, found.stage) == ("", "", "simulate")
    assert found.counts["rtl_frames"] > 0


def test_rows_reject_a_shared_engine_whose_layer_reads_another_shape_than_was_made() -> None:
    function, shape = NETWORKS["behind_vector"]
    with pytest.raises(MappingError, match=r"layer 'last' .* reads \[8, 1, 5\] where the layer in front makes"):
        compile_body(lowered(Net(function), shape).body, array_of(8, 2, 8))
