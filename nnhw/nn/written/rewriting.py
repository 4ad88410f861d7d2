"""Marking the quantizers that a model computes by itself: `nnhw.quantize` behind each value that is one of few numbers.

    round(clamp(x, 0, 1) * 3) / 3  -->  nnhw.quantize(round(clamp(x, 0, 1) * 3) / 3, scale=1/3, codes 0..3)

The value is a multiple of the scale already, so that the quantizer changes nothing but the last bits. From there on
the model is one whose quantizers are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from nnhw.errors import InputError
from nnhw.nn.functional import along_axis
from nnhw.nn.kinds import AVERAGES, CODES, CONCATS, NORMS, PRODUCTS, WEIGHTED, weights_of
from nnhw.nn.quantizers import PER_TENSOR
from nnhw.nn.remedies import spelled

from .cancelling import cancel
from .domains import MAKES_FEW, Domain, Few, Steps, domains, is_function, multiples
from .lattices import GREATEST_CODE, OFTEN, Lattice, lattice_of, lattice_of_weights
from .watching import computed, constants_of, name_of, values_of

NEAR = 2.0**-10
"""Share of the scale by which rounding may move a value from its code."""
QUANTIZE = torch.ops.nnhw.quantize.default
_ASSERTIONS = frozenset({"_assert_scalar", "_assert_tensor_metadata"})
"""Notes of torch.export on what it assumes; they compute nothing."""
_CALLS = ("call_function", "call_method")
_READS_CODES = WEIGHTED | PRODUCTS | AVERAGES | NORMS | CONCATS


@dataclass(frozen=True, eq=False)
class Format:
    """The codes of a value, and what they stand for.

    Parameters
    ----------
    scale: float64, above 0: one, [1], or one for each channel.
    low, high: least and greatest code.
    axis: of the channels, or -1.
    bipolar: the codes are -1 and +1 alone.
    """

    scale: Tensor
    low: int
    high: int
    axis: int = PER_TENSOR
    bipolar: bool = False

    @classmethod
    def of(cls, lattice: Lattice, axis: int = PER_TENSOR) -> Format:
        """Return the format of numbers on a lattice; `axis` counts where it has a scale for each channel."""
        axis = PER_TENSOR if lattice.scale.numel() == 1 else axis
        return cls(lattice.scale, lattice.low, lattice.high, axis, lattice.bipolar)

    @property
    def options(self) -> tuple[Any, ...]:
        """The arguments of `nnhw.quantize` behind the scale and the zero point."""
        return self.low, self.high, self.axis, self.bipolar, "half_even", False, False


@dataclass(frozen=True, eq=False)
class Marked:
    """A value that was found to be codes.

    Parameters
    ----------
    name: of the node that computes it, in the graph as it was traced.
    format: its codes.
    is_weight: it depends on no image.
    is_bounded: the model itself bounds it; else the codes are those that some images gave.
    """

    name: str
    format: Format
    is_weight: bool
    is_bounded: bool = True


@dataclass(frozen=True, eq=False)
class Uneven:
    """A value that is one of few numbers, which are no codes of one scale.

    Parameters
    ----------
    node: that computes it.
    numbers: [N], ascending.
    """

    node: fx.Node
    numbers: Tensor

    def text(self, place: object) -> str:
        """Return what is wrong, and what to do. `place`: of the node, for people."""
        shown = ", ".join(f"{number:.6g}" for number in self.numbers[:4].tolist())
        more = ", .." if len(self.numbers) > 4 else ""
        return (
            f"{spelled(name_of(self.node))} {place} gives {len(self.numbers)} different values, {shown}{more}, "
            f"which are not multiples, up to {GREATEST_CODE}, of one number; a layer multiplies whole numbers: use "
            f"evenly spaced levels, or powers of two no further apart than 1 and 128"
        )


@dataclass(frozen=True, eq=False)
class Marks:
    """What was found in a traced model.

    Parameters
    ----------
    quantizers: values that are codes, which are marked.
    uneven: values that are not, though they are few numbers; they stay as they are.
    """

    quantizers: tuple[Marked, ...]
    uneven: tuple[Uneven, ...]


def may_quantize(graph: fx.Graph) -> bool:
    """Return whether a trace has an operation that makes few numbers of many, or a layer whose weights are computed."""
    depends = computed(graph)
    return any(name_of(node) in MAKES_FEW or _computes_weights(node, depends) for node in graph.nodes)


def _computes_weights(node: fx.Node, depends: set[fx.Node]) -> bool:
    """Return whether a layer reads weights that are computed from parameters."""
    weights = node.args[1] if name_of(node) in WEIGHTED and len(node.args) > 1 else None
    return isinstance(weights, fx.Node) and weights.op in _CALLS and weights not in depends


def mark(module: fx.GraphModule, images: Tensor, batches: Sequence[Tensor] = ()) -> Marks:
    """Put `nnhw.quantize` behind values and weights of a traced model that are codes times a scale; return these.

    Sums that cancel, as straight-through estimators have them, go first.

    Parameters
    ----------
    module: changed; its parameters are attributes, and its operators those of ATen, as `torch.export` traces them.
    images: [N, ..], two or more, for shapes and dtypes.
    batches: images that bound the values that the model rounds, but does not bound; without any these stay as they are.
    """
    for node in reversed(module.graph.nodes):
        if name_of(node) in _ASSERTIONS:
            module.graph.erase_node(node)
    cancel(module.graph, values_of(module, images))
    depends = computed(module.graph)
    # Integers and conditions become floats of the default dtype.
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        constants = constants_of(module)
        found = domains(module, constants, depends)
    finally:
        torch.set_default_dtype(default)
    open_ended = [node for node in _read_by_layers(module.graph, found, depends) if isinstance(found[node], Steps)]
    if batches:
        found |= _bounded(module, {node: found[node] for node in open_ended}, batches)
    marked, uneven = list[Marked](), list[Uneven]()
    for one in [*_values(module.graph, found, depends), *_weights(module.graph, constants, depends)]:
        if isinstance(one, Uneven):
            uneven.append(one)
            continue
        node, format = one
        _insert(module, node, format)
        marked.append(Marked(node.name, format, node not in depends, node not in open_ended))
    module.graph.lint()
    module.recompile()
    for batch in batches or [images]:
        _check(module, marked, batch)
    return Marks(tuple(marked), tuple(uneven))


def _check(module: fx.GraphModule, marked: Sequence[Marked], images: Tensor) -> None:
    """Raise InputError where a value is not what it was marked as, for some images."""
    known = values_of(module, images) if marked else {}
    names = {one.name: one for one in marked if one.is_bounded}
    for node in [node for node in known if node.name in names]:
        format = names[node.name].format
        made = next(user for user in node.users if user.target == QUANTIZE)
        apart = (known[made] - known[node]).abs()
        if not bool((apart <= NEAR * along_axis(format.scale, apart, format.axis)).all()):
            raise InputError(
                f"'{node.name}' was found to be codes {format.low}..{format.high} of the scale "
                f"{float(format.scale[0]):.6g}, but is none of them; this is a mistake of nnhw, please report the model"
            )


def _bounded(
    module: fx.GraphModule, steps: Mapping[fx.Node, Domain], batches: Sequence[Tensor]
) -> dict[fx.Node, Domain]:
    """Return multiples of a step with the bounds that they have for some images."""
    made: dict[fx.Node, Domain] = {}
    every = [values_of(module, batch) for batch in batches] if steps else []
    for node, one in steps.items():
        assert isinstance(one, Steps)
        low, high = min(float(known[node].min()) for known in every), max(float(known[node].max()) for known in every)
        first, last = round((low - one.offset) / one.step), round((high - one.offset) / one.step)
        made[node] = multiples(one.step, one.offset, first, last)
    return made


_Found = tuple[fx.Node, Format]


def _values(graph: fx.Graph, found: Mapping[fx.Node, Domain], depends: set[fx.Node]) -> Iterator[_Found | Uneven]:
    """Yield the computed values that layers read as few numbers, each where they are made."""
    for node in _read_by_layers(graph, found, depends):
        domain = found[node]
        if isinstance(domain, Few) and len(domain.numbers) > 1:
            lattice = lattice_of(domain.numbers.double())
            yield Uneven(node, domain.numbers) if lattice is None else (node, Format.of(lattice))


def _read_by_layers(graph: fx.Graph, found: Mapping[fx.Node, Domain], depends: set[fx.Node]) -> list[fx.Node]:
    """Return the values of which layers read steps, each where its last function of one value has made it."""
    origins = _origins(graph, depends)

    def goes_on(user: fx.Node) -> bool:
        # A function of one value is looked at as a whole, and what has a quantizer needs no other.
        return name_of(user) in CODES or (is_function(user) and len(origins[user]) == 1)

    return [
        node
        for node in graph.nodes
        if node in depends
        and isinstance(found.get(node), Few | Steps)
        and is_function(node)
        and _is_float(node)
        and not all(map(goes_on, node.users))
        and _reaches_layer(node, depends)
    ]


def _origins(graph: fx.Graph, depends: set[fx.Node]) -> dict[fx.Node, frozenset[fx.Node]]:
    """Return the values of which each value is a function, element by element."""
    made: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in graph.nodes:
        if node in depends:
            before = [made[operand] for operand in node.all_input_nodes if operand in depends]
            made[node] = frozenset().union(*before) if is_function(node) else frozenset([node])
    return made


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, Tensor) or value.is_floating_point()


def _reaches_layer(node: fx.Node, depends: set[fx.Node]) -> bool:
    """Return whether a layer, a join or an average reads a value, or what is a function of it alone."""
    seen, waiting = {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            operands = [operand for operand in user.all_input_nodes if operand in depends]
            if name_of(user) in _READS_CODES or len(operands) > 1:
                return True
            if user not in seen and name_of(user) not in CODES:
                seen.add(user)
                waiting.append(user)
    return False


def _weights(graph: fx.Graph, constants: Mapping[fx.Node, Tensor], depends: set[fx.Node]) -> Iterator[_Found | Uneven]:
    """Yield the constants that layers have as weights, and that are few numbers."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node not in depends or name_of(node) not in WEIGHTED:
            continue
        weights, axis = weights_of(node, depends)
        if not isinstance(weights, fx.Node) or weights not in constants or weights in found:
            continue
        if weights.target == QUANTIZE or not constants[weights].is_floating_point():
            continue
        found.add(weights)
        axis = axis if axis is None else axis % constants[weights].ndim
        lattice = lattice_of_weights(constants[weights], axis)
        levels = torch.unique(constants[weights])
        if lattice is None and weights.op in _CALLS and OFTEN * len(levels) <= constants[weights].numel():
            yield Uneven(weights, levels)
        elif lattice is not None:
            yield weights, Format.of(lattice, PER_TENSOR if axis is None else axis)


def _insert(module: fx.GraphModule, node: fx.Node, format: Format) -> None:
    """Put a quantizer behind a value, in front of all its readers."""
    values = {"scale": format.scale, "zero_point": torch.zeros(1, dtype=torch.float64)}
    names = [_added(module, f"{node.name}_{name}", value) for name, value in values.items()]
    with module.graph.inserting_after(node):
        made = module.graph.call_function(QUANTIZE, ())
    with module.graph.inserting_before(made):
        scale, zero_point = (module.graph.get_attr(name) for name in names)
    node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)
    made.args = (node, scale, zero_point, *format.options)
    made.meta = {key: value for key, value in node.meta.items() if key in ("stack_trace", "nn_module_stack")}


def _added(module: fx.GraphModule, name: str, value: Tensor) -> str:
    """Add a constant; return its name, which no attribute of the model has."""
    while hasattr(module, name):
        name += "_"
    module.register_buffer(name, value)
    return name
