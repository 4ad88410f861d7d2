"""The C file of a whole model and its header, from the three parts of a lowered model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nnhw.errors import ExportError, IrError
from nnhw.ir import Graph, OneStep, graph_hash, one_step
from nnhw.ir.ops import Quantize
from nnhw.ir.steps import State

from .arena import Lifetime, place
from .c_text import c_type, comment, identifier, indented
from .fixed_softmax import LINES as FIXED_SOFTMAX
from .floats import FloatWriter, quantizer, rounding_lines
from .functions import FUNCTIONS, with_needs
from .helpers import helper_lines
from .main_program import main_text
from .plan import FilePlan, make_plan
from .states import StateStruct
from .tail import TAIL_HELPERS, TailWriter, result_name


@dataclass(frozen=True)
class CProgram:
    """A model in C.

    Parameters
    ----------
    name: prefix of all names in the header, and stem of the files.
    files: text by file name: the header, the source, and the main program if it was asked for.
    scratch_bytes: memory that a run needs, without its input and output.
    needs_math: functions of math.h are called, so programs must be linked with -lm.
    forms: a line for each layer: its operators, and how they are computed.
    """

    name: str
    files: Mapping[str, str]
    scratch_bytes: int
    needs_math: bool
    forms: tuple[str, ...]


def make_c(
    body: Graph,
    head: Graph | None = None,
    tail: Graph | None = None,
    name: str = "",
    program: bool = False,
    small: bool = False,
) -> CProgram:
    """Return portable C of a model.

    Parameters
    ----------
    body, head, tail: the parts of a lowered model, from `nnhw.passes.split`. Without head and tail there is only
        `NAME_run`; for a model of sequences there are `NAME_step`, which computes one step, and `NAME_reset`.
    name: prefix of the functions; default: the model's name.
    program: also make `NAME_main.c`, a program that reads a tensor and prints the results.
    small: for microcontrollers: weights of 1, 2 and 4 bits are packed, and nothing is padded to whole vectors.

    Raises
    ------
    ExportError: an operator has no form in C, or float operations join several values.
    """
    prefix = identifier(name or body.name.removesuffix("_body"))
    if body.loops:
        step = _unrolled(body)
        head, tail = (graph and _unrolled(graph).graph for graph in (head, tail))
        return _program(step.graph, head, tail, prefix, program, small, step.states)
    return _program(body, head, tail, prefix, program, small)


def _unrolled(graph: Graph) -> OneStep:
    try:
        return one_step(graph)
    except IrError as error:
        raise ExportError(f"{error}; C computes one step at a time") from error


def _program(
    body: Graph,
    head: Graph | None,
    tail: Graph | None,
    prefix: str,
    program: bool,
    small: bool,
    states: Sequence[State] = (),
) -> CProgram:
    if len(body.inputs) != 1 + len(states) or len(body.outputs) != 1 + len(states):
        raise ExportError(f"model '{prefix}' needs one input and one output of its integer graph for C")
    plan = make_plan(body, small)
    memory = StateStruct(plan, states)
    code, scratch = _run(plan, prefix, memory)
    floats, math = _float_functions(head, tail, prefix)
    header = _header(prefix, head, body, tail, scratch, memory)
    source = _source(prefix, plan, [*code, *memory.reset(prefix)], floats, math)
    files = {f"{prefix}.h": header, f"{prefix}.c": source}
    if program and head is not None and tail is not None:
        files[f"{prefix}_main.c"] = main_text(prefix, head, body, tail, bool(states))
    return CProgram(prefix, files, scratch, math, tuple(layer.about for layer in plan.layers))


def _run(plan: FilePlan, prefix: str, memory: StateStruct) -> tuple[list[str], int]:
    """Return the function that runs all layers, and the bytes of its scratch memory."""
    buffers = _lifetimes(plan, {plan.values[state.made].buffer for state in memory.states})
    offsets, size = place(buffers)
    # C has no arrays without elements, and the union of the scratch memory is aligned to 8 bytes anyway.
    size = max(size, 8)
    lines = []
    for number, layer in enumerate(plan.layers):
        arguments = [_address(plan, value, ctype, offsets, True) for ctype, _, value in layer.reads]
        arguments.append(_address(plan, layer.writes[2], layer.writes[0], offsets, False))
        arguments += [f"({array.ctype} *)(void *)(at + {offsets[f'{number} {array.name}']})" for array in layer.scratch]
        lines += [f"{layer.name}({', '.join(arguments)});"]
    lines += memory.kept(lambda state: _address(plan, state.made, memory.ctype(state), offsets, True))
    used = any("at + " in line for line in lines)
    start = ["unsigned char *at = scratch->bytes;"] if used else ["(void)scratch;"]
    return [_run_head(prefix, plan.graph), "{", *indented([*start, *lines]), "}"], size


def _run_head(prefix: str, body: Graph) -> str:
    given, made = (c_type(node.type.int_dtype) for node in (body.inputs[0], body.output_nodes[0]))
    if len(body.inputs) > 1:
        state = f"{prefix}_state *state, "
        return f"void {prefix}_step(const {given} *codes, {made} *result, {state}{prefix}_scratch *scratch)"
    return f"void {prefix}_run(const {given} *codes, {made} *result, {prefix}_scratch *scratch)"


def _lifetimes(plan: FilePlan, kept: Collection[str]) -> list[Lifetime]:
    """Return the layers during which each buffer is used.

    Parameters
    ----------
    kept: buffers that are read after the last layer.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, layer in enumerate(plan.layers):
        for value in [layer.writes[2], *(value for _, _, value in layer.reads)]:
            buffer = plan.values[value].buffer if value in plan.values else value
            first.setdefault(buffer, number)
            last[buffer] = number
    # Next states are copied into the caller's struct behind all layers.
    last |= dict.fromkeys(kept, len(plan.layers))
    found = [Lifetime(name, size, first[name], last[name]) for name, size in plan.buffers.items()]
    for number, layer in enumerate(plan.layers):
        found += [Lifetime(f"{number} {array.name}", array.bytes, number, number) for array in layer.scratch]
    return found


