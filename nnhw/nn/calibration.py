"""Calibration: the data that a float model is run on, and scales from the values that are observed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from nnhw.errors import InputError, NnhwError

from .quantizers import PER_TENSOR, Bipolar, Int, Quantizer, UInt
from .written.lattices import OFTEN, lattice_of_weights

BATCH = 64
"""Images with which a model is run at once."""
SIGNIFICANT_BITS = 12
"""Significant bits of a scale: a product of two such scales is exact in float64, a code times a scale in float32."""
ITEMS = 1024
"""Most images that are taken from a dataset, evenly spread over it, or from a loader, the first ones."""
BINS = 2048
"""Bins of a histogram of magnitudes, as torch.ao's HistogramObserver has them."""
CANDIDATES = 80
"""Number of clipping points that are tried, from the peak down to a fifth of it in steps of a hundredth."""


def batches_of(
    data: Any,
    what: str,
    problems: list[NnhwError],
    shape: Sequence[int] | None = None,
    like: str = "an example_input",
    *,
    whole: bool = False,
) -> list[Tensor]:
    """Return batches [N, ..] of finite floats; append all problems with the data to `problems`.

    Parameters
    ----------
    data: one tensor or array [N, ..], an iterable of such batches, or of tuples that begin with one, or a dataset of
        images [..] or tuples that begin with one.
    what: name of the data in messages.
    shape: shape that every image must have; None: it is not known.
    like: in messages, the object that has this shape.
    whole: take all batches of a `DataLoader`, and not its first `ITEMS` images.
    """
    batches: list[Tensor] = []
    shapes: set[tuple[int, ...]] = set()
    for number, (batch, kind) in enumerate(_parts(data, what, problems, whole)):
        found = list(_wrong(batch, kind, what if isinstance(data, Tensor | np.ndarray) else f"{what}, batch {number}"))
        problems += found
        if batch is None or batch.ndim < 2 or 0 in batch.shape:
            continue
        shapes.add(tuple(batch.shape[1:]))
        if not found and (shape is None or tuple(shape) == tuple(batch.shape[1:])):
            batches += batch.split(BATCH)
    problems += _wrong_shapes(shapes, what, shape, like)
    return batches


def _wrong_shapes(
    shapes: set[tuple[int, ...]], what: str, shape: Sequence[int] | None, like: str
) -> Iterator[InputError]:
    """Yield a problem where images differ in shape, or are not of the one that is needed."""
    listed = " and ".join(str(list(one)) for one in sorted(shapes))
    if shape is not None and shapes - {tuple(shape)}:
        yield InputError(
            f"{what} needs images of the shape {list(shape)}, which {like.removeprefix('an ')} has, got {listed}; give "
            f"[N, {', '.join(map(str, shape))}], or {like} of the other shape"
        )
    elif len(shapes) > 1:
        yield InputError(f"{what} needs images of one shape, got {listed}; use batches of equal images")


def all_zero(batches: Sequence[Tensor]) -> bool:
    """Return whether there is data, and all of it is 0, so that it shows the range of no value."""
    return bool(batches) and not any(bool(batch.any()) for batch in batches)


def _parts(data: Any, what: str, problems: list[NnhwError], whole: bool) -> Iterator[tuple[Tensor | None, str]]:
    """Yield (batch, kind of its elements); the batch is None if these are no real numbers."""
    if isinstance(data, Tensor | np.ndarray):
        yield _tensor(data), _kind(data)
        return
    count = images = 0
    # A loader may be endless, or give the images of a whole training set; a list of batches is what the user chose.
    most = ITEMS if isinstance(data, DataLoader) and not whole else None
    if isinstance(data, Dataset):
        data = _loader(data)
    if not isinstance(data, Iterable) or isinstance(data, str | bytes):
        given = "None" if data is None else type(data).__name__
        problems.append(InputError(f"{what} needs a tensor or array [N, ..], or batches of them, got {given}"))
        return
    for batch in data:
        count += 1
        # Loaders give pairs of images and labels.
        batch = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(batch, Tensor | np.ndarray):
            given = f"got {type(batch).__name__} as batch {count - 1}"
            problems.append(InputError(f"{what} needs tensors [N, ..], {given}; give one tensor for each batch"))
        else:
            yield _tensor(batch), _kind(batch)
            images += len(batch) if batch.ndim else 1
            if most is not None and images >= most:
                break
    if not count:
        problems.append(InputError(f"{what} is empty; give at least one batch [N, ..] of what the model will see"))


