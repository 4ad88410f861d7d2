"""C functions that layers share; a file contains those that its layers call."""

from __future__ import annotations

from collections.abc import Sequence

from . import channels, convolution_loop, words

_FIXED: dict[str, list[str]] = {
    "rounded": [
        "/* number / 2**shift, to the nearest, ties up. */",
        "static inline int64_t rounded(int64_t number, int shift)",
        "{",
        "    int64_t sum = number + ((INT64_C(1) << shift) >> 1);",
        # C leaves it to the compiler how a negative number is shifted.
        "    return sum < 0 ? ~(~sum >> shift) : sum >> shift;",
        "}",
    ],
    "bits_of": [
        "/* How many bits a number has, which is not 0. */",
        "static inline int bits_of(uint64_t number)",
        "{",
        "    int bits = 1;",
        "    while (number >>= 1) {",
        "        ++bits;",
        "    }",
        "    return bits;",
        "}",
    ],
    "reciprocal_root": [
        # As `nnhw.ir.ops.normalization.reciprocal_root`: an even shift brings the number to 17 or 18 bits, and the
        # root of the quotient is found bit by bit, so that no float is needed.
        "/* 2**shift / sqrt(number), about, in 16 bits. */",
        "static inline int32_t reciprocal_root(uint64_t number, int *shift)",
        "{",
        "    int half = (bits_of(number) + 1) / 2 - 9;",
        "    uint64_t mantissa = half < 0 ? number << (-2 * half) : number >> (2 * half);",
        "    uint64_t square = ((UINT64_C(1) << 48) - 1) / mantissa;",
        "    uint32_t root = 0;",
        "    for (uint32_t bit = UINT32_C(1) << 15; bit; bit >>= 1) {",
        "        uint64_t tried = root | bit;",
        "        root = tried * tried <= square ? root | bit : root;",
        "    }",
        "    *shift = half + 24;",
        "    return (int32_t)root;",
        "}",
    ],
    "differing_bits": [
        "#if UINTPTR_MAX > 0xffffffffu",
        "typedef uint64_t word;",
        "#else",
        "typedef uint32_t word;",
        "#endif",
        "",
        "/* How many bits of a word are 1. */",
        "static inline int ones(word bits)",
        "{",
        "#if defined(__GNUC__) && defined(__POPCNT__)",
        "    return __builtin_popcountll(bits);",
        "#else",
        "    bits -= (bits >> 1) & (word)0x5555555555555555u;",
        "    bits = (bits & (word)0x3333333333333333u) + ((bits >> 2) & (word)0x3333333333333333u);",
        "    bits = (bits + (bits >> 4)) & (word)0x0f0f0f0f0f0f0f0fu;",
        "    return (int)((word)(bits * (word)0x0101010101010101u) >> (8 * sizeof(word) - 8));",
        "#endif",
        "}",
        "",
        "/* In how many bits two rows of bytes differ: of factors +1 and -1, so many products are -1. */",
        "static inline int differing_bits(const uint8_t *x, const uint8_t *y, size_t bytes)",
        "{",
        "    int count = 0;",
        "    size_t place = 0;",
        "    for (; place + sizeof(word) <= bytes; place += sizeof(word)) {",
        "        word left, right;",
        "        memcpy(&left, x + place, sizeof(word));",
        "        memcpy(&right, y + place, sizeof(word));",
        "        count += ones(left ^ right);",
        "    }",
        # memcpy into words of 0: both rows may end at any byte, and neither is read beyond its end.
        "    if (place < bytes) {",
        "        word left = 0, right = 0;",
        "        memcpy(&left, x + place, bytes - place);",
        "        memcpy(&right, y + place, bytes - place);",
        "        count += ones(left ^ right);",
        "    }",
        "    return count;",
        "}",
    ],
    "products_of_bits": words.LINES[:-1],
    "products_of_channels": channels.LINES[:-1],
    "packed": words.PACKED[:-1],
    "products_of_four": convolution_loop.lines(),
}


def helper_lines(names: Sequence[str]) -> list[str]:
    """Return the text of helpers by name, each once; names such as `products_uint8_int8_int32` say the types."""
    lines: list[str] = []
    for name in dict.fromkeys(names):
        kind, _, types = name.partition("_")
        if name in _FIXED:
            lines += [*_FIXED[name], ""]
        elif kind == "reached":
            lines += [*_search(name, *_types(types)), ""]
        elif kind.startswith("packed"):
            lines += [*_packed_products(name, int(kind.removeprefix("packed")), *_types(types)), ""]
        else:
            lines += [*_products(name, *_types(types)), ""]
    return lines


