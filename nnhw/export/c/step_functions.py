"""Step functions in C, from a sum to the next code; each form equals the operator on the whole range of the sums."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nnhw.engines.requantize import Scaler
from nnhw.ir import Graph, Node
from nnhw.ir.ops import Rescale, StepTable, Threshold
from nnhw.ir.ops.rescale import FRACTION_BITS
from nnhw.ir.types import IntType
from nnhw.mapping.fit import fit_scaler
from nnhw.mapping.reader import rescaled_steps
from nnhw.mapping.requantize import NormalSteps, prove

from .c_text import BYTES, c_type, c_type_of, indented, integer, table
from .wide_lines import Lines, NearLines, fit_lines, fit_near_lines

FEW_STEPS = 3
"""Up to so many steps are compared one after the other."""
SMALL_TABLE_ENTRIES = 512
"""Most entries of a table of all results, where no line fits; beyond them, steps are searched, with less memory."""
MOST_CODES = 1 << 10
"""Most codes of a rescale for which a line is looked for: those of an activation, whatever its bits may be."""
STEP_OPS = (Threshold, StepTable, Rescale)


@dataclass
class CStepFunction:
    """A C function `name(sum, channel)` that returns a code.

    Parameters
    ----------
    name: of the function.
    form: how it computes the code, in words.
    tables, lines: text of its constants, and of the function itself.
    helpers: names of shared functions that it calls.
    """

    name: str
    form: str
    tables: list[str]
    lines: list[str]
    helpers: list[str] = field(default_factory=list)


_Body = tuple[str, list[str], list[str]]
"""Form in words, statements, names of helpers."""


class _Writer:
    """Collects the tables of one function; a number that is the same for all channels becomes a literal.

    Parameters
    ----------
    name: of the function.

    Attributes
    ----------
    tables: their text. bytes: their size.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.tables: list[str] = []
        self.bytes = 0

    def number(self, role: str, values: np.ndarray, ctype: str | None = None) -> str:
        """Return the C expression of a channel's number; `values` is [channels]."""
        chosen = ctype or c_type_of(values)
        if (values == values[0]).all():
            text = integer(int(values[0]), chosen)
            return f"({text})" if text[0] == "-" else text
        return f"{self._table(role, values, chosen)}[channel]"

    def rows(self, role: str, values: np.ndarray, ctype: str | None = None) -> str:
        """Return the C expression of a pointer to a channel's row; `values` is [channels, k]."""
        shared = bool((values == values[0]).all())
        self._table(role, values[:1] if shared else values, ctype or c_type_of(values))
        return f"{self.name}_{role}" if shared else f"{self.name}_{role} + channel * {values.shape[1]}"

    def _table(self, role: str, values: np.ndarray, ctype: str) -> str:
        name = f"{self.name}_{role}"
        self.tables += table(ctype, name, values)
        self.bytes += values.size * BYTES[ctype]
        return name


def step_function(
    graph: Graph, node: Node, raw: IntType, sums: str, name: str, bit: bool, small: bool = False
) -> CStepFunction:
    """Return the C function of a threshold, step_table or rescale.

    Parameters
    ----------
    raw: range of the sums.
    sums: C type of the sums.
    name: of the function.
    bit: the function returns 1 for +1 and 0 for -1.
    small: tables have the narrowest types; otherwise those that vector units can fetch.
    """
    result = "unsigned" if bit else c_type(node.type.int_dtype)
    writer = _Writer(name)
    function = _function(graph, node, raw)
    found = None if function is None else _by_line(function, sums, writer, result, bit)
    if found is None and isinstance(node.op, Rescale):
        found = _rescaled(graph, node, raw, writer, result)
    elif found is None:
        assert function is not None
        found = _by_table(function, sums, writer, result, small)
    form, body, helpers = found
    if "channel" not in " ".join(body):
        body = ["(void)channel;", *body]
    head = f"static inline {result} {name}({sums} sum, int channel)"
    return CStepFunction(name, form, writer.tables, [head, "{", *indented(body), "}", ""], helpers)


