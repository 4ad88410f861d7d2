"""The innermost loop of convolutions of bytes in C: products of four factors at a time, for several pixels together.

Weights are ordered as by `layout`: in blocks of 16 outputs, in groups of four weights, output by output. So a vector
holds four weights of each of several outputs, and is multiplied with the same four factors of a pixel. To signed
factors 128 is added, as the instructions multiply unsigned ones; sums start with the negative of what this adds.
"""

from __future__ import annotations

import numpy as np

BLOCK = 16
"""Outputs in a block: as many sums as a vector of 512 bits holds."""
FACTORS = 4
"""Factors of one sum that are multiplied at a time."""
PIXELS = 8
"""Pixels that are computed together, with weights read once."""


def layout(taps: np.ndarray) -> np.ndarray:
    """Return weights [outputs, runs, factors] as [blocks, runs, quads, BLOCK, FACTORS], padded with 0."""
    outputs, runs, factors = taps.shape
    padded = np.pad(taps, ((0, -outputs % BLOCK), (0, 0), (0, -factors % FACTORS)))
    return padded.reshape(-1, BLOCK, runs, padded.shape[2] // FACTORS, FACTORS).transpose(0, 2, 3, 1, 4)


def starts(taps: np.ndarray, signed: bool) -> np.ndarray:
    """Return the start values of the sums, [padded outputs]: they undo the 128 that is added to signed factors."""
    # x ^ 128 of a byte with a sign is x + 128 without one; the sum over all weights times 128 has to go again.
    totals = taps.reshape(len(taps), -1).sum(axis=1) * (-128 if signed else 0)
    return np.pad(totals, (0, -len(taps) % BLOCK))


LANES = """\
/* Sums of several outputs: each gets the products of its four weights with the four factors of a pixel. */
#if defined(__AVX512VNNI__)
#include <immintrin.h>
typedef __m512i lanes;
typedef __m512i factors;
enum { LANES = 16 };

static inline factors four_factors(const uint8_t *x, int flip)
{
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_xor_si512(_mm512_set1_epi32(four), _mm512_set1_epi32(flip));
}

static inline lanes multiplied(lanes sums, factors x, const int8_t *weights)
{
    return _mm512_dpbusd_epi32(sums, x, _mm512_loadu_si512(weights));
}

static inline void put_sums(int32_t *sums, lanes made, const int32_t *start)
{
    _mm512_storeu_si512(sums, _mm512_add_epi32(made, _mm512_loadu_si512(start)));
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef __m256i lanes; /* of each output, the products of two weights in the lower half, of two in the upper half */
typedef __m256i factors;
enum { LANES = 4 };

static inline factors four_factors(const uint8_t *x, int flip)
{
    int32_t four;
    memcpy(&four, x, 4);
    return _mm256_cvtepu8_epi16(_mm_xor_si128(_mm_set1_epi32(four), _mm_set1_epi32(flip)));
}

static inline lanes multiplied(lanes sums, factors x, const int8_t *weights)
{
    __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)weights));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(x, wide));
}

static inline void put_sums(int32_t *sums, lanes made, const int32_t *start)
{
    __m256i both = _mm256_add_epi32(made, _mm256_srli_epi64(made, 32));
    __m256i joined = _mm256_permutevar8x32_epi32(both, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)start);
    _mm_storeu_si128((__m128i *)(void *)sums, _mm_add_epi32(_mm256_castsi256_si128(joined), first));
}
#elif defined(__SSE2__)
#include <emmintrin.h>
typedef __m128i lanes; /* of each output, the products of two weights in the lower half, of two in the upper half */
typedef __m128i factors;
enum { LANES = 2 };

static inline factors four_factors(const uint8_t *x, int flip)
{
    int32_t four;
    memcpy(&four, x, 4);
    return _mm_unpacklo_epi8(_mm_xor_si128(_mm_set1_epi32(four), _mm_set1_epi32(flip)), _mm_setzero_si128());
}

static inline lanes multiplied(lanes sums, factors x, const int8_t *weights)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)weights);
    __m128i wide = _mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
    return _mm_add_epi32(sums, _mm_madd_epi16(x, wide));
}

static inline void put_sums(int32_t *sums, lanes made, const int32_t *start)
{
    __m128i both = _mm_add_epi32(made, _mm_srli_epi64(made, 32));
    __m128i first = _mm_loadl_epi64((const __m128i *)(const void *)start);
    _mm_storel_epi64((__m128i *)(void *)sums, _mm_add_epi32(_mm_shuffle_epi32(both, 8), first));
}
#else
typedef struct {
    int32_t of[16];
} lanes;
typedef struct {
    int32_t of[4];
} factors;
enum { LANES = 16 };

static inline factors four_factors(const uint8_t *x, int flip)
{
    factors four;
    for (int i = 0; i < 4; ++i) {
        four.of[i] = x[i] ^ (flip & 128);
    }
    return four;
}

static inline lanes multiplied(lanes sums, factors x, const int8_t *weights)
{
    for (int i = 0; i < 16; ++i) {
        const int8_t *w = weights + 4 * i;
        sums.of[i] += x.of[0] * w[0] + x.of[1] * w[1] + x.of[2] * w[2] + x.of[3] * w[3];
    }
    return sums;
}

static inline void put_sums(int32_t *sums, lanes made, const int32_t *start)
{
    for (int i = 0; i < 16; ++i) {
        sums[i] = made.of[i] + start[i];
    }
}
#endif
""".split("\n")

WINDOW = """\
/* Where factors of a pixel lie.
 * step: bytes from a pixel to the next one. runs: pieces of factors, `pitch` bytes apart; quads: four factors each.
 * flip: what turns signed factors into ones that are 128 more. outputs: a multiple of 16. */
typedef struct {
    int step, runs, pitch, quads, flip, outputs;
} window;
""".split("\n")

PRODUCTS = """\
/* Sums of up to eight pixels in a row; start: of the sums of each output. */
static inline void products_of_four(
    const uint8_t *x, int pixels, window at, const int8_t *weights, const int32_t *start, int32_t *sums)
{
    if (pixels > 4) {
        products_of_8_pixels(x, pixels, at, weights, start, sums);
    } else {
        products_of_4_pixels(x, pixels, at, weights, start, sums);
    }
}
""".split("\n")


def lines() -> list[str]:
    """Return the text of `products_of_four`."""
    return [*LANES, *WINDOW, *_tile(4), *_tile(8), *PRODUCTS[:-1]]


def _tile(pixels: int) -> list[str]:
    """Return the function for `pixels` pixels; where fewer are left, the first one is computed again in their place."""
    others = range(1, pixels)
    names = ", ".join(f"s{k} = none" for k in range(pixels))
    place = f"output / {BLOCK} * (at.runs * at.quads * {FACTORS * BLOCK}) + output % {BLOCK} * {FACTORS}"
    return [
        f"static inline void products_of_{pixels}_pixels(",
        "    const uint8_t *restrict x0, int pixels, window at, const int8_t *restrict weights,",
        "    const int32_t *restrict start, int32_t *restrict sums)",
        "{",
        *(f"    const uint8_t *x{k} = x0 + (pixels > {k} ? {k} * at.step : 0);" for k in others),
        "    const lanes none = {0};",
        "    for (int output = 0; output < at.outputs; output += LANES) {",
        f"        const int8_t *w = weights + {place};",
        f"        lanes {names};",
        "        for (int run = 0; run < at.runs; ++run) {",
        "            for (int i = run * at.pitch; i < run * at.pitch + 4 * at.quads; i += 4) {",
        *(f"                s{k} = multiplied(s{k}, four_factors(x{k} + i, at.flip), w);" for k in range(pixels)),
        f"                w += {FACTORS * BLOCK};",
        "            }",
        "        }",
        "        put_sums(sums + output, s0, start + output);",
        *(f"        put_sums(sums + {k} * at.outputs + output, s{k}, start + output);" for k in others),
        "    }",
        "}",
        "",
    ]
