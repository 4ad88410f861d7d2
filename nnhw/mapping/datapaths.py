"""The choice of a requantizer for each layer's function: the cheapest of those that are exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.engines.requantize import DoubleScaler, Requantizer
from nnhw.errors import MappingError
from nnhw.families import Family
from nnhw.ir import IntType
from nnhw.mapping.encodings import Encodings
from nnhw.mapping.folding import Folding
from nnhw.mapping.layers import Layer, StepFunction
from nnhw.mapping.requantize import choose, implementations


class Datapaths:
    """The requantizers of the layers of one network; the search for each is made once.

    Parameters
    ----------
    encodings: how the network's values stream.
    family: device family, whose prices decide.
    """

    def __init__(self, encodings: Encodings, family: Family) -> None:
        self._encodings = encodings
        self._family = family
        self._choices: dict[str, list[Requantizer]] = {}
        self._chosen: dict[tuple[str, int, tuple[bool, bool, bool]], Requantizer] = {}

    def chosen(self, layer: Layer, lanes: int, folding: Folding) -> Requantizer | None:
        """Return the cheapest requantizer of a layer's function at `lanes` values a cycle; None without a function."""
        if layer.function is None:
            return None
        # The exact forms do not depend on lanes and folding, and to find them takes long; only the choice among them
        # does.
        if layer.node not in self._choices:
            self._choices[layer.node] = self.exact(layer, layer.function)
        options = (folding.logic_thresholds, folding.dsp_scaler, folding.lean_scaler)
        key = (layer.node, lanes, options)
        if key not in self._chosen:
            choices = self._choices[layer.node]
            in_logic, dsp, lean = options
            self._chosen[key] = choose(choices, lanes, in_logic, self._family, dsp, lean)
        return self._chosen[key]

    def exact(self, layer: Layer, function: StepFunction) -> list[Requantizer]:
        """Return all exact requantizers of a layer's function; they read the raw sums that stream."""
        raw = self._encodings.raw_of(layer)
        offsets = np.zeros((len(function.codes), 1), dtype=np.int64) if raw.offsets is None else raw.offsets[:, None]
        # A value is multiplier * raw + offset, so raw has to reach (threshold - offset) / multiplier, rounded up.
        thresholds = -((offsets - function.thresholds) // raw.multiplier)
        low, high = raw.element.low, raw.element.high
        # Its arithmetic is stated for the sums of the model, which only a plain stream has.
        further = _double_scalers(function, raw.element) if raw.is_plain else []
        steps, fused = np.clip(thresholds, low, high + 1), self._family.dense_dsp
        return implementations(steps, function.codes, function.code, raw.element, further, fused)


def _double_scalers(function: StepFunction, raw: IntType) -> list[Requantizer]:
    """Return the requantizers with double rounding, in logic and in DSP blocks, if the model states the function so."""
    scaling = function.scaling
    if scaling is None:
        return []
    try:
        scaler = DoubleScaler.of(scaling.multiplier, scaling.exponent, scaling.bias, scaling.offset, function.code, raw)
    except MappingError:
        # The product is too wide.
        return []
    return [scaler, replace(scaler, dsp=True)]