def _function(graph: Graph, node: Node, raw: IntType) -> NormalSteps | None:
    """Return the steps of a node's function; None of a rescale to so many codes that its steps are no help."""
    op, code = node.op, node.type.int_dtype
    if isinstance(op, Rescale):
        if op.high - op.low >= MOST_CODES:
            return None
        found = rescaled_steps(op, raw, *(graph.constants[name] for name in node.inputs[1:]))
        return NormalSteps.of(found.thresholds, found.codes, code, raw)
    steps = graph.constants[node.inputs[1]]
    if isinstance(op, StepTable):
        return NormalSteps.of(steps, graph.constants[node.inputs[2]], code, raw)
    assert isinstance(op, Threshold)
    index = np.arange(steps.shape[1] + 1)
    # Channels in which codes fall, where the flag is set.
    index = np.where(graph.constants[node.inputs[2]][:, None], index[::-1], index)
    return NormalSteps.of(steps, 2 * index - 1 if op.bipolar else op.low + index, code, raw)


def _by_line(function: NormalSteps, sums: str, writer: _Writer, result: str, bit: bool) -> _Body | None:
    """Return the first form with a few constants of each channel that is exact, cheapest first; None if none is."""
    steps, codes = function.padded()
    if steps.shape[1] <= FEW_STEPS:
        return _compared(steps, codes, writer, result, bit)
    thresholds = function.thresholds()
    # Without a rule for ties first, as it is a statement less; then with ties to even, at even or at odd indices.
    for parity in (None, 0, 1) if thresholds is not None else ():
        assert thresholds is not None
        scaler = fit_scaler(thresholds.steps, thresholds.descending, function.code, function.raw, 1, parity)
        if scaler is not None:
            prove(scaler, function)
            return "multiply and shift", _scaled(scaler, writer, result), []
    # A line's product needs 62 bits for sums of 32 bits already.
    if sums == "int32_t" and (lines := fit_lines(function)) is not None:
        return "multiply and shift", _counted(lines, codes, writer, result), []
    return None


def _by_table(function: NormalSteps, sums: str, writer: _Writer, result: str, small: bool) -> _Body:
    """Return a form with a table for each function; channels with the same function share it."""
    steps, codes = function.padded()
    raw = function.raw
    words = raw.high - raw.low + 1
    is_one = bool((steps == steps[0]).all() and (codes == codes[0]).all())
    if words * (1 if is_one else len(steps)) <= SMALL_TABLE_ENTRIES:
        points = np.arange(raw.low, raw.high + 1)[:, None].repeat(len(steps), axis=1)
        row = writer.rows("codes", function(points).T)
        return f"table of {writer.bytes:,} bytes", [f"return ({result})({row})[sum - {_bracketed(raw.low)}];"], []
    # The sum above the range, which stands for a step that is never reached, needs the type of the sums, too.
    fits = sums == "int64_t" or raw.high < (1 << 31) - 1
    if fits and (near := fit_near_lines(function)) is not None:
        most = np.array([len(row) for row in function.steps])
        text = _corrected(near, codes, most, sums, writer, result, small)
        compared = "comparison" if near.late == 1 else f"{near.late} comparisons"
        return f"multiply, shift and {compared} in {writer.bytes:,} bytes of tables", text, []
    row, values = writer.rows("steps", steps), writer.rows("codes", codes)
    search = f"reached_{c_type_of(steps).removesuffix('_t')}_{sums.removesuffix('_t')}"
    body = [f"return ({result})({values})[{search}({row}, {steps.shape[1]}, sum)];"]
    return f"search in {writer.bytes:,} bytes of tables", body, [search]


def _compared(steps: np.ndarray, codes: np.ndarray, writer: _Writer, result: str, bit: bool) -> _Body:
    """Return a step function as comparisons: each step adds the change of the code there."""
    changes = np.diff(codes, axis=1)
    if steps.shape[1] == 1 and (np.abs(changes) == 2 * np.ones_like(changes)).all() and bit:
        falls = (changes[:, 0] < 0).astype(np.int64)
        reached = f"(unsigned)(sum >= {writer.number('step', steps[:, 0])})"
        turned = f" ^ {writer.number('falls', falls, 'uint8_t')}" if falls.any() else ""
        return "comparison", [f"return {reached}{turned};"], []
    terms = [writer.number("first", codes[:, 0])]
    for k in range(steps.shape[1]):
        change = writer.number(f"change_{k}", changes[:, k])
        reached = f"(sum >= {writer.number(f'step_{k}', steps[:, k])})"
        terms.append(f"(int){reached}" if change == "1" else f"{change} * (int){reached}")
    total = " + ".join(terms)
    return "comparisons", [f"return ({result})(({total}) > 0);" if bit else f"return ({result})({total});"], []


