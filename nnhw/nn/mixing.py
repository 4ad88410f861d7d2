"""Softmaxes and normalizations inside of a traced float model, and their replacement by integer ones."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from nnhw.errors import InputError

from .attention import ShareSoftmax
from .frames import place_of
from .integers import MOST_FRACTION_BITS
from .normalization import QuantLayerNorm, QuantRMSNorm, QuantSoftmax, rms_eps
from .quantizers import Quantizer, UInt

_REPEATS = frozenset({"expand", "repeat", "expand_as"})
"""Operations with which a model repeats a constant for each image of a batch."""


class Mixing:
    """The operations of a model that mix elements between two quantizers.

    Members
    -------
    inner: softmaxes whose results are read as codes, in order.
    norms: normalizations over features.
    products: products of two computed values.
    read_whole: values that a softmax reads, whose quantizers must not clip.
    """

    def __init__(self, graph_module: fx.GraphModule, modules: Mapping[str, nn.Module]) -> None:
        self._graph_module, self._graph, self._modules = graph_module, graph_module.graph, modules
        self.inner: dict[fx.Node, None] = {}
        self.norms: list[fx.Node] = []
        self.products: set[fx.Node] = set()
        self.read_whole: list[fx.Node] = []
        self._shapes: dict[fx.Node, torch.Size] = {}
        self._masks: dict[fx.Node, Tensor] = {}

    def watched(self) -> dict[fx.Node, Callable[[Any], None]]:
        """Return functions to call with nodes' values when the model runs: they note shapes of softmaxes, and masks."""
        watch: dict[fx.Node, Callable[[Any], None]] = {}
        for node in self._graph.nodes:
            if node.op == "call_module" and isinstance(self._modules.get(str(node.target)), ShareSoftmax):
                watch[node] = functools.partial(self._note_shape, node)
                mask = node.args[1] if len(node.args) > 1 else None
                if isinstance(mask, fx.Node):
                    watch[mask] = functools.partial(self._masks.__setitem__, mask)
        return watch

    def _note_shape(self, node: fx.Node, value: Tensor) -> None:
        self._shapes[node] = value.shape

    @staticmethod
    def reads_two(node: fx.Node, values: set[fx.Node]) -> bool:
        """Return whether a node reads two computed values, which may be one and the same."""
        # `all_input_nodes` names a node once that is read twice, as in x @ x.
        read: list[fx.Node] = []
        fx.node.map_arg((node.args, node.kwargs), read.append)
        return sum(operand in values for operand in read) == 2 == len(read)

    @staticmethod
    def share_format(bits: int, peak: float) -> Quantizer:
        """Return the format of a softmax's results: the finest steps that do not clip the greatest observed one."""
        fraction_bits = bits
        # One bit more as long as the greatest share still rounds to the highest code or less.
        while fraction_bits < MOST_FRACTION_BITS and peak * 2 ** (fraction_bits + 1) < (1 << bits) - 0.5:
            fraction_bits += 1
        return UInt(bits, scale=2.0**-fraction_bits)

    @staticmethod
    def operand(node: fx.Node) -> fx.Node:
        """Return the value that a softmax or a normalization reads."""
        found: Any = node.args[0] if node.args else node.kwargs["input"]
        assert isinstance(found, fx.Node)
        return found

    def replace(self, node: fx.Node, quantizer: Quantizer, shares: Quantizer | None) -> None:
        """Replace a softmax or a normalization by its integer form.

        Parameters
        ----------
        quantizer: quantizer of the value that it reads.
        shares: format of a softmax's results; None for a normalization.
        """
        # A copy: a model whose modules share one would have it under two names.
        own = copy.deepcopy(quantizer)
        if shares is not None:
            self._replace_softmax(node, own, shares)
        else:
            self._replace_norm(node, own)

    def _replace_softmax(self, node: fx.Node, quantizer: Quantizer, shares: Quantizer) -> None:
        module = self._modules.get(str(node.target)) if node.op == "call_module" else None
        keep = None
        if isinstance(module, ShareSoftmax):
            mask = node.args[1] if len(node.args) > 1 else None
            keep = module.keep(self._shapes[node], self._masks[mask] if isinstance(mask, fx.Node) else None)
            dim: Any = -1
        else:
            dim = module.dim if module is not None else node.kwargs.get("dim", node.args[1] if node.args[1:] else None)
        if not isinstance(dim, int):
            raise InputError(f"softmax {place_of(node)} has dim={dim}; say the axis, such as dim=-1")
        # Its first axis is that of the batch: the mask is the same for all images.
        if keep is not None and keep.dim() > 3 and keep.shape[0] == 1:
            keep = keep[0]
        assert shares.scale is not None
        bits, fraction_bits = shares.qmax.bit_length(), -int(torch.log2(shares.scale))
        made = QuantSoftmax(dim, bits=bits, fraction_bits=fraction_bits, input_quant=quantizer, keep=keep)
        self._put(node, made, [node.args[0] if node.args else node.kwargs["input"]])

    def _replace_norm(self, node: fx.Node, quantizer: Quantizer) -> None:
        if node.op == "call_module":
            layer = self._modules[str(node.target)]
            assert isinstance(layer, nn.LayerNorm | nn.RMSNorm)
            self._put(node, quantized_norm(layer, quantizer), [node.args[0] if node.args else node.kwargs["input"]])
            return
        # As a function it has no module that could hold weight and bias: they follow it as a product and a sum.
        rms = "rms_norm" in str(node.target) or "rms_norm" in getattr(node.target, "__name__", "")
        names = ["input", "normalized_shape", "weight", *([] if rms else ["bias"]), "eps"]
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        options: dict[str, Any] = {"elementwise_affine": False}
        if given.get("eps") is not None:
            options["eps"] = given["eps"]
        kind = QuantRMSNorm if rms else QuantLayerNorm
        shape: Any = given["normalized_shape"]
        made = self._put(node, kind(list(shape), input_quant=quantizer, **options), [given["input"]])
        for function, name in ((operator.mul, "weight"), (operator.add, "bias")):
            factor = given.get(name)
            if factor is not None:
                with self._graph.inserting_after(made):
                    behind = self._graph.call_function(function, (made, factor))
                # All readers get the new node, except that node itself, which reads the old one.
                made.replace_all_uses_with(behind, delete_user_cb=functools.partial(operator.is_not, behind))
                made = behind

    def _put(self, node: fx.Node, module: nn.Module, inputs: list[Any]) -> fx.Node:
        """Replace a node by a call of a module; return the call."""
        name = f"{node.name}_integer"
        while hasattr(self._graph_module, name):
            name += "_"
        self._graph_module.add_module(name, module.eval())
        with self._graph.inserting_after(node):
            made = self._graph.call_module(name, tuple(inputs))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        self._graph.erase_node(node)
        return made


