"""PyTorch's attention, taken apart into layers, products and softmaxes that can be quantized, with equal results.

nn.TransformerEncoder  -->  nn.Linear, products of two values, ShareSoftmax, nn.LayerNorm, with the same parameters
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from nnhw.errors import InputError


class ShareSoftmax(nn.Module):
    """Softmax along the last axis, over the elements that a mask or causality keeps.

    Parameters
    ----------
    true_keeps: True in a mask of booleans keeps an element, as in scaled_dot_product_attention; otherwise it removes
        it.
    causal: row m keeps elements 0 to m only.
    """

    def __init__(self, true_keeps: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.true_keeps, self.causal = true_keeps, causal

    def forward(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """[N, .., queries, keys] --> the same shape."""
        keep = self.keep(scores.shape, mask)
        if keep is not None:
            scores = scores.masked_fill(~keep.to(scores.device), -torch.inf)
        return scores.softmax(-1)

    def keep(self, shape: torch.Size, mask: Tensor | None) -> Tensor | None:
        """Return booleans that are True for the elements that are kept; None if all are.

        Raises: InputError for a mask of other numbers than 0 and minus infinity.
        """
        kept = torch.ones(shape[-2:], dtype=torch.bool).tril() if self.causal else None
        if mask is None:
            return kept
        if mask.dtype == torch.bool:
            # torch has both: scaled_dot_product_attention keeps where a mask is True, MultiheadAttention where it is
            # False.
            own = mask if self.true_keeps else ~mask
        else:
            if not bool(((mask == 0) | (mask == -torch.inf)).all()):
                raise InputError(
                    "a mask of attention needs 0 and minus infinity, or booleans, got other numbers; what is added to "
                    "scores has no quantized form"
                )
            own = mask == 0
        return own if kept is None else own & kept.to(own.device)


class OpenAttention(nn.Module):
    """`nn.MultiheadAttention` as linear layers, two products and a softmax; attention weights are not returned.

    Parameters
    ----------
    source: the module whose parameters it takes.
    path: name of the module in the model, for messages.

    Raises: InputError for an option that has no quantized form.
    """

    def __init__(self, source: nn.MultiheadAttention, path: str) -> None:
        super().__init__()
        self._check(source, path)
        self.path, self.heads, self.head_size = path, source.num_heads, source.head_dim
        packed = source.in_proj_weight
        if packed is None:
            weights = [source.q_proj_weight, source.k_proj_weight, source.v_proj_weight]
        else:
            weights = list(packed.detach().chunk(3))
        bias = source.in_proj_bias
        biases = [None] * 3 if bias is None else list(bias.detach().chunk(3))
        self.query, self.key, self.value = map(_linear, weights, biases)
        self.out = _linear(source.out_proj.weight, source.out_proj.bias)
        self.softmax = ShareSoftmax()

    @staticmethod
    def _check(source: nn.MultiheadAttention, path: str) -> None:
        problem = (
            "has batch_first=False, and the batch is the first axis; make it with batch_first=True"
            if not source.batch_first
            else "has add_bias_kv or add_zero_attn, which have no quantized form; leave them out"
            if source.bias_k is not None or source.add_zero_attn
            else ""
        )
        if problem:
            raise InputError(f"layer '{path}' (MultiheadAttention) {problem}")

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        """[N, queries, features], [N, keys, ..] twice --> [N, queries, features], and no weights."""
        if key_padding_mask is not None:
            raise InputError(_padded(self.path, "key_padding_mask"))
        _check_hint(self.path, is_causal, attn_mask)
        split = [self._heads(layer(x)) for layer, x in ((self.query, query), (self.key, key), (self.value, value))]
        scores = torch.matmul(split[0], split[1].transpose(-2, -1)) * self.head_size**-0.5
        mixed = torch.matmul(self.softmax(scores, attn_mask), split[2])
        return self.out(mixed.transpose(1, 2).flatten(2)), None

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.heads, self.head_size)).transpose(1, 2)


class OpenEncoderLayer(nn.Module):
    """`nn.TransformerEncoderLayer` as it computes in eval mode; its attention has been replaced before."""

    def __init__(self, source: nn.TransformerEncoderLayer, path: str) -> None:
        super().__init__()
        self.path, self.norm_first = path, source.norm_first
        self.self_attn = source.self_attn
        self.linear1, self.linear2 = source.linear1, source.linear2
        self.norm1, self.norm2 = source.norm1, source.norm2
        self.activation = source.activation

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """[N, rows, features] --> the same shape."""
        if src_key_padding_mask is not None:
            raise InputError(_padded(self.path, "src_key_padding_mask"))
        _check_hint(self.path, is_causal, src_mask)
        if self.norm_first:
            x = src + self._attended(self.norm1(src), src_mask)
            return x + self._fed_forward(self.norm2(x))
        x = self.norm1(src + self._attended(src, src_mask))
        result: Tensor = self.norm2(x + self._fed_forward(x))
        return result

    def _attended(self, x: Tensor, mask: Tensor | None) -> Tensor:
        result: Tensor = self.self_attn(x, x, x, attn_mask=mask)[0]
        return result

    def _fed_forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.linear2(self.activation(self.linear1(x)))
        return result


class OpenEncoder(nn.Module):
    """`nn.TransformerEncoder` as it computes in eval mode; its layers have been replaced before."""

    def __init__(self, source: nn.TransformerEncoder, path: str) -> None:
        super().__init__()
        self.path, self.layers, self.norm = path, source.layers, source.norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """[N, rows, features] --> the same shape."""
        if src_key_padding_mask is not None:
            raise InputError(_padded(self.path, "src_key_padding_mask"))
        _check_hint(self.path, bool(is_causal), mask)
        for layer in self.layers:
            src = layer(src, src_mask=mask)
        return src if self.norm is None else self.norm(src)


_OPENED: dict[type[nn.Module], Callable[[Any, str], nn.Module]] = {
    nn.MultiheadAttention: OpenAttention,
    nn.TransformerEncoderLayer: OpenEncoderLayer,
    nn.TransformerEncoder: OpenEncoder,
}


def with_open_attention(model: nn.Module) -> nn.Module:
    """Replace PyTorch's modules of attention by equal ones that can be quantized; change the model, and return it.

    Raises: InputError for options that have no quantized form.
    """
    for path, module in reversed(list(model.named_modules())):  # inner ones first
        make = _OPENED.get(type(module))
        if make is None:
            continue
        opened = make(module, path).eval()
        if not path:
            return nn.Sequential(opened)  # a traced module itself would take a mask as a second input
        model.set_submodule(path, opened)
    return model


def open_products(graph_module: fx.GraphModule) -> None:
    """Replace each call of scaled_dot_product_attention by products and a softmax."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and _is_attention(node):
            _open_product(graph_module, node)
    graph_module.recompile()


