"""Traced operations, with their arguments by name."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from nnhw.errors import CaptureError
from nnhw.ir import Location
from nnhw.nn.remedies import ASSIGNMENT, spelled

from .locations import Lines, location_of
from .refusals import remedy_of
from .values import Batch, TracedConstant, Value

SIZE_QUERY = "aten.sym_size.int"
SHAPED_AS = ("aten.expand_as.default", "aten.view_as.default", "aten.reshape_as.default")
"""Operators that bring their operand into the shape of another value."""


@dataclass(frozen=True)
class Call:
    """One traced operation.

    Parameters
    ----------
    node: the traced node.
    operator: name such as 'aten.relu.default', also for its in-place form.
    arguments: by name in the operator's schema, with defaults filled in, and values in place of nodes.
    location: place in the user's code.
    """

    node: fx.Node
    operator: str
    arguments: Mapping[str, Any]
    location: Location

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def values(self) -> list[Value]:
        """The traced values among the arguments, and among the items of arguments that are lists."""
        return [leaf for leaf in _leaves(self.arguments.values()) if isinstance(leaf, Value)]

    @property
    def operation(self) -> str:
        """The operator without its namespace and its overload: 'relu'."""
        parts = self.operator.split(".")
        return parts[1] if isinstance(self.node.target, torch._ops.OpOverload) else parts[-1]

    def refusal(self) -> CaptureError:
        """Return the error for an operator that is not supported."""
        writes = self.operation in ("fill", "copy") and self.node.args and is_view(self.node.args[0])
        name = f"{ASSIGNMENT} {self.location}" if writes else str(self)
        rule = f"operator {self.operator} is not supported"
        return CaptureError(f"{name}: {rule}; {remedy_of(self.operation, self.node)}")

    def __str__(self) -> str:
        return f"{spelled(self.operation)} {self.location}"


def make_call(node: fx.Node, values: Mapping[fx.Node, Any], lines: Lines) -> Call:
    """Return the call of a traced node."""
    target = node.target
    args = fx.node.map_arg(node.args, lambda argument: values[argument])
    kwargs = fx.node.map_arg(node.kwargs, lambda argument: values[argument])
    location = location_of(node, lines)
    if not isinstance(target, torch._ops.OpOverload):
        name = f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
        if not node.meta.get("stack_trace"):  # blocks of code, such as with torch.autocast; their results know the line
            location = next((location_of(user, lines) for user in node.users), location)
        return Call(node, name, dict(enumerate(args)) | dict(kwargs), location)  # type: ignore[arg-type]
    schema = target._schema
    arguments = {argument.name: argument.default_value for argument in schema.arguments}
    arguments |= dict(zip(arguments, args, strict=False)) | dict(kwargs)
    namespace, base = schema.name.split("::")
    plain = base if base.startswith("__") else base.removesuffix("_")  # __rshift__ changes nothing
    return Call(node, f"{namespace}.{plain}.{schema.overload_name or 'default'}", arguments, location)


def evaluate(call: Call, double: bool = False) -> torch.Tensor:
    """Compute a call of one result whose arguments are constants; see `evaluated`."""
    result = evaluated(call, double)
    if not isinstance(result, torch.Tensor):
        raise call.refusal()
    return result


def evaluated(call: Call, double: bool = False) -> Any:
    """Compute a call whose arguments are constants, with torch, in the model's own dtype or in float64.

    Only operators of ATen and of nnhw are called, as a program from a file may name any, and none that opens files.
    """
    target = call.node.target
    if not isinstance(target, torch._ops.OpOverload) or not only_computes(target, ("aten", "nnhw")):
        raise call.refusal()
    # Evaluated once here, a random constant would be frozen, and differ from build to build.
    if torch.Tag.nondeterministic_seeded in target.tags:
        raise CaptureError(f"{call}: operator {call.operator} gives random numbers; a model must not depend on them")
    if call.operation in ("empty", "empty_strided", "empty_permuted", "empty_like", "new_empty"):
        raise CaptureError(f"{call} makes a tensor of numbers that nobody has set; use torch.zeros or torch.full")
    if any(isinstance(value, Batch) for value in call.values):
        raise CaptureError(f"{call}: a constant must not depend on the batch size")
    schema = target._schema.arguments
    plain = {argument.name: _plain(call[argument.name], double) for argument in schema}
    # A cast rounds nothing in float64; a constant that is made of a number is that of its own dtype.
    if double and call.values and plain.get("dtype") == torch.float32:
        plain["dtype"] = torch.float64
    args = [plain[argument.name] for argument in schema if not argument.kwarg_only]
    with torch.no_grad():
        return target(*args, **{argument.name: plain[argument.name] for argument in schema if argument.kwarg_only})


def only_computes(target: torch._ops.OpOverload, namespaces: Sequence[str]) -> bool:
    """Return whether an operator is in one of the namespaces, and has no file name among its arguments."""
    return target.namespace in namespaces and all(item.name != "filename" for item in target._schema.arguments)


def check_sole_use(call: Call) -> None:
    """Refuse an operation in place if another operation reads the changed tensor, as values of a graph never change."""
    target = call.node.target
    # detach_ changes no number.
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable or call.operation == "detach":
        return
    # Such as out=..: it writes a tensor that is no operand.
    if not target._schema.name.endswith("_"):
        raise call.refusal()
    changed = call.node.args[0]
    # A view shares its memory with what it is a view of, so the whole chain must have one reader.
    while isinstance(changed, fx.Node):
        if _is_shared(changed):
            raise CaptureError(f"{call} changes a tensor in place that is used elsewhere, too; use inplace=False")
        changed = changed.args[0] if is_view(changed) else None


def _is_shared(node: fx.Node) -> bool:
    """Return whether a value is read more than once; different parts of it count as different values."""
    readers = [user for user in node.users if not _reads_shape(user, node)]
    parts = [user.args[1] for user in readers if user.target is operator.getitem]
    return len(readers) > 1 and not len(set(parts)) == len(parts) == len(readers)


def _reads_shape(user: fx.Node, node: fx.Node) -> bool:
    """Return whether a traced call reads nothing of a value but its shape, as bias.expand_as(y) of y."""
    return str(user.target) == SIZE_QUERY or (str(user.target) in SHAPED_AS and user.args[0] is not node)


def is_view(node: Any) -> bool:
    """Return whether a traced operation gives a view of its first argument."""
    target = node.target if isinstance(node, fx.Node) else None
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return any(result.alias_info is not None for result in target._schema.returns)


def _plain(argument: Any, double: bool) -> Any:
    if isinstance(argument, TracedConstant):
        widened = double and argument.tensor.is_floating_point()
        # In-place operators must not reach the model's parameters.
        return (argument.doubles if widened else argument.tensor).clone()
    if isinstance(argument, list | tuple):
        return [_plain(item, double) for item in argument]
    return argument


def _leaves(items: Any) -> Iterator[Any]:
    for item in items:
        if isinstance(item, list | tuple):
            yield from _leaves(item)
        else:
            yield item