def _types(text: str) -> list[str]:
    return [f"{name}_t" for name in text.split("_")]


def _search(name: str, step: str, sums: str) -> list[str]:
    return [
        "/* How many of the ascending steps a sum reaches. */",
        f"static inline int {name}(const {step} *steps, int count, {sums} sum)",
        "{",
        "    int found = 0, left = count;",
        "    while (left > 0) {",
        "        int half = (left + 1) / 2;",
        "        found += steps[found + half - 1] <= sum ? half : 0;",
        "        left -= half;",
        "    }",
        "    return found;",
        "}",
    ]


def _products(name: str, x: str, weight: str, sums: str) -> list[str]:
    """Return the function that multiplies a row of numbers with rows of weights, four at a time to read it once."""
    others = range(1, 4)
    return [
        "/* Sums of the products of x with each of so many rows of weights. */",
        f"static inline void {name}(",
        f"    const {x} *restrict x, const {weight} *restrict weights, int count, int rows, {sums} *restrict sums)",
        "{",
        "    for (int left = rows / 4; left > 0; --left) {",
        *(f"        const {weight} *w{k} = weights + {'' if k == 1 else f'{k} * '}count;" for k in others),
        f"        {sums} s0 = 0, s1 = 0, s2 = 0, s3 = 0;",
        "        for (int i = 0; i < count; ++i) {",
        f"            s0 += ({sums})x[i] * weights[i];",
        *(f"            s{k} += ({sums})x[i] * w{k}[i];" for k in others),
        "        }",
        "        sums[0] = s0;",
        *(f"        sums[{k}] = s{k};" for k in others),
        "        weights += 4 * count;",
        "        sums += 4;",
        "    }",
        "    for (int left = rows % 4; left > 0; --left) {",
        f"        {sums} s = 0;",
        "        for (int i = 0; i < count; ++i) {",
        f"            s += ({sums})x[i] * weights[i];",
        "        }",
        "        *sums++ = s;",
        "        weights += count;",
        "    }",
        "}",
    ]


def _packed_products(name: str, bits: int, x: str, sums: str) -> list[str]:
    """Return the function that multiplies a row of numbers with rows of packed weights of 1, 2 or 4 bits.

    A field of bits holds the weight plus `offset`; with 1 bit, 0 stands for -1 and 1 for 1.
    """
    per_byte, mask, offset = 8 // bits, (1 << bits) - 1, 1 << (bits - 1)
    fields = ["byte", *(f"byte >> {bits * k}" for k in range(1, per_byte))]
    products = [f"({sums})from[{k}] * ({sums})({field} & {mask})" for k, field in enumerate(fields)]
    # Undoes the offset of all weights at once, with the sum of the factors.
    result = "2 * s - all" if bits == 1 else f"s - {offset} * all"
    meaning = "0 and 1 stand for -1 and 1" if bits == 1 else f"each {offset} more than it is"
    return [
        f"/* Sums of the products of x with rows of weights, {per_byte} a byte, {meaning}. */",
        f"static inline void {name}(",
        f"    const {x} *restrict x, const uint8_t *restrict weights, int count, int rows, {sums} *restrict sums)",
        "{",
        f"    {sums} all = 0;",
        "    for (int i = 0; i < count; ++i) {",
        "        all += x[i];",
        "    }",
        "    for (; rows > 0; --rows) {",
        f"        const {x} *from = x;",
        f"        {sums} s = 0;",
        f"        for (int left = count / {per_byte}; left > 0; --left) {{",
        "            unsigned byte = *weights++;",
        f"            s += {products[0]}",
        *(f"                + {product}" for product in products[1:-1]),
        f"                + {products[-1]};",
        f"            from += {per_byte};",
        "        }",
        f"        if (count % {per_byte}) {{",
        "            unsigned byte = *weights++;",
        f"            for (int i = 0; i < count % {per_byte}; ++i) {{",
        f"                s += ({sums})from[i] * ({sums})(byte & {mask});",
        f"                byte >>= {bits};",
        "            }",
        "        }",
        f"        *sums++ = {result};",
        "    }",
        "}",
    ]
