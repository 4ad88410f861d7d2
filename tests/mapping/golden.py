"""The golden functions of an accelerator's stages, one after the other: what must pass on its streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, Stage
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.encoding import decode, encode
from nnhw.engines.fork import ForkConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.window import WindowConfig
from nnhw.ir import BIPOLAR


def golden_run(accelerator: Accelerator, codes: np.ndarray) -> dict[str, np.ndarray]:
    """Send one frame [*shape] through all stages; return the elements that pass each boundary, in stream order."""
    source = accelerator.input_format.stream
    streams: dict[tuple[int, int], np.ndarray] = {INPUT: source.elements_of(codes[None])[0]}
    assert source.element.holds(streams[INPUT])
    seen = {}
    for index, stage in enumerate(accelerator.stages):
        if stage.layer == "output":
            break
        values = golden_stage(stage, [streams[source] for source in stage.sources])
        ports = stage.config.outputs if isinstance(stage.config, ForkConfig) else 1
        streams |= {(index, port): values for port in range(ports)}
        assert len(values) == stage.output.elements, stage.name
        assert stage.output.element.holds(values), stage.name
        if stage.node:
            seen[stage.node] = values
    return seen


def golden_stage(stage: Stage, inputs: list[np.ndarray]) -> np.ndarray:
    """Return the elements that leave a stage, in stream order."""
    config, first = stage.config, inputs[0]
    if isinstance(config, WindowConfig):
        return config.golden(first.reshape(config.height, config.width, config.channels)).reshape(-1)
    if isinstance(config, MatmulConfig):
        # Each fold of the outputs reads a vector of its own: the same one, unless channels are in groups.
        folds = first.reshape(config.vectors, config.folds, -1)
        results = [config.golden(folds[:, fold]) for fold in range(config.folds)]
        parts = [result[:, fold * config.pe : (fold + 1) * config.pe] for fold, result in enumerate(results)]
        return np.concatenate(parts, axis=1).reshape(-1)
    if isinstance(config, PadConfig):
        element = BIPOLAR if config.bipolar else stage.output.element
        patterns = config.golden(encode(first, element).reshape(-1, config.lanes))
        return decode(patterns, stage.output.element).reshape(-1)
    if isinstance(config, ForkConfig):
        return first
    if isinstance(config, ChannelwiseConfig):
        return config.golden(first.reshape(-1, config.i_lanes)).reshape(-1)
    other: Any = config
    lanes = getattr(other, "i_lanes", None) or other.lanes
    made: np.ndarray = other.golden(*(values.reshape(-1, lanes) for values in inputs)).reshape(-1)
    return made
