"""The elementary functions of `nnhw.ir.ops.special` in C: the same IEEE operations in the same order."""

from __future__ import annotations

from nnhw.ir.ops import special as op

from .c_text import real

NEEDS: dict[str, tuple[str, ...]] = {
    "special_exp": ("rounded_half_even", "polynomial"),
    "special_expm1": ("special_exp",),
    "special_sigmoid": ("special_exp",),
    "special_tanh": ("special_expm1",),
    "special_log1p": ("polynomial",),
    "special_softplus": ("special_exp", "special_log1p"),
    "special_erf": ("special_exp",),
}
"""Function --> those that it calls."""


def _terms(name: str, terms: list[float]) -> str:
    return f"    static const double {name}[{len(terms)}] = {{{', '.join(map(real, terms))}}};"


# Constants come from the module that defines the functions, so that there is no second table to keep equal.
FUNCTIONS: dict[str, list[str]] = {
    "polynomial": """\
/* c0 + x * (c1 + x * (c2 + ..)). */
static double polynomial(const double *c, int count, double x)
{
    double total = c[count - 1];
    for (int k = count - 2; k >= 0; --k) {
        total = c[k] + x * total;
    }
    return total;
}
""".split("\n"),
    "special_exp": f"""\
static double special_exp(double x)
{{
{_terms("terms", op._EXP_TERMS)}
    double bounded = x < {op._EXP_LOWEST} ? {op._EXP_LOWEST} : x > {op._EXP_HIGHEST} ? {op._EXP_HIGHEST} : x;
    int32_t k = rounded_half_even(bounded * {real(op._LOG2_E)});
    double r = (bounded - (double)k * {real(op._LN2_HIGH)}) - (double)k * {real(op._LN2_LOW)};
    return ldexp(polynomial(terms, {len(op._EXP_TERMS)}, r), k);
}}
""".split("\n"),
    "special_expm1": f"""\
static double special_expm1(double x)
{{
{_terms("terms", op._EXPM1_TERMS)}
    int near = x < {op._EXPM1_REACH} && x > -{op._EXPM1_REACH};
    return near ? x * polynomial(terms, {len(op._EXPM1_TERMS)}, x) : special_exp(x) - 1.0;
}}
""".split("\n"),
    "special_sigmoid": """\
static double special_sigmoid(double x)
{
    return 1.0 / (1.0 + special_exp(-x));
}
""".split("\n"),
    "special_tanh": f"""\
static double special_tanh(double x)
{{
    double size = fabs(x), power = special_exp(-2.0 * size), m = special_expm1(-2.0 * size);
    return copysign(size < {op._TANH_REACH} ? -m / (2.0 + m) : 1.0 - 2.0 * power / (1.0 + power), x);
}}
""".split("\n"),
    "special_log1p": f"""\
/* log(1 + x) of x from 0 to 1. */
static double special_log1p(double x)
{{
{_terms("terms", op._ATANH_TERMS)}
    double s = x / (2.0 + x);
    return 2.0 * (s * polynomial(terms, {len(op._ATANH_TERMS)}, s * s));
}}
""".split("\n"),
    "special_softplus": """\
static double special_softplus(double x)
{
    return (x > 0.0 ? x : 0.0) + special_log1p(special_exp(-fabs(x)));
}
""".split("\n"),
    "special_erf": f"""\
static double special_erf(double x)
{{
    double size = fabs(x), bounded, square, total = 1.0, tail;
    if (size < {op._ERF_REACH}) {{
        square = 2.0 * (size * size);
        for (int odd = {2 * op._ERF_TERMS + 1}; odd > 1; odd -= 2) {{
            total = 1.0 + square / (double)odd * total;
        }}
        return copysign(special_exp(-(size * size)) * (size * total) * {real(2.0 / op._SQRT_PI)}, x);
    }}
    bounded = size > {op._ERFC_END} ? {op._ERFC_END} : size;
    tail = bounded;
    for (int level = {op._ERFC_LEVELS}; level > 0; --level) {{
        tail = bounded + (double)level / 2.0 / tail;
    }}
    return copysign(1.0 - special_exp(-(bounded * bounded)) / {real(op._SQRT_PI)} / tail, x);
}}
""".split("\n"),
}


def with_needs(names: list[str]) -> list[str]:
    """Return the names with those of all functions that they call, each once, and callees first."""
    found: dict[str, None] = {}

    def visit(name: str) -> None:
        for needed in NEEDS.get(name, ()):
            visit(needed)
        found[name] = None

    for name in names:
        visit(name)
    return list(found)
