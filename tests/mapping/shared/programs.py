"""Running programs beside the interpreter: every code that is stored, and every byte that leaves."""

from __future__ import annotations

import numpy as np

from nnhw import ir
from nnhw.accelerator import stream_order
from nnhw.engines.shared import ArrayConfig, Compute
from nnhw.engines.shared.golden import run_program, walk
from nnhw.ir import Graph
from nnhw.mapping.shared import Compiled
from tests.mapping.bodies import codes_of


def array_of(lanes: int, simd: int, bits: int, **others: int) -> ArrayConfig:
    """Return an array whose other limits hardly bind; its memory is as small as that allows, since it is simulated."""
    sizes = {"word_bits": 64, "words": 1 << 12, "rows": 1024, "sum_bits": 26, "factor_bits": 36, "addend_bits": 60}
    return ArrayConfig(
        lanes=lanes, simd=simd, weight_bits=bits, activation_bits=bits, shifts=(20, 36), **sizes | others
    )


def check_program(body: Graph, compiled: Compiled, seed: int = 0) -> None:
    """Compare a program with the interpreter for one frame, at every layer."""
    kind = body.inputs[0].type
    frame = codes_of(kind.int_dtype, (1, *kind.shape), np.random.default_rng(seed))
    values: dict[str, np.ndarray] = {}
    (output,) = ir.run(body, frame, values.__setitem__)
    zero = compiled.tensors[compiled.network.source].zero
    shift = 0 if zero == 1 << (compiled.config.array.activation_bits - 1) else zero
    trace = run_program(compiled.config, stream_order(frame)[0] - shift)
    stored: dict[str, np.ndarray] = {}
    for one in trace.stored:
        record = compiled.config.records[one.record]
        assert isinstance(record, Compute)
        first, count = record.channels
        value = values[record.node][0].reshape(len(values[record.node][0]), -1)
        codes = one.codes
        if record.planar:
            lanes = codes.shape[1]
            codes = np.moveaxis(codes.reshape(-1, value.shape[1], lanes), 0, 1)
        pixels = record.stored_pixels[: record.pixels // max(1, count // compiled.config.array.lanes)]
        codes = codes.reshape(len(pixels), -1)[:, :count]
        wanted = value[first : first + count, pixels]
        assert (codes.T + record.zero == wanted).all(), record.layer
        done = stored.setdefault(record.node, np.zeros(value.shape, bool))
        done[first : first + count, pixels] = True
    assert all(done.all() for done in stored.values())
    assert (decode_output(compiled, trace.output) == stream_order(output)[0]).all()
    check_order(compiled)


def decode_output(compiled: Compiled, data: np.ndarray) -> np.ndarray:
    """Return the values, in stream order, that the bytes of a frame stand for."""
    last = compiled.config.records[-1]
    if not isinstance(last, Compute):
        low, shift = compiled.network.values[compiled.network.output].element.low, compiled.offsets[0]
        return (data.astype(np.int8) if low < shift else data).astype(np.int64) + shift
    patterns = (data.reshape(-1, last.raw).astype(np.int64) << (8 * np.arange(last.raw))).sum(axis=1)
    top = 1 << (8 * last.raw - 1)
    sums = (patterns ^ top) - top
    return (sums.reshape(-1, len(compiled.offsets)) + compiled.offsets).reshape(-1)


def check_order(compiled: Compiled) -> None:
    """Require that no record reads a word that it has written for an earlier pixel: golden reads all words first."""
    array = compiled.config.array
    for record in compiled.config.records:
        if not isinstance(record, Compute) or record.raw:
            continue
        written = np.full(array.words, record.pixels)
        pixels = np.arange(record.pixels)
        for part in range(array.parts):
            places = (record.targets + part) % array.words
            np.minimum.at(written, places, pixels)
        address, row, column = (values.reshape(record.pixels, -1) for values in walk(record))
        inside = (row >= 0) & (row < record.height) & (column >= 0) & (column < record.width)
        early = written[address % array.words] < pixels[:, None]
        assert not (inside & early).any(), record.layer
