"""Layers and builders of TFLite's operators that move codes, and of its pooling."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.nn.functional import quantize

from .linear import border, check_shape, from_image, to_image
from .requantization import FromReal, RescaleCall, Site, ToReal, bounded


class Reshaping(nn.Module):
    """RESHAPE, SQUEEZE and EXPAND_DIMS: another shape behind the batch."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] --> [N, *shape]."""
        return x.reshape(x.shape[0], *self.shape)


class Transposition(nn.Module):
    """TRANSPOSE."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """Return x with its axes in another order; the batch stays first."""
        return x.permute(self.axes)


class Bordered(nn.Module):
    """PAD and PADV2.

    Parameters
    ----------
    widths: elements of border (left, right, top, bottom), as `torch.nn.functional.pad` has them.
    value: of the border, as a distance.
    """

    def __init__(self, widths: tuple[int, ...], value: int) -> None:
        super().__init__()
        self.widths, self.value = widths, float(value)

    def forward(self, x: Tensor) -> Tensor:
        """[N, height, width, channels] with a border around each channel."""
        return from_image(functional.pad(to_image(x), self.widths, value=self.value))


class MaxPooling(nn.Module):
    """MAX_POOL_2D.

    Parameters
    ----------
    widths: pixels of padding (left, right, top, bottom).
    least: value of the padding, which must not be greater than any distance.
    bounds: clamps to a fused activation; None where that cuts nothing.
    """

    def __init__(
        self,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        widths: tuple[int, ...],
        least: int,
        bounds: RescaleCall | None,
    ) -> None:
        super().__init__()
        self.kernel, self.stride, self.widths, self.least, self.bounds = kernel, stride, widths, float(least), bounds

    def forward(self, x: Tensor) -> Tensor:
        """[N, height, width, channels] of distances --> fewer rows and columns."""
        image = to_image(x)
        if any(self.widths):
            image = functional.pad(image, self.widths, value=self.least)
        result = functional.max_pool2d(image, self.kernel, self.stride)
        return from_image(result if self.bounds is None else self.bounds(result))


class AveragePool(nn.Module):
    """AVERAGE_POOL_2D: the mean of the file's codes, not of distances, rounded half away from zero.

    Parameters
    ----------
    low, high: bounds of the result as distances from the zero point.
    """

    one: Tensor
    zero_point: Tensor

    def __init__(self, kernel: tuple[int, int], stride: tuple[int, int], zero_point: int, low: int, high: int) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones(1, dtype=torch.float64))
        self.register_buffer("zero_point", torch.tensor([float(zero_point)], dtype=torch.float64))
        self.kernel, self.stride = kernel, stride
        self.low, self.high = low + zero_point, high + zero_point

    def forward(self, x: Tensor) -> Tensor:
        """[N, height, width, channels] of distances --> fewer rows and columns."""
        # In float64 the mean is the nearest number to the quotient, so that halves are exact and round as they do in
        # integers.
        mean = functional.avg_pool2d(to_image(x), self.kernel, self.stride)
        limits = self.low, self.high
        return from_image(quantize(mean, self.one, self.zero_point, *limits, -1, False, "half_away", False, True))


class Mean(nn.Module):
    """MEAN over height, width or both, or over rows: a sum, requantized.

    Parameters
    ----------
    axes: of the file's tensor, with channels last.
    shape: of the result, without its batch.
    """

    def __init__(self, axes: tuple[int, ...], rescaled: RescaleCall, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.axes, self.rescaled, self.shape = axes, rescaled, shape

    def forward(self, x: Tensor) -> Tensor:
        """Distances of [N, ..] --> those of [N, *shape]."""
        if x.dim() == 4:
            # The file's axes, with channels last, as those of torch.
            where = {1: 2, 2: 3, 3: 1}
            sums = to_image(x).sum(dim=sorted(where[axis] for axis in self.axes), keepdim=True)
            result = from_image(self.rescaled(sums))
        else:
            result = self.rescaled(x.sum(dim=self.axes))
        return result.reshape(result.shape[0], *self.shape)


class JoinedParts(nn.Module):
    """CONCATENATION along an axis of the file's tensors. `bounds`: clamps to a fused activation."""

    def __init__(self, axis: int, bounds: RescaleCall | None) -> None:
        super().__init__()
        self.axis, self.bounds = axis, bounds

    def forward(self, *parts: Tensor) -> Tensor:
        """[N, ..] of distances with one scale --> their elements joined along the axis."""
        # Rescalings want channels second: of images these come to the front and go back.
        images = all(part.dim() == 4 for part in parts)
        if not images:
            result = torch.cat(parts, dim=self.axis)
            return result if self.bounds is None else self.bounds(result)
        joined = torch.cat([to_image(part) for part in parts], dim={1: 2, 2: 3, 3: 1}[self.axis])
        return from_image(joined if self.bounds is None else self.bounds(joined))


