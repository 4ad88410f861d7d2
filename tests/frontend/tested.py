"""How far the examples of each operator go; `python -m tests.frontend.tested` writes it into the support matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from nnhw.frontend import capture, translator
from nnhw.frontend.capture import HANDLERS
from nnhw.ir import Graph
from nnhw.nn import Int, QuantLinear
from tests.frontend.examples import BETWEEN_VALUES, CURVES, ENDS, EXACT, SEQUENCES, STEP_BY_STEP, Forward, Net, trimmed
from tests.frontend.models import images, settled
from tests.frontend.operators_page import support_matrix

MATRIX = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
REFUSED = {
    "reciprocal": "gives the same result for every input",
}
"""Examples that are no network of a device, and why."""
VARIANTS = (
    *("prelu_one", "power_one", "residual", "gate", "difference", "swish", "gelu_tanh", "permute_sizes_of_one"),
    *("max_pool2d_rest", "max_pool2d_ceil", "avg_pool2d_padding", "avg_pool2d_uncounted", "avg_pool2d_divisor"),
    *("avg_pool2d_border", "avg_pool2d_rest", "avg_pool1d_rest"),
    *("global", "mean_rows", "mean_of_rows", "sum_of_rows", "amax_of_rows", "cat", "cat_scales", "linear_one_row"),
    *(
        "alpha_of_numbers",
        "pad_line",
        "pad_code",
        "pad_between_codes",
        "pad_beyond_codes",
        "pad_nothing",
        "upsample_size",
    ),
)
"""Examples whose operators have another one, and that are not compiled, which takes a second or two for each."""
ROWS = ("linear_rows", "matmul", "matmul_transposed", "transposed_weights", "observed_weights")
"""Examples that read rows: the host permutes their input, so that they are a network of their own."""
_EXAMPLES: dict[str, Forward] = {
    **{name: function for name, (function, _) in EXACT.items()},
    **CURVES,
    **BETWEEN_VALUES,
}
_OTHERS = [name for name in _EXAMPLES if name not in (*REFUSED, *VARIANTS, *ROWS, *BETWEEN_VALUES)]
NETWORKS = (ROWS, tuple(BETWEEN_VALUES), *(_OTHERS[start::6] for start in range(6)))
"""Examples that are compiled together."""


class OnDevice(nn.Module):
    """Examples side by side, each between two quantizers, with a layer behind it."""

    def __init__(self, functions: Sequence[Forward]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(Net(function) for function in functions)
        with torch.no_grad():
            sizes = [net.eval()(example_images(1)).numel() for net in self.nets]
        self.layers = nn.ModuleList(QuantLinear(size, 2, weight_quant=Int(3, 2**-2)) for size in sizes)
        self.end = Int(5, 2**-2)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, 8, 8] --> [N, 2 for each example]."""
        pairs = zip(self.nets, self.layers, strict=True)
        return torch.cat([self.end(layer(self.end(net(x)).flatten(1))) for net, layer in pairs], 1)


def example_images(count: int) -> Tensor:
    """Return images [count, 3, 8, 8] over the whole range of the examples' codes."""
    return images(count, (3, 8, 8)) * 8 - 4


@contextmanager
def recorded() -> Iterator[tuple[set[str], set[str]]]:
    """Note which operators are translated meanwhile, and which are computed from constants."""
    handled: set[str] = set()
    computed: set[str] = set()

    def noting(found: set[str], handler: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            found.add(arguments[-1].operator)
            return handler(*arguments)

        return wrapped

    patched = {name: noting(handled, handler) for name, handler in HANDLERS.items()}
    constant = noting(computed, translator.computed_constant)
    with mock.patch.dict(HANDLERS, patched), mock.patch.object(translator, "computed_constant", constant):
        yield handled, computed


@cache
def on_device(network: int) -> tuple[Graph, frozenset[str], frozenset[str]]:
    """Return the captured graph of a network, the operators in it, and those that constants were computed by."""
    with recorded() as (operators, constants):
        model = settled(OnDevice([_EXAMPLES[name] for name in NETWORKS[network]]))
        graph = capture(trimmed(model, example_images(3)), example_images(3))
    return graph, frozenset(operators), frozenset(constants)


@cache
def tested() -> dict[str, str]:
    """Return how far each operator goes."""
    with recorded() as (ends, _):
        for function in ENDS.values():
            capture(trimmed(settled(Net(function)), example_images(2)), example_images(2))
    with recorded() as (steps, _):
        for model in SEQUENCES.values():
            capture(model().eval(), torch.randn(2, 4, 3))
    with recorded() as (loops, _):
        for model in STEP_BY_STEP.values():
            capture(model().eval(), torch.randn(2, 4, 3))
    networks = [on_device(network) for network in range(len(NETWORKS))]
    inside, constants = (frozenset[str]().union(*(network[index] for network in networks)) for index in (1, 2))
    found: dict[str, str] = {}
    for stage, operators in (*(("weights", constants), ("steps", steps), ("host", ends), ("RTL", inside | loops)),):
        found |= dict.fromkeys(operators & HANDLERS.keys(), stage)
    return found


if __name__ == "__main__":
    MATRIX.write_text(support_matrix(tested()), encoding="utf-8")
