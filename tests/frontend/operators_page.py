"""The support matrix: which operators of PyTorch are captured, and what they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType

from nnhw.frontend import (
    activations,
    attention,
    conditions,
    elementwise,
    layout,
    linear,
    loop_capture,
    pooling,
    quantizers,
    rescale,
    slices,
    transposed,
    two_values,
)
from nnhw.frontend.translator import Handler
from nnhw.ir import OPS, Op
from nnhw.ir.ops.base import ANY, SOME

_SECTIONS: tuple[tuple[str, ModuleType], ...] = (
    ("Quantizers", quantizers),
    ("Integers of other tools", rescale),
    ("Linear operators", linear),
    ("Softmax and normalization by integers", attention),
    ("Transposed convolutions", transposed),
    ("Pooling", pooling),
    ("Layout", layout),
    ("Parts of tensors", slices),
    ("Gates", two_values),
    ("Loops over the steps of sequences", loop_capture),
    ("Arithmetic, batch normalization and the ends of models", elementwise),
    ("Conditions", conditions),
    ("Activations and rounding", activations),
)
_INTRODUCTION = """\
# Supported operators

This file is generated from the tables that the program itself uses and from the examples that its tests run: run
`python -m tests.frontend.tested`.

A model is captured with `torch.export` in eval mode. Operators that are not in the first table are refused, all at
once, each with its place in the model and what to use instead. Forms in place (`relu_`) count as the operator itself.

Each operator has an example in the tests, compared with `==` as far as it goes:

- `RTL`: between two quantizers, on the device: PyTorch, the integer graph, the engines' golden functions, the hardware;
- `steps`: of sequences from the last step to the first ([sequences.md](sequences.md)): PyTorch, the captured graph and
  its three parts;
- `host`: at the end of a model, which the host computes: the captured graph and its three parts;
- `weights`: of weights and other constants alone, when the model is captured: PyTorch and the captured graph.
"""
_LIMITS = """\
## Rows, permutations and joins

Values stream pixel by pixel, the channels of a pixel together. A linear layer, or `x @ weight`, on [batch, rows,
features] is a 1x1 convolution whose channels are the features, and any number of axes may stand for the rows. Where
there is a matrix for each of them, as in `x @ weight` with [heads, inputs, outputs] or `einsum('bhri,hio->bhro', x,
weight)`, it is a 1x1 convolution with groups.

Permutations cost nothing where they

- undo each other, with quantizers, activations and sums of branches between;
- stand at the model's ends, where the host permutes: between the input's quantizer and its first layers, if all of them
  want the same order, or behind the last layer or quantizer;
- are followed by flatten and a linear layer, whose weights are reordered;
- leave the order in the stream as it is, such as `view(-1, rows, features)` behind a linear layer.

Any other permutation takes buffers, each of which lets two loops over the elements change places while what comes next
is written. A shuffle of channels is one of two pixels; `pixel_shuffle` one of two pixels and one of two rows; a
transposed image, or a linear layer along the rows between two along the features, one of two frames. What stays
together moves together: a transposed image moves pixel by pixel, with as many channels at once as the rate asks for.

Joins along height, width or rows let the branches take turns, and the FIFO in front of one holds what comes while it
waits: of a join along the height, all of that branch's map. Flattened maps are joined as they stream, with the weights
of the linear layers behind in the same order.

Parts of a tensor (`x[:, 4:]`, `x[:, :, ::2]`, `x[:, :, -1]`, `chunk`, `split`) are what is left of a stream of which
the rest is dropped, behind the quantizer.

An engine for each layer does all of this; a shared engine joins channels alone, takes parts and repeats pixels, and
permutes what a transposed convolution or a pixel shuffle permutes.

Average pooling divides by the number of pixels in the window, which may be smaller at the border. Each pixel of each
channel then has steps of its own, so memory grows with the size of the map.

Branches that are concatenated in front of a layer may have different scales, if all of their values are 8-bit codes of
one common scale, as with scales that are powers of two.

Branches that are added may have any scales of float32, decimal ones and ones with zero points, too: two branches of 8
bits, or three of 4, become one sum of integers with factors of up to 9 bits (11 for three), and every combination of
codes is compared when the model is lowered. A branch may also be the raw sums of a layer, where the weighted sum fits
40 bits.

