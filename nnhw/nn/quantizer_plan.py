"""Planning where quantizers go in a traced float model, and inserting them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves

from nnhw.errors import InputError, NnhwError

from .bits import LayerBits
from .calibration import Observed, activation_quantizer, run_with, weight_quantizer
from .frames import module_path, place_of
from .kinds import (
    AVERAGES,
    CASTS,
    CODES,
    COMPOSED,
    CONCATS,
    CONDITIONS,
    CONVERTED,
    ELEMENTWISE,
    ENDS,
    FILLED,
    JOINS,
    KNOWN,
    MODES,
    MOVES,
    NONNEGATIVE,
    NORMS,
    PRODUCTS,
    RECURRENT,
    WEIGHTED,
    operation,
    weights_of,
)
from .linear import QuantConv1d, QuantConv2d, QuantConvTranspose1d, QuantConvTranspose2d, QuantLayer, QuantLinear
from .mixing import Mixing, positional, root_of
from .quantizers import PER_TENSOR, Quantizer
from .recurrent_formats import observe_formats, quantized_recurrent
from .remedies import remedy_for, spelled

SUMS = 2**26
"""Number of different sums of all outputs of a layer above which a function is not evaluated for each of them.

A float64 for each takes 512 MiB then.
"""


def _values(
    graph_module: fx.GraphModule, modules: Mapping[str, nn.Module], batch: Tensor
) -> tuple[set[fx.Node], set[fx.Node]]:
    """Return (nodes with tensors, or tuples of them, that depend on the input; all nodes with tensors).

    All other nodes are sizes. Tensors that do not depend on the input are parameters, or computed from parameters.
    """
    runner = _Watching(graph_module)
    run_with(runner, batch)
    depends: set[fx.Node] = set()
    for node in graph_module.graph.nodes:
        name = operation(node, modules)
        # Of what a constant is made like, or converted to, only the shape and the dtype are read.
        read = [] if name in FILLED else node.all_input_nodes[: 1 if name in CONVERTED else None]
        if node in runner.tensors and (node.op == "placeholder" or depends & set(read)):
            depends.add(node)
    return depends, runner.tensors


class _Watching(fx.Interpreter):
    """Runs a model; notes which nodes have tensors, and calls the functions in `watch` with their nodes' values."""

    def __init__(self, graph_module: fx.GraphModule, watch: Mapping[fx.Node, Any] | None = None) -> None:
        super().__init__(graph_module)
        self.tensors: set[fx.Node] = set()
        self._watch = watch or {}

    def run_node(self, n: fx.Node) -> Any:
        """Compute a node."""
        result = super().run_node(n)
        parts = tree_leaves(result)
        if parts and all(isinstance(part, Tensor) for part in parts):
            self.tensors.add(n)
            if n in self._watch:
                self._watch[n](result)
        return result


def layer_of(node: fx.Node) -> str:
    """Return the name by which a user knows the layer that makes a value: its path, or outside of layers its own."""
    return str(node.target) if node.op == "call_module" else module_path(node) or node.name