class Repeated(nn.Module):
    """RESIZE_NEAREST_NEIGHBOR by whole factors."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """[N, height, width, channels] --> [N, *size, channels]."""
        return from_image(functional.interpolate(to_image(x), self.size, mode="nearest"))


class StridedSlice(nn.Module):
    """STRIDED_SLICE with step 1: the range starts..stops of each axis behind the batch, as [N, *shape]."""

    def __init__(self, starts: tuple[int, ...], stops: tuple[int, ...], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.starts, self.stops, self.shape = starts, stops, shape

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] --> [N, *shape]."""
        for axis, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True), 1):
            if (start, stop) != (0, x.shape[axis]):
                x = x.narrow(axis, start, stop - start)
        return x.reshape(x.shape[0], *self.shape)


class SplitParts(nn.Module):
    """SPLIT into parts of `size` elements along an axis."""

    def __init__(self, axis: int, size: int) -> None:
        super().__init__()
        self.axis, self.size = axis, size

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """[N, ..] --> the parts, in order."""
        return x.split(self.size, dim=self.axis)


def reshaped(site: Site) -> nn.Module:
    """Build a RESHAPE, SQUEEZE or EXPAND_DIMS."""
    x, made = site.given(0), site.made
    if x.type != "FLOAT32":
        site.check_same(x, made)
    if x.shape[0] != made.shape[0] or math.prod(x.shape) != math.prod(made.shape):
        raise site.refusal(f"makes {list(made.shape)} of {list(x.shape)}, and the batch must stay the first axis")
    # The result's shape stands in the file twice; -1 stands for what is left.
    stated = site.optional(1) if site.operator.kind == "RESHAPE" else None
    if stated is not None and stated.data is not None:
        wanted = stated.data.reshape(-1).tolist()
        if len(wanted) != len(made.shape) or any(a not in (-1, b) for a, b in zip(wanted, made.shape, strict=True)):
            raise site.refusal(f"asks for the shape {wanted}, but makes {list(made.shape)}; convert the model again")
    return Reshaping(made.shape[1:])


def permuted(site: Site) -> nn.Module:
    """Build a TRANSPOSE."""
    site.check_same(site.given(0), site.made)
    axes, shape = [int(axis) for axis in site.constant(1).reshape(-1)], site.given(0).shape
    if sorted(axes) != list(range(len(shape))) or axes[0] != 0:
        raise site.refusal(f"has the axes {axes}; each axis is needed once, and the batch must stay the first")
    check_shape(site, tuple(shape[axis] for axis in axes[1:]))
    return Transposition(tuple(axes))


def bordered(site: Site) -> nn.Module:
    """Build a PAD or PADV2."""
    x, made = site.given(0), site.made
    site.check_same(x, made)
    widths = site.constant(1).reshape(-1, 2).tolist()
    if len(x.shape) != 4 or len(widths) != 4 or any(map(any, (widths[0], widths[3]))) or min(map(min, widths)) < 0:
        raise site.refusal(f"has the widths {widths} around {list(x.shape)}; only height and width can have borders")
    check_shape(site, tuple(size + sum(ends) for size, ends in zip(x.shape[1:], widths[1:], strict=True)))
    value = 0
    if site.optional(2) is not None:
        site.check_same(x, site.given(2))
        value = int(site.constant(2).reshape(-1)[0]) - x.zero_point
    return Bordered((*widths[2], *widths[1]), value)


def max_pool(site: Site) -> nn.Module:
    """Build a MAX_POOL_2D."""
    kernel, stride, ends = _windows(site)
    (top, bottom), (left, right) = ends
    low, high = site.bounds()
    free = (low, high) == (site.made.distances.low, site.made.distances.high)
    return MaxPooling(
        kernel, stride, (left, right, top, bottom), site.made.distances.low, None if free else bounded(low, high)
    )


