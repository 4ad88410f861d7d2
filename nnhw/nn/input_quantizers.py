"""Quantizers for the input of a model that has its own ones everywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, fx, nn

from nnhw.errors import InputError

from .calibration import Observed, activation_quantizer, run_with
from .frames import module_path
from .given import copied
from .kinds import AVERAGES, CONCATS, MOVES, NORMS, PRODUCTS, RECURRENT, WEIGHTED, operation
from .linear import QuantLayer
from .quantizers import Quantizer

_READS_CODES = WEIGHTED | PRODUCTS | NORMS | AVERAGES | RECURRENT
_QUANTIZE, _QUANT_LAYER = "quantize", "linear"
_MAKES_CODES = frozenset({_QUANTIZE, "rescale"})


@runtime_checkable
class OfFile(Protocol):
    """A model of a file, into which quantizers are put, so that its own framework evaluates them with the others."""

    def with_quantizers(self, quantizers: Mapping[str, Quantizer]) -> nn.Module:
        """Return the model with quantizers behind its layers; '' is its input. The model itself is not changed."""


def float_inputs(graph_module: fx.GraphModule) -> list[fx.Node]:
    """Return the values that layers read as floats: the input, or functions of it without a quantizer or a layer.

        x - mean --> conv2d, quantizer, linear      returns [x - mean]

    Parameters
    ----------
    graph_module: a traced model whose quantizers are calls of `nnhw.quantize`.
    """
    modules = dict(graph_module.named_modules())
    depends, given, found = set[fx.Node](), set[fx.Node](), dict[fx.Node, None]()
    for node in graph_module.graph.nodes:
        operands = [operand for operand in node.all_input_nodes if operand in depends]
        name = _name(node, modules)
        if node.op == "placeholder" or operands:
            depends.add(node)
        if name in _READS_CODES:
            found |= {source: None for operand in operands if operand in given for source in _sources(operand, modules)}
        elif node.op == "placeholder" or (operands and given.issuperset(operands) and name not in _MAKES_CODES):
            given.add(node)
    return list(found)


def own_quantizers(graph_module: fx.GraphModule) -> list[str]:
    """Return the names of the quantizers of a traced model."""
    modules = dict(graph_module.named_modules())
    found = [node for node in graph_module.graph.nodes if _name(node, modules) == _QUANTIZE]
    return [str(node.target) if node.op == "call_module" else module_path(node) or node.name for node in found]


def _name(node: fx.Node, modules: Mapping[str, nn.Module]) -> str:
    """Return the name of an operation; where a quantizer or a quantized layer is one, what that does."""
    module = modules.get(str(node.target)) if node.op == "call_module" else None
    if isinstance(module, Quantizer):
        return _QUANTIZE
    return _QUANT_LAYER if isinstance(module, QuantLayer) else operation(node, modules)


def _sources(node: fx.Node, modules: Mapping[str, nn.Module]) -> Iterator[fx.Node]:
    """Yield the values whose elements a value consists of."""
    name = operation(node, modules)
    if node.op == "placeholder" or name not in MOVES | CONCATS:
        yield node
        return
    # What follows the first operand of a move are sizes, perhaps of another value.
    for operand in node.all_input_nodes[: None if name in CONCATS else 1]:
        yield from _sources(operand, modules)


def input_quantizers(
    graph_module: fx.GraphModule, nodes: list[fx.Node], batches: list[Tensor], bits: int
) -> dict[fx.Node, Quantizer]:
    """Return a quantizer for each value, with the best scale for calibration data; unsigned if it is never negative.

    Raises
    ------
    InputError: the data does not go through the model, or makes NaN or infinity.
    """
    observed, least = {node: Observed() for node in nodes}, dict.fromkeys(nodes, float("inf"))
    for batch in batches:
        for node, value in _values(graph_module, nodes, batch).items():
            observed[node].find_peak(value)
            least[node] = min(least[node], float(value.amin()))
    # Written this way round, the comparison finds NaN, too.
    if bad := [node.name for node in nodes if not observed[node].peak < float("inf")]:
        raise InputError(f"calibration data gives NaN or infinity at {', '.join(bad[:3])}; check data and weights")
    for batch in batches:
        for node, value in _values(graph_module, nodes, batch).items():
            observed[node].count(value)
    return {node: activation_quantizer(observed[node], bits, signed=least[node] < 0) for node in nodes}


def reads_input_of_brevitas(model: nn.Module, batch: Tensor) -> bool:
    """Return whether a layer of Brevitas without an input quantizer reads the model's input, as it is or reshaped.

    Brevitas is not imported, and its models cannot be traced here: the layers are watched while the model runs.
    """
    found: list[bool] = []
    images = batch.clone()
    place = images.untyped_storage().data_ptr()

    def look(module: nn.Module, given: tuple[Any, ...]) -> None:
        x = given[0] if given else None
        if isinstance(x, Tensor) and x.untyped_storage().data_ptr() == place:
            found.append(not bool(module.input_quant.is_quant_enabled))  # type: ignore[union-attr]

    own = copied(model)
    for module in own.modules():
        if hasattr(module, "input_quant") and hasattr(module, "weight_quant"):
            module.register_forward_pre_hook(look)
    with torch.no_grad():
        own(images)
    return any(found)


def in_front_of(model: nn.Module, batches: list[Tensor], bits: int) -> tuple[nn.Module, Quantizer]:
    """Return a copy of a model behind a quantizer of its input, with the best scale for calibration data; and that."""
    observed = Observed()
    for batch in batches:
        observed.find_peak(batch)
    for batch in batches:
        observed.count(batch)
    quantizer = activation_quantizer(observed, bits, signed=any(float(batch.amin()) < 0 for batch in batches))
    return nn.Sequential(quantizer, copied(model)).eval(), quantizer


def _values(graph_module: fx.GraphModule, nodes: list[fx.Node], batch: Tensor) -> dict[fx.Node, Tensor]:
    """Return the values of some nodes for a batch."""
    interpreter = fx.Interpreter(graph_module, garbage_collect_values=False)
    run_with(interpreter, batch)
    return {node: interpreter.env[node] for node in nodes}


def inserted(graph_module: fx.GraphModule, quantizers: Mapping[fx.Node, Quantizer]) -> fx.GraphModule:
    """Insert quantizers behind values, in front of all their readers; return the graph module."""
    for node, quantizer in quantizers.items():
        name = f"{node.name}_quant"
        while hasattr(graph_module, name):
            name += "_"
        graph_module.add_module(name, quantizer)
        with graph_module.graph.inserting_after(node):
            made = graph_module.graph.call_module(name, (node,))
        node.replace_all_uses_with(made, delete_user_cb=lambda user, own=made: user is not own)  # type: ignore[misc]
    graph_module.graph.lint()
    graph_module.recompile()
    return graph_module


def layer_of(node: fx.Node) -> str:
    """Return the name of the layer of the model that makes a value; '' for the model's input."""
    path = str(node.target) if node.op == "call_module" else module_path(node)
    return "" if node.op == "placeholder" else path.partition(".")[0]


def described(quantizers: Mapping[str, Quantizer]) -> str:
    """Return a sentence that names quantizers and their places, which are layers, or '' for the input."""
    parts = [
        f"{_format(quantizer)} {f'behind {layer!r}' if layer else 'at the input'}"
        for layer, quantizer in quantizers.items()
    ]
    return f"the model's own quantizers stay as they are; added: {', '.join(parts)}"


def _format(quantizer: Quantizer) -> str:
    scale: Any = quantizer.scale
    return f"codes {quantizer.qmin}..{quantizer.qmax} with the scale {float(scale):.6g}"