class QuantizerPlan:
    """The plan of where quantizers go: one behind each value that is read as codes.

    Parameters
    ----------
    batch: images with which the model is run.
    weight_bits, code_bits: bits of the weights, and of the widest codes that they are multiplied with.

    Members
    -------
    groups: for each node that gets a quantizer, the leader of the nodes that share its scale.
    problems: what cannot be quantized.

    Raises
    ------
    InputError: the batch does not go through the model.
    """

    def __init__(
        self,
        graph_module: fx.GraphModule,
        modules: Mapping[str, nn.Module],
        batch: Tensor,
        weight_bits: int,
        code_bits: int,
    ) -> None:
        self._graph_module, self._graph, self._modules = graph_module, graph_module.graph, modules
        self._values, self._tensors = _values(graph_module, modules, batch)
        self._weight_bits, self._code_bits = weight_bits, code_bits
        self.problems: list[NnhwError] = []
        self.groups: dict[fx.Node, fx.Node] = {}
        self._observed: dict[fx.Node, Observed] = {}
        self._least: dict[fx.Node, float] = {}
        self._weights: dict[fx.Node, tuple[fx.Node, int | None]] = {}
        self._constants: dict[fx.Node, Tensor] = {}
        self._quantized: dict[tuple[fx.Node, int | None], fx.Node] = {}
        self._mixing = Mixing(graph_module, modules)
        self._inserted: dict[fx.Node, Quantizer] = {}
        """The quantizer that each node has got."""
        self._mixed: dict[fx.Node, fx.Node] = {}
        """The value whose codes each softmax and each normalization reads."""
        self._shares: dict[fx.Node, Quantizer] = {}
        """The format of each softmax's results."""
        # The order matters: each step may put quantizers where a later one looks for them. What a softmax or the end of
        # the model needs depends on the quantizers of all joins, and these on those of layers and constants.
        for node in self._graph.nodes:
            if node in self._values:
                self._place(node)
        # A second run, as only now it is known of which constants the numbers are needed.
        watch: dict[fx.Node, Callable[[Any], None]] = {
            weights: functools.partial(self._constants.__setitem__, weights) for weights, _ in self._weights.values()
        }
        for node in self._joined_constants():
            watch[node] = functools.partial(self._constants.__setitem__, node)
        watch |= self._mixing.watched()
        with torch.no_grad():
            _Watching(graph_module, watch).run(batch.clone())
        self._place_constants()
        self._place_joins()
        self._place_softmaxes()
        self._place_result()
        self._check_ends()

    def _place_joins(self) -> None:
        joins = [node for node in self._graph.nodes if node in self._values and self._name(node) in JOINS | COMPOSED]
        planned = -1
        # With a new quantizer in front of it, an operation may no longer be a function of one value.
        while len(self.groups) > planned:
            planned = len(self.groups)
            for node in joins:
                self._place_join(node)

    def _joined_constants(self) -> list[fx.Node]:
        """Return the constant tensors that are added to values, or concatenated with them."""
        return [
            operand
            for node in self._graph.nodes
            if node in self._values and self._name(node) in {"add", "sub"} | CONCATS
            for operand in node.all_input_nodes
            if operand in self._tensors - self._values
        ]

    def _place_constants(self) -> None:
        """Plan quantizers for constants that are concatenated with values, or added and different for each position."""
        for node in self._graph.nodes:
            constants = [operand for operand in node.all_input_nodes if operand in self._constants]
            if node not in self._values or not constants or node in self._weights:
                continue
            operands = self._operands(node)
            if self._name(node) in CONCATS:
                # In front of its repetition, a constant is quantized once, and not once for each image.
                roots = [root_of(operand) for operand in constants]
                self._share(self._give_codes(operands) + [self.groups.setdefault(root, root) for root in roots])
            elif self._name(node) in ("add", "sub"):
                for operand in constants:
                    if positional(self._constants[operand]):
                        self._give_codes(operands)
                        self.groups.setdefault(root_of(operand), root_of(operand))

    def _place_softmaxes(self) -> None:
        """Plan quantizers in front of each softmax whose results are read as codes."""
        # Last softmax first: once it has a quantizer in front, a softmax before that is read as codes, too.
        for node in reversed(self._graph.nodes):
            if node in self._values and self._name(node) == "softmax" and self._is_read_as_codes(node):
                self.groups.setdefault(node, node)
                self._mixing.inner[node] = None
                self._mixing.read_whole += self._give_codes([node.all_input_nodes[0]])

    def _is_read_as_codes(self, node: fx.Node) -> bool:
        """Return whether a quantizer stands behind a value, directly or after other operations."""
        seen, waiting = {node}, [node]
        while waiting:
            value = waiting.pop()
            if value in self.groups:
                return True
            behind = set(value.users) - seen
            seen |= behind
            waiting += behind
        return False

    def _place_result(self) -> None:
        """Plan a quantizer behind a function of several values at the model's end, as one value leaves the device."""
        for end in self._graph.output_node().all_input_nodes:
            while self._name(end) in ENDS:
                end = end.all_input_nodes[0]
            for source in self._sources(end):
                if len(self._starts([source])) > 1:
                    self._give_codes([source])

    def _place(self, node: fx.Node) -> None:
        name = self._name(node)
        if name not in KNOWN and node.op in ("call_function", "call_method"):
            self.problems.append(
                InputError(
                    f"{spelled(name)} {place_of(node)} has no quantized form; {remedy_for(name, quantized=False)}"
                )
            )
            return
        if name in MODES:
            self._check_mode(node, *MODES[name])
        operands = self._operands(node)
        if name in PRODUCTS and self._mixing.reads_two(node, self._values):
            self._mixing.products.add(node)
        elif name in WEIGHTED and node.op != "call_module":
            self._find_weights(node)
        if name in RECURRENT:
            # The layer itself quantizes the states that it begins with.
            self._give_codes(operands[:1])
        if name in NORMS:
            self._mixing.norms.append(node)
            # Its weight and bias may be computed, too, but are constants of the layer.
            operands = operands[:1]
        if name in WEIGHTED | PRODUCTS | NORMS | AVERAGES | CONCATS:
            reached = self._give_codes(operands)
            if name in CONCATS and reached:
                self._share(reached)

    def _check_mode(self, node: fx.Node, place: int, known: tuple[str, ...]) -> None:
        mode = node.args[place] if len(node.args) > place else node.kwargs.get("mode", known[0])
        if node.op == "call_module":
            mode = getattr(self._modules[str(node.target)], "mode", known[0])
        if mode not in known:
            self.problems.append(
                InputError(f"{self._name(node)} {place_of(node)} has mode='{mode}'; use mode='{known[0]}'")
            )

    def _check_ends(self) -> None:
        """Note a problem for each operation that mixes elements, such as a softmax, and has a quantizer behind it."""
        behind: dict[fx.Node, fx.Node] = {}
        for node in self._graph.nodes:
            found = [behind[operand] for operand in node.all_input_nodes if operand in behind]
            if found or (self._name(node) in ENDS and node not in self._mixing.inner):
                behind[node] = found[0] if found else node
        for end in dict.fromkeys(behind[node] for node in self.groups if node in behind):
            self.problems.append(
                InputError(
                    f"{self._name(end)} {place_of(end)} mixes elements, which runs at the end of a model alone; leave "
                    "it out, or use nn.Sigmoid or nn.ReLU"
                )
            )

    def _place_join(self, node: fx.Node) -> None:
        """Plan quantizers behind the operands of an operation on several values, unless all are functions of one value.

        A function of one value, such as y * sigmoid(y), is evaluated for each number that it can have. Where these are
        too many sums of a layer, the value gets a quantizer, too.
        """
        operands = self._operands(node)
        starts = self._starts(operands)
        if len(starts) > 1 and self._name(node) in CONDITIONS:
            self._refuse_condition(node, starts)
        elif len(starts) > 1:
            self._give_codes(operands)
        elif (len(operands) > 1 or self._name(node) in COMPOSED) and any(
            self._count_of_sums(source) > SUMS for source in self._sources(starts[0])
        ):
            self._give_codes(starts)

    def _refuse_condition(self, node: fx.Node, starts: list[fx.Node]) -> None:
        """Note a problem for a condition that depends on several values, once."""
        values = " and ".join(f"{spelled(self._name(start))} {place_of(start)}" for start in starts[:2])
        problem = InputError(
            f"{spelled(self._name(node))} {place_of(node)} depends on several values: {values}; compare a value with "
            "constants, and choose between functions of it, or use torch.maximum or torch.minimum"
        )
        if str(problem) not in map(str, self.problems):
            self.problems.append(problem)

    def _give_codes(self, operands: list[fx.Node]) -> list[fx.Node]:
        """Plan a quantizer behind each value that the operands consist of; return these values."""
        sources = [source for operand in operands for source in self._sources(operand)]
        # What a recurrent layer returns are codes already, in the format of its state, as is what has a quantizer.
        reached = [source for source in sources if self._name(source) not in CODES]
        for source in reached:
            self.groups.setdefault(source, source)
        return reached

    def _starts(self, operands: list[fx.Node]) -> list[fx.Node]:
        """Return the values of which operands are elementwise functions, back to quantizers and other operations."""
        starts, seen, waiting = [], set(operands), list(operands)
        while waiting:
            node = waiting.pop()
            name = self._name(node)
            elementwise = name in JOINS or name in CASTS or name in ELEMENTWISE - ENDS
            if node in self.groups or not elementwise:
                starts.append(node)
                continue
            read = node.all_input_nodes[: 1 if name in CONVERTED else None]
            before = {operand for operand in read if operand in self._values} - seen
            seen |= before
            waiting += before
        return starts

    def _count_of_sums(self, node: fx.Node) -> float:
        """Return about how many different sums a linear layer has, over all outputs; 0 for other operations."""
        if self._name(node) not in WEIGHTED or node in self._mixing.products:
            return 0.0
        if node in self._weights:
            weights, axis = self._weights[node]
            tensor = self._constants[weights]
        else:
            layer = self._modules[str(node.target)]
            tensor, axis = layer.weight, _output_axis(layer)  # type: ignore[assignment]
        values = tensor.detach().abs().double()
        rows = values.reshape(1, -1) if axis is None else values.movedim(axis, 0).reshape(values.shape[axis], -1)
        # Weights in units of the largest one, whose code is the greatest: their sum counts greatest codes.
        largest = (rows.sum(dim=1) / rows.amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny)).max()
        return float(largest) * len(rows) * 2 ** (self._weight_bits - 1 + self._code_bits)

    def _find_weights(self, node: fx.Node) -> None:
        """Note the weights of a function, which are a parameter or computed from parameters; else a problem."""
        weights, axis = weights_of(node, self._values)
        place = f"{self._name(node)} {place_of(node)}"
        tensors = [operand for operand in node.all_input_nodes if operand not in self._values]
        if isinstance(weights, fx.Node) and weights not in self._values:
            self._weights[node] = weights, axis
        elif weights in self._values and tensors:
            self.problems.append(
                InputError(f"{place} has its constant on the left; use x @ weight, with the constant on the right")
            )
        elif weights in self._values:
            self.problems.append(
                InputError(f"{place} multiplies two computed values; weights must be parameters of the model")
            )
        else:
            self.problems.append(
                InputError(
                    f"{place} needs one computed value and one constant tensor of weights, as in x @ weight or "
                    f"torch.einsum('bri,io->bro', x, weight)"
                )
            )

    def _name(self, node: fx.Node) -> str:
        return operation(node, self._modules)

    def _sources(self, node: fx.Node) -> list[fx.Node]:
        """Return the values whose elements a node only moves or concatenates; the node itself if it computes."""
        if self._name(node) in CONCATS or (self._name(node) in MOVES and node.op != "placeholder"):
            before = self._operands(node)
            # A move may read sizes of another value, as view_as does; its elements come from the first operand.
            before = before if self._name(node) in CONCATS else before[:1]
            return [source for operand in before for source in self._sources(operand)]
        return [node]

    def _share(self, nodes: list[fx.Node]) -> None:
        """Let nodes, and all nodes that share a scale with one of them, share one scale."""
        leaders = {self.groups[node] for node in nodes}
        first = self.groups[nodes[0]]
        for node, leader in self.groups.items():
            if leader in leaders:
                self.groups[node] = first

    def observe(self, batches: list[Tensor]) -> None:
        """Run all data through the model; observe values that get quantizers: first their range, then a histogram."""
        self._observed = {leader: Observed() for leader in self.groups.values()}
        self._least = dict.fromkeys(self._observed, float("inf"))
        for counting in (False, True):
            watch = {node: self._observer(leader, counting) for node, leader in self.groups.items()}
            with torch.no_grad():
                for batch in batches:
                    _Watching(self._graph_module, watch).run(batch.clone())
        # Written this way round, the comparison finds NaN, too.
        bad = [node.name for node, seen in self._observed.items() if not seen.peak < float("inf")]
        bad += [node.name for node, value in self._constants.items() if not bool(torch.isfinite(value).all())]
        if bad:
            raise InputError(f"calibration data gives NaN or infinity at {', '.join(bad[:3])}; check data and weights")

    def _observer(self, leader: fx.Node, counting: bool) -> Any:
        seen = self._observed[leader]

        def show(value: Tensor) -> None:
            self._least[leader] = min(self._least[leader], float(value.amin()))
            # A peak of NaN or infinity has no histogram; `observe` reports it.
            (seen.count if counting and seen.peak < float("inf") else seen.find_peak)(value)

        return show

    def insert(self, act_bits: LayerBits, input_bits: int) -> None:
        """Insert a quantizer behind each planned value, in front of all its readers.

        Parameters
        ----------
        act_bits, input_bits: bits of the codes of activations, and of the model's input.
        """
        # Found in the graph as it was traced; behind this, quantizers and integer forms stand in between.
        for node in [*self._mixing.inner, *self._mixing.norms]:
            self._mixed[node] = self._sources(self._mixing.operand(node))[0]
        signed = dict.fromkeys(self.groups.values(), False)
        given = self._given()
        nonnegative = self._nonnegative(given)
        inputs = {leader for node, leader in self.groups.items() if node in given}
        for node, leader in self.groups.items():
            signed[leader] |= node not in nonnegative
        for node, leader in self.groups.items():
            # Each node gets a quantizer of its own; those of a group are equal, as they have the same observations.
            own = act_bits.of(layer_of(leader))
            bits = input_bits if leader in inputs else own
            whole = any(self.groups.get(read) is leader for read in self._mixing.read_whole)
            quantizer = activation_quantizer(self._observed[leader], bits, signed[leader], whole)
            self._inserted[node] = quantizer
            if node in self._mixing.inner:
                self._shares[node] = self._mixing.share_format(own, self._observed[leader].peak)
                if list(self.groups.values()).count(leader) == 1:
                    self._inserted[node] = self._shares[node]
                    continue  # its shares are codes
            name = self._add(f"{node.name}_quant", quantizer)
            with self._graph.inserting_after(node):
                quantized = self._graph.call_module(name, (node,))
            # All readers get the quantizer, except the quantizer itself.
            node.replace_all_uses_with(quantized, delete_user_cb=functools.partial(operator.is_not, quantized))

    def _add(self, name: str, module: nn.Module) -> str:
        """Add a module; return its name, which no attribute of the model has."""
        while hasattr(self._graph_module, name):
            name += "_"
        self._graph_module.add_module(name, module)
        return name

    def _given(self) -> set[fx.Node]:
        """Return the model's input, and functions of it without layers, such as a batch norm."""
        found, reads_codes = set[fx.Node](), WEIGHTED | PRODUCTS | NORMS | AVERAGES
        for node in self._graph.nodes:
            operands = self._operands(node)
            follows = operands and found.issuperset(operands) and self._name(node) not in reads_codes | CODES
            if node.op == "placeholder" or follows:
                found.add(node)
        return found

    def _nonnegative(self, given: set[fx.Node]) -> set[fx.Node]:
        """Return the values that are never below zero: known from their operation, at the input from the data.

        Parameters
        ----------
        given: see `_given`.
        """
        found = set[fx.Node]()
        for node in self._graph.nodes:
            if node in given or node not in self._values:
                is_found = node in self.groups and self._least[self.groups[node]] >= 0
            else:
                is_found = self._never_falls_below(node, found)
            if is_found:
                found.add(node)
        return found

    def _never_falls_below(self, node: fx.Node, nonnegative: set[fx.Node]) -> bool:
        """Return whether a value that layers take part in is never below zero.

        Parameters
        ----------
        nonnegative: values in front of it that are never below zero.
        """
        name, operands = self._name(node), self._operands(node)
        if name in NONNEGATIVE:
            return True
        # A sum or a product with a constant has one operand here, and the constant may be negative.
        if name in ("hardtanh", "clamp", "clamp_min", "clip"):
            return self._lower_bound(node) >= 0
        if name in AVERAGES or name in MOVES or name in CONCATS or (name in ("add", "mul") and len(operands) > 1):
            return nonnegative.issuperset(operands)
        return False

    def _operands(self, node: fx.Node) -> list[fx.Node]:
        """Return the values that a node reads, without constants."""
        return [operand for operand in node.all_input_nodes if operand in self._values]

    def _lower_bound(self, node: fx.Node) -> float:
        module = self._modules.get(str(node.target)) if node.op == "call_module" else None
        given = getattr(module, "min_val", None) if module else node.kwargs.get("min", node.kwargs.get("min_val"))
        if given is None and module is None and len(node.args) > 1:
            given = node.args[1]
        return float(given) if isinstance(given, int | float) else -1.0

    def replace_mixing(self) -> None:
        """Replace softmaxes and normalizations by integer ones, which know the quantizers of what they read."""
        for node, source in self._mixed.items():
            self._mixing.replace(node, self._inserted[source], self._shares.get(node))

    def added(self) -> list[fx.Node]:
        """Return the layers whose weights have no quantizer yet, and the values that get one."""
        layers = [node for node, (weights, _) in self._weights.items() if self._name(weights) not in CODES]
        return [*layers, *self.groups]

    @property
    def weighted(self) -> list[str]:
        """Names of the layers that have weights without a quantizer of their own."""
        nodes = [node for node in self._graph.nodes if node in self._values - self._mixing.products]
        own = {node for node, (weights, _) in self._weights.items() if self._name(weights) in CODES}
        found = (node for node in nodes if self._name(node) in WEIGHTED | RECURRENT and node not in own)
        return list(dict.fromkeys(map(layer_of, found)))

    @property
    def coded(self) -> list[str]:
        """Names of the layers whose results have got quantizers."""
        return list(dict.fromkeys(map(layer_of, self.groups)))

    @property
    def layers(self) -> int:
        """Number of layers that have quantized weights."""
        return sum(self._name(node) in WEIGHTED | RECURRENT for node in self._values - self._mixing.products)

    def replace_weights(self, bits: LayerBits) -> None:
        """Replace float layers by quantized ones, and insert quantizers behind weights that functions read."""
        for node in list(self._graph.nodes):
            if node not in self._values - self._mixing.products or self._name(node) not in WEIGHTED:
                continue
            if node.op == "call_module":
                layer = self._graph_module.get_submodule(str(node.target))
                if not isinstance(layer, QuantLayer):
                    own = bits.of(layer_of(node))
                    self._graph_module.set_submodule(str(node.target), _quantized_layer(layer, own))
            elif self._name(self._weights[node][0]) not in CODES:
                self._quantize_weights(node, bits.of(layer_of(node)))

    def replace_loops(self, weight_bits: LayerBits, act_bits: LayerBits, batches: list[Tensor]) -> None:
        """Replace recurrent layers by quantized ones, and run all data to observe formats without a fixed range."""
        paths = {str(node.target) for node in self._values if self._name(node) in RECURRENT}
        layers = [(path, self._graph_module.get_submodule(path)) for path in sorted(paths)]
        made = [
            quantized_recurrent(layer, weight_bits.of(path), act_bits.of(path))
            for path, layer in layers
            if isinstance(layer, nn.RNNBase)
        ]
        for path, layer in zip(sorted(paths), made, strict=True):
            self._graph_module.set_submodule(path, layer)
        self._graph_module.recompile()
        observe_formats(self._graph_module, made, batches)

    def _quantize_weights(self, node: fx.Node, bits: int) -> None:
        """Insert a quantizer between a function and its weights; functions with the same weights share it."""
        weights, axis = self._weights[node]
        if (weights, axis) not in self._quantized:
            tensor = self._constants[weights]
            quantizer = weight_quantizer(tensor, bits, PER_TENSOR if axis is None else axis % tensor.ndim)
            name = self._add(f"{weights.name}_quant", quantizer)
            with self._graph.inserting_after(weights):
                self._quantized[weights, axis] = self._graph.call_module(name, (weights,))
        node.replace_input_with(weights, self._quantized[weights, axis])


