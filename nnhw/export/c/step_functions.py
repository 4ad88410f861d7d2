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
from nnhw.mapping.requantize import NormalSteps, prove

from .c_text import c_type, c_type_of, indented, integer, table
from .wide_lines import Lines, fit_lines

FEW_STEPS = 3
"""Up to so many steps are compared one after the other."""
SMALL_TABLE_ENTRIES = 512
"""Most entries of a table of all results, where no line fits; beyond them, steps are searched, with less memory."""
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


class _Writer:
    """Collects the tables of one function; a number that is the same for all channels becomes a literal."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tables: list[str] = []

    def number(self, role: str, values: np.ndarray, ctype: str | None = None) -> str:
        """Return the C expression of a channel's number; `values` is [channels]."""
        chosen = ctype or c_type_of(values)
        if (values == values[0]).all():
            text = integer(int(values[0]), chosen)
            return f"({text})" if text[0] == "-" else text
        self.tables += table(chosen, f"{self.name}_{role}", values)
        return f"{self.name}_{role}[channel]"

    def rows(self, role: str, values: np.ndarray) -> str:
        """Return the C expression of a pointer to a channel's row; `values` is [channels, k]."""
        shared = bool((values == values[0]).all())
        self.tables += table(c_type_of(values), f"{self.name}_{role}", values[:1] if shared else values)
        return f"{self.name}_{role}" if shared else f"{self.name}_{role} + channel * {values.shape[1]}"


def step_function(graph: Graph, node: Node, raw: IntType, sums: str, name: str, bit: bool) -> CStepFunction:
    """Return the C function of a threshold, step_table or rescale.

    Parameters
    ----------
    raw: range of the sums.
    sums: C type of the sums.
    name: of the function.
    bit: the function returns 1 for +1 and 0 for -1.
    """
    result = "unsigned" if bit else c_type(node.type.int_dtype)
    writer = _Writer(name)
    if isinstance(node.op, Rescale):
        form, body, helpers = _rescaled(graph, node, writer, result)
    else:
        form, body, helpers = _stepped(_function(graph, node, raw), sums, writer, result, bit)
    if "channel" not in " ".join(body):
        body = ["(void)channel;", *body]
    head = f"static inline {result} {name}({sums} sum, int channel)"
    return CStepFunction(name, form, writer.tables, [head, "{", *indented(body), "}", ""], helpers)


def _function(graph: Graph, node: Node, raw: IntType) -> NormalSteps:
    op, code = node.op, node.type.int_dtype
    steps = graph.constants[node.inputs[1]]
    if isinstance(op, StepTable):
        return NormalSteps.of(steps, graph.constants[node.inputs[2]], code, raw)
    assert isinstance(op, Threshold)
    index = np.arange(steps.shape[1] + 1)
    # Channels in which codes fall, where the flag is set.
    index = np.where(graph.constants[node.inputs[2]][:, None], index[::-1], index)
    return NormalSteps.of(steps, 2 * index - 1 if op.bipolar else op.low + index, code, raw)


def _stepped(
    function: NormalSteps, sums: str, writer: _Writer, result: str, bit: bool
) -> tuple[str, list[str], list[str]]:
    """Return the form, the body and the helpers of a step function: the first form that is exact, cheapest first."""
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
    raw = function.raw
    words = raw.high - raw.low + 1
    if words * len(steps) <= SMALL_TABLE_ENTRIES:
        points = np.arange(raw.low, raw.high + 1)[:, None].repeat(len(steps), axis=1)
        row = writer.rows("codes", function(points).T)
        return "table", [f"return ({result})({row})[sum - {_bracketed(raw.low)}];"], []
    row, values = writer.rows("steps", steps), writer.rows("codes", codes)
    search = f"reached_{c_type_of(steps).removesuffix('_t')}_{sums.removesuffix('_t')}"
    return "search", [f"return ({result})({values})[{search}({row}, {steps.shape[1]}, sum)];"], [search]


def _compared(
    steps: np.ndarray, codes: np.ndarray, writer: _Writer, result: str, bit: bool
) -> tuple[str, list[str], list[str]]:
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
    ways = np.array([row[1] - row[0] for row in codes])
    number = np.minimum(np.arange(codes.shape[1])[None, :], lines.most[:, None])
    if (codes == codes[:, :1] + ways[:, None] * number).all():
        first, way = writer.number("first", codes[:, 0]), writer.number("way", ways)
        return [*text, f"return ({result})({first} + {'' if way == '1' else f'{way} * '}count);"]
    return [*text, f"return ({result})({writer.rows('codes', codes)})[count];"]


def _rescaled(graph: Graph, node: Node, writer: _Writer, result: str) -> tuple[str, list[str], list[str]]:
    op = node.op
    assert isinstance(op, Rescale)
    multiplier, exponent, bias = (graph.constants[name] for name in node.inputs[1:])
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
    lines += [f"code = code < {_bracketed(op.low)} ? {_bracketed(op.low)} : code;"]
    lines += [f"return ({result})(code > {_bracketed(op.high)} ? {_bracketed(op.high)} : code);"]
    return f"rescale, {op.rounding} rounding", lines, ["rounded"]


def _bracketed(value: int) -> str:
    text = integer(value, "int32_t" if -(1 << 31) <= value < 1 << 31 else "int64_t")
    return f"({text})" if text[0] == "-" else text
