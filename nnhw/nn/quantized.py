"""The result of post-training quantization: a module with a short description of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, fx

from nnhw.notebook import facts_table


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
    """A summary of how a model was quantized.

    Parameters
    ----------
    name: name of the model's class.
    weight_bits, act_bits, input_bits: bits of weights, activations and input.
    layers: number of layers with quantized weights.
    accuracy: None where no labels were given.
    added: of a model that had its own quantizers, the ones that were added, in words; else empty.
    """

    name: str
    weight_bits: int
    act_bits: int
    input_bits: int
    layers: int
    accuracy: Accuracy | None
    added: str = ""

    def __str__(self) -> str:
        if self.added:
            return f"{self.name}: {self.added}; {self.accuracy or 'accuracy not measured'}"
        bits = f"{self.weight_bits}-bit weights, {self.act_bits}-bit activations, {self.input_bits}-bit input"
        layers = f"{self.layers} layer{'s' * (self.layers != 1)}"
        return f"{self.name}, quantized: {layers}, {bits}, {self.accuracy or 'accuracy not measured'}"


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
    accuracy: before and after quantization; None where no labels were given.
    added: of a model that had its own quantizers, the ones that were added, in words; empty for a float model.
    """

    accuracy: Accuracy | None  # type: ignore[assignment]  # modules annotate attributes as tensors
    added: str = ""  # type: ignore[assignment]

    @classmethod
    def of(cls, graph_module: fx.GraphModule, summary: Summary, batches: Sequence[Tensor]) -> Self:
        """Return a graph module as a quantized model, in eval mode, with its summary and some calibration data.

        Parameters
        ----------
        batches: the calibration data, [N, *shape] each.
        """
        model = cls(graph_module, graph_module.graph, class_name=summary.name)
        model.accuracy = summary.accuracy
        model.added = summary.added
        model.meta |= {"nnhw": summary, _SAMPLE: _spread(batches)}  # goes along with copies
        return model.eval()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made: Any = super().__deepcopy__(memo)
        # A GraphModule copies its graph, its modules and `meta`, but no other attributes.
        made.accuracy, made.added = self.accuracy, self.added
        return made  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<{self.meta.get('nnhw', f'{type(self).__name__}, quantized')}>"

    def _repr_html_(self) -> str:
        summary = self.meta.get("nnhw")
        if not isinstance(summary, Summary):
            return facts_table(f"{type(self).__name__}, quantized", {})
        facts: dict[str, object] = {"quantizers": summary.added}
        if not summary.added:
            bits = f"{summary.weight_bits}, {summary.act_bits}, {summary.input_bits}"
            facts = {"layers with quantized weights": summary.layers, "bits of weights, activations, input": bits}
        facts["accuracy"] = summary.accuracy or "not measured"
        return facts_table(f"{summary.name}, quantized", facts)

    def __str__(self) -> str:
        return f"{super().__repr__()}\n{self.code}"
