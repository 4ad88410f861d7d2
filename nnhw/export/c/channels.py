"""Depthwise convolutions of bytes in C: products of several channels at a time, for four pixels together.

Weights [kernel_h, kernel_w, channels] have the order of the pixels. The last block of channels may overlap the one
before it and compute some sums twice, so that channels need no padding.
"""

from __future__ import annotations

import numpy as np

from nnhw.ir import Node
from nnhw.ir.ops import Conv2d

from .c_text import Scratch, table, times
from .sums import Sums
from .value_storage import Storage

PIXELS = 4
"""Pixels for which sums are kept at once, so that a weight is loaded once for all of them."""
LEAST_CHANNELS = 16
"""Channels of the widest block, that of AVX-512; with fewer channels there is no whole block."""


def fits(node: Node, weight: np.ndarray, x: Storage) -> bool:
    """Return whether this kernel can compute a convolution: one filter per channel, bytes, and sums of 32 bits."""
    op = node.op
    if not isinstance(op, Conv2d) or weight.shape[1] != 1 or len(weight) != op.groups or x.bits:
        return False
    in_bytes = x.ctype in ("uint8_t", "int8_t") and weight.min() >= -128 and weight.max() <= 127
    bound = 255 * int(np.abs(weight).reshape(len(weight), -1).sum(axis=1).max())
    return bool(in_bytes and bound < 1 << 31 and len(weight) >= LEAST_CHANNELS)


def channel_sums(node: Node, weight: np.ndarray, x: Storage, name: str) -> Sums:
    """Return the sums of a depthwise convolution with weights [channels, 1, height, width], four pixels at a time."""
    op = node.op
    assert isinstance(op, Conv2d)
    channels, _, height, width = weight.shape
    signed = x.ctype == "int8_t"
    filter = {
        "step": op.stride[1] * channels,
        "rows": height,
        "pitch": op.dilation[0] * x.pitch * channels,
        "columns": width,
        "gap": op.dilation[1] * channels,
        "has_sign": int(signed),
        "channels": channels,
    }
    fields = ", ".join(f".{field} = {value}" for field, value in filter.items())
    corner = x.pixel(times("row", op.stride[0]), times("column", op.stride[1]))
    start = f"(const uint8_t *)x + {corner}" if signed else f"x + {corner}"
    call = f"products_of_channels({start}, pixels, at, {name}_weights, sums);"
    tables = table("int8_t", f"{name}_weights", weight[:, 0].transpose(1, 2, 0))
    scratch = [Scratch("sums", "int32_t", PIXELS * channels)]
    before = [f"const filter at = {{{fields}}};"]
    return Sums("int32_t", [call], tables, ["products_of_channels"], scratch, before, PIXELS, channels)


# AVX2 and SSE2 multiply pairs of 16 bits (`madd`), as SSE2 has no product of 32 bits and AVX2 only a slower one. Of a
# factor, the lower half is the number and the upper one its sign; of a weight, the upper half is set to 0, so that each
# pair gives one product.
LINES = """\
/* Numbers of several channels side by side, and their products. */
#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512i channels;
enum { CHANNELS = 16 };

static inline channels widened(const void *x, int has_sign)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)x);
    return has_sign ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
}

static inline channels with_products(channels sums, channels x, channels weights)
{
    return _mm512_add_epi32(sums, _mm512_mullo_epi32(x, weights));
}

static inline void put_channels(int32_t *sums, channels made)
{
    _mm512_storeu_si512(sums, made);
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256i channels;
enum { CHANNELS = 8 };

static inline channels widened(const void *x, int has_sign)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)x);
    return has_sign ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
}

static inline channels with_products(channels sums, channels x, channels weights)
{
    return _mm256_add_epi32(sums, _mm256_madd_epi16(x, _mm256_and_si256(weights, _mm256_set1_epi32(0xffff))));
}

static inline void put_channels(int32_t *sums, channels made)
{
    _mm256_storeu_si256((__m256i *)(void *)sums, made);
}
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i channels;
enum { CHANNELS = 4 };

static inline channels widened(const void *x, int has_sign)
{
    int32_t four;
    memcpy(&four, x, 4);
    __m128i bytes = _mm_cvtsi32_si128(four), zeros = _mm_setzero_si128();
    if (has_sign) {
        __m128i twice = _mm_unpacklo_epi8(bytes, bytes);
        return _mm_srai_epi32(_mm_unpacklo_epi16(twice, twice), 24);
    }
    return _mm_unpacklo_epi16(_mm_unpacklo_epi8(bytes, zeros), zeros);
}

static inline channels with_products(channels sums, channels x, channels weights)
{
    return _mm_add_epi32(sums, _mm_madd_epi16(x, _mm_and_si128(weights, _mm_set1_epi32(0xffff))));
}

static inline void put_channels(int32_t *sums, channels made)
{
    _mm_storeu_si128((__m128i *)(void *)sums, made);
}
#else
typedef struct {
    int32_t of[8];
} channels;
enum { CHANNELS = 8 };

static inline channels widened(const void *x, int has_sign)
{
    const uint8_t *from = x;
    channels made;
    for (int i = 0; i < 8; ++i) {
        made.of[i] = from[i] - (has_sign ? 2 * (from[i] & 128) : 0);
    }
    return made;
}

static inline channels with_products(channels sums, channels x, channels weights)
{
    for (int i = 0; i < 8; ++i) {
        sums.of[i] += x.of[i] * weights.of[i];
    }
    return sums;
}

static inline void put_channels(int32_t *sums, channels made)
{
    memcpy(sums, made.of, sizeof made.of);
}
#endif

/* Where the factors of a pixel lie: `rows` rows `pitch` bytes apart, of `columns` pixels `gap` bytes apart.
 * step: bytes from a pixel of the result to the next one. */
typedef struct {
    int step, rows, pitch, columns, gap, has_sign, channels;
} filter;

/* Sums of up to four pixels in a row; those that are not wanted repeat the first one. */
static inline void products_of_channels(
    const uint8_t *restrict x0, int pixels, filter at, const int8_t *restrict weights, int32_t *restrict sums)
{
    const uint8_t *x1 = x0 + (pixels > 1 ? at.step : 0);
    const uint8_t *x2 = x0 + (pixels > 2 ? 2 * at.step : 0);
    const uint8_t *x3 = x0 + (pixels > 3 ? 3 * at.step : 0);
    const channels none = {0};
    for (int first = 0; first < at.channels; first += CHANNELS) {
        int channel = first < at.channels - CHANNELS ? first : at.channels - CHANNELS;
        const int8_t *w = weights + channel;
        channels s0 = none, s1 = none, s2 = none, s3 = none;
        for (int row = 0; row < at.rows; ++row) {
            for (int column = 0; column < at.columns; ++column) {
                int i = row * at.pitch + column * at.gap + channel;
                channels factors = widened(w, 1);
                s0 = with_products(s0, widened(x0 + i, at.has_sign), factors);
                s1 = with_products(s1, widened(x1 + i, at.has_sign), factors);
                s2 = with_products(s2, widened(x2 + i, at.has_sign), factors);
                s3 = with_products(s3, widened(x3 + i, at.has_sign), factors);
                w += at.channels;
            }
        }
        put_channels(sums + channel, s0);
        put_channels(sums + at.channels + channel, s1);
        put_channels(sums + 2 * at.channels + channel, s2);
        put_channels(sums + 3 * at.channels + channel, s3);
    }
}
""".split("\n")
