"""Replacing PT2E's quantizers by nnhw's: each pair of quantize and dequantize becomes one operator.

quantize_per_tensor(x, s, z, 0, 255) --> dequantize_per_tensor(.., s, z, 0, 255)   becomes
nnhw.quantize(x, s, z, 0, 255, reciprocal=True)

A constant of integers that is dequantized, as weights are, becomes the quantized constant of its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from nnhw.errors import CaptureError, raise_all

from .calls import only_computes
from .locations import Lines, location_of
from .refusals import remedy_of

NAMESPACE = "quantized_decomposed"
QUANTIZE = ("quantize_per_tensor", "quantize_per_channel")
DEQUANTIZE = ("dequantize_per_tensor", "dequantize_per_channel")
_PER_TENSOR = -1
MOST_CODES = 1 << 16
"""Number of codes from which on a value is neither activation nor weight, but a bias, which stays a number."""


@dataclass(frozen=True)
class _Format:
    """The number format of an operator's codes.

    Parameters
    ----------
    scale: float32; one, or one per channel.
    zero_point: float32 of the same shape.
    low, high: lowest and highest code.
    axis: axis of the channels, or -1.
    """

    scale: Tensor
    zero_point: Tensor
    low: int
    high: int
    axis: int

    def equals(self, other: _Format) -> bool:
        """Return whether two formats are the same."""
        plain = (self.low, self.high, self.axis) == (other.low, other.high, other.axis)
        return plain and torch.equal(self.scale, other.scale) and torch.equal(self.zero_point, other.zero_point)

    def __str__(self) -> str:
        scale, zero_point = (", ".join(f"{v:g}" for v in t[:2].tolist()) for t in (self.scale, self.zero_point))
        more = ", .." if self.scale.numel() > 2 else ""
        return f"scale {scale}{more}, zero point {zero_point}{more}, codes {self.low}..{self.high}, axis {self.axis}"


class Rewriter:
    """Replaces quantizers in a graph by nnhw's, and collects problems with those that have no counterpart.

    Members
    -------
    module: the graph; changed by `run`.
    """

    def __init__(self, module: fx.GraphModule, lines: Lines) -> None:
        self.module = module
        self._lines = lines
        self._made: dict[fx.Node, fx.Node] = {}

    def run(self) -> None:
        """Replace all quantizers.

        Raises
        ------
        CaptureError, or ProblemList: operators that have no counterpart. Unknown operators are refused before any
            constant is computed, so that they are never run.
        """
        # Before anything is folded: a program from a file may name any operator, and constants are computed by calling
        # them.
        raise_all([self._unknown(node) for node in self.module.graph.nodes if not _is_known(node)])
        problems = []
        # From the dequantize backwards: only it says where codes become numbers, and one quantize may have several.
        for node in list(self.module.graph.nodes):
            try:
                if operator_of(node) in DEQUANTIZE:
                    self._replace(node)
            except CaptureError as error:
                problems.append(error)
        raise_all(problems)
        self.module.graph.eliminate_dead_code()
        raise_all([self._left(node) for node in self.module.graph.nodes if operator_of(node)])
        self.module.recompile()

    def _replace(self, node: fx.Node) -> None:
        wanted, source = self._format(node), node.args[0]
        assert isinstance(source, fx.Node)
        if operator_of(source) in QUANTIZE:
            made = self._pair(node, source, wanted)
        elif (codes := self._constant(source)) is not None:
            made = self._weights(node, codes, wanted)
        else:
            raise CaptureError(
                f"{self._place(node)} reads codes that '{source.name}' has computed; quantize and dequantize need to "
                f"follow one another, with the operation between them on numbers"
            )
        node.replace_all_uses_with(made)
        self.module.graph.erase_node(node)

    def _pair(self, node: fx.Node, source: fx.Node, wanted: _Format) -> fx.Node:
        given = self._format(source)
        if not given.equals(wanted):
            raise CaptureError(
                f"{self._place(node)} takes codes for others than they are: it has {wanted}, its quantize {given}; "
                f"dequantize with the numbers that the codes were made with"
            )
        # One quantize may have several dequantize: all of them become one call.
        if source in self._made:
            return self._made[source]
        x = source.args[0]
        assert isinstance(x, fx.Node)
        # A bias may be quantized to int32, which is too wide for codes; as a constant it stays the number that it
        # stands for.
        if given.high - given.low >= MOST_CODES:
            return self._bias(node, source)
        with self.module.graph.inserting_before(source):
            made = self._call(source, x, given, reciprocal=True)
        self._made[source] = made
        return made

    def _bias(self, node: fx.Node, source: fx.Node) -> fx.Node:
        """Return the numbers of constants with 32-bit codes, such as a bias; anything else may not have such codes."""
        if (codes := self._constant(source)) is None:
            raise CaptureError(f"{self._place(node)} has codes of more than 16 bits; use int8, uint8 or int16")
        return self._kept(node, self._numbers(node, codes))

    def _weights(self, node: fx.Node, codes: Tensor, wanted: _Format) -> fx.Node:
        numbers = self._kept(node, self._numbers(node, codes))
        if wanted.high - wanted.low >= MOST_CODES:
            return numbers
        with self.module.graph.inserting_before(node):
            return self._call(node, numbers, wanted, reciprocal=False)

    def _call(self, where: fx.Node, x: fx.Node, given: _Format, *, reciprocal: bool) -> fx.Node:
        tensors = [self._tensor(f"{where.name}_{name}", getattr(given, name)) for name in ("scale", "zero_point")]
        arguments: tuple[Any, ...] = (
            x,
            *tensors,
            given.low,
            given.high,
            given.axis,
            False,
            "half_even",
            reciprocal,
            False,
        )
        made = self.module.graph.call_function(torch.ops.nnhw.quantize.default, arguments)
        # Messages name the user's line: that of the value, else that of what reads it.
        traced = x if x.meta.get("stack_trace") else next((user for user in where.users), where)
        made.meta["stack_trace"] = traced.meta.get("stack_trace")
        return made

    def _kept(self, node: fx.Node, numbers: Tensor) -> fx.Node:
        """Add a constant that is named after the layer that reads it; return its node."""
        module = next((location_of(user, self._lines).module for user in node.users), "").replace(".", "_")
        with self.module.graph.inserting_before(node):
            return self._tensor(f"{module}_{'bias' if numbers.dim() == 1 else 'weight'}".strip("_"), numbers)

    def _tensor(self, name: str, value: Tensor) -> fx.Node:
        free = name if name.isidentifier() else f"constant_{name}"
        # Buffers live beside the user's own names in the module.
        while hasattr(self.module, free):
            free += "_"
        self.module.register_buffer(free, value)
        return self.module.graph.get_attr(free)

    def _numbers(self, node: fx.Node, codes: Tensor) -> Tensor:
        """Dequantize a constant by torch's own operator."""
        arguments = [self._constant(item) if isinstance(item, fx.Node) else item for item in node.args[1:]]
        result: Tensor = node.target(codes, *arguments, **node.kwargs)  # type: ignore[operator]
        return result.detach().clone()

    def _format(self, node: fx.Node) -> _Format:
        given = arguments_of(node.target, node.args, node.kwargs)
        if given.get("out_dtype") not in (None, torch.float32) or given["dtype"].is_floating_point:
            raise CaptureError(
                f"{self._place(node)} has {given['dtype']} and {given.get('out_dtype')}; codes need to be integers, "
                f"and what they stand for float32"
            )
        scale, zero_point = self._one(node, given, "scale"), self._one(node, given, "zero_point")
        low, high = (int(self._one(node, given, name)) for name in ("quant_min", "quant_max"))
        # torch computes with the reciprocal of the scale as it is given, in float64 for a Python number; both must
        # round to one float32.
        single = scale.float()
        if not torch.equal((1 / scale).float(), 1 / single) or (scale.dtype != torch.float32 and scale.numel() > 1):
            raise CaptureError(f"{self._place(node)} has the scale {scale[0]}, which is no float32; use .float() of it")
        return _Format(single, zero_point.float().expand_as(single), low, high, given.get("axis", _PER_TENSOR))

    def _one(self, node: fx.Node, given: dict[str, Any], name: str) -> Tensor:
        """Return an argument of an operator, a number or a tensor, as a tensor with one axis."""
        value = given.get(name, given.get(f"{name}s"))
        if isinstance(value, fx.Node):
            if (value := self._constant(value)) is None:
                raise CaptureError(
                    f"{self._place(node)} computes its {name} from the model's input; an accelerator has fixed ones: "
                    f"quantize with is_dynamic=False, and calibrate"
                )
            return value.detach().reshape(-1)
        return torch.tensor([value or 0], dtype=torch.float64)

    def _constant(self, node: fx.Node) -> Tensor | None:
        """Return the value of a node that depends on no input; None for any other."""
        if node.op == "get_attr":
            return _attribute(self.module, str(node.target))
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return None
        known = {source: self._constant(source) for source in node.all_input_nodes}
        if not known or any(value is None for value in known.values()):
            return None
        args: Any = fx.node.map_arg(node.args, lambda source: known[source])
        kwargs: Any = fx.node.map_arg(node.kwargs, lambda source: known[source])
        with torch.no_grad():
            result = node.target(*args, **kwargs)
        return result if isinstance(result, Tensor) else None

    def _place(self, node: fx.Node) -> str:
        return f"{operator_of(node)} {place_of(node, self._lines)}"

    def _unknown(self, node: fx.Node) -> CaptureError:
        name = str(node.target)
        rule = f"operator {name} is not supported"
        return CaptureError(f"{name} {place_of(node, self._lines)}: {rule}; {remedy_of(name.split('.')[0], node)}")

    def _left(self, node: fx.Node) -> CaptureError:
        """Return the problem of a quantizer that is left over, as no dequantize follows it."""
        if operator_of(node) in QUANTIZE:
            reader = next(iter(node.users))
            what = "is what the model returns" if reader.op == "output" else f"is read by '{reader.name}'"
            return CaptureError(f"{self._place(node)} {what} as codes; dequantize them first")
        if operator_of(node).startswith("choose_qparams"):
            return CaptureError(
                f"{self._place(node)} chooses a scale at run time; an accelerator has fixed ones: quantize with "
                f"is_dynamic=False, and calibrate"
            )
        return CaptureError(
            f"{self._place(node)} has no counterpart; use quantize_per_tensor or quantize_per_channel, and the "
            f"dequantize of either"
        )


