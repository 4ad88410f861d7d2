"""Convolutions of bytes with the kernels of `convolution_loop`: for which layers they are used, and their arguments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import Conv2d

from .c_text import Scratch, table, times
from .convolution_loop import PIXELS, layout, starts
from .sums import Sums
from .value_storage import Storage

LEAST_OUTPUTS = 4
"""Least number of outputs; with fewer, most of a block would be padding."""
SLACK_BYTES = 4
"""Bytes by which buffers are longer: factors are read four at a time, and the last ones meet weights of 0."""


def reads_beyond(node: Node, weight: np.ndarray, x: Storage) -> bool:
    """Return whether the kernel reads beyond the end of its input."""
    return fits(node, weight, x) and weight.shape[1] * weight.shape[3] % 4 != 0


def fits(node: Node, weight: np.ndarray, x: Storage) -> bool:
    """Return whether the kernel can compute a convolution: bytes, several pixels, and sums of 32 bits."""
    op = node.op
    if not isinstance(op, Conv2d) or op.groups != 1 or x.bits or x.ctype not in ("uint8_t", "int8_t"):
        return False
    # Of a single pixel the kernel would compute eight copies.
    if node.type.shape[2] * (node.type.shape[1] if _is_pointwise(op, weight) else 1) == 1:
        return False
    bytes_only = weight.min() >= -128 and weight.max() <= 127
    together = weight.shape[3] == 1 or op.dilation[1] == 1
    # 255, as signed factors are made unsigned (`convolution_loop.starts`).
    bound = 255 * int(np.abs(weight).reshape(len(weight), -1).sum(axis=1).max())
    return bool(bytes_only and together and bound < 1 << 31 and len(weight) >= LEAST_OUTPUTS)


def quad_sums(node: Node, weight: np.ndarray, x: Storage, y: Storage, name: str) -> tuple[Sums, Storage]:
    """Return the sums of a convolution, eight pixels at a time, and the layout of its codes as the loops write them.

    Parameters
    ----------
    weight: [outputs, channels, kernel_h, kernel_w].
    y: layout of the codes. In a pointwise convolution without borders all pixels are treated as one row.
    """
    op = node.op
    assert isinstance(op, Conv2d)
    if _is_pointwise(op, weight) and op.stride == (1, 1) and not x.bordered and not y.bordered:
        x, y = _in_one_row(x), _in_one_row(y)
    outputs, channels, height, width = weight.shape
    taps = weight.transpose(0, 2, 3, 1).reshape(outputs, height, width * channels)
    signed = x.ctype == "int8_t"
    packed, start = layout(taps), starts(taps, signed)
    window = {
        "step": op.stride[1] * channels,
        "runs": height,
        "pitch": op.dilation[0] * x.pitch * channels,
        "quads": packed.shape[2],
        "flip": "(int)0x80808080" if signed else 0,
        "outputs": len(start),
    }
    fields = ", ".join(f".{field} = {value}" for field, value in window.items())
    corner = x.pixel(times("row", op.stride[0]), times("column", op.stride[1]))
    bytes = f"(const uint8_t *)x + {corner}" if signed else f"x + {corner}"
    call = f"products_of_four({bytes}, pixels, at, {name}_weights, {name}_start, sums);"
    tables = [*table("int8_t", f"{name}_weights", packed), *table("int32_t", f"{name}_start", start)]
    scratch = [Scratch("sums", "int32_t", PIXELS * len(start))]
    before = [f"const window at = {{{fields}}};"]
    return Sums("int32_t", [call], tables, ["products_of_four"], scratch, before, PIXELS, len(start)), y


def _is_pointwise(op: Conv2d, weight: np.ndarray) -> bool:
    return weight.shape[2:] == (1, 1)


def _in_one_row(map: Storage) -> Storage:
    pixels = map.height * map.width
    return replace(map, height=1, width=pixels, pitch=pixels)
