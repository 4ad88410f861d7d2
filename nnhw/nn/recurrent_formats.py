"""Conversion of float recurrent layers to quantized ones, with number formats of given widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .quantizers import Int, Quantizer, UInt
from .recurrent import CELL_BITS, QuantGRU, QuantLSTM, QuantRNN

LEAST_BITS = 2
"""Least bits of weights and states in a loop; single bits do not keep a state."""


def quantized_recurrent(layer: nn.RNNBase, weight_bits: int, act_bits: int) -> nn.Module:
    """Return the quantized layer with the parameters of a float one, in eval mode.

    States, gates and tanh have `act_bits` over the range of their functions, an LSTM's cell has 16 bits. Formats of
    values without such a range are observed later: see `observe_formats`.

    Raises: InputError for an LSTM with a projection.
    """
    unit = 2.0 ** (1 - act_bits)
    formats: dict[str, Quantizer] = {
        "weight_quant": Int(weight_bits, axis=0),
        "candidate_quant": Int(weight_bits),
        "state_quant": Int(act_bits, unit),
        "gate_quant": UInt(act_bits, unit / 2),
        "tanh_quant": Int(act_bits, unit),
        "sum_quant": Int(act_bits, "observed"),
        "difference_quant": Quantizer(-(1 << act_bits), (1 << act_bits) - 1, unit),
        "cell_quant": Quantizer(-(1 << CELL_BITS - 1), (1 << CELL_BITS - 1) - 1, "observed"),
    }
    # Given on only to be refused: the layers have no projection, and say so.
    options: dict[str, Any] = {"proj_size": layer.proj_size} if layer.proj_size else {}
    if isinstance(layer, nn.RNN):
        options["nonlinearity"] = layer.nonlinearity
        if layer.nonlinearity == "relu":
            # A ReLU has no greatest value.
            formats["state_quant"] = UInt(act_bits, "observed")
    options |= {
        name: getattr(layer, name) for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional")
    }
    kind, needed = _KINDS[type(layer)]
    made: nn.Module = kind(
        layer.input_size, layer.hidden_size, device="meta", **options, **{name: formats[name] for name in needed}
    )
    for name, parameter in layer.named_parameters():
        setattr(made, name, parameter)
    return made.eval()


def observe_formats(model: nn.Module, layers: Sequence[nn.Module], batches: Sequence[Tensor]) -> None:
    """Run data through a model, so that observed formats of recurrent layers find their scales.

    Only these quantizers are in training mode meanwhile, as batch norms and dropout must not change.
    """
    observed = [
        module
        for layer in layers
        for module in layer.modules()
        if isinstance(module, Quantizer) and module.scale_source == "observed"
    ]
    if not observed:
        return
    # Quantizers observe in training mode alone.
    for module in observed:
        module.train()
    with torch.no_grad():
        for batch in batches:
            model(batch)
    for module in observed:
        module.eval()


_KINDS: dict[type[nn.Module], tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    nn.RNN: (QuantRNN, ("weight_quant", "state_quant")),
    nn.GRU: (
        QuantGRU,
        (
            *("weight_quant", "candidate_quant", "state_quant"),
            *("gate_quant", "sum_quant", "tanh_quant", "difference_quant"),
        ),
    ),
    nn.LSTM: (QuantLSTM, ("weight_quant", "state_quant", "cell_quant", "gate_quant", "tanh_quant")),
}