_QUANTIZED: Mapping[type[nn.Module], Any] = {
    nn.Conv1d: QuantConv1d,
    nn.Conv2d: QuantConv2d,
    nn.ConvTranspose1d: QuantConvTranspose1d,
    nn.ConvTranspose2d: QuantConvTranspose2d,
}


def _output_axis(layer: nn.Module) -> int:
    """Return the axis of a layer's weights along which its outputs differ."""
    return int(isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d))


def _quantized_layer(layer: nn.Module, bits: int) -> nn.Module:
    """Return the quantized layer with the parameters of a float one."""
    made: nn.Module
    transposed = isinstance(layer, nn.ConvTranspose1d | nn.ConvTranspose2d)
    quantizer = weight_quantizer(layer.weight, bits, _output_axis(layer))  # type: ignore[arg-type]
    if isinstance(layer, nn.Linear):
        made = QuantLinear(layer.in_features, layer.out_features, bias=False, weight_quant=quantizer, device="meta")
    else:
        names = ("stride", "padding", "dilation", "groups", *(["output_padding"] if transposed else []))
        sizes = {key: getattr(layer, key) for key in names}
        options = {**sizes, "bias": False, "weight_quant": quantizer, "device": "meta"}
        made = _QUANTIZED[type(layer)](layer.in_channels, layer.out_channels, layer.kernel_size, **options)
    weight = layer.weight  # no parameter behind torch.nn.utils.weight_norm, whose hook computes it
    made.weight = weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight.detach())  # type: ignore[operator]
    made.bias = layer.bias
    return made.eval()