def _loader(data: Dataset[Any]) -> DataLoader[Any]:
    """Return batches of a dataset; if its size is known, of at most `ITEMS` items, evenly spread over it."""
    if not isinstance(data, IterableDataset):
        count = len(data)  # type: ignore[arg-type]
        data = Subset(data, np.linspace(0, count - 1, min(count, ITEMS)).round().astype(int).tolist())
    return DataLoader(data, BATCH)


def _tensor(data: Tensor | np.ndarray) -> Tensor | None:
    """Return data as a tensor of real numbers; None if it has others."""
    if isinstance(data, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(data)) if data.dtype.kind in "fiub" else None
    return None if data.is_complex() else data.detach().cpu()


def _kind(data: Tensor | np.ndarray) -> str:
    if isinstance(data, Tensor) or data.dtype.kind == "c":
        return "complex numbers"
    return "text" if data.dtype.kind in "US" else "Python objects or dates"


def _wrong(batch: Tensor | None, kind: str, name: str) -> Iterator[InputError]:
    """Yield the problems of one batch, or of an array whose elements are no real numbers."""
    if batch is None:
        yield InputError(f"{name} needs real numbers, got an array of {kind}; save float32 [N, ..]")
        return
    if not batch.is_floating_point():
        yield InputError(
            f"{name} needs floating-point images, got {str(batch.dtype).removeprefix('torch.')}; convert them as for "
            f"training, such as x.astype(np.float32) / 255"
        )
    if batch.ndim < 2 or 0 in batch.shape:
        yield InputError(
            f"{name} needs the shape [N, ..] with at least one image, got {list(batch.shape)}; the batch "
            f"is the first axis"
        )
    elif batch.is_floating_point():
        bad = (~torch.isfinite(batch)).nonzero()
        if len(bad):
            yield InputError(
                f"{name} holds NaN or infinity in {len(bad)} of {batch.numel()} places, first at {bad[0].tolist()}; "
                f"give finite numbers"
            )


def run_with(interpreter: fx.Interpreter, batch: Tensor) -> None:
    """Run a traced model with calibration data.

    Raises
    ------
    InputError: the data does not go through the model.
    """
    try:
        with torch.no_grad():
            # A clone, as operations in place would change the data for the runs that follow.
            interpreter.run(batch.clone())
    # It is the user's model that runs, which may fail in any way.
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"calibration data of shape {list(batch.shape)} does not go through the model: {line}; give the shape that "
            f"the model takes, with the batch as first axis"
        ) from error


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
        """First pass: update the peak. NaN, once seen, stays."""
        # Unlike max(), torch.maximum keeps NaN.
        self.peak = float(torch.maximum(torch.tensor(self.peak), value.abs().amax()))

    def count(self, value: Tensor) -> None:
        """Second pass: add the magnitudes of a value to the histogram."""
        if self.peak > 0:
            self.counts += torch.histc(value.abs().float(), BINS, 0.0, self.peak).double()

    def best_scale(self, qmax: int) -> float:
        """Return the scale of codes up to `qmax` with the least squared error."""
        if not self.peak:
            return 1.0
        centres = (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self.peak / BINS)
        return float(_least_error(centres[None], self.counts[None], torch.tensor([self.peak]), qmax))

    def mean(self) -> float:
        """Return the mean magnitude, which is the best scale of a single bit."""
        centres = (torch.arange(BINS, dtype=torch.float64) + 0.5) * (self.peak / BINS)
        total = float(self.counts.sum())
        return float((centres * self.counts).sum()) / total if self.peak and total else 1.0