def _scaled(scaler: Scaler, writer: _Writer, result: str) -> list[str]:
    """Return clamp((sum * multiplier + addend) >> shift), counted from the lowest code.

    Negative numbers are set to 0 before the shift, whose result C leaves to the compiler for them.
    """
    multiplier, addend = scaler.multiplier[:, 0], scaler.addend[:, 0]
    ends = [int(raw) * multiplier.astype(object) for raw in (scaler.raw.low, scaler.raw.high)]
    most = max(abs(int(value)) for end in ends for value in (*end, *(end + addend)))
    wide = most >= 1 << 31
    ctype, unsigned = ("int64_t", "uint64_t") if wide else ("int32_t", "uint32_t")
    # Of a steep function whose sums reach far beyond its steps, the index itself needs 64 bits until it is bounded.
    counter = "int64_t" if most >> scaler.shift >= 1 << 31 else "int"
    factor, add = writer.number("multiplier", multiplier), writer.number("addend", addend)
    lines = [f"{ctype} line = ({ctype})sum * {factor} + {add};"]
    if scaler.even:
        lines += [
            f"{counter} index = ({counter})(({unsigned})(line < 0 ? 0 : line) >> {scaler.shift});",
            # Half to even: a sum exactly on a step counts only where the index becomes even.
            f"int tie = (({unsigned})line & {(1 << scaler.shift) - 1}u) == 0;",
            f"index -= tie & ((index + {scaler.parity}) & 1);",
            "index = index < 0 ? 0 : index;",
        ]
    else:
        lines.append(f"{counter} index = ({counter})(({unsigned})(line < 0 ? 0 : line) >> {scaler.shift});")
    lowest = scaler.floor + scaler.code.low
    lines += [f"index = index < {scaler.span} ? index : {scaler.span};"]
    return [*lines, f"return ({result})(index{f' + {_bracketed(lowest)}' if lowest else ''});"]


def _counted(lines: Lines, codes: np.ndarray, writer: _Writer, result: str) -> list[str]:
    """Return a step function that counts steps by a line; codes are linear in the count, or in a table."""
    factor, add = writer.number("multiplier", lines.multiplier, "int32_t"), writer.number("addend", lines.addend)
    most = writer.number("most", lines.most)
    text = [
        f"int64_t line = (int64_t)sum * {factor} + {add};",
        f"int count = (int)((uint64_t)(line < 0 ? 0 : line) >> {lines.shift});",
        f"count = count < {most} ? count : {most};",
    ]
    return [*text, _code_of_count(codes, lines.most, writer, result)]


def _corrected(
    lines: NearLines, codes: np.ndarray, most: np.ndarray, sums: str, writer: _Writer, result: str, small: bool
) -> list[str]:
    """Return a step function that counts steps by a line, and corrects it by comparisons with the next steps."""
    low, last = writer.number("low", lines.low, sums), writer.number("last", lines.last, sums)
    factor, add = (
        writer.number(role, numbers, "uint32_t")
        for role, numbers in (("multiplier", lines.multiplier), ("addend", lines.addend))
    )
    place = f"(u{sums})sum - (u{sums}){low}"
    place = f"({place}) >> {lines.drop}" if lines.drop else place
    text = [
        f"sum = sum < {low} ? {low} : sum;",
        f"sum = sum > {last} ? {last} : sum;",
        f"int count = (int)(((uint32_t)({place}) * {factor} + {add}) >> {lines.shift});",
    ]
    # Vector units fetch words by their places, but no bytes and no halves of words.
    steps = writer.rows("steps", lines.steps, None if small else sums)
    places = ["count", *(f"count + {k}" for k in range(1, lines.late))]
    compared = " + ".join(f"(({steps})[{place}] <= sum)" for place in places)
    return [*text, f"count += {compared};", _code_of_count(codes, most, writer, result)]


