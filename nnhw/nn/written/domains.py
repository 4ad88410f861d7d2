"""The set of numbers that each value of a traced model can take, derived from its operations alone.

    round(clamp(x, 0, 1) * 3) / 3      --> 0, 1/3, 2/3, 1
    where(x >= t, a, -a)               --> -a, a
    clamp(round(x / s), -8, 7) * s     --> -8 s .. 7 s

Rounding, signs and comparisons make finite sets of unbounded values. On these, torch's own operators are called with
all numbers, in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from nnhw.nn.kinds import CASTS, CONCATS, ELEMENTWISE, ENDS, FILLED, JOINS, MOVES, operation

from .bent_lines import IDENTITY, Points, bent, bounds_of
from .watching import copied, only_computes, widened

_WIDE = 32
"""Bits of integers to which a value is cast that is known to have no bounds."""
_BEYOND = 2.0**-20
"""Share by which roundings of float32 may move the end of a range."""
MOST = 1 << 16
"""Most numbers that a value may have and still be one of few: codes of 16 bits."""


@dataclass(frozen=True, eq=False)
class Between:
    """Any number within bounds, ends included.

    Parameters
    ----------
    origin: the value of which it is a function that consists of straight lines; None: it is none, or not known.
    line: that function.
    """

    low: float = -math.inf
    high: float = math.inf
    origin: fx.Node | None = None
    line: Points | None = None

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number."""
        return self.low, self.high


@dataclass(frozen=True)
class Steps:
    """Multiples of a step within bounds, of which one at least is infinite.

    Parameters
    ----------
    step: above 0.
    offset: added to each multiple.
    """

    step: float
    offset: float
    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number."""
        return self.low, self.high


@dataclass(frozen=True, eq=False)
class Few:
    """One of some numbers.

    Parameters
    ----------
    numbers: [N], ascending, each one once; float64, int64 or bool.
    """

    numbers: Tensor

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest number."""
        return float(self.numbers[0]), float(self.numbers[-1])


Domain = Between | Steps | Few

