"""What a program computes, in NumPy: every code that it stores, and every byte that leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.records import Compute, Emit, Fill, requantize

if TYPE_CHECKING:
    from nnhw.engines.shared.program import SharedConfig


@dataclass(frozen=True)
class Stored:
    """What a `Compute` stores for one frame.

    Parameters
    ----------
    record: index of the record in the program.
    codes: int64 [pixels, lanes].
    addresses: int64 [pixels], address of the first word of each pixel's codes.
    slice: which granule of that word they are, if a word has several; else 0.
    """

    record: int
    codes: np.ndarray
    addresses: np.ndarray
    slice: int


@dataclass(frozen=True)
class Trace:
    """The results of one frame: what each `Compute` stored, the bytes that left, uint8 [bytes], and the memory then."""

    stored: tuple[Stored, ...]
    output: np.ndarray
    memory: np.ndarray


def run_program(config: SharedConfig, elements: np.ndarray, before: np.ndarray | None = None) -> Trace:
    """Run a program for one frame.

    Here every `Compute` reads all that it needs before it stores anything. A program that overwrites what the hardware
    still has to read is wrong, and is found out by comparison with the hardware.

    Parameters
    ----------
    elements: int64 [elements], codes or their bit patterns of `activation_bits` bits, in stream order.
    before: the memory behind the frame before; None: there was none, so it may hold anything, such as zeros.
    """
    array = config.array
    memory = np.zeros((array.words, array.codes_per_word), dtype=np.int64) if before is None else before.copy()
    left: np.ndarray | int = 0
    stored, output, taken = list[Stored](), list[np.ndarray](), 0
    for index, record in enumerate(config.records):
        if isinstance(record, Fill):
            count = record.pixels * record.elements
            _fill(memory, record, elements[taken : taken + count], array)
            taken += count
        elif isinstance(record, Emit):
            output.append(_emit(memory, record, array))
        else:
            sums = wrap(compute_sums(memory, record, array) + left, array.sum_bits)
            # Sums that stay in the lanes are what the next record begins with.
            left = sums if record.partial else 0
            if record.partial:
                continue
            if record.raw:
                output.append(_raw_bytes(sums[:, : record.channels[1]], record.raw))
                continue
            codes = requantize(sums, record, array, config.functions)
            # Positions of a window follow one another, so pooling is the maximum of neighbours.
            codes = codes.reshape(record.pixels, record.window, array.lanes).max(axis=1)
            stored.append(_store(memory, record, codes, index, array))
    return Trace(tuple(stored), np.concatenate(output) if output else np.zeros(0, dtype=np.uint8), memory)


def wrap(values: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers, int64 of any shape, that remain of values in two's complement of `bits` bits."""
    top = 1 << (bits - 1)
    return ((values + top) & ((1 << bits) - 1)) - top


def walk(record: Compute) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (addresses, rows, columns) of the words read, each int64 [positions, ky * kx, words].

    Addresses are not yet taken modulo the words of the memory.
    """
    axes = []
    for start, part in ((record.start, "address"), (record.row, "row"), (record.column, "column")):
        total = np.full((1,) * len(record.loops), start, dtype=np.int64)
        inner = 0
        for level, loop in enumerate(record.loops):
            # A step of a loop takes back the steps of those inside it.
            stride = getattr(loop, part) + inner
            inner += (loop.count - 1) * stride
            shape = [1] * len(record.loops)
            shape[-1 - level] = loop.count
            total = total + (stride * np.arange(loop.count)).reshape(shape)
        word, kx, ky = record.counts[:3]
        axes.append(np.broadcast_to(total, record.counts[::-1]).reshape(-1, ky * kx, word))
    return axes[0], axes[1], axes[2]


def read_codes(memory: np.ndarray, record: Compute) -> np.ndarray:
    """Return the words read, int64 [positions, ky * kx, words, codes of a word]."""
    address, row, column = walk(record)
    inside = (row >= 0) & (row < record.height) & (column >= 0) & (column < record.width)
    return np.where(inside[..., None], memory[address % len(memory)], record.border)


def compute_sums(memory: np.ndarray, record: Compute, array: ArrayConfig) -> np.ndarray:
    """Return the sums of every lane, int64 [positions, lanes]."""
    words = read_codes(memory, record)
    positions, taps = words.shape[:2]
    if record.channelwise:
        granules = words.reshape(positions, taps, -1, array.lanes)
        codes = granules[:, :, record.source_slice if array.slices > 1 else 0]
        rows = record.weights[:, :, 0] if record.own_row is None else memory[[record.own_row], : array.lanes]
        rows = np.broadcast_to(rows, (taps, array.lanes)) if record.hold else rows
        return wrap(np.einsum("ptk,tk->pk", codes, rows), array.sum_bits)
    codes = words[..., : record.steps * array.simd].reshape(positions, -1)
    # In the order of the codes: row after row, in each the products of a lane.
    rows = record.weights.transpose(0, 2, 1).reshape(-1, array.lanes)
    if record.hold:
        rows = np.tile(rows, (record.taps, 1))
    return wrap(codes @ rows, array.sum_bits)


def _fill(memory: np.ndarray, record: Fill, elements: np.ndarray, array: ArrayConfig) -> None:
    """Write the elements int64 [pixels * elements] of a tensor that comes in to memory."""
    bits = array.activation_bits
    # Inverting the top bit turns unsigned codes into signed ones, 2**(bits - 1) lower.
    codes = wrap(elements ^ (record.flip << (bits - 1)), bits).reshape(record.pixels, record.elements)
    words = array.chunks(record.elements)
    padded = np.pad(codes, ((0, 0), (0, words * array.codes_per_word - record.elements)))
    memory[record.start : record.start + record.pixels * words] = padded.reshape(-1, array.codes_per_word)


def _emit(memory: np.ndarray, record: Emit, array: ArrayConfig) -> np.ndarray:
    """Return the bytes of a tensor that goes out, uint8 [pixels * elements]."""
    bits, words = array.activation_bits, array.chunks(record.elements)
    codes = memory[record.start : record.start + record.pixels * words].reshape(record.pixels, -1)[:, : record.elements]
    # Back to unsigned codes, the inverse of `_fill`.
    if record.flip:
        codes = (codes & ((1 << bits) - 1)) ^ (1 << (bits - 1))
    return (codes.reshape(-1) & 0xFF).astype(np.uint8)


def _store(memory: np.ndarray, record: Compute, codes: np.ndarray, index: int, array: ArrayConfig) -> Stored:
    """Write the codes int64 [pixels, lanes] of record number `index` to memory; return what was stored."""
    addresses = record.targets % array.words
    # Pixel after pixel: granules may overlap, and then the later pixel counts.
    first = array.lanes * record.target_slice if array.slices > 1 else 0
    words = (addresses[:, None] + np.arange(array.parts)).reshape(-1) % array.words
    memory[words, first : first + array.lanes // array.parts] = codes.reshape(len(words), -1)
    return Stored(index, codes, addresses, record.target_slice)


def _raw_bytes(sums: np.ndarray, count: int) -> np.ndarray:
    """Return the lowest `count` bytes of each sum, uint8 [bytes], the lowest first."""
    return ((sums.reshape(-1, 1) >> (8 * np.arange(count))) & 0xFF).astype(np.uint8).reshape(-1)