Codes are multiplied with codes, as in `x * gate(torch.sigmoid(y))`: of one shape, or one of them with size 1 along axes
of the other, as the gate [batch, channels, 1, 1] of squeeze-and-excitation. Their product is exact, as the sums of a
layer are, and what stands between it and the next quantizer becomes steps. A map waits in a FIFO until its gate, which
is computed from all of it, is there. What is a function of one value alone, such as `y * torch.sigmoid(y)`, needs no
quantizer inside. `torch.maximum` and `torch.minimum` of codes of one scale give codes of that scale; of other values,
they go behind the quantizer that follows. Matrices of codes are multiplied, too, and softmax and normalization have
integer forms ([attention.md](attention.md)). A shared engine runs none of them.

What is refused, with its place in the model:

- constants that differ from row to row or from pixel to pixel and are not quantized, or are multiplied: one number, or
  one for each channel or feature, can be added or multiplied; quantized ones, such as embeddings of positions, can be
  added ([attention.md](attention.md));
- products of two values that both depend on the input and are not codes: a quantizer on each of the two, directly in
  front of the product, such as `UInt(8, scale=2**-8)` behind the sigmoid of a gate; quotients of two such values;
- sums of three branches of 8 bits whose scales have no simple ratio, for their codes have too many combinations: add
  two, quantize, and add the third, or use scales that are powers of two;
- sums of rescaled codes (TFLite's additions) whose multipliers differ from channel to channel, or of more than two
  branches: one multiplier for each branch, and two branches at a time;
- choices between values (`torch.where`), sums of branches whose scales have a different ratio in each channel, and
  anything else that is not a weighted sum of its branches, if a table of all combinations of codes has more than 4,096
  steps: put quantizers of fewer bits on the branches.

## Functions at their limits

The last bits of exp, tanh, erf and what is made of them differ between PyTorch, NumPy and processors, and far from 0
such a function comes as near to its limit as float64 can tell, or underflows to 0. A quantizer whose step lies there,
such as `Sign` behind SiLU for sums far below 0, or behind `sigmoid(x) - 1`, decides by these bits alone. It is refused
by name where several sums in a row hang on them, or one that a sign is taken of. Everywhere else PyTorch in float64,
the reference and the hardware give the same code; GELU is computed by PyTorch's own formula, and is exactly 0 where
PyTorch's is. PyTorch in float32 underflows earlier: the report counts the images in which that shows.

## Widths

Weights and activations have 1 to 8 bits: `nnhw.nn` and `nnhw.quantize` make no others; DSP blocks, the shared engine
and the estimates are made for them. `Quantizer(qmin, qmax, scale)` takes any range, and with an engine for each layer
9 to 16 bits work, not tuned: the tests compare linear layers and convolutions of them with the hardware, but their
products are made of logic alone. The input has 8 bits at most, for the link carries bytes, and a shared engine stores
codes and weights of 8 bits at most; both refuse what is wider.
"""
_OPS_INTRODUCTION = """\
## Operators of the IR

What the captured operators become. The first sentence of each is its meaning: the interpreter computes it by the
stated formula, and the hardware is compared with that.
"""


def support_matrix(tested: Mapping[str, str]) -> str:
    """Return the support matrix as Markdown.

    Parameters
    ----------
    tested: how far the examples of each operator go.
    """
    parts = [_INTRODUCTION, "## Operators of PyTorch\n"]
    for title, module in _SECTIONS:
        parts.append(f"### {title}\n\n{_table(('operators', 'tested', 'meaning'), _rows(module.HANDLERS, tested))}")
    parts += [_LIMITS, _OPS_INTRODUCTION]
    parts.append(_table(("op", "inputs", "meaning"), (_op_row(op) for op in OPS.values())))
    return "\n".join(parts)


def _rows(handlers: Mapping[str, Handler], tested: Mapping[str, str]) -> Iterable[tuple[str, ...]]:
    names: dict[tuple[str, str], list[str]] = {}
    for operator, handler in handlers.items():
        names.setdefault((tested[operator], _first_sentence(handler.__doc__)), []).append(operator)
    for row, operators in names.items():
        yield ", ".join(f"`{name.removeprefix('aten.').removesuffix('.default')}`" for name in operators), *row


def _op_row(op: type[Op]) -> tuple[str, ...]:
    inputs = {ANY: "two or more", SOME: "one or more"}.get(op.arity, str(op.arity))
    constants = f", {len(op.parameters)} of them constant" if op.parameters else ""
    return f"`{op.name}`", inputs + constants, _first_sentence(op.__doc__)


def _first_sentence(text: str | None) -> str:
    """Return the first paragraph's first line, without what would end a table's cell."""
    return (text or "").strip().splitlines()[0].rstrip(":,").replace("|", "\\|").replace("*", "\\*")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
