"""Engines that users bring: planned for a layer, and compared with the definition of its operator."""

from __future__ import annotations

import numpy as np

from nnhw.accelerator import RESERVED, stream_order
from nnhw.engines.own import OwnEngine, Port
from nnhw.errors import InputError, MappingError
from nnhw.mapping.layers import OwnLayer

FRAMES = 4
"""Number of random frames on which an engine's golden function is compared with its operator; two frames with the least
and the greatest values come in addition."""


def planned(layer: OwnLayer, lanes: int) -> OwnEngine:
    """Return the user's engine for a layer.

    Parameters
    ----------
    lanes: elements of an output beat.

    Raises
    ------
    MappingError: the engine cannot have so many lanes.
    InputError: its code fails, it contradicts itself, its golden function differs from its operator, or its name is
        that of a class of nnhw.
    """
    output = Port(layer.element, layer.shape)
    where = f"engine '{layer.engine.__name__}' of layer {layer.where}"
    if layer.engine.__name__ in RESERVED:
        raise InputError(f"{where} has the name of a class of nnhw, and files of builds know engines by it; rename it")
    try:
        engine = layer.engine.plan(layer.op, layer.sources, output, lanes)
    except (ValueError, MappingError) as error:
        raise MappingError(f"{where} with {lanes} lanes: {error}") from None
    except Exception as error:  # somebody else's code may fail in any way
        raise InputError(f"{where} fails in `plan` with {lanes} lanes: {error!r}") from error
    try:
        i_lanes, o_beats, own_lanes, i_beats = engine.i_lanes, engine.o_beats, engine.lanes, engine.i_beats
        i_beats = i_beats if isinstance(i_beats, tuple) else (i_beats,) * len(layer.sources)
        wanted = [*(source.elements // i_lanes for source in layer.sources), output.elements // lanes, lanes]
    except Exception as error:  # what `plan` has returned need not be an engine, and its properties may fail in any way
        raise InputError(f"{where} with {lanes} lanes states no beats and lanes: {error!r}") from error
    given = [*i_beats, o_beats, own_lanes]
    if wanted != given or any(source.elements % i_lanes for source in layer.sources):
        raise InputError(
            f"{where} with {lanes} lanes states {given[:-2]} beats at its inputs, {given[-2]} at its output, and "
            f"{given[-1]} lanes; its operator needs {wanted[:-2]}, {wanted[-2]} and {wanted[-1]}"
        )
    # For each number of lanes that is tried: mistakes often show with some of them only.
    _compare(layer, engine, where)
    return engine


def _compare(layer: OwnLayer, engine: OwnEngine, where: str) -> None:
    """Compare the golden function of an engine with its operator on some frames. Raises: InputError if they differ."""
    # The same frames in each build, so that a failure can be seen again.
    generator = np.random.default_rng(1)
    for number in range(FRAMES + 2):
        inputs = [_frame(source, number, generator) for source in layer.sources]
        wanted = stream_order(_evaluated(layer, inputs, where))[0]
        beats = [stream_order(values)[0].reshape(-1, engine.i_lanes) for values in inputs]
        try:
            given = np.asarray(engine.golden(*beats)).reshape(-1)
        except Exception as error:  # somebody else's code may fail in any way
            raise InputError(f"{where} fails in `golden`: {error!r}") from error
        # Compared in stream order, in which a wrong order of beats shows, too.
        if given.shape != wanted.shape or (given != wanted).any():
            first = "" if given.shape != wanted.shape else f", first at element {np.flatnonzero(given != wanted)[0]}"
            raise InputError(
                f"{where}: its golden function is not what operator '{layer.op.name}' means{first}; make both the same"
            )


def _evaluated(layer: OwnLayer, inputs: list[np.ndarray], where: str) -> np.ndarray:
    """Return the operator's result, int64 [1, *shape]. Raises: InputError if it fails or leaves its stated range."""
    try:
        result: np.ndarray = layer.op.evaluate(*inputs)
    except Exception as error:  # somebody else's code may fail in any way
        raise InputError(f"{where}: operator '{layer.op.name}' fails in `evaluate`: {error!r}") from error
    if not layer.element.holds(result):
        raise InputError(
            f"{where}: operator '{layer.op.name}' gives {result.min()}..{result.max()}, "
            f"but its `infer` says {layer.element}"
        )
    return result


def _frame(source: Port, number: int, generator: np.random.Generator) -> np.ndarray:
    """Return a frame [1, *shape]: number 0 has the least values, 1 the greatest, others random ones."""
    kind, shape = source.element, (1, *source.shape)
    if number < 2:
        return np.full(shape, (kind.low, kind.high)[number])
    numbers = generator.integers(kind.low, kind.high, shape, endpoint=True)
    return np.where(numbers < 0, -1, 1) if kind.bipolar else numbers