def quantized_norm(layer: nn.LayerNorm | nn.RMSNorm, quantizer: Quantizer) -> nn.Module:
    """Return the integer form of a normalization, with its parameters."""
    options: dict[str, Any] = {"elementwise_affine": False, "input_quant": quantizer}
    made: QuantLayerNorm | QuantRMSNorm
    if isinstance(layer, nn.LayerNorm):
        made = QuantLayerNorm(list(layer.normalized_shape), eps=layer.eps, **options)
        made.weight, made.bias = layer.weight, layer.bias
    else:
        made = QuantRMSNorm(list(layer.normalized_shape), eps=rms_eps(layer), **options)
        made.weight = layer.weight
    return made


def root_of(constant: fx.Node) -> fx.Node:
    """Return the constant that is repeated for each image; the node itself if it is not repeated."""
    while constant.op in ("call_method", "call_function") and _plain_name(constant) in _REPEATS:
        source = constant.args[0]
        assert isinstance(source, fx.Node)
        constant = source
    return constant


def positional(tensor: Tensor) -> bool:
    """Return whether a constant differs along two axes or more, so that it is no constant per channel."""
    moves = [bool((tensor != tensor.narrow(axis, 0, 1)).any()) for axis in range(tensor.dim())]
    return sum(moves) > 1


def _plain_name(node: fx.Node) -> str:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.split(".")[0]