def average_pool(site: Site) -> nn.Module:
    """Build an AVERAGE_POOL_2D."""
    kernel, stride, ends = _windows(site)
    # TFLite divides by the pixels that are there, which differ at the border.
    if any(map(any, ends)):
        raise site.refusal("has windows that reach beyond the border, and so means of fewer pixels; use padding VALID")
    return AveragePool(kernel, stride, site.made.zero_point, *site.bounds())


def _windows(site: Site) -> tuple[tuple[int, int], tuple[int, int], list[tuple[int, int]]]:
    x, made = site.given(0), site.made
    site.check_same(x, made)
    kernel = site.option("FilterHeight"), site.option("FilterWidth")
    stride = site.option("StrideH"), site.option("StrideW")
    if min(*kernel, *stride) < 1 or len(x.shape) != 4:
        raise site.refusal(f"has windows of {kernel} with the stride {stride} over {list(x.shape)}; convert it again")
    ends = [border(site, *numbers) for numbers in zip(x.shape[1:3], kernel, stride, strict=True)]
    sides = [
        (size + sum(end) - span) // step + 1
        for size, end, span, step in zip(x.shape[1:3], ends, kernel, stride, strict=True)
    ]
    check_shape(site, (*sides, x.shape[3]))
    return kernel, stride, ends