def _code_of_count(codes: np.ndarray, most: np.ndarray, writer: _Writer, result: str) -> str:
    """Return the statement from a count of steps to its code: linear, or by a table."""
    ways = np.array([row[1] - row[0] for row in codes])
    number = np.minimum(np.arange(codes.shape[1])[None, :], most[:, None])
    if (codes == codes[:, :1] + ways[:, None] * number).all():
        first, way = writer.number("first", codes[:, 0]), writer.number("way", ways)
        return f"return ({result})({first} + {'' if way == '1' else f'{way} * '}count);"
    return f"return ({result})({writer.rows('codes', codes)})[count];"


def _rescaled(graph: Graph, node: Node, raw: IntType, writer: _Writer, result: str) -> _Body:
    op = node.op
    assert isinstance(op, Rescale)
    multiplier, exponent, bias = (graph.constants[name] for name in node.inputs[1:])
    reach = max(abs(raw.low + int(bias.min())), abs(raw.high + int(bias.max())))
    # Twice rounded, without a shift to the left: 32 bits hold all but the product.
    if op.rounding == "double" and not op.shift and exponent.max() < 0 and exponent.min() >= -30 and reach < 1 << 30:
        return "rescale, double rounding", _rescaled_twice(op, multiplier, -exponent, bias, writer, result), []
    single = op.rounding == "single"
    left = op.shift + (0 if single else np.maximum(exponent, 0))
    factor = writer.number("multiplier", multiplier.astype(np.int64) << left, "int64_t")
    lines = [f"int64_t product = ((int64_t)sum + {writer.number('bias', bias)}) * {factor};"]
    if single:
        lines += [f"int64_t code = rounded(product, {writer.number('shift', FRACTION_BITS - exponent)});"]
    else:
        right = writer.number("right", np.maximum(-exponent, 0))
        lines += [f"int64_t once = rounded(product, {FRACTION_BITS});"]
        lines += [f"int64_t code = once < 0 ? -rounded(-once, {right}) : rounded(once, {right});"]
    lines += [f"code += {_bracketed(op.offset)};"] if op.offset else []
    return f"rescale, {op.rounding} rounding", [*lines, *_limited(op, result)], ["rounded"]


def _rescaled_twice(
    op: Rescale, multiplier: np.ndarray, right: np.ndarray, bias: np.ndarray, writer: _Writer, result: str
) -> list[str]:
    """Return double rounding for sums with their bias, and results of the first rounding, below 2**30.

    All that is shifted is raised by 2**30 after the shift, so that it is not negative, and is lowered again at the end.
    """
    shift = writer.number("right", right, "uint8_t")
    add, factor = writer.number("bias", bias, "int32_t"), writer.number("multiplier", multiplier, "int32_t")
    offset = f" + {_bracketed(op.offset)}" if op.offset else ""
    raised, half = 1 << (FRACTION_BITS + 30), 1 << (FRACTION_BITS - 1)
    return [
        f"int64_t product = (int64_t)((int32_t)sum + {add}) * {factor};",
        f"uint32_t once = (uint32_t)((uint64_t)(product + {integer(raised + half, 'int64_t')}) >> {FRACTION_BITS});",
        # Ties away from zero: below it they go down.
        f"uint32_t twice = (once + ((1u << {shift}) >> 1) - (once < {1 << 30}u)) >> {shift};",
        f"int32_t code = (int32_t)twice - (int32_t)({1 << 30}u >> {shift}){offset};",
        *_limited(op, result),
    ]


def _limited(op: Rescale, result: str) -> list[str]:
    return [
        f"code = code < {_bracketed(op.low)} ? {_bracketed(op.low)} : code;",
        f"return ({result})(code > {_bracketed(op.high)} ? {_bracketed(op.high)} : code);",
    ]


def _bracketed(value: int) -> str:
    text = integer(value, "int32_t" if -(1 << 31) <= value < 1 << 31 else "int64_t")
    return f"({text})" if text[0] == "-" else text