def _address(plan: FilePlan, value: str, ctype: str, offsets: Mapping[str, int], reads: bool) -> str:
    buffer = plan.values[value].buffer if value in plan.values else value
    if buffer == "input":
        return "codes"
    if buffer == "output":
        return "result"
    if buffer.startswith("state "):
        return f"state->{buffer.removeprefix('state ')}"
    const = "const " if reads else ""
    return f"({const}{ctype} *)({const}void *)(at + {offsets[buffer]})"


def _float_functions(head: Graph | None, tail: Graph | None, prefix: str) -> tuple[list[str], bool]:
    """Return the lines of `NAME_quantize` and `NAME_finish`, and whether they need math.h."""
    if head is None or tail is None:
        return [], False
    first, last = FloatWriter("quantize"), TailWriter("finish")
    before = quantizer(head, first)
    after = last.body(tail)
    lines: list[str] = []
    for helper in with_needs([*first.helpers, *last.helpers]):
        lines += _helper(helper)
    lines += [*first.tables, f"{_quantize_head(prefix, head)}", "{", *indented(before), "}", ""]
    lines += [*last.tables, f"{_finish_head(prefix, tail)}", "{", *indented(after), "}"]
    return lines, first.needs_math or last.needs_math


def _helper(name: str) -> list[str]:
    if name.startswith("rounded_"):
        return rounding_lines(name)
    known = {**FUNCTIONS, **TAIL_HELPERS, "fixed_softmax": FIXED_SOFTMAX}
    return known[name]


def _quantize_head(prefix: str, head: Graph) -> str:
    return f"void {prefix}_quantize(const float *image, {c_type(head.output_nodes[0].type.int_dtype)} *codes)"


def _finish_head(prefix: str, tail: Graph) -> str:
    results = ", ".join(f"double *{result_name(tail, number)}" for number in range(len(tail.outputs)))
    return f"void {prefix}_finish(const {c_type(tail.inputs[0].type.int_dtype)} *codes, {results})"


