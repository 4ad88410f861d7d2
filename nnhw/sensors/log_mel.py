"""The logarithm of the energy in mel bands, as exact integers: from samples of 16 bits to codes of 8."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from nnhw.sensors.base import FrontParts
from nnhw.sensors.pdm import received_words
from nnhw.sensors.pins import Pdm

COSINE_ONE = (1 << 14) - 1
"""The cosine of 0 in the table: then window and cosine both fit into 16 bits with a sign."""
DFT_SHIFT, WINDOW_SHIFT = 21, 15
"""Low bits that are left out behind the sums of the DFT, and behind the product with the window."""
WEIGHT_BITS = 4
"""Bits of the weight with which a bin counts to the upper one of its two bands."""
LOG_STEPS_LOG2, MANTISSA_BITS = 3, 5
"""The logarithm has steps of 1 / 8; it is read from a table by the five bits behind the leading one."""
PIPELINE_CYCLES = 4
"""Cycles from the address of a product's factors to the sum that holds it."""
LOGARITHM_CYCLES = 48
"""Most cycles of a logarithm: a shift for each leading zero of the energy, and a few around them."""
WINDOWS = (64, 128, 256)
"""Samples that a window may have: a power of two, so that the angle of a product wraps by itself."""
FRAME_ELEMENTS_MAX = 4096
"""Elements that the buffer of a frame may have: 4 KiB, eight block RAMs of an iCE40."""
LOGIC_CELLS = 850
"""Of all that stands around the network, measured with `examples/spoken_digits_mic.py`, see `docs/how-to/sensor.md`."""


