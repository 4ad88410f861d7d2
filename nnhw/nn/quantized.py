"""The result of post-training quantization: a module with a short description of itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, fx

from nnhw.notebook import facts_table

from .kinds import WEIGHTED, operation
from .quantizers import Quantizer

_WEIGHT_FORMATS = ("weight_quant", "candidate_quant")
"""Names of the quantizers of weights in layers."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy before and after quantization: shares of images, 0 to 1, whose greatest output is at their label."""

    before: float
    after: float
    samples: int

    def __str__(self) -> str:
        return f"accuracy {self.before:.2%} before, {self.after:.2%} after quantization, on {self.samples} images"


@dataclass(frozen=True)
class Summary:
    """What is known of a quantized model since it was made.

    Parameters
    ----------
    name: name of the model's class.
    layers: number of layers with quantized weights.
    accuracy: None where no labels were given.
    added: of a model that had its own quantizers, the ones that were added, in words; else empty.
    measured: fingerprint of the model whose accuracy it is.
    """

    name: str
    layers: int
    accuracy: Accuracy | None
    added: str = ""
    measured: str = ""


_SAMPLE = "nnhw_calibration_sample"
_MOST_IMAGES, _MOST_ELEMENTS = 64, 1 << 20


def calibration_sample(model: object) -> Tensor | None:
    """Return some of the images [n, *shape] that `quantize` calibrated a model with; None for any other model."""
    sample = getattr(model, "meta", {}).get(_SAMPLE) if isinstance(model, QuantizedModel) else None
    return sample if isinstance(sample, Tensor) else None


def _spread(batches: Sequence[Tensor]) -> Tensor:
    """Return a few images [n, *shape], evenly spread over batches of them."""
    count = sum(map(len, batches))
    most = max(1, min(_MOST_IMAGES, _MOST_ELEMENTS // batches[0][0].numel()))
    places = {round(place * (count - 1) / max(1, most - 1)) for place in range(min(most, count))}
    images = (image for batch in batches for image in batch)
    return torch.stack([image for place, image in enumerate(images) if place in places])


class QuantizedModel(fx.GraphModule):
    """A quantized model. Its `repr` is a line; `print(model)` shows all modules and the code, as of any graph module.

    Members
    -------
    accuracy: before and after quantization; None where no labels were given, and once a parameter, a buffer or a layer
        is no longer as it was measured, such as after training.
    added: of a model that had its own quantizers, the ones that were added, in words; empty for a float model.
    """

    @classmethod
    def of(cls, graph_module: fx.GraphModule, summary: Summary, batches: Sequence[Tensor]) -> Self:
        """Return a graph module as a quantized model, in eval mode, with its summary and some calibration data.

        Parameters
        ----------
        batches: the calibration data, [N, *shape] each.
        """
        model = cls(graph_module, graph_module.graph, class_name=summary.name).eval()
        measured = "" if summary.accuracy is None else fingerprint(model)
        # `meta` goes along with copies, attributes do not.
        model.meta |= {"nnhw": replace(summary, measured=measured), _SAMPLE: _spread(batches)}
        return model

    @property
    def accuracy(self) -> Accuracy | None:  # type: ignore[override]  # modules annotate attributes as tensors
        """Accuracy that was measured with the weights that the model has now; else None."""
        summary = self.meta.get("nnhw")
        if not isinstance(summary, Summary) or summary.accuracy is None or summary.measured != fingerprint(self):
            return None
        return summary.accuracy

    @property
    def added(self) -> str:  # type: ignore[override]
        """The quantizers that were added to the model's own ones, in words; empty for a float model."""
        summary = self.meta.get("nnhw")
        return summary.added if isinstance(summary, Summary) else ""

    def _facts(self) -> dict[str, str]:
        """Return the bits of weights, activations and input, and the accuracy, as text by name."""
        summary = self.meta.get("nnhw")
        facts = {f"bits of {name}": _listed(bits) for name, bits in widths(self).items() if bits}
        measured = isinstance(summary, Summary) and summary.accuracy is not None
        missing = "not measured since the network was changed" if measured else "not measured"
        return {**facts, "accuracy": str(self.accuracy or missing).removeprefix("accuracy ")}

    def __repr__(self) -> str:
        summary, facts = self.meta.get("nnhw"), self._facts()
        if not isinstance(summary, Summary):
            return f"<{type(self).__name__}, quantized>"
        if summary.added:
            return f"<{summary.name}: {summary.added}; accuracy {facts['accuracy']}>"
        layers = f"{summary.layers} layer{'s' * (summary.layers != 1)}"
        bits = [f"{facts[key]}-bit {key.removeprefix('bits of ')}" for key in facts if key != "accuracy"]
        return f"<{summary.name}, quantized: {', '.join([layers, *bits])}, accuracy {facts['accuracy']}>"

    def _repr_html_(self) -> str:
        summary = self.meta.get("nnhw")
        if not isinstance(summary, Summary):
            return facts_table(f"{type(self).__name__}, quantized", {})
        layers = {"quantizers": summary.added} if summary.added else {"layers with quantized weights": summary.layers}
        facts: dict[str, object] = {**layers, **self._facts()}
        return facts_table(f"{summary.name}, quantized", facts)

    def __str__(self) -> str:
        return f"{super().__repr__()}\n{self.code}"


def fingerprint(model: fx.GraphModule) -> str:
    """Return a hash of all that decides what a model computes: its code, its layers, parameters and buffers."""
    # The text of a layer has the range of a quantizer, which is no tensor. Copies hold their layers in another order.
    layers = [f"{name} {type(layer).__name__} {layer.extra_repr()}" for name, layer in model.named_modules() if name]
    found = hashlib.sha256("\n".join([model.code, *sorted(layers)]).encode())
    for name, value in sorted(model.state_dict().items()):
        found.update(f"\n{name} {value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def widths(model: fx.GraphModule) -> dict[str, set[int]]:
    """Return the bits of the quantizers that a model has now, by what they quantize: weights, activations, input."""
    found: dict[str, set[int]] = {"weights": set(), "activations": set(), "input": set()}
    modules = dict(model.named_modules())
    values, coded = set[fx.Node](), set[fx.Node]()
    for node in model.graph.nodes:
        if node.op == "placeholder" or values & set(node.all_input_nodes):
            values.add(node)
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, Quantizer):
            is_weights = node not in values and any(operation(user, modules) in WEIGHTED for user in node.users)
            is_input = node in values and not coded & set(node.all_input_nodes)
            found["weights" if is_weights else "input" if is_input else "activations"].add(_bits(module))
            coded.add(node)
        elif module is not None:
            formats = (getattr(module, name, None) for name in _WEIGHT_FORMATS)
            found["weights"] |= {_bits(one) for one in formats if isinstance(one, Quantizer)}
            state = getattr(module, "state_quant", None)
            found["activations"] |= {_bits(state)} if isinstance(state, Quantizer) else set()
        if coded & set(node.all_input_nodes):
            coded.add(node)
    return found


def _bits(quantizer: Quantizer) -> int:
    return 1 if quantizer.bipolar else (quantizer.qmax - quantizer.qmin).bit_length()


def _listed(bits: Iterable[int]) -> str:
    """Return widths as text: '4', or '2 to 8' for several."""
    ends = sorted({min(bits), max(bits)})
    return " to ".join(map(str, ends))
