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


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_codes_behind_saturating_functions_are_those_of_torch_float64(name: str, quantizer: str) -> None:
    where = list(RANGES)[(list(FUNCTIONS).index(name) + list(QUANTIZERS).index(quantizer)) % len(RANGES)]
    for place in RANGES if quantizer == "sign" else (where,):
        check(name, quantizer, place)


def check(name: str, quantizer: str, where: str) -> None:
    """Compare all 256 sums, and what is refused with the table."""
    scale, bias = RANGES[where]
    layer = QuantLinear(1, 1, weight_quant=Int(2, 1.0))
    layer.weight.data[:], layer.bias.data[:] = 1.0, bias
    model = nn.Sequential(Int(8, scale), layer, Applied(FUNCTIONS[name]), QUANTIZERS[quantizer]()).eval()
    x = torch.arange(-128.0, 128.0).reshape(-1, 1) * scale
    graph, images = capture(model, x[:2]), x.double().numpy()
    reference = run(graph, images)[0]
    if (quantizer, name, where) in REFUSED:
        with pytest.raises(LoweringError, match="takes its code from the last bits of"):
            lower(graph)
        return
    with torch.no_grad():
        assert np.array_equal(model.double()(x.double()).numpy(), reference)
    assert np.array_equal(run(lower(graph), images)[0], reference)


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