def activation_quantizer(observed: Observed, bits: int, signed: bool, whole: bool = False) -> Quantizer:
    """Return the quantizer of an activation, with a fixed scale.

    Parameters
    ----------
    whole: clip no observed value, for a softmax, in which the greatest values matter most.
    """
    if bits == 1:
        # Of the signs of a value times one scale, the mean magnitude is the scale with the least squared error.
        scale = rounded(torch.tensor([observed.mean()]))
        return Bipolar(scale) if signed else Quantizer(0, 1, rounded(torch.tensor([observed.best_scale(1)])))
    qmax = (1 << (bits - int(signed))) - 1
    scale = rounded(torch.tensor([observed.peak / qmax if whole and observed.peak else observed.best_scale(qmax)]))
    return Int(bits, scale) if signed else UInt(bits, scale)


def weight_quantizer(weight: Tensor, bits: int, axis: int) -> Quantizer:
    """Return the symmetric quantizer of weights with the least squared error; for weights of few levels an exact one.

    Parameters
    ----------
    axis: axis of the outputs, for one scale per output; or `PER_TENSOR`, for one scale in all.
    """
    if (own := _own_levels(weight, bits, axis)) is not None:
        return own
    values = weight.detach().double().abs()
    rows = values.reshape(1, -1) if axis == PER_TENSOR else values.movedim(axis, 0).reshape(weight.shape[axis], -1)
    if bits == 1:
        mean = rows.mean(dim=1)
        return Bipolar(rounded(torch.where(mean > 0, mean, 1.0)), axis)
    qmax = (1 << (bits - 1)) - 1
    peaks = rows.amax(dim=1)
    scales = _least_error(rows, torch.ones_like(rows), peaks, qmax)
    # The search knows codes within plus and minus qmax only, so the format leaves the most negative code out.
    return Int(bits, rounded(torch.where(peaks > 0, scales, 1.0)), axis, narrow_range=True)


def _own_levels(weight: Tensor, bits: int, axis: int) -> Quantizer | None:
    """Return a quantizer that leaves weights as they are, which are whole numbers of these bits times a scale."""
    values = weight.detach()
    lattice = lattice_of_weights(values.double(), None if axis == PER_TENSOR else axis)
    most = max(1, (1 << (bits - 1)) - 1)
    if lattice is None or max(-lattice.low, lattice.high) > most or (bits == 1 and not lattice.bipolar):
        return None
    if values.numel() < OFTEN * len(torch.unique(values)):
        return None
    axis = PER_TENSOR if lattice.scale.numel() == 1 else axis
    scale = lattice.scale.float()
    if lattice.bipolar:
        made: Quantizer = Bipolar(scale, axis)
    else:
        # As many bits as the levels need.
        needed = max(-lattice.low, lattice.high).bit_length() + 1
        made = Int(needed, scale, axis, narrow_range=True)
    return made if torch.equal(made(values), values) else None


def rounded(scales: Tensor) -> Tensor:
    """Round scales to `SIGNIFICANT_BITS` significant bits, float32."""
    mantissa, exponent = torch.frexp(scales.double())
    kept = torch.round(torch.ldexp(mantissa, torch.tensor(SIGNIFICANT_BITS)))
    return torch.ldexp(kept, exponent - SIGNIFICANT_BITS).float()


def _least_error(values: Tensor, counts: Tensor, peaks: Tensor, qmax: int) -> Tensor:
    """Return the scale of each row with the least squared error of its magnitudes, float64 [rows]."""
    best = torch.full_like(peaks, torch.inf, dtype=torch.float64)
    scales, error = (peaks / qmax).double(), torch.empty_like(values, dtype=torch.float64)
    for step in range(CANDIDATES):
        # A row of zeros has no peak; callers replace its scale.
        trial = (peaks.double() * (1 - step / 100) / qmax).clamp_min(torch.finfo(torch.float32).tiny)
        # In place: values are many, and a new tensor for each operation would take most of the time.
        torch.div(values, trial[:, None], out=error)
        error.round_().clamp_max_(qmax).mul_(trial[:, None]).sub_(values).square_().mul_(counts)
        total = error.sum(dim=1)
        scales = torch.where(total < best, trial, scales)
        best = torch.minimum(total, best)
    return scales