_ROUNDINGS = frozenset({"round", "floor", "ceil", "trunc", "fix"})
_SIGNS = frozenset({"sign", "sgn"})
_JUMPS = frozenset({"heaviside"})
_CONDITIONS = frozenset(
    {
        *("gt", "ge", "lt", "le", "eq", "ne", "logical_and", "logical_or", "logical_xor", "logical_not"),
        *("isnan", "isinf", "isfinite", "signbit"),
    }
)
MAKES_FEW = _ROUNDINGS | _SIGNS | _JUMPS | _CONDITIONS
"""Operations that make few numbers of many."""
_FUNCTIONS = CASTS | JOINS | ELEMENTWISE - ENDS
"""Functions of single elements, some of which have no such mark in torch."""
_RISING = frozenset(
    {
        *("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "clip", "sigmoid", "tanh", "hardsigmoid"),
        *("add", "sub", "mul", "div", "neg", "rsub", "exp", "sqrt", "softplus", "elu", "leaky_relu", "maximum"),
        *("minimum", "atan", "erf", "abs", "square", "hardshrink", "softshrink"),
    }
)
"""Operations of which bounds follow from the corners of the operands' bounds; `_corners` adds 0 where they turn."""
_TURNING = frozenset({"abs", "square"})


def domains(
    module: fx.GraphModule, constants: Mapping[fx.Node, Tensor], depends: set[fx.Node]
) -> dict[fx.Node, Domain]:
    """Return which numbers each computed value can be.

    Parameters
    ----------
    constants: values that depend on no image, floats in float64.
    depends: the nodes that do.
    """
    found: dict[fx.Node, Domain] = {}
    modules = dict(module.named_modules())
    for node in module.graph.nodes:
        operands = [operand for operand in node.all_input_nodes if operand in found]
        if node.op == "placeholder":
            found[node] = _anything(node)
        elif node.op == "call_function" and operation(node, modules) in FILLED:
            found[node] = _filled(node, operation(node, modules))
        elif node.op == "call_function" and (node in depends or operands):
            with torch.no_grad():
                domain = _domain(node, operation(node, modules), operands, found, constants)
            is_unknown = (
                isinstance(domain, Between) and domain.line is None and not math.isfinite(domain.high - domain.low)
            )
            found[node] = _anything(node) if is_unknown and domain.bounds == Between().bounds else domain
    return found


def _anything(node: fx.Node) -> Between:
    """Return the domain of a value of which nothing is known, with which a function may begin."""
    return Between(origin=node, line=IDENTITY)


def is_function(node: fx.Node) -> bool:
    """Return whether each element of a traced value is a function of single elements of others."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or not only_computes(target):
        return False
    return torch.Tag.pointwise in target.tags or operation(node, {}) in _FUNCTIONS


def _domain(
    node: fx.Node,
    name: str,
    operands: Sequence[fx.Node],
    found: Mapping[fx.Node, Domain],
    constants: Mapping[fx.Node, Tensor],
) -> Domain:
    given = [found[operand] for operand in operands]
    if name in CONCATS:
        # A constant among them has numbers of its own.
        return _union(given) if len(operands) == len(node.all_input_nodes) else Between()
    if name in MOVES - CASTS:
        return _moved(node, name, found)
    # What is computed with the number of images, and what belongs to no operator, such as parts of a tuple.
    if len(operands) + sum(operand in constants for operand in node.all_input_nodes) < len(node.all_input_nodes):
        return Between()
    if name in _CONDITIONS:
        return Few(torch.tensor([False, True]))
    if name == "heaviside":
        return _union([Few(torch.tensor([0.0, 1.0], dtype=torch.float64)), *_numbers(node.args[1:2], found, constants)])
    if len(node.args) == 1 and not node.kwargs and not isinstance(given[0], Few):
        if name in _SIGNS:
            return _signs(given[0])
        if name in _ROUNDINGS:
            return _rounded(node, given[0])
    return _function(node, name, operands, found, constants) if is_function(node) else Between()


def _function(
    node: fx.Node,
    name: str,
    operands: Sequence[fx.Node],
    found: Mapping[fx.Node, Domain],
    constants: Mapping[fx.Node, Tensor],
) -> Domain:
    """Return the numbers of a function of single elements."""
    if name in CASTS:
        # What follows the first operand is read for its dtype alone.
        return _cast(node, found[operands[0]]) if node.args[0] is operands[0] else Between()
    call, given = _Called(node, constants), [found[operand] for operand in operands]
    # Constants that differ by channel give each channel numbers of its own.
    if any(not _is_one_number(constants[operand]) for operand in node.all_input_nodes if operand in constants):
        return _bounded(call, node, name, operands, given)
    few = [one for one in given if isinstance(one, Few)]
    if len(few) == len(given):
        return _evaluated(call, operands, few)
    if len(given) == 1 and isinstance(given[0], Steps):
        return _stepped(call, node, name, operands[0], given[0])
    if name == "where" and node.args[0] in operands:
        return _chosen(node, found, constants)
    return _bent(node, operands, given, call, constants) or _bounded(call, node, name, operands, given)


def _bent(
    node: fx.Node,
    operands: Sequence[fx.Node],
    given: Sequence[Domain],
    call: _Called,
    constants: Mapping[fx.Node, Tensor],
) -> Between | None:
    """Return the bounds of a function of one value that consists of straight lines; None for anything else."""
    between = [one for one in given if isinstance(one, Between) and one.line is not None]
    if len(between) < len(given) or len({one.origin for one in between}) != 1:
        return None
    lines = [(operand, one.line) for operand, one in zip(operands, between, strict=True) if one.line is not None]
    points = bent(node, lines, constants, call)
    if points is None or not bool(torch.isfinite(points).all()):
        return None
    return Between(*bounds_of(points), between[0].origin, points)


class _Called:
    """An operator that can be called with numbers in place of its computed operands."""

    def __init__(self, node: fx.Node, constants: Mapping[fx.Node, Tensor]) -> None:
        self._node, self._constants = node, constants

    def __call__(self, numbers: Mapping[fx.Node, Tensor]) -> Tensor:
        """Return the results of numbers, all [N]; of an operation in place, too."""
        known = {**dict(self._own()), **numbers}
        args, kwargs = fx.node.map_arg(
            (self._node.args, dict(self._node.kwargs)), lambda operand: copied(known[operand])
        )
        result = self._node.target(*widened(args), **widened(kwargs))  # type: ignore[operator]
        return result if isinstance(result, Tensor) else torch.full((1,), math.nan)

    def _own(self) -> Iterator[tuple[fx.Node, Any]]:
        for operand in self._node.all_input_nodes:
            if operand in self._constants:
                value = self._constants[operand]
                one = value.reshape(-1)[0] if _is_one_number(value) else value
                # A number, such as alpha.item(), stays one.
                yield operand, one if isinstance(operand.meta.get("val"), Tensor | None) else one.item()


def _evaluated(call: _Called, operands: Sequence[fx.Node], given: Sequence[Few]) -> Domain:
    """Return the numbers that an operation makes of all combinations of its operands' numbers."""
    if math.prod(len(one.numbers) for one in given) > MOST:
        return Between()
    # By their places, as numbers of several dtypes make no grid.
    places = torch.meshgrid(*(torch.arange(len(one.numbers)) for one in given), indexing="ij")
    try:
        result = call(
            {node: one.numbers[place.reshape(-1)] for node, one, place in zip(operands, given, places, strict=True)}
        )
    except RuntimeError:
        return Between()
    return _few(result)


def _few(numbers: Tensor) -> Domain:
    """Return a domain of numbers, which is any number if one of them is none."""
    numbers = numbers.reshape(-1)
    if numbers.is_floating_point():
        if not bool(torch.isfinite(numbers).all()):
            return Between()
        numbers = numbers.double() + 0.0  # 0.0 for -0.0
    return Few(torch.unique(numbers)) if len(numbers) else Between()


def _signs(given: Domain) -> Domain:
    low, high = given.bounds
    kept = [sign for sign, is_possible in ((-1.0, low < 0), (0.0, low <= 0 <= high), (1.0, high > 0)) if is_possible]
    return Few(torch.tensor(kept, dtype=torch.float64))


def _rounded(node: fx.Node, given: Domain) -> Domain:
    """Return the integers between the roundings of two bounds.

    In the model's own precision a value may lie a little beyond a bound that was computed in float64, unless that is a
    whole number.
    """
    low, high = given.bounds
    reach = [0.0 if math.isinf(end) or end == round(end) else abs(end) * _BEYOND for end in (low, high)]
    ends = node.target(torch.tensor([low - reach[0], high + reach[1]], dtype=torch.float64))  # type: ignore[operator]
    return _steps(1.0, 0.0, float(ends[0]), float(ends[1]))


def _steps(step: float, offset: float, low: float, high: float) -> Domain:
    """Return multiples of a step as some numbers, where both bounds are finite."""
    if not (step > 0 and math.isfinite(step) and math.isfinite(offset)):
        return Between()
    if math.isinf(low) or math.isinf(high):
        return Steps(step, offset, low, high)
    first, last = math.ceil((low - offset) / step), math.floor((high - offset) / step)
    return multiples(step, offset, first, last)


def multiples(step: float, offset: float, first: int, last: int) -> Domain:
    """Return the multiples of a step from the first to the last one, offset added."""
    if not 0 <= last - first < MOST:
        return Between(first * step + offset, last * step + offset)
    return Few(torch.arange(first, last + 1, dtype=torch.float64) * step + offset)


def _stepped(call: _Called, node: fx.Node, name: str, operand: fx.Node, given: Steps) -> Domain:
    """Return what a function makes of the multiples of a step: a stretched or moved step, or one with bounds."""
    plain = len(node.args) == 1 and not node.kwargs
    if name in _ROUNDINGS and plain and given.step == 1 and given.offset == int(given.offset):
        return given
    if (name in _ROUNDINGS and not plain) or "rounding_mode" in node.kwargs:
        return Between()
    try:
        zero, one, two = call({operand: torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)}).double().tolist()
    except (RuntimeError, ValueError):
        return Between()
    if name in ("add", "sub", "rsub", "mul", "div", "neg") and two - one == one - zero and one != zero:
        slope = one - zero
        low, high = sorted(bound * slope + zero for bound in given.bounds)
        return _steps(abs(slope) * given.step, given.offset * slope + zero, low, high)
    if name in ("clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "relu", "relu6", "maximum", "minimum"):
        low, high = call({operand: torch.tensor(given.bounds, dtype=torch.float64)}).tolist()
        inner = _steps(given.step, given.offset, max(low, given.low), min(high, given.high))
        if isinstance(inner, Few):
            ends = [end for end in (low, high) if not bool((inner.numbers == end).any())]
            return _few(torch.cat([inner.numbers, torch.tensor(ends, dtype=torch.float64)]))
        return inner
    return _bounded(call, node, name, [operand], [given])


def _bounded(call: _Called, node: fx.Node, name: str, operands: Sequence[fx.Node], given: Sequence[Domain]) -> Domain:
    """Return the bounds of an operation that rises or falls along each operand."""
    if not _rises(node, name, operands, given):
        return Between()
    if name == "mul" and list(node.args[:2]).count(operands[0]) > 1:
        name = "square"
    corners = [[*one.bounds, *([0.0] if name in _TURNING else [])] for one in given]
    if name in _TURNING and not corners[0][0] <= 0 <= corners[0][1]:
        corners[0].pop()
    points = torch.tensor(list(itertools.product(*corners)), dtype=torch.float64)
    try:
        ends = [call(dict(zip(operands, point, strict=True))).double() for point in points]
    except RuntimeError:
        return Between()
    every = torch.cat([end.reshape(-1) for end in ends])
    return Between() if bool(torch.isnan(every).any()) else Between(float(every.min()), float(every.max()))


def _rises(node: fx.Node, name: str, operands: Sequence[fx.Node], given: Sequence[Domain]) -> bool:
    """Return whether an operation with these arguments rises or falls along each of its operands."""
    if name not in _RISING or "rounding_mode" in node.kwargs:
        return False
    if name in ("elu", "softplus"):
        return len(node.args) == 1 and not node.kwargs
    if name == "leaky_relu":
        slope = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return isinstance(slope, int | float) and slope >= 0
    if name == "div" and node.args[1] in operands:
        low, high = given[operands.index(node.args[1])].bounds  # type: ignore[arg-type]
        return node.args[0] is not node.args[1] and (low > 0 or high < 0)
    return True


def _chosen(node: fx.Node, found: Mapping[fx.Node, Domain], constants: Mapping[fx.Node, Tensor]) -> Domain:
    """Return the numbers of both sides of a choice."""
    return _union(_numbers(node.args[1:3], found, constants))


def _numbers(
    arguments: Sequence[Any], found: Mapping[fx.Node, Domain], constants: Mapping[fx.Node, Tensor]
) -> list[Domain]:
    """Return the numbers of arguments of an operator: values, constants or numbers."""
    made: list[Domain] = []
    for argument in arguments:
        if isinstance(argument, fx.Node) and argument in found:
            made.append(found[argument])
        elif isinstance(argument, fx.Node) and argument in constants:
            made.append(_few(constants[argument]))
        elif isinstance(argument, int | float):
            made.append(Few(torch.tensor([float(argument)], dtype=torch.float64)))
        else:
            made.append(Between())
    return made


def _filled(node: fx.Node, name: str) -> Domain:
    """Return the one number of a tensor that is made in the shape of another."""
    number = node.args[-1] if name in ("full_like", "new_full") else float("ones" in name)
    return Few(torch.tensor([float(number)], dtype=torch.float64)) if isinstance(number, int | float) else Between()


def _cast(node: fx.Node, given: Domain) -> Domain:
    """Return the numbers of a copy, perhaps in another dtype: integers have no fraction."""
    value = node.meta.get("val")
    if isinstance(given, Few):
        whole = isinstance(value, Tensor) and not value.is_floating_point()
        return _few(given.numbers.to(value.dtype if whole else torch.float64))  # type: ignore[union-attr]
    if not isinstance(value, Tensor) or value.is_floating_point():
        return given
    low, high = (math.trunc(end) if math.isfinite(end) else end for end in given.bounds)
    ends = torch.iinfo(value.dtype) if value.dtype != torch.bool else None
    # Beyond what the dtype holds, torch promises nothing.
    fits = ends is not None and ends.min <= low and high <= ends.max
    return _steps(1.0, 0.0, low, high) if fits or (ends is not None and ends.bits >= _WIDE) else Between()


def _union(given: Sequence[Domain]) -> Domain:
    few = [one.numbers.double() for one in given if isinstance(one, Few)]
    if len(few) == len(given):
        return _few(torch.cat(few))
    lows, highs = zip(*(one.bounds for one in given), strict=True)
    return Between(min(lows), max(highs))


def _moved(node: fx.Node, name: str, found: Mapping[fx.Node, Domain]) -> Domain:
    """Return the numbers of elements that only move; a border adds its own."""
    # What follows the first operand are sizes.
    given = found.get(node.args[0], Between())  # type: ignore[arg-type]
    if isinstance(given, Between):
        # Its elements are at other places than those of the value that it is a function of.
        given = Between(given.low, given.high)
    if name not in ("pad", "constant_pad_nd"):
        return given
    value: Any = node.args[2] if len(node.args) > 2 and name == "constant_pad_nd" else node.kwargs.get("value")
    if len(node.args) > 3:
        value = node.args[3]
    if not isinstance(value, int | float | None):
        return Between()
    return _union([given, Few(torch.tensor([float(value or 0)], dtype=torch.float64))])


def _is_one_number(value: Tensor) -> bool:
    return bool((value == value.reshape(-1)[0]).all()) if value.numel() else False