def mean(site: Site) -> nn.Module:
    """Build a MEAN."""
    x, made = site.given(0), site.made
    site.check_codes(x, made)
    rank = len(x.shape)
    axes = sorted({site.axis(int(axis), x) for axis in site.constant(1).reshape(-1)})
    if not axes or 0 in axes or (rank == 4 and not set(axes) <= {1, 2}):
        raise site.refusal(f"goes over the axes {axes} of {list(x.shape)}; height and width, or rows, are supported")
    count = math.prod(x.shape[axis] for axis in axes)
    sizes = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    left = [axis for axis in range(1, rank) if site.option("KeepDims") or axis not in axes]
    check_shape(site, tuple(sizes[axis] for axis in left))
    rescaled = RescaleCall([x.scale / made.scale], 0, *site.bounds(), site.rounding)
    multiplier, exponent = int(rescaled.multiplier), int(rescaled.exponent)
    # As TFLite does: the multiplier is divided by the count, after a shift left that keeps its bits.
    shift = min(count.bit_length() - 1, 32, 31 + exponent)
    rescaled.multiplier = torch.tensor([(multiplier << shift) // count])
    rescaled.exponent = torch.tensor([exponent - shift])
    return Mean(tuple(axes), rescaled, made.shape[1:])


def joined(site: Site) -> nn.Module:
    """Build a CONCATENATION."""
    parts = [site.given(place) for place in range(len(site.operator.inputs))]
    site.check_same(*parts, site.made)
    axis = site.axis(site.option("Axis"), site.made)
    if axis == 0:
        raise site.refusal("joins along the batch; join along another axis")
    rests = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in (*parts, site.made)}
    if len(rests) != 1 or sum(part.shape[axis] for part in parts) != site.made.shape[axis]:
        raise site.refusal(f"joins {[list(part.shape) for part in parts]} to {list(site.made.shape)}; convert it again")
    low, high = site.bounds()
    free = (low, high) == (site.made.distances.low, site.made.distances.high)
    return JoinedParts(axis, None if free else bounded(low, high))


def repeated(site: Site) -> nn.Module:
    """Build a RESIZE_NEAREST_NEIGHBOR."""
    x, made = site.given(0), site.made
    site.check_same(x, made)
    if len(x.shape) != 4:
        raise site.refusal(f"resizes {list(x.shape)}; images [batch, height, width, channels] are supported")
    if site.option("AlignCorners"):
        raise site.refusal("aligns corners; use align_corners=False")
    size = tuple(site.constant(1).reshape(-1).tolist())
    check_shape(site, (*size, x.shape[3]))
    # With whole factors HalfPixelCenters picks the same pixels, so that option is not read.
    if any(new % old for new, old in zip(size, x.shape[1:3], strict=True)):
        raise site.refusal(f"makes {list(size)} of {list(x.shape[1:3])}; whole factors are supported")
    return Repeated(size)


def sliced(site: Site) -> nn.Module:
    """Build a STRIDED_SLICE."""
    x, made = site.given(0), site.made
    site.check_same(x, made)
    begin, end, step = (site.constant(place).reshape(-1).tolist() for place in (1, 2, 3))
    rank, masks = len(x.shape), [site.option(f"{name}Mask") for name in ("Begin", "End", "ShrinkAxis")]
    if site.option("EllipsisMask") or site.option("NewAxisMask") or len(begin) != rank or set(step) != {1}:
        raise site.refusal(f"has the steps {step}; ranges of whole axes with step 1 are supported")
    if site.option("Offset"):
        raise site.refusal("counts its ends from its starts (offset); convert it with ends that count from the first")
    starts, stops = [], []
    for axis, size in enumerate(x.shape):
        # Negative ends count from the end of the axis, as in Python's own slices.
        low, high, _ = slice(
            None if masks[0] >> axis & 1 else begin[axis], None if masks[1] >> axis & 1 else end[axis]
        ).indices(size)
        starts.append(low)
        stops.append(low + 1 if masks[2] >> axis & 1 else high)
    if (
        (starts[0], stops[0]) != (0, x.shape[0])
        or masks[2] & 1
        or any(a >= b for a, b in zip(starts, stops, strict=True))
    ):
        raise site.refusal(f"takes {starts} to {stops} of {list(x.shape)}; the batch must stay whole")
    sizes = [b - a for a, b in zip(starts, stops, strict=True)]
    check_shape(site, tuple(size for axis, size in enumerate(sizes) if axis and not masks[2] >> axis & 1))
    return StridedSlice(tuple(starts[1:]), tuple(stops[1:]), made.shape[1:])


def split(site: Site) -> nn.Module:
    """Build a SPLIT, whose axis is its first input."""
    x, made = site.given(1), site.made
    axis, count = site.axis(int(site.constant(0).reshape(-1)[0]), x), len(site.operator.outputs)
    if axis == 0 or x.shape[axis] % count or site.option("NumSplits") != count:
        raise site.refusal(
            f"splits {list(x.shape)} along axis {axis} into {site.option('NumSplits')} parts, and has {count} results; "
            f"it needs one result for each of the equal parts, and the batch must stay whole"
        )
    part = (*x.shape[:axis], x.shape[axis] // count, *x.shape[axis + 1 :])
    for index in site.operator.outputs:
        site.check_same(x, site.model.tensors[index])
        if site.model.tensors[index].shape != part:
            raise site.refusal(
                f"gives parts of shape {list(part)}, but the file states {list(site.model.tensors[index].shape)}; "
                f"convert the model again"
            )
    return SplitParts(axis, made.shape[axis])


def codes_of(site: Site) -> nn.Module:
    """Build a QUANTIZE: of real numbers to codes, or of codes to codes of another scale or type."""
    x, made = site.given(0), site.made
    if x.type == "FLOAT32":
        # Between layers TFLite computes these numbers in float32, and the module codes and numbers in float64.
        if x.index != site.model.input:
            raise site.refusal(
                f"makes codes of the real numbers {x.place}, which are computed; convert the model again, without "
                f"DEQUANTIZE and QUANTIZE between its layers"
            )
        site.check_codes(made, types=("INT8", "UINT8"))
        return FromReal(made)
    site.check_codes(x, made, types=("INT8", "UINT8"))
    bounds = made.distances.low, made.distances.high
    if (x.scale, x.distances) == (made.scale, made.distances):
        return nn.Identity()  # another name of the same codes, such as uint8 for int8
    return Channelwise(RescaleCall([x.scale / made.scale], 0, *bounds, site.rounding))


def numbers_of(site: Site) -> nn.Module:
    """Build a DEQUANTIZE."""
    site.check_codes(site.given(0), types=("INT8", "UINT8"))
    return ToReal(site.given(0))


class Channelwise(nn.Module):
    """A function of each code that needs channels first, on values with channels last."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Return function(x); the shape stays."""
        return from_image(self.function(to_image(x)))


BUILDERS = {
    "RESHAPE": reshaped,
    "SQUEEZE": reshaped,
    "EXPAND_DIMS": reshaped,
    "TRANSPOSE": permuted,
    "PAD": bordered,
    "PADV2": bordered,
    "MAX_POOL_2D": max_pool,
    "AVERAGE_POOL_2D": average_pool,
    "MEAN": mean,
    "CONCATENATION": joined,
    "RESIZE_NEAREST_NEIGHBOR": repeated,
    "STRIDED_SLICE": sliced,
    "SPLIT": split,
    "QUANTIZE": codes_of,
    "DEQUANTIZE": numbers_of,
}
