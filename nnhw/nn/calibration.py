"""Calibration: data that a float model is shown, and the scales that follow from what is seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nnhw.errors import InputError, NnhwError

from .quantizers import Bipolar, Int, Quantizer, UInt

BATCH = 64
SIGNIFICANT_BITS = 12  # of a scale: the product of two such scales is exact in float64, code times scale in float32
BINS = 2048
CANDIDATES = 80  # clipping points that are tried, from the peak down to a fifth of it


def batches_of(data: Any, what: str, problems: list[NnhwError]) -> list[Tensor]:
    """Return batches [N, ..] of finite floats; note all that is wrong with them.

    Parameters
    ----------
    data: one tensor or array [N, ..], or an iterable of such batches, or of tuples that begin with one.
    """
    batches = []
    for number, batch in enumerate(_parts(data, what, problems)):
        name = f"{what}, batch {number}" if number or not isinstance(data, Tensor | np.ndarray) else what
        found = list(_wrong(batch, name))
        problems += found
        if batch is not None and not found:
            batches.append(batch)
    shapes = {tuple(batch.shape[1:]) for batch in batches}
    if len(shapes) > 1:
        listed = " and ".join(str(list(shape)) for shape in sorted(shapes))
        problems.append(InputError(f"{what} needs images of one shape, got {listed}; use batches of equal images"))
    return batches


def _parts(data: Any, what: str, problems: list[NnhwError]) -> Iterator[Tensor | None]:
    if isinstance(data, Tensor | np.ndarray):
        tensor = _tensor(data)
        yield from tensor.split(BATCH) if tensor is not None and tensor.ndim > 1 and len(tensor) else [tensor]
        return
    count = 0
    for batch in data if isinstance(data, Iterable) and not isinstance(data, str) else ():
        count += 1
        batch = batch[0] if isinstance(batch, tuple | list) and batch else batch
        tensor = _tensor(batch)
        if tensor is None:
            problems.append(
                InputError(f"{what} needs tensors [N, ..], got {type(batch).__name__} as batch {count - 1}")
            )
        else:
            yield tensor
    if not count:
        problems.append(InputError(f"{what} is empty; give at least one batch [N, ..] of what the model will see"))


def _tensor(data: Any) -> Tensor | None:
    if isinstance(data, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(data)) if data.dtype.kind in "fiub" else None
    return data.detach().cpu() if isinstance(data, Tensor) else None


def _wrong(batch: Tensor | None, name: str) -> Iterator[InputError]:
    """Yield what is wrong with one batch."""
    if batch is None:
        yield InputError(f"{name} needs numbers, got an array of objects or text; save float32 [N, ..]")
        return
    if not batch.is_floating_point():
        yield InputError(
            f"{name} needs floating-point images, got {str(batch.dtype).removeprefix('torch.')}; convert them as for "
            f"training, such as x.astype(np.float32) / 255"
        )
    if batch.ndim < 2 or 0 in batch.shape:
        yield InputError(f"{name} needs the shape [N, ..] with at least one image, got {list(batch.shape)}")
    elif batch.is_floating_point():
        bad = int((~torch.isfinite(batch)).sum())
        if bad:
            yield InputError(f"{name} holds NaN or infinity in {bad} of {batch.numel()} places; give finite numbers")


class Observed:
    """The magnitudes of a value over all calibration data.

    A histogram of its own instead of torch.ao's observers: those search clipping points for 256 levels, whatever the
    width, and are to leave PyTorch for torchao, which has none for single activations.

    Members
    -------
    peak: the greatest magnitude, known after the first pass over the data.
    counts: of magnitudes in `BINS` equal bins up to the peak, complete after the second pass.
    """

    def __init__(self) -> None:
        self.peak = 0.0
        self.counts = torch.zeros(BINS, dtype=torch.float64)

    def find_peak(self, value: Tensor) -> None:
        """First pass. NaN stays."""
        self.peak = float(torch.maximum(torch.tensor(self.peak), value.abs().amax()))

    def count(self, value: Tensor) -> None:
        """Second pass."""
        if self.peak > 0:
            self.counts += torch.histc(value.abs().float(), BINS, 0.0, self.peak).double()

    def best_scale(self, qmax: int) -> float:
        """Return the scale of codes up to `qmax` with the least squared error."""
        if not self.peak:
            return 1.0
        centres = (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self.peak / BINS)
        return float(_least_error(centres[None], self.counts[None], torch.tensor([self.peak]), qmax))

    def mean(self) -> float:
        """Return the mean magnitude: the scale of a single bit."""
        centres = (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self.peak / BINS)
        total = float(self.counts.sum())
        return float((centres * self.counts).sum()) / total if self.peak and total else 1.0


def activation_quantizer(observed: Observed, bits: int, signed: bool) -> Quantizer:
    """Return the quantizer of an activation, its scale fixed."""
    if bits == 1:
        scale = rounded(torch.tensor([observed.mean()]))
        return Bipolar(scale) if signed else Quantizer(0, 1, rounded(torch.tensor([observed.best_scale(1)])))
    qmax = (1 << (bits - int(signed))) - 1
    scale = rounded(torch.tensor([observed.best_scale(qmax)]))
    return Int(bits, scale) if signed else UInt(bits, scale)


def weight_quantizer(weight: Tensor, bits: int, axis: int) -> Quantizer:
    """Return the quantizer of weights: symmetric, one scale per output, of least squared error."""
    rows = weight.detach().double().transpose(0, axis).flatten(1).abs()
    if bits == 1:
        mean = rows.mean(dim=1)
        return Bipolar(rounded(torch.where(mean > 0, mean, 1.0)), axis)
    qmax = (1 << (bits - 1)) - 1
    peaks = rows.amax(dim=1)
    scales = _least_error(rows, torch.ones_like(rows), peaks, qmax)
    return Int(bits, rounded(torch.where(peaks > 0, scales, 1.0)), axis, narrow_range=True)


def rounded(scales: Tensor) -> Tensor:
    """Round to `SIGNIFICANT_BITS` significant bits; float32."""
    mantissa, exponent = torch.frexp(scales.double())
    kept = torch.round(torch.ldexp(mantissa, torch.tensor(SIGNIFICANT_BITS)))
    return torch.ldexp(kept, exponent - SIGNIFICANT_BITS).float()


def _least_error(values: Tensor, counts: Tensor, peaks: Tensor, qmax: int) -> Tensor:
    """Return the scale of each row with the least squared error of its magnitudes, float64 [rows]."""
    best = torch.full_like(peaks, torch.inf, dtype=torch.float64)
    scales = (peaks / qmax).double()
    for step in range(CANDIDATES):
        trial = (peaks.double() * (1 - step / 100) / qmax).clamp_min(torch.finfo(torch.float32).tiny)
        codes = torch.round(values / trial[:, None]).clamp_max(qmax)
        error = ((codes * trial[:, None] - values) ** 2 * counts).sum(dim=1)
        scales = torch.where(error < best, trial, scales)
        best = torch.minimum(error, best)
    return scales
