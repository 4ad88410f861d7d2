"""The innermost loop of layers of bits in C: XOR and population count of words, for eight outputs at a time.

Weights are ordered as by `layout`: in blocks of eight outputs, word by word, and for each word output by output.
"""

from __future__ import annotations

import numpy as np

BLOCK = 8
"""Outputs in a block: as many words as a vector of 512 bits holds."""
_WORD_BYTES = 8


def layout(rows: np.ndarray) -> np.ndarray:
    """Return bytes [outputs, bytes] as [blocks, words, BLOCK, 8], padded with 0."""
    # Padded bytes are 0 in weights and in x (`taps` ends in zeros): they differ in no bit, so no sum changes.
    padded = np.pad(rows, ((0, -len(rows) % BLOCK), (0, -rows.shape[1] % _WORD_BYTES)))
    return padded.reshape(-1, BLOCK, padded.shape[1] // _WORD_BYTES, _WORD_BYTES).transpose(0, 2, 1, 3)


LINES = """\
/* Sums of `count` products of +1 and -1 for each output: all, less twice those whose bits differ. */
#if defined(__AVX512VPOPCNTDQ__) && defined(__AVX512F__)
#include <immintrin.h>

static inline void products_of_bits(
    const uint8_t *restrict x, const uint8_t *restrict weights, int words, int blocks, int count,
    int32_t *restrict sums)
{
    for (int block = 0; block < blocks; ++block) {
        __m512i differing = _mm512_setzero_si512();
        for (int i = 0; i < words; ++i) {
            int64_t word;
            memcpy(&word, x + 8 * i, 8);
            __m512i bits = _mm512_xor_si512(_mm512_set1_epi64(word), _mm512_loadu_si512(weights));
            differing = _mm512_add_epi64(differing, _mm512_popcnt_epi64(bits));
            weights += 64;
        }
        __m256i twice = _mm512_cvtepi64_epi32(_mm512_slli_epi64(differing, 1));
        _mm256_storeu_si256((__m256i *)(void *)sums, _mm256_sub_epi32(_mm256_set1_epi32(count), twice));
        sums += 8;
    }
}
#else
static inline int ones_of_64(uint64_t bits)
{
#if defined(__GNUC__) && defined(__POPCNT__)
    return __builtin_popcountll(bits);
#else
    bits -= (bits >> 1) & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + ((bits >> 2) & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int)((bits * UINT64_C(0x0101010101010101)) >> 56);
#endif
}

static inline void products_of_bits(
    const uint8_t *restrict x, const uint8_t *restrict weights, int words, int blocks, int count,
    int32_t *restrict sums)
{
    for (int block = 0; block < blocks; ++block) {
        for (int output = 0; output < 8; ++output) {
            const uint8_t *w = weights + 8 * output;
            int differing = 0;
            for (int i = 0; i < words; ++i) {
                uint64_t left, right;
                memcpy(&left, x + 8 * i, 8);
                memcpy(&right, w + 64 * i, 8);
                differing += ones_of_64(left ^ right);
            }
            *sums++ = count - 2 * differing;
        }
        weights += 64 * words;
    }
}
#endif
""".split("\n")

# One multiplication adds eight shifted copies: the flag of byte k meets the factor that takes it to bit 56 + k. No two
# terms meet in one bit, so there are no carries. The order of bytes matters, so big-endian processors take the loop.
PACKED = """\
/* A byte of eight flags, each 0 or 1; the first is the lowest bit. */
static inline uint8_t packed(const uint8_t *flags)
{
#if defined(__BYTE_ORDER__) && defined(__ORDER_LITTLE_ENDIAN__) && UINTPTR_MAX > 0xffffffffu
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t eight;
    memcpy(&eight, flags, 8);
    return (uint8_t)((eight * UINT64_C(0x0102040810204080)) >> 56);
#endif
#endif
    unsigned bits = 0;
    for (int place = 0; place < 8; ++place) {
        bits |= (unsigned)flags[place] << place;
    }
    return (uint8_t)bits;
}
""".split("\n")
