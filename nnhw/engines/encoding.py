"""How integer values become bits in hardware: the one definition for engines, drivers and test benches."""

from __future__ import annotations

import numpy as np

from nnhw.ir.types import IntType


def encode(values: np.ndarray, dtype: IntType) -> np.ndarray:
    """Return the bit patterns of `values`.

    A bipolar value is one bit, 1 for +1; a signed one is two's complement; an unsigned one is itself.

    Parameters
    ----------
    values: int array of any shape, each inside the range of `dtype`.

    Returns
    -------
    int64 array of the same shape, each in [0, 2**dtype.bits).
    """
    values = np.asarray(values, dtype=np.int64)
    if dtype.bipolar:
        return (values > 0).astype(np.int64)
    return values & ((1 << dtype.bits) - 1)


def decode(patterns: np.ndarray, dtype: IntType) -> np.ndarray:
    """Return the values of bit patterns: the inverse of `encode`, int64, same shape."""
    patterns = np.asarray(patterns, dtype=np.int64)
    if dtype.bipolar:
        return 2 * patterns - 1
    if dtype.signed:
        # Extends the sign: inverting the top bit and subtracting its weight keeps it 0, or makes it -1.
        sign = 1 << (dtype.bits - 1)
        return (patterns ^ sign) - sign
    return patterns


def pack_words(patterns: np.ndarray, bits: int) -> list[int]:
    """Join the last axis of bit patterns into words, element 0 in the lowest bits.

    Parameters
    ----------
    patterns: int array [words, lanes], each below 2**bits.

    Returns
    -------
    `words` Python integers of `lanes * bits` bits (of any size: no 64-bit limit).
    """
    return words_of(pack_bytes(patterns, bits))


def pack_bytes(patterns: np.ndarray, bits: int) -> np.ndarray:
    """Join the last axis of bit patterns as `pack_words` does; return the words' bytes, little-endian.

    Returns
    -------
    uint8 [words, bytes]: the lowest byte first, the last one filled up with zeros.
    """
    # The bytes of the integers are looked at, so their order must not depend on the machine.
    patterns = np.ascontiguousarray(patterns, dtype="<i8")
    count, lanes = patterns.shape
    # Of a pattern wider than its 64-bit integer, the bits above are zeros.
    planes = np.zeros((count, lanes, bits), dtype=np.uint8)
    own = patterns.view(np.uint8).reshape(count, lanes, 8)
    planes[..., :64] = np.unpackbits(own, axis=-1, count=min(bits, 64), bitorder="little")
    return np.packbits(planes.reshape(count, lanes * bits), axis=-1, bitorder="little")


def words_of(rows: np.ndarray) -> list[int]:
    """Return the words of bytes uint8 [words, bytes], little-endian."""
    data, each = rows.tobytes(), rows.shape[1]
    return [int.from_bytes(data[start * each : (start + 1) * each], "little") for start in range(len(rows))]


def unpack_words(words: list[int], lanes: int, bits: int) -> np.ndarray:
    """Split words into bit patterns: the inverse of `pack_words`, int64 [words, lanes]."""
    mask = (1 << bits) - 1
    return np.array([[(word >> (lane * bits)) & mask for lane in range(lanes)] for word in words], dtype=np.int64)


def bits_for_range(low: int, high: int) -> tuple[int, bool]:
    """Return (bits, signed) of the narrowest number, unsigned or two's complement, for low..high; at least one bit."""
    if low >= 0:
        return max(1, high.bit_length()), False
    # -2**k takes k bits beside the sign, as 2**k - 1 does: hence -low - 1.
    return max((-low - 1).bit_length(), max(high, 0).bit_length()) + 1, True