def _is_attention(node: fx.Node) -> bool:
    return getattr(node.target, "__name__", "").split(".")[0] == "scaled_dot_product_attention"


def _open_product(graph_module: fx.GraphModule, node: fx.Node) -> None:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    # `dropout_p` is left out: nothing is dropped in a model that is run, and not trained.
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    if given.get("enable_gqa"):
        raise InputError(f"{node.name} has enable_gqa=True, which has no quantized form; repeat the heads' weights")
    name = f"{node.name}_softmax"
    while hasattr(graph_module, name):
        name += "_"
    graph_module.add_module(name, ShareSoftmax(true_keeps=True, causal=bool(given.get("is_causal", False))))
    graph = graph_module.graph
    with graph.inserting_before(node):
        turned = graph.call_method("transpose", (given["key"], -2, -1))
        scores = graph.call_function(torch.matmul, (given["query"], turned))
        scale = given.get("scale")
        if scale is None:
            size = graph.call_method("size", (given["query"], -1))
            scale = graph.call_function(pow, (size, -0.5))
        scaled = graph.call_function(torch.mul, (scores, scale))
        mask = given.get("attn_mask")
        shares = graph.call_module(name, (scaled,) if mask is None else (scaled, mask))
        mixed = graph.call_function(torch.matmul, (shares, given["value"]))
    for made in (turned, scores, scaled, shares, mixed):
        # Messages about the new nodes then name the user's line of the call.
        made.meta = dict(node.meta)
    node.replace_all_uses_with(mixed)
    graph.erase_node(node)


def _check_hint(path: str, is_causal: bool, mask: Tensor | None) -> None:
    """Raise InputError for `is_causal` without a mask: it only tells torch that the mask is the causal one."""
    # torch refuses it, too. Without this check, each row would silently read the rows behind it.
    if is_causal and mask is None:
        raise InputError(
            f"layer '{path}' is given is_causal=True without a mask; give the causal mask, such as that of "
            f"nn.Transformer.generate_square_subsequent_mask"
        )


def _padded(path: str, name: str) -> str:
    return (
        f"layer '{path}' is given {name}, which differs from image to image; quantize a model for sequences of one "
        f"length, or with a constant mask"
    )


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    # On 'meta' no start values are computed, which are replaced at once.
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer.eval()