def operator_of(node: fx.Node) -> str:
    """Return the name of a `quantized_decomposed` operator; empty for any other node."""
    target = node.target
    known = isinstance(target, torch._ops.OpOverload) and target.namespace == NAMESPACE
    return target._schema.name.partition("::")[2] if known else ""  # type: ignore[union-attr]


def _is_known(node: fx.Node) -> bool:
    """Return whether a node calls an operator that only computes, or Python's arithmetic, such as on sizes."""
    target = node.target
    if node.op == "call_function" and isinstance(target, torch._ops.OpOverload):
        return only_computes(target, ("aten", "nnhw", NAMESPACE))
    return node.op in ("placeholder", "get_attr", "output") or getattr(target, "__module__", "") == "_operator"


def arguments_of(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of an operator by their names, defaults filled in."""
    schema = operator._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False)) | dict(kwargs)
    return {argument.name: given.get(argument.name, argument.default_value) for argument in schema}


def place_of(node: fx.Node, lines: Lines) -> str:
    """Return the place of a node in the user's code; for a quantizer, that of the nodes around it."""
    near = [node, *node.all_input_nodes, *node.users]
    return str(location_of(next((some for some in near if some.meta.get("stack_trace")), node), lines))


def _attribute(module: nn.Module, target: str) -> Tensor | None:
    path, _, name = target.rpartition(".")
    value = getattr(module.get_submodule(path), name)
    return value.detach() if isinstance(value, Tensor) else None
