"""One step of a loop as values that a shared engine stores, each a function of a sum of terms.

A term is a matrix times a stored value, a stored value times a number, or the product of two stored values. Whatever
lies between two stored values is taken apart into such terms: sums and products of sums, also where they have more bits
than the engine stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnhw.errors import MappingError
from nnhw.ir import IntType, OneStep
from nnhw.mapping.layers import ConcatLayer, Layer, MatrixLayer, PairLayer, SliceLayer, StepFunction, SumLayer
from nnhw.mapping.reader import read_layers

STORED_BITS = 8
"""Bits of a stored code, and of a weight."""
MOST_IDENTITY = 1 << 12
"""Most numbers for which a function is tried whether it changes none of them."""


@dataclass(frozen=True)
class View:
    """Channels of a stored value, from `first` on."""

    value: str
    first: int = 0


@dataclass(frozen=True, eq=False)
class DenseTerm:
    """A matrix, int64 [outputs, inputs], times a stored value."""

    view: View
    weights: np.ndarray = field(repr=False)

    def times(self, factor: int) -> DenseTerm:
        """Return a multiple of it."""
        return replace(self, weights=self.weights * factor)

    def part(self, first: int, count: int) -> DenseTerm:
        """Return some of its channels."""
        return replace(self, weights=self.weights[first : first + count])


@dataclass(frozen=True)
class ScaledTerm:
    """A stored value times a number."""

    view: View
    factor: int = 1

    def times(self, factor: int) -> ScaledTerm:
        """Return a multiple of it."""
        return replace(self, factor=self.factor * factor)

    def part(self, first: int, count: int) -> ScaledTerm:
        """Return some of its channels."""
        return replace(self, view=replace(self.view, first=self.view.first + first))


@dataclass(frozen=True)
class ProductTerm:
    """The product of two stored values, channel by channel, times a number."""

    left: View
    right: View
    factor: int = 1

    def times(self, factor: int) -> ProductTerm:
        """Return a multiple of it."""
        return replace(self, factor=self.factor * factor)

    def part(self, first: int, count: int) -> ProductTerm:
        """Return some of its channels."""
        left, right = (replace(view, first=view.first + first) for view in (self.left, self.right))
        return replace(self, left=left, right=right)


Term = DenseTerm | ScaledTerm | ProductTerm


@dataclass(frozen=True, eq=False)
class StepValue:
    """A value of a step.

    Parameters
    ----------
    node: name of the IR value.
    layer, where: the layer's name, and its name and place for messages.
    channels, element: number of its channels, and type of its elements.
    sums: range of the sums of its terms.
    terms: what is added.
    function: from sums to codes, which are stored; None: the sums leave.
    products: products of the model in a step.
    """

    node: str
    layer: str
    where: str
    channels: int
    element: IntType
    sums: IntType
    terms: tuple[Term, ...]
    function: StepFunction | None
    products: int = 0


def read_step(step: OneStep) -> tuple[StepValue, ...]:
    """Return the values of a step in the order in which they are computed, those that nobody reads left out.

    Raises
    ------
    MappingError: what a shared engine does not run in a loop.
    """
    return _Reader(step).read()


class _Reader:
    def __init__(self, step: OneStep) -> None:
        self.step = step
        self.layers = read_layers(step.graph)
        self.values: dict[str, StepValue] = {}
        self.sums: dict[str, tuple[Term, ...]] = {
            node.name: (ScaledTerm(View(node.name)),) for node in step.graph.inputs
        }
        """The terms of each value of the graph; of a stored one, itself."""
        self.joined: dict[str, tuple[tuple[View, int], ...]] = {}
        """The parts of concatenations, with their numbers of channels."""

    def read(self) -> tuple[StepValue, ...]:
        """Read all layers."""
        for layer in self.layers:
            if layer.shape[1:] != (1, 1):
                raise self._refusal(layer, f"makes a map of {list(layer.shape)}, and only vectors are")
            self._layer(layer)
        graph, states = self.step.graph, self.step.states
        result = self._stored_result(graph.outputs[0])
        needed, kept = {result, *(state.made for state in states)}, list[StepValue]()
        for state in states:
            if state.made not in self.values:
                raise MappingError(
                    f"state '{state.given}' becomes '{state.made}', which no quantizer of a layer makes; a shared "
                    f"engine does not run such a loop",
                    "use --style streaming",
                )
        # Backwards, so that whoever reads a value has been seen before it.
        for value in reversed(self.values.values()):
            if value.node in needed:
                kept.insert(0, value)
                needed |= {view.value for term in value.terms for view in _views(term)}
        return tuple(kept)

    def _stored_result(self, name: str) -> str:
        """Return the name of the step's result among the values."""
        while name not in self.values:
            node = self.step.graph.node(name)
            if name in self.sums or len(node.inputs) != 1:
                raise MappingError(
                    f"the result '{name}' of a step is a part or a product of others; a shared engine does not run "
                    f"such a loop",
                    "use --style streaming",
                )
            name = node.inputs[0]
        return name

    def _refusal(self, layer: Layer, why: str) -> MappingError:
        return MappingError(
            f"layer {layer.where} {why} run by a shared engine in a loop", "use --style streaming, or a larger board"
        )

    def _layer(self, layer: Layer) -> None:
        if isinstance(layer, SliceLayer):
            self._slice(layer)
            return
        if isinstance(layer, ConcatLayer) and not layer.constants:
            parts = tuple(zip((self._view(layer, name) for name in layer.inputs), layer.parts, strict=True))
            self.joined[layer.node] = parts
            return
        self._store(layer, self._terms(layer))

    def _terms(self, layer: Layer) -> tuple[Term, ...]:
        if isinstance(layer, MatrixLayer) and layer.groups == 1 and layer.kernel == (1, 1):
            weights = layer.weights.reshape(layer.weights.shape[:2])
            if layer.inputs[0] not in self.joined:
                return (DenseTerm(self._view(layer, layer.inputs[0]), weights),)
            parts = self.joined[layer.inputs[0]]
            # Columns of the matrix belong to the parts in turn: a concatenation is not made, its terms are added.
            ends = np.cumsum([count for _, count in parts])[:-1]
            pieces = np.split(weights, ends, axis=1)
            return tuple(DenseTerm(view, piece) for (view, _), piece in zip(parts, pieces, strict=True))
        if isinstance(layer, SumLayer):
            pairs = zip(layer.inputs, layer.factors, strict=True)
            return tuple(term.times(factor) for name, factor in pairs for term in self._of(layer, name))
        if isinstance(layer, PairLayer) and layer.op == "product":
            return self._product(layer)
        kind = layer.op if isinstance(layer, PairLayer) else type(layer).__name__.removesuffix("Layer").lower()
        raise self._refusal(layer, f"({kind}) is none of those")

    def _product(self, layer: PairLayer) -> tuple[Term, ...]:
        one, other = (self._of(layer, name) for name in layer.inputs)
        # A sum times a single value is a sum of products; a sum times a sum would be more than a record can do.
        if len(one) > 1:
            one, other = other, one
        found = []
        for term in other:
            if len(one) > 1 or not isinstance(one[0], ScaledTerm) or not isinstance(term, ScaledTerm):
                raise self._refusal(layer, "multiplies sums that no quantizer follows, which are not")
            found.append(ProductTerm(one[0].view, term.view, one[0].factor * term.factor))
        return tuple(found)

    def _of(self, layer: Layer, name: str) -> tuple[Term, ...]:
        if name not in self.sums:
            raise self._refusal(layer, f"reads '{name}', a concatenation, which is not")
        return self.sums[name]

    def _view(self, layer: Layer, name: str) -> View:
        """Return a value that is stored."""
        terms = self._of(layer, name)
        if len(terms) != 1 or not isinstance(terms[0], ScaledTerm) or terms[0].factor != 1:
            raise self._refusal(layer, f"reads the sums '{name}', which no quantizer follows: such are not")
        return terms[0].view

    def _slice(self, layer: SliceLayer) -> None:
        """Read a slice: a part of a stored value is stored as a value of its own, which has to begin at a granule."""
        (name,) = layer.inputs
        if name not in self.values:
            self.sums[layer.node] = tuple(term.part(layer.first, layer.count) for term in self._of(layer, name))
            return
        whole = self.values[name]
        rows = np.arange(layer.first, layer.first + layer.count)
        function = whole.function
        if function is not None:
            function = function.of_channels(rows if len(function.thresholds) > 1 else np.zeros_like(rows))
        terms = tuple(term.part(layer.first, layer.count) for term in whole.terms)
        # In proportion: each channel of a matrix has as many products.
        share = whole.products * layer.count // whole.channels
        self._add(replace(whole, node=layer.node, channels=layer.count, terms=terms, function=function, products=share))

    def _store(self, layer: Layer, terms: tuple[Term, ...]) -> None:
        """Note the terms of a layer's value, or store it."""
        products = sum(term.weights.size for term in terms if isinstance(term, DenseTerm))
        common = (layer.node, layer.name, layer.where, layer.shape[0], layer.element)
        if layer.function is None:
            self.sums[layer.node] = terms
            if layer.node == self._result:
                self.values[layer.node] = StepValue(*common, layer.element, terms, None, products)
            return
        # The layer has taken its function with it, in front of which the IR has the type of the sums.
        sums = self.step.graph.node(self.step.graph.node(layer.node).inputs[0]).type.int_dtype
        if layer.element.high - layer.element.low >= 1 << STORED_BITS:
            # Wider than what is stored, and only a change of type: then the terms stay terms.
            if not _is_identity(layer.function, sums):
                raise self._refusal(layer, f"makes codes of {layer.element}, and only those of 8 bits are stored and")
            self.sums[layer.node] = terms
            return
        self._add(StepValue(*common, sums, terms, layer.function, products))

    def _add(self, value: StepValue) -> None:
        self.values[value.node] = value
        self.sums[value.node] = (ScaledTerm(View(value.node)),)

    @property
    def _result(self) -> str:
        return self.layers[-1].node if self.step.graph.outputs[0] not in self.sums else self.step.graph.outputs[0]


def _views(term: Term) -> tuple[View, ...]:
    return (term.left, term.right) if isinstance(term, ProductTerm) else (term.view,)


def _is_identity(function: StepFunction, sums: IntType) -> bool:
    """Return whether a function gives each sum of a range as it is."""
    if sums.high - sums.low >= MOST_IDENTITY:
        return False
    numbers = np.arange(sums.low, sums.high + 1)
    pairs: Sequence[tuple[np.ndarray, np.ndarray]] = list(zip(function.thresholds, function.codes, strict=True))
    return all(bool((codes[np.searchsorted(steps, numbers, "right")] == numbers).all()) for steps, codes in pairs)
