"""The datapath of each layer's function: the cheapest of the exact ones."""

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
    """The requantizers of the layers of one network; each is found once.

    Parameters
    ----------
    encodings: of the values of the network.
    family: of the device.
    """

    def __init__(self, encodings: Encodings, family: Family) -> None:
        self._encodings = encodings
        self._family = family
        self._choices: dict[str, list[Requantizer]] = {}
        self._chosen: dict[tuple[str, int, tuple[bool, bool, bool]], Requantizer] = {}

    def chosen(self, layer: Layer, lanes: int, folding: Folding) -> Requantizer | None:
        """Return the cheapest datapath of a layer's function, at so many values a cycle."""
        if layer.function is None:
            return None
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
        """Return all exact datapaths of a layer's function, in terms of raw sums."""
        raw = self._encodings.raw_of(layer)
        offsets = np.zeros((len(function.codes), 1), dtype=np.int64) if raw.offsets is None else raw.offsets[:, None]
        thresholds = -((offsets - function.thresholds) // raw.multiplier)  # rounds up
        low, high = raw.element.low, raw.element.high
        further = _double_scalers(function, raw.element) if raw.is_plain else []
        steps, fused = np.clip(thresholds, low, high + 1), self._family.dense_dsp
        return implementations(steps, function.codes, function.code, raw.element, further, fused)


def _double_scalers(function: StepFunction, raw: IntType) -> list[Requantizer]:
    """Return the datapaths with two roundings, in logic and in DSP blocks, that a function says it is."""
    scaling = function.scaling
    if scaling is None:
        return []
    try:
        scaler = DoubleScaler.of(scaling.multiplier, scaling.exponent, scaling.bias, scaling.offset, function.code, raw)
    except MappingError:  # its product is too wide
        return []
    return [scaler, replace(scaler, dsp=True)]
