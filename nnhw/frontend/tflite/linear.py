"""Layers and builders of TFLite's operators with weights: convolutions and fully connected layers."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from .model_file import FileTensor
from .requantization import RescaleCall, Site, Whole

_INT32 = 1 << 31
"""Sums must be below it in magnitude, as TFLite's kernels hold them in int32."""


def to_image(x: Tensor) -> Tensor:
    """[N, height, width, channels] --> [N, channels, height, width]; any other rank stays."""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def from_image(x: Tensor) -> Tensor:
    """[N, channels, height, width] --> [N, height, width, channels]; any other rank stays."""
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


class Convolution(nn.Module):
    """CONV_2D and DEPTHWISE_CONV_2D.

    Parameters
    ----------
    weight: integers [outputs, inputs / groups, height, width].
    rescaled: adds the bias to sums, and requantizes them.
    border: pixels of padding (left, right, top, bottom).
    stride, dilation: (rows, columns).
    """

    def __init__(
        self,
        weight: np.ndarray,
        rescaled: RescaleCall,
        border: tuple[int, int, int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        groups: int,
    ) -> None:
        super().__init__()
        self.weight, self.rescaled = Whole(weight), rescaled
        self.border, self.stride, self.dilation, self.groups = border, stride, dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        """[N, height, width, channels] of distances --> the same of the result."""
        image = to_image(x)
        left, right, top, bottom = self.border
        # A convolution pads both sides by the same; SAME may need one pixel more behind than in front.
        even = (left, top) == (right, bottom)
        if not even:
            image = functional.pad(image, self.border)
        padding = (top, left) if even else (0, 0)
        sums = functional.conv2d(image, self.weight(), None, self.stride, padding, self.dilation, self.groups)
        return from_image(self.rescaled(sums))


class TransposedConvolution(nn.Module):
    """TRANSPOSE_CONV.

    Parameters
    ----------
    weight: integers [inputs, outputs, height, width].
    rescaled: adds the bias to sums, and requantizes them.
    stride: (rows, columns).
    start: the row and the column of the unpadded convolution at which the result begins.
    size: (height, width) of the result.
    """

    def __init__(
        self,
        weight: np.ndarray,
        rescaled: RescaleCall,
        stride: tuple[int, int],
        start: tuple[int, int],
        size: tuple[int, int],
    ) -> None:
        super().__init__()
        self.weight, self.rescaled = Whole(weight), rescaled
        self.stride, self.start, self.size = stride, start, size

    def forward(self, x: Tensor) -> Tensor:
        """[N, height, width, channels] of distances --> the same of the result."""
        whole = functional.conv_transpose2d(to_image(x), self.weight(), None, self.stride)
        (row, column), (height, width) = self.start, self.size
        return from_image(self.rescaled(whole[:, :, row : row + height, column : column + width]))


class FullyConnected(nn.Module):
    """FULLY_CONNECTED: [N, ..] --> [N, *shape].

    Parameters
    ----------
    weight: integers [outputs, inputs].
    rescaled: adds the bias to sums, and requantizes them.
    rows: vectors of one image to each of which the weights are applied.
    shape: of the result, without its batch.
    """

    def __init__(self, weight: np.ndarray, rescaled: RescaleCall, rows: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight, self.rescaled, self.rows, self.shape = Whole(weight), rescaled, rows, shape

    def forward(self, x: Tensor) -> Tensor:
        """[N, ..] of distances --> [N, *shape] of the result's."""
        # Of a single row no axis has to move to the second place, where channels are for a rescaling.
        if self.rows == 1:
            result = self.rescaled(functional.linear(x.flatten(1), self.weight()))
            return result.reshape(result.shape[0], *self.shape)
        sums = functional.linear(x.reshape(x.shape[0], self.rows, -1), self.weight())
        result = self.rescaled(sums.transpose(1, 2)).transpose(1, 2)
        return result.reshape(result.shape[0], *self.shape)


def convolution(site: Site) -> nn.Module:
    """Build a CONV_2D."""
    x, weights, codes = _operands(site)
    if (
        len(x.shape) != 4
        or codes.ndim != 4
        or x.shape[3] % codes.shape[3]
        or codes.shape[0] % (x.shape[3] // codes.shape[3])
    ):
        raise site.refusal(f"has weights of shape {list(codes.shape)} for {list(x.shape)}; convert the model again")
    # Weights with fewer channels than the input are those of a grouped convolution.
    return _convolution(site, x, weights, codes.transpose(0, 3, 1, 2), x.shape[3] // codes.shape[3], 0)


def depthwise(site: Site) -> nn.Module:
    """Build a DEPTHWISE_CONV_2D."""
    x, weights, codes = _operands(site)
    if len(x.shape) != 4 or codes.ndim != 4 or codes.shape[0] != 1 or codes.shape[3] % x.shape[3]:
        raise site.refusal(f"has weights of shape {list(codes.shape)} for {list(x.shape)}; convert the model again")
    # The shapes say it, too; TFLite Micro goes by the option. Some converters leave it out.
    stated, outputs = site.option("DepthMultiplier"), codes.shape[3]
    if stated not in (0, outputs // x.shape[3]):
        raise site.refusal(
            f"states a depth multiplier of {stated}, but makes {outputs} channels of {x.shape[3]}; convert it again"
        )
    return _convolution(site, x, weights, codes.transpose(3, 0, 1, 2), x.shape[3], 3)


def _convolution(site: Site, x: FileTensor, weights: FileTensor, taps: np.ndarray, groups: int, axis: int) -> nn.Module:
    stride = site.option("StrideH"), site.option("StrideW")
    dilation = site.option("DilationHFactor"), site.option("DilationWFactor")
    if min(*stride, *dilation) < 1:
        raise site.refusal(f"has the stride {stride} and the dilation {dilation}, which are at least 1")
    sizes = zip(x.shape[1:3], taps.shape[2:], stride, dilation, strict=True)
    (top, bottom), (left, right) = (border(site, *numbers) for numbers in sizes)
    rescaled = _rescaled(site, x, weights, taps, axis)
    made = tuple(
        (size + sum(ends) - (span - 1) * step - 1) // move + 1
        for size, ends, span, move, step in zip(
            x.shape[1:3], ((top, bottom), (left, right)), taps.shape[2:], stride, dilation, strict=True
        )
    )
    check_shape(site, (*made, len(taps)))
    return Convolution(taps, rescaled, (left, right, top, bottom), stride, dilation, groups)


def transposed(site: Site) -> nn.Module:
    """Build a TRANSPOSE_CONV."""
    # The first input is the shape of the result.
    x, weights, codes = _operands(site, 2, 1, 3)
    if len(x.shape) != 4 or codes.ndim != 4 or codes.shape[3] != x.shape[3]:
        raise site.refusal(f"has weights of shape {list(codes.shape)} for {list(x.shape)}; convert the model again")
    if tuple(site.constant(0).reshape(-1).tolist()) != site.made.shape or site.made.shape[3:] != codes.shape[:1]:
        raise site.refusal(f"states another shape of its result than {list(site.made.shape)}; convert the model again")
    stride = site.option("StrideH"), site.option("StrideW")
    start = []
    for size, span, step, made in zip(x.shape[1:3], codes.shape[1:3], stride, site.made.shape[1:3], strict=True):
        rest = (size - 1) * step + span - made
        # The convolution that it transposes goes from `made` to `size`, rounded up.
        reach = made if padding(site) == "SAME" else made - span + 1
        if step < 1 or rest < 0 or -(-reach // step) != size:
            raise site.refusal(
                f"makes {made} of {size} with a kernel of {span}, stride {step} and padding {padding(site)}; convert "
                f"it again"
            )
        # Of an odd rest TFLite cuts one more off behind, as it pads convolutions.
        start.append(rest // 2 if padding(site) == "SAME" else 0)
    taps = codes.transpose(3, 0, 1, 2)
    rescaled = _rescaled(site, x, weights, codes, 0, 3)
    return TransposedConvolution(taps, rescaled, stride, (start[0], start[1]), site.made.shape[1:3])  # type: ignore[arg-type]


def fully_connected(site: Site) -> nn.Module:
    """Build a FULLY_CONNECTED."""
    x, weights, codes = _operands(site)
    elements = math.prod(x.shape[1:])
    if site.option("WeightsFormat") != 0 or codes.ndim != 2 or elements % codes.shape[1]:
        raise site.refusal(f"has weights of shape {list(codes.shape)} for {list(x.shape)}; convert the model again")
    rows = elements // codes.shape[1]
    kept = x.shape[1:-1] if site.option("KeepNumDims") else ()
    if math.prod(kept) != rows:
        raise site.refusal(
            f"makes {list(site.made.shape)} of {list(x.shape)}, where rows of an image become images; keep its axes "
            f"(keep_num_dims)"
        )
    check_shape(site, (*kept, len(codes)))
    return FullyConnected(codes, _rescaled(site, x, weights, codes, 0), rows, site.made.shape[1:])


def padding(site: Site) -> str:
    """Return the padding of an operator, SAME or VALID. Raises: CaptureError if the file states none of them."""
    stated: str = site.option("Padding")
    if stated not in ("SAME", "VALID"):
        raise site.refusal(f"has the padding {stated}; SAME and VALID are supported")
    return stated


def border(site: Site, size: int, span: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Return the elements of padding in front of and behind one axis.

    Parameters
    ----------
    size: of the input along the axis.
    span: of the kernel.
    """
    if padding(site) == "VALID":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + (span - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def check_shape(site: Site, shape: tuple[int, ...]) -> None:
    """Check that a result, without its batch, has the shape that the file states. Raises: CaptureError."""
    if site.made.shape[1:] != shape:
        raise site.refusal(
            f"gives the shape {list(shape)}, but the file states {list(site.made.shape[1:])}; convert the model again"
        )


def _operands(site: Site, x: int = 0, weights: int = 1, bias: int = 2) -> tuple[FileTensor, FileTensor, np.ndarray]:
    """Return the input, the weights, and the weights' integers (int64), after checks of all three operands.

    Parameters
    ----------
    x, weights, bias: their places among the operator's inputs.
    """
    given, kept, made = site.given(x), site.given(weights), site.made
    # The file of the converter's default optimization: its remedy differs from that of a float file.
    if kept.type in ("INT8", "INT4") and given.type == "FLOAT32":
        raise site.refusal(
            "computes with real numbers and weights of integers (dynamic range quantization); convert it with a "
            "representative_dataset and TFLITE_BUILTINS_INT8"
        )
    site.check_codes(given, made)
    codes = site.constant(weights)
    if kept.type not in ("INT8", "INT4") or kept.quantization is None or kept.quantization.zero_point.any():
        raise site.refusal(
            f"needs weights of INT8 with scales and without a zero point, got {kept.place} of {kept.type}"
        )
    added = site.optional(bias)
    if added is not None and (added.data is None or added.type != "INT32"):
        raise site.refusal(f"needs a constant bias of INT32, got {added.place} of {added.type}")
    return given, kept, codes.astype(np.int64)


def _rescaled(
    site: Site, x: FileTensor, weights: FileTensor, taps: np.ndarray, axis: int, bias_place: int = 2
) -> RescaleCall:
    """Return the requantization of the sums: the bias, and a factor, or one for each output.

    Parameters
    ----------
    taps: the weights' integers, [outputs, ..].
    axis: of the weights' tensor that has the outputs.
    bias_place: of the bias among the operator's inputs.
    """
    assert weights.quantization is not None
    scales, outputs = weights.quantization.scale, len(taps)
    if len(scales) > 1 and (weights.quantization.axis != axis or len(scales) != outputs):
        raise site.refusal(
            f"has {len(scales)} scales along axis {weights.quantization.axis} of its weights {list(weights.shape)}, "
            f"and needs {outputs} along axis {axis}; convert the model again"
        )
    if len(scales) == 1 and site.operator.kind == "FULLY_CONNECTED":
        factors = [float(np.float32(x.scale) * scales[0]) / site.made.scale]  # the product in float32, as TFLite has it
    else:
        factors = [x.scale * float(scale) / site.made.scale for scale in scales]
    given = site.optional(bias_place)
    bias = np.zeros(1, np.int64) if given is None else given.data.reshape(-1).astype(np.int64)  # type: ignore[union-attr]
    if len(bias) not in (1, outputs):
        raise site.refusal(f"has {len(bias)} numbers as bias for {outputs} outputs; convert the model again")
    rescaled = RescaleCall(factors, bias, *site.bounds(), site.rounding)
    _check_range(site, x, taps, bias, rescaled)
    return rescaled


def _check_range(site: Site, x: FileTensor, taps: np.ndarray, bias: np.ndarray, rescaled: RescaleCall) -> None:
    """Check that no sum leaves TFLite's 32 bits, where its kernels wrap around. Raises: CaptureError."""
    most = max(-x.distances.low, x.distances.high)
    sums = np.abs(taps.reshape(len(taps), -1)).sum(axis=1) * most + np.abs(bias)
    # Double rounding shifts sums left in 32 bits before it multiplies; single rounding multiplies in 64 bits.
    left = rescaled.exponent.numpy().clip(0) if site.rounding == "double" else 0
    if (sums.astype(object) * 2 ** np.asarray(left).astype(object) >= _INT32).any():
        raise site.refusal("has sums beyond 32 bits, where TFLite wraps around; use smaller weights or a smaller bias")


BUILDERS = {
    "CONV_2D": convolution,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": fully_connected,
    "TRANSPOSE_CONV": transposed,
}
