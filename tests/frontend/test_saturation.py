"""Quantizers behind functions that saturate: PyTorch's float64 == reference == integer graph, or they are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.errors import LoweringError
from nnhw.frontend import capture
from nnhw.ir import Op, run
from nnhw.ir.ops import Elu, Exp, Gelu, Mish, Sigmoid, Silu, Softplus, Tanh
from nnhw.nn import Int, Quantizer, QuantLinear, Sign
from nnhw.passes import lower

Function = Callable[[Tensor], Tensor]


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


FUNCTIONS: dict[str, Function] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "mish": functional.mish,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "sigmoid_minus_one": lambda x: torch.sigmoid(x) - 1,
    "tanh_minus_one": lambda x: torch.tanh(x) - 1,
    "tanh_plus_one": lambda x: torch.tanh(x) + 1,
    "elu": functional.elu,
    "elu_plus_one": lambda x: functional.elu(x) + 1,
    "minus_softplus": lambda x: -functional.softplus(x),
    "log_sigmoid": functional.logsigmoid,
    "minus_exp": lambda x: -torch.exp(-torch.relu(x)),
    "hardswish": functional.hardswish,
}
RANGES = {"around_zero": (0.0625, 0.0), "wide": (1.0, 0.0), "below": (0.0625, -11.0), "far": (8.0, 0.0)}
"""Input scale and bias of a layer, whose 256 sums times the scale, plus the bias, come to the function."""
REFUSED = {
    ("sign", name, where)
    for names, where in [
        (("gelu", "gelu_tanh"), "below"),
        (("gelu_tanh",), "around_zero"),
        (("sigmoid_minus_one", "tanh_minus_one"), "wide"),
        (("mish", "silu", "minus_softplus", "log_sigmoid", "minus_exp"), "far"),
    ]
    for name in names
}
QUANTIZERS: dict[str, Callable[[], nn.Module]] = {
    "sign": Sign,
    "unsigned1": lambda: Quantizer(0, 1, 2.0**-3),
    "int2": lambda: Int(2, 2.0**-6),
    "int8": lambda: Int(8, 2.0**-10),
    "int5": lambda: Int(5, 2 / 7),
}


class Branch(nn.Module):
    """A quantizer behind a function of all 256 sums of a layer; reads their numbers."""

    def __init__(self, name: str, quantizer: str, where: str) -> None:
        super().__init__()
        self.scale, bias = RANGES[where]
        layer = QuantLinear(1, 1, weight_quant=Int(2, 1.0))
        layer.weight.data[:], layer.bias.data[:] = 1.0, bias
        self.layers = nn.Sequential(Int(8, self.scale), layer, Applied(FUNCTIONS[name]), QUANTIZERS[quantizer]())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x * self.scale)
        return result


class Branches(nn.Module):
    """Several of them, which are traced at once."""

    def __init__(self, name: str, places: list[tuple[str, str]]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Branch(name, *place) for place in places)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(branch(x) for branch in self.branches)


def places_of(name: str) -> list[tuple[str, str]]:
    """Return quantizers and ranges to look at: signs in each range, and each other quantizer in one."""
    start = list(FUNCTIONS).index(name)
    others = [
        (quantizer, list(RANGES)[(start + number) % len(RANGES)])
        for number, quantizer in enumerate(QUANTIZERS)
        if quantizer != "sign"
    ]
    return [*(("sign", where) for where in RANGES), *others]


NUMBERS = torch.arange(-128.0, 128.0).reshape(-1, 1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_codes_behind_saturating_functions_are_those_of_torch_float64(name: str) -> None:
    places = [place for place in places_of(name) if (place[0], name, place[1]) not in REFUSED]
    model, images = Branches(name, places).eval(), NUMBERS.double().numpy()
    graph = capture(model, NUMBERS[:2])
    with torch.no_grad():
        expected = model.double()(NUMBERS.double())
    results = zip(places, expected, run(graph, images), run(lower(graph), images), strict=True)
    for place, wanted, reference, result in results:
        assert np.array_equal(wanted.numpy(), reference), place
        assert np.array_equal(result, reference), place


@pytest.mark.parametrize(("quantizer", "name", "where"), sorted(REFUSED))
def test_codes_from_the_last_bits_of_a_function_are_refused(quantizer: str, name: str, where: str) -> None:
    graph = capture(Branch(name, quantizer, where).eval(), NUMBERS[:2])
    with pytest.raises(LoweringError, match="takes its code from the last bits of"):
        lower(graph)


LIBRARY: list[tuple[Op, Function]] = [
    (Gelu(), FUNCTIONS["gelu"]), (Gelu(tanh_form=True), FUNCTIONS["gelu_tanh"]), (Mish(), functional.mish),
    (Silu(), functional.silu), (Sigmoid(), torch.sigmoid), (Tanh(), torch.tanh), (Elu(), functional.elu),
    (Elu(0.5, 2.0, 3.0), lambda x: torch.ops.aten.elu(x, 0.5, 2.0, 3.0)), (Exp(), torch.exp),
    (Softplus(), functional.softplus), (Softplus(2.0, 6.0), lambda x: functional.softplus(x, 2.0, 6.0)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "function"), LIBRARY, ids=lambda item: str(item) if isinstance(item, Op) else "")
def test_waver_bounds_the_distance_from_torch_float64(op: Op, function: Function) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [np.linspace(low, high, 40_001) for low, high in [(-60, 60), (-9, 0), (-760, -700), (-1e-6, 1e-6)]]
    )
    x = np.concatenate([x, x * rng.uniform(0.9, 1.1, x.shape)])
    result = op.evaluate(x)
    waver = op.waver(x, result)
    assert waver is not None
    assert (np.abs(function(torch.from_numpy(x)).numpy() - result) <= waver).all()
