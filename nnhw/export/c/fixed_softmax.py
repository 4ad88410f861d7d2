"""TFLite's softmax of int8 codes in C; it computes what `nnhw.ir.ops.FixedSoftmax` defines."""

from __future__ import annotations

from nnhw.ir.ops import fixed_softmax as op

# `floored` is an arithmetic shift: C leaves it to the compiler what >> makes of a negative number.
LINES: list[str] = f"""\
static int64_t floored(int64_t number, int bits)
{{
    return number < 0 ? ~(~number >> bits) : number >> bits;
}}

/* left * right / 2**31, to the nearest, ties up. */
static int64_t product_31(int64_t left, int64_t right)
{{
    return floored(left * right + (INT64_C(1) << 30), 31);
}}

/* number / 2**bits, to the nearest, ties away from zero. */
static int64_t divided(int64_t number, int bits)
{{
    int64_t half = (INT64_C(1) << bits) >> 1;
    return number < 0 ? -((-number + half) >> bits) : (number + half) >> bits;
}}

/* number * 2**times, kept within 32 bits. */
static int64_t doubled(int64_t number, int times)
{{
    number *= INT64_C(1) << times;
    return number < INT32_MIN ? INT32_MIN : number > INT32_MAX ? INT32_MAX : number;
}}

/* exp of a number of 0 or below with 26 fraction bits, as a fraction of 31 bits. */
static int64_t fixed_exp(int64_t x)
{{
    static const int32_t powers[{len(op._POWERS)}] = {{{", ".join(map(str, op._POWERS))}}};
    int64_t part = (int64_t)((uint64_t)x & {op._QUARTER - 1}u) - {op._QUARTER};
    int64_t rest = part - x;
    int64_t y = doubled(part, 5) + {1 << 28};
    int64_t square = product_31(y, y);
    int64_t cube = product_31(square, y), fourth = product_31(square, square);
    int64_t series = divided(product_31(divided(fourth, 2) + cube, {op._THIRD}) + square, 1);
    int64_t power = {op._EXP_AT_EIGHTH} + product_31({op._EXP_AT_EIGHTH}, y + series);
    if (x == 0) {{
        return INT32_MAX;
    }}
    for (int k = 0; k < {len(op._POWERS)}; ++k) {{
        power = ((uint64_t)rest >> (k + 24)) & 1u ? product_31(power, powers[k]) : power;
    }}
    return power;
}}

/* 1 / (1 + x) of a fraction 0..1, by three steps of Newton's method. */
static int64_t reciprocal(int64_t x)
{{
    int64_t half = floored(x + INT32_MAX + 1, 1);
    int64_t guess = {op._FIRST_GUESS} + product_31(half, {op._SLOPE});
    for (int k = 0; k < 3; ++k) {{
        guess += doubled(product_31(guess, {1 << 29} - product_31(half, guess)), 2);
    }}
    return doubled(guess, 1);
}}

/* Probabilities of codes in steps of 1 / 256, in place. */
static void fixed_softmax(double *x, int count, int step, int64_t multiplier, int left, int least)
{{
    int64_t most = (int64_t)x[0], total = 0;
    for (int k = 1; k < count; ++k) {{
        most = (int64_t)x[k * step] > most ? (int64_t)x[k * step] : most;
    }}
    for (int k = 0; k < count; ++k) {{
        int64_t distance = (int64_t)x[k * step] - most;
        int64_t power = distance < least ? -1 : fixed_exp(product_31(distance * (INT64_C(1) << left), multiplier));
        x[k * step] = (double)power;
        total += power < 0 ? 0 : divided(power, 12);
    }}
    int bits = 0;
    while (total >> bits) {{
        ++bits;
    }}
    bits -= 20;
    int64_t inverse = reciprocal(total * (INT64_C(1) << (12 - bits)) - (INT64_C(1) << 31));
    for (int k = 0; k < count; ++k) {{
        int64_t power = (int64_t)x[k * step];
        int64_t share = power < 0 ? 0 : divided(product_31(inverse, power), 23 + bits);
        x[k * step] = (double)(share < 0 ? 0 : share > 255 ? 255 : share);
    }}
}}
""".split("\n")
