"""Pulse density: bits of a PDM microphone to samples, as exact integers; and a microphone that makes such bits."""

from __future__ import annotations

import numpy as np

DECIMATION_LOG2, ORDER = 7, 3
"""Logarithm of the bits of a sample; integrators, and combs, of the filter."""
DECIMATION = 1 << DECIMATION_LOG2
"""Bits of a sample."""
GAIN_LOG2 = ORDER * DECIMATION_LOG2
"""Logarithm of the largest number behind the filter."""
WORD_SHIFT = 23 - GAIN_LOG2
"""By how many bits that number is shifted up, so that it is as large as a word of 24 bits."""
FULL_SCALE = 1 << 15
"""Amount of a bit of the simulated microphone, in units of a sample of 16 bits."""


def filtered(bits: np.ndarray) -> np.ndarray:
    """Return a number from -2**21 to 2**21 for each 128 bits of a microphone: int64 [.., n // 128] of bits [.., n].

    A cascade of integrators and combs: three times the sum of all values so far, of the second and third one without
    the newest value; then, at each 128th bit, three times the difference to the sample before, 0 at the start.

    Source: Hogenauer, An economical class of digital filters for decimation and interpolation, IEEE 1981.
    """
    # Sums of int64 may wrap: differences are right modulo 2**64, and results have 22 bits.
    values = 2 * np.asarray(bits, dtype=np.int64) - 1
    for number in range(ORDER):
        values = np.cumsum(values, axis=-1)
        if number:
            values = np.concatenate([np.zeros_like(values[..., :1]), values[..., :-1]], axis=-1)
    values = values[..., DECIMATION - 1 :: DECIMATION]
    for _ in range(ORDER):
        values = np.diff(values, axis=-1, prepend=0)
    return values


def modulated(samples: np.ndarray) -> np.ndarray:
    """Return the bits uint8 [.., 128 n] in which a simulated microphone of second order sends samples [.., n].

    Source: the sigma-delta modulator of second order, as in Candy, IEEE Transactions on Communications, 1985.
    """
    given = np.asarray(samples, dtype=np.int64)
    first, second = np.zeros(given.shape[:-1], np.int64), np.zeros(given.shape[:-1], np.int64)
    bits = np.empty((*given.shape, DECIMATION), np.uint8)
    sent = np.zeros(given.shape[:-1], np.int64)
    for number in range(given.shape[-1]):
        for bit in range(DECIMATION):
            first = first + given[..., number] - sent
            second = second + first - sent
            bits[..., number, bit] = second >= 0
            sent = np.where(second >= 0, FULL_SCALE, -FULL_SCALE)
    return bits.reshape(*given.shape[:-1], -1)


def received_words(samples: np.ndarray) -> np.ndarray:
    """Return the words of 24 bits, int64 [.., n], that the filter makes of a simulated microphone's bits of samples."""
    return filtered(modulated(samples)) << WORD_SHIFT
