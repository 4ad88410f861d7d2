"""Which layers of a model lose most with few bits: each layer's weights alone are quantized further, one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from nnhw.errors import InputError, raise_all
from nnhw.notebook import facts_table

from .bits import LayerBits
from .calibration import weight_quantizer
from .kinds import WEIGHTED, operation
from .linear import QuantLayer
from .quantizer_plan import layer_of
from .quantizers import Quantizer
from .written.watching import computed

LEAST_DB, MOST_DB = -99.0, 99.0
"""What a ratio of nothing to noise, and of a signal to no noise, is shown as."""


@dataclass(frozen=True)
class LayerSensitivity:
    """What a network loses if the weights of one layer have fewer bits.

    Parameters
    ----------
    layer: its name, as `weight_bits` of `nnhw.quantize` takes it.
    weights: number of its weights.
    bits: bits of its weights, where all others have 8.
    sqnr_db: ratio of the network's outputs to what the fewer bits change of them, in decibels.
    accuracy: share of images with the right class, 0 to 1; None without labels.
    """

    layer: str
    weights: int
    bits: int
    sqnr_db: float
    accuracy: float | None = None


class Sensitivity(tuple[LayerSensitivity, ...]):
    """The rows of `nnhw.sensitivity`, the layer that loses most first; `print` shows them as a table.

    Members
    -------
    accuracy: of the network with 8 bits everywhere; None without labels.
    """

    accuracy: float | None = None

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("layer", "weights", "bits", "SQNR dB", "accuracy")]
        for row in self:
            shown = "" if row.accuracy is None else f"{row.accuracy:.2%}"
            rows.append((row.layer, f"{row.weights:,}", str(row.bits), f"{row.sqnr_db:.1f}", shown))
        if self.accuracy is None:
            rows = [row[:-1] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for layer, *numbers in rows:
            cells = [layer.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]
            lines.append("  ".join(cells))
        if self.accuracy is not None:
            lines.append(f"with 8 bits everywhere: {self.accuracy:.2%}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return facts_table("Sensitivity", {f"{row.layer}, {row.bits} bits": f"{row.sqnr_db:.1f} dB" for row in self})


def measure(made: fx.GraphModule, batches: Sequence[Tensor], bits: Sequence[int], labels: Tensor | None) -> Sensitivity:
    """Return what each layer of a quantized model loses with fewer bits.

    Parameters
    ----------
    made: quantized with 8 bits everywhere; changed meanwhile, and as it was at the end.
    batches: images, [N, ..] each.
    labels: [all images]; None: accuracy is not measured.
    """
    whole = _outputs(made, batches)
    rows = []
    for name, weight, quantizer, replace in _layers(made, batches[0]):
        for count in bits:
            replace(weight_quantizer(weight, count, quantizer.axis))
            outputs = _outputs(made, batches)
            replace(quantizer)
            accuracy = None if labels is None else _accuracy(outputs, labels)
            rows.append(LayerSensitivity(name, weight.numel(), count, _sqnr_db(whole, outputs), accuracy))
    worst = {row.layer: min(other.sqnr_db for other in rows if other.layer == row.layer) for row in rows}
    found = Sensitivity(sorted(rows, key=lambda row: (worst[row.layer], row.layer, -row.bits)))
    found.accuracy = None if labels is None else _accuracy(whole, labels)
    return found


def checked_bits(bits: Sequence[int] | int) -> list[int]:
    """Return the numbers of bits to try. Raises: InputError, or ProblemList, for numbers that are none."""
    if not isinstance(bits, int | list | tuple | range):
        raise InputError(f"bits needs a whole number, or several as in (4, 2), got {bits!r}")
    counts = [bits] if isinstance(bits, int) else list(bits)
    raise_all([problem for count in counts for problem in LayerBits(count, "bits").problems()])
    if not counts:
        raise InputError("bits needs one number or more, such as (4, 2)")
    return counts


def _layers(
    made: fx.GraphModule, batch: Tensor
) -> Iterator[tuple[str, Tensor, Quantizer, Callable[[Quantizer], None]]]:
    """Yield the name of each layer with quantized weights, the weights, their quantizer, and what replaces that."""
    modules, depends = dict(made.named_modules()), computed(made.graph)
    interpreter = fx.Interpreter(made, garbage_collect_values=False)
    with torch.no_grad():
        interpreter.run(batch.clone())
    for node in made.graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, QuantLayer):
            quantizer: Any = module.weight_quant
            weight: Any = module.weight
            yield layer_of(node), weight.detach(), quantizer, _setter(module, "weight_quant")
        elif isinstance(module, Quantizer):
            readers = [user for user in node.users if operation(user, modules) in WEIGHTED and user.args[1] is node]
            if readers and node not in depends:
                parent, _, name = str(node.target).rpartition(".")
                weight = interpreter.env[node.args[0]]
                yield layer_of(readers[0]), weight, module, _setter(made.get_submodule(parent), name)


def _setter(module: nn.Module, name: str) -> Callable[[Quantizer], None]:
    return lambda quantizer: setattr(module, name, quantizer)


def _outputs(made: fx.GraphModule, batches: Sequence[Tensor]) -> Tensor:
    with torch.no_grad():
        results = [made(batch.clone()) for batch in batches]
    if not all(isinstance(result, Tensor) and result.ndim == 2 for result in results):
        raise InputError(f"sensitivity needs one tensor of outputs [N, outputs], got {_shown(results[0])}")
    return torch.cat(results).double()


def _sqnr_db(whole: Tensor, outputs: Tensor) -> float:
    signal, noise = float(whole.square().sum()), float((outputs - whole).square().sum())
    if not noise:
        return MOST_DB
    return max(LEAST_DB, min(MOST_DB, 10 * math.log10(signal / noise))) if signal else LEAST_DB


def _accuracy(outputs: Tensor, labels: Tensor) -> float:
    return float((outputs.argmax(dim=1) == labels).double().mean())


def _shown(result: Any) -> str:
    return f"a tensor of shape {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