@dataclass(frozen=True)
class LogMelConfig:
    """Bands of a spectrum: window, DFT, power, triangular filters evenly spaced in mel, logarithm.

    With x int16 samples, n in 0..window-1, all divisions by shifts that round down:

    - c[i] = round((2**14 - 1) cos(2 pi i / window)), w[n] = x[n] ((2**14 - 1) - c[n]) >> 15, which is a Hann window;
    - re[k] = sum(w[n] c[n k]) >> 21, and im[k] with a sine; both have 16 bits; power p[k] = re[k]**2 + im[k]**2;
    - energy e[b] = sum of the bins of band b, p[k] t[k] where the filter rises, p[k] (16 - t[k]) where it falls;
    - code[b] = min(127, log8(e[b]) - offset), where log8(0) = 0 and log8(e) is 8 floor(log2 e) plus
      round(8 log2(1 + (m + 1/2) / 32)), m being the five bits behind the leading one.

    Parameters
    ----------
    rate_hz: samples a second.
    window: samples of a window: 64, 128 or 256.
    hop: samples from one window to the next, 1 to `window`.
    bands: bands of the spectrum.
    steps: windows in a frame of the network: it sees the last so many, the oldest first. Before the first sample there
        was silence.
    lowest_hz, highest_hz: ends of the outer filters.
    offset: subtracted from the logarithm.
    gain_log2: of a microphone's 24 bits the sample has the highest 16, times 2**gain_log2, saturated; 0 to 8.
    """

    kind: ClassVar[str] = "log_mel"
    inputs: ClassVar[tuple[str, ...]] = ("i2s", "pdm")
    layer: ClassVar[str] = "LogMel"
    signal_axes: ClassVar[int] = 1
    low: ClassVar[int] = -128
    high: ClassVar[int] = 127
    scale: ClassVar[float] = 2.0**-6
    may_drop_frames: ClassVar[bool] = False

    rate_hz: int = 8000
    window: int = 256
    hop: int = 128
    bands: int = 16
    steps: int = 32
    lowest_hz: float = 100.0
    highest_hz: float = 3800.0
    offset: int = 128
    gain_log2: int = 0

    def __post_init__(self) -> None:
        if self.window not in WINDOWS:
            raise ValueError(f"window is one of {', '.join(map(str, WINDOWS))} samples, given {self.window}")
        if not 1 <= self.hop <= self.window:
            raise ValueError(f"hop is 1 to {self.window} samples, the window, given {self.hop}")
        if self.steps < 1 or self.bands < 1 or self.steps * self.bands > FRAME_ELEMENTS_MAX:
            raise ValueError(
                f"a frame has 1 to {FRAME_ELEMENTS_MAX} elements, given {self.steps} steps of {self.bands} bands"
            )
        if not 0 < self.lowest_hz < self.highest_hz < self.rate_hz / 2:
            raise ValueError(
                f"bands lie between 0 Hz and {self.rate_hz / 2:g} Hz, half of rate_hz; "
                f"given lowest_hz={self.lowest_hz:g}, highest_hz={self.highest_hz:g}"
            )
        if not 0 <= self.offset < 512:
            raise ValueError(f"offset is 0 to 511, given {self.offset}")
        if not 0 <= self.gain_log2 <= 8:
            raise ValueError(f"gain_log2 is 0 to 8, given {self.gain_log2}")
        closings = int(self.filters[1].sum())
        if closings != self.bands + 1:
            raise ValueError(
                f"{self.bands} bands from {self.lowest_hz:g} to {self.highest_hz:g} Hz are narrower than a bin of "
                f"{self.rate_hz / self.window:g} Hz; use fewer bands or a longer window"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """See `SensorFront`: one channel, a row for each step, a column for each band."""
        return (1, self.steps, self.bands)

    @cached_property
    def cosine(self) -> np.ndarray:
        """c[i], int64 [window]."""
        angles = 2 * np.pi * np.arange(self.window) / self.window
        return np.rint(COSINE_ONE * np.cos(angles)).astype(np.int64)

    @cached_property
    def bins(self) -> range:
        """The bins of the DFT that lie in a filter, those at its ends left out: their weight is 0."""
        width = self.rate_hz / self.window
        return range(math.floor(self.lowest_hz / width) + 1, math.ceil(self.highest_hz / width))

    @cached_property
    def filters(self) -> tuple[np.ndarray, np.ndarray]:
        """Weight of each of `bins` in the band whose filter rises there, 0..15, and whether that rise ends behind it.

        A filter falls where the next one rises, by 16 minus that weight. Where a rise ends, the band before is whole.
        """
        edges = _mel_edges(self.lowest_hz, self.highest_hz, self.bands)
        hz = np.array(self.bins) * self.rate_hz / self.window
        interval = np.searchsorted(edges, hz, side="right") - 1
        part = (hz - edges[interval]) / np.diff(edges)[interval]
        weights = np.minimum(np.floor(part * (1 << WEIGHT_BITS)), (1 << WEIGHT_BITS) - 1).astype(np.int64)
        ends = np.append(interval[1:] != interval[:-1], True)
        return weights, ends

    @cached_property
    def fractions(self) -> tuple[int, ...]:
        """Eighths of the logarithm of 1 to 2, by the bits behind the leading one: integers 0 to 8."""
        count = 1 << MANTISSA_BITS
        return tuple(round((1 << LOG_STEPS_LOG2) * math.log2(1 + (one + 0.5) / count)) for one in range(count))

    @cached_property
    def energy_bits(self) -> int:
        """Bits of the largest energy: powers of 32 bits, the sum of a filter's weights."""
        weights, ends = self.filters
        starts = np.concatenate([[0], np.flatnonzero(ends)[:-1] + 1])
        rising = np.add.reduceat(weights, starts)
        falling = np.add.reduceat((1 << WEIGHT_BITS) - weights, starts)
        most = int(max(np.append(rising, 0) + np.append(0, falling)))
        return 32 + most.bit_length()

    @property
    def sample_rate_hz(self) -> int:
        """See `SensorFront`."""
        return self.rate_hz

    @property
    def frames_per_s(self) -> float:
        """See `SensorFront`: a frame for each `hop` samples."""
        return self.rate_hz / self.hop

    @property
    def parts(self) -> FrontParts:
        """See `SensorFront`: samples as they come, the window that is worked on, its cosine, and the filters."""
        words = (self.window, 16)
        return FrontParts((words, words), (words, (len(self.bins), WEIGHT_BITS + 1)), 1, LOGIC_CELLS)

    def received(self, kind: str, signals: np.ndarray) -> np.ndarray:
        """See `SensorFront`: a PDM microphone and the filter behind it change samples, an I2S microphone does not."""
        return self.samples(received_words(signals)) if kind == Pdm.kind else signals

    def samples(self, words: np.ndarray) -> np.ndarray:
        """Return the samples int64 [..] of 16 bits of a microphone's words [..] of 24 bits."""
        return (np.asarray(words, dtype=np.int64) >> (8 - self.gain_log2)).clip(-32768, 32767)

    def spectrum(self, samples: np.ndarray) -> np.ndarray:
        """Return the powers int64 [.., bins] of windows of samples [.., window]."""
        given = np.asarray(samples, dtype=np.int64)
        windowed = (given * (COSINE_ONE - self.cosine)) >> WINDOW_SHIFT
        angles = np.outer(np.arange(self.window), np.array(self.bins))
        total = np.zeros((*given.shape[:-1], len(self.bins)), np.int64)
        for turned in (angles, angles - self.window // 4):
            # float64 is exact here: all products and sums are integers below 2**53, and its matrix product is fast.
            sums = windowed.astype(np.float64) @ self.cosine[turned % self.window].astype(np.float64)
            total += (sums.astype(np.int64) >> DFT_SHIFT) ** 2
        return total

    def energies(self, powers: np.ndarray) -> np.ndarray:
        """Return the energies int64 [.., bands] of powers [.., bins]."""
        weights, ends = self.filters
        interval = np.append(0, np.cumsum(ends)[:-1])
        matrix = np.zeros((len(self.bins), self.bands + 2), np.int64)
        matrix[np.arange(len(weights)), interval + 1] += weights
        matrix[np.arange(len(weights)), interval] += (1 << WEIGHT_BITS) - weights
        return np.asarray(powers) @ matrix[:, 1:-1]

    def logarithms(self, energies: np.ndarray) -> np.ndarray:
        """Return the codes int64 [..] of energies [..]."""
        given = np.asarray(energies, dtype=np.int64)
        # frexp of an int64 below 2**53 is exact: 0.5 <= mantissa < 1.
        exponent = np.where(given > 0, np.frexp(given.astype(np.float64))[1] - 1, 0)
        mantissa = (np.maximum(given, 1) << MANTISSA_BITS >> exponent) & ((1 << MANTISSA_BITS) - 1)
        logs = (exponent << LOG_STEPS_LOG2) + np.array(self.fractions)[mantissa]
        return np.minimum(np.where(given > 0, logs, 0) - self.offset, self.high).clip(self.low)

    def features(self, samples: np.ndarray) -> np.ndarray:
        """Return the codes int64 [N, steps, bands] of all windows of samples int16 [N, n]; n // hop steps.

        The first window ends with sample `hop`; zeros stand before the first sample.
        """
        given = np.asarray(samples)
        if given.ndim != 2 or (given != np.rint(given)).any() or np.abs(given + 0.5).max(initial=0) > 32767.5:
            raise ValueError(f"signals are [N, samples] of whole numbers from -32768 to 32767, given {given.shape}")
        count = given.shape[1] // self.hop
        if not count:
            return np.zeros((len(given), 0, self.bands), np.int64)
        padded = np.pad(given.astype(np.int64), ((0, 0), (self.window - self.hop, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.window, axis=1)[:, :: self.hop][:, :count]
        return self.logarithms(self.energies(self.spectrum(windows)))

    def codes(self, signals: np.ndarray) -> np.ndarray:
        """See `SensorFront`: a frame for each `hop` samples, int64 [N, samples // hop, 1, steps, bands]."""
        return self.frames(self.features(signals))

    def frames(self, features: np.ndarray) -> np.ndarray:
        """Return the frames int64 [N, n, 1, steps, bands] of features [N, n, bands]: at each step the last `steps`."""
        if not features.shape[1]:
            return np.zeros((len(features), 0, *self.shape), np.int64)
        silent = np.full((len(features), self.steps - 1, self.bands), self.silence, np.int64)
        padded = np.concatenate([silent, features], axis=1)
        views = np.lib.stride_tricks.sliding_window_view(padded, self.steps, axis=1)
        return views.transpose(0, 1, 3, 2)[:, :, None]

    @property
    def silence(self) -> int:
        """Code of a band without energy."""
        return max(self.low, -self.offset)

    @cached_property
    def step_cycles(self) -> int:
        """Most cycles from the last sample of a window to its last feature."""
        drained = self.window + PIPELINE_CYCLES + 2
        bin_cycles = 2 * drained + 2 * (PIPELINE_CYCLES + 2) + WEIGHT_BITS + 4
        return drained + len(self.bins) * bin_cycles + (self.bands + 1) * LOGARITHM_CYCLES

    def frame_cycles(self, clock_hz: float) -> int:
        """See `SensorFront`: the cycles of a hop."""
        return int(self.hop * clock_hz / self.rate_hz)

    def problems(self, clock_hz: float) -> list[str]:
        """See `SensorFront`: a window must be done before the next one, and be copied within a sample."""
        copied = self.window + PIPELINE_CYCLES + 2
        least_hz = max(self.step_cycles / self.hop, copied + 8) * self.rate_hz
        if clock_hz >= least_hz:
            return []
        message = (
            f"{self.layer}: {len(self.bins)} bins of a window of {self.window} samples every {self.hop} at "
            f"{self.rate_hz} Hz need a clock of {least_hz / 1e6:.2f} MHz or more, given {clock_hz / 1e6:g} MHz; "
            "use a faster --clock, a longer hop or a shorter window"
        )
        return [message]


def _mel_edges(lowest_hz: float, highest_hz: float, bands: int) -> np.ndarray:
    """Return the frequencies float64 [bands + 2] of the filters' ends and peaks, evenly spaced in mel.

    Source: the usual formula, 2595 log10(1 + f / 700).
    """
    low, high = (2595 * math.log10(1 + hz / 700) for hz in (lowest_hz, highest_hz))
    edges: np.ndarray = 700 * (10 ** (np.linspace(low, high, bands + 2) / 2595) - 1)
    return edges