def _header(prefix: str, head: Graph | None, body: Graph, tail: Graph | None, scratch: int, memory: StateStruct) -> str:
    entry, result, big = body.inputs[0].type, body.output_nodes[0].type, prefix.upper()
    lines = [
        comment(f"Model '{prefix}' in C99, made by nnhw from the integer graph {graph_hash(body)[:16]}."),
        f"#ifndef {big}_H",
        f"#define {big}_H",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        comment("Elements of an array for a call."),
        f"#define {big}_INPUT_COUNT {entry.size}",
        f"#define {big}_OUTPUT_COUNT {result.size}",
        *_end_counts(big, head, tail),
        f"#define {big}_SCRATCH_BYTES {scratch}",
        "",
        comment("Memory of one run, of any content; runs at the same time need one each."),
        "typedef union {",
        "    uint64_t alignment;",
        f"    unsigned char bytes[{big}_SCRATCH_BYTES];",
        f"}} {prefix}_scratch;",
        "",
        *memory.declarations(prefix),
        comment(f"The network: codes {entry} --> {result}, in C order{memory.about}."),
        f"{_run_head(prefix, body)};",
        "",
        *_end_declarations(prefix, head, tail),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _end_counts(big: str, head: Graph | None, tail: Graph | None) -> list[str]:
    if head is None or tail is None:
        return []
    results = enumerate(tail.output_nodes)
    return [
        f"#define {big}_IMAGE_COUNT {head.inputs[0].type.size}",
        *(f"#define {big}_{result_name(tail, k).upper()}_COUNT {node.type.size}" for k, node in results),
    ]


def _end_declarations(prefix: str, head: Graph | None, tail: Graph | None) -> list[str]:
    if head is None or tail is None:
        return []
    quantize = head.output_nodes[0].op
    nan = "-1" if isinstance(quantize, Quantize) and quantize.bipolar else "the least code"
    results = ", ".join(str(node.type) for node in tail.output_nodes)
    return [
        comment(
            f"The codes of an image of numbers {list(head.inputs[0].type.shape)}; NaN, which has none, gets {nan}."
        ),
        f"{_quantize_head(prefix, head)};",
        "",
        comment(f"What the model makes of its last codes: {results}."),
        f"{_finish_head(prefix, tail)};",
        "",
    ]


def _source(prefix: str, plan: FilePlan, run: list[str], floats: list[str], math: bool) -> str:
    layers = [line for layer in plan.layers for line in layer.text()]
    helpers = helper_lines([name for layer in plan.layers for name in layer.helpers])
    lines = [
        comment(
            f"Model '{prefix}' in C99, made by nnhw; see {prefix}.h. Maps lie pixel by pixel, channels side by side."
        ),
        f'#include "{prefix}.h"',
        "",
        *(["#include <float.h>"] if floats else []),
        *(["#include <math.h>"] if math else []),
        "#include <string.h>",
        "",
        *helpers,
        *layers,
        *run,
    ]
    if floats:
        lines += ["", *_exact_floats(prefix), *floats]
    return "\n".join(lines) + "\n"


def _exact_floats(prefix: str) -> list[str]:
    """Return the directives that keep compilers from changing float arithmetic."""
    return [
        comment("Below, each operation is rounded once: products and sums must not be fused."),
        "#if defined(__FAST_MATH__)",
        f'#error "{prefix} is exact only without -ffast-math"',
        "#endif",
        # The x87 computes floats and doubles with 64 bits of mantissa, and rounds them twice. Of C99's methods that is
        # 2; a negative one is unknown.
        "#if FLT_EVAL_METHOD == 2 || FLT_EVAL_METHOD < 0",
        f'#error "{prefix} is exact only with float and double arithmetic of their own precision, as by -mfpmath=sse"',
        "#endif",
        "#if defined(__clang__)",
        "#pragma STDC FP_CONTRACT OFF",
        "#elif defined(__GNUC__)",
        '#pragma GCC optimize("fp-contract=off")',
        "#endif",
        "",
    ]
