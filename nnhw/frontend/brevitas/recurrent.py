"""Recurrent layers of Brevitas: their quantizers as modules that are called, and their steps as one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from brevitas.nn.mixin.base import QuantRecurrentLayerMixin
from brevitas.nn.quant_rnn import GateParams, QuantRecurrentStackBase, _QuantLSTMLayer, _QuantRNNLayer
from brevitas.proxy.quant_proxy import QuantProxyFromInjector
from brevitas.quant_tensor import IntQuantTensor
from torch import Tensor, nn
from torch.nn import functional

from nnhw.nn.recurrent import States, loop

from .coding import Coding, kernel_of
from .handlers import QuantizeCall
from .values import plain_result

_ARGUMENTS = {
    "output_quant": "io_quant",
    "cell_state_quant": "cell_state_quant",
    "input_sigmoid_quant": "sigmoid_quant",
    "forget_sigmoid_quant": "sigmoid_quant",
    "output_sigmoid_quant": "sigmoid_quant",
    "cell_tanh_quant": "tanh_quant",
    "hidden_state_tanh_quant": "tanh_quant",
}
"""The quantizers of a cell that make codes of what it keeps or multiplies --> the argument that each was made by."""
_SUMS = ("gate_acc_quant", "input_acc_quant", "forget_acc_quant", "cell_acc_quant", "output_acc_quant")

Quantizing = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, States], States]


class _CalledProxy(nn.Module):
    """A quantizer in a cell, called as a module.

    Brevitas's cells reach around their quantizers for speed, so that no hook sees the calls.
    """

    def __init__(self, proxy: QuantProxyFromInjector) -> None:
        super().__init__()
        self.proxy = proxy

    @property
    def tensor_quant(self) -> nn.Module:
        """The arithmetic, which a cell with coupled gates calls for the code of 1."""
        kernel = kernel_of(self.proxy)
        assert kernel is not None
        return kernel

    def forward(self, x: Tensor) -> tuple[Tensor | None, ...]:
        """Quantize a tensor: its value, scale, zero point and bit width, as cells take it."""
        made = self.proxy(x)
        if isinstance(made, IntQuantTensor):
            return made.value, made.scale, made.zero_point, made.bit_width
        return plain_result(made), None, None, None


def call_quantizers(model: nn.Module) -> None:
    """Let the cells of a model call their quantizers as modules, so that hooks see each step; numbers stay the same."""
    for layer in model.modules():
        if isinstance(layer, QuantRecurrentLayerMixin):
            layer._fast_cell = None
            layer._wrap_act_proxy = lambda name, cell=layer.cell: _CalledProxy(getattr(cell, name))


def with_loops(model: nn.Module, codings: Mapping[QuantProxyFromInjector, Coding]) -> None:
    """Put loops in the places of a model's recurrent layers.

    Parameters
    ----------
    codings: how each of their quantizers quantizes.
    """
    for stack in [module for module in model.modules() if isinstance(module, QuantRecurrentStackBase)]:
        for directions in stack.layers:
            for direction, layer in enumerate(directions):
                directions[direction] = _LOOPS[type(layer)](layer, codings)


def absent_quantizers(layer: QuantRecurrentLayerMixin) -> Iterator[str]:
    """Yield the arguments of a recurrent layer by which it would have the quantizers that it lacks."""
    for name, argument in _ARGUMENTS.items():
        proxy = getattr(layer.cell, name, None)
        if proxy is not None and kernel_of(proxy) is None:
            yield argument
    if any(kernel_of(gate.input_weight.weight_quant) is None for gate in layer.children() if _is_gate(gate)):
        yield "weight_quant"


def _is_gate(module: nn.Module) -> bool:
    return isinstance(module, GateParams)


class _Gate(nn.Module):
    """The matrices and the bias of one sum, which have the numbers that Brevitas made of them.

    Parameters
    ----------
    quantize_sum: of the sum; None for a sum that no quantizer rounds.
    """

    def __init__(self, params: GateParams, coding: Coding, quantize_sum: QuantizeCall | None) -> None:
        super().__init__()
        self.input_weight, self.hidden_weight = (
            nn.Parameter(weight.weight.detach(), requires_grad=False)
            for weight in (params.input_weight, params.hidden_weight)
        )
        bias = None if params.bias is None else params.bias.detach().clone()
        self.register_buffer("bias", bias)
        self.weight_quant = QuantizeCall(coding)
        self.sum_quant = quantize_sum

    def matrix(self) -> Tensor:
        """Return the codes' values [units, inputs + units]: one matrix, for the codes of both have one scale."""
        return torch.cat([self.weight_quant(self.input_weight), self.weight_quant(self.hidden_weight)], dim=1)

    def total(self, product: Tensor) -> Tensor:
        """Return the sum of a step by the product of input and state with the matrix."""
        total = product if self.bias is None else product + self.bias
        return total if self.sum_quant is None else self.sum_quant(total)


class _Loop(nn.Module):
    """One direction of one layer: what the classes of Brevitas compute, as a loop.

    Parameters
    ----------
    layer: as it was called; its parameters are the numbers that Brevitas made of them.
    gates: the names of its sums: those of its parameters, and those of the quantizers of its cell.
    """

    def __init__(
        self,
        layer: QuantRecurrentLayerMixin,
        codings: Mapping[QuantProxyFromInjector, Coding],
        gates: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.batch_first, self.reverse = layer.cell.batch_first, layer.reverse_input
        self.hidden_size = layer.hidden_size
        self.input_quant = None if layer.quantize_output_only else QuantizeCall(codings[layer.io_quant])
        for name in _ARGUMENTS:
            proxy = getattr(layer.cell, name, None)
            if proxy is not None:
                setattr(self, name, QuantizeCall(codings[proxy]))
        self.gates = nn.ModuleList()
        for params, of_sum in gates.items():
            gate, proxy = getattr(layer, params), getattr(layer.cell, of_sum)
            rounded = None if kernel_of(proxy) is None else QuantizeCall(codings[proxy])
            self.gates.append(_Gate(gate, codings[gate.input_weight.weight_quant], rounded))

    def _run(self, inputs: Any, starts: Sequence[tuple[Any, Quantizing]]) -> tuple[Tensor, list[Tensor]]:
        """Run all steps.

        Parameters
        ----------
        starts: what each state begins as, None for zeros, with its quantizer.

        Returns
        -------
        The first state behind each step, in the order of the input, and the last states [1, N, units].
        """
        x = plain_result(inputs)
        x = x if self.input_quant is None else self.input_quant(x)
        matrices = [gate.matrix() for gate in self.gates]  # type: ignore[operator]
        sequence = x.transpose(0, 1) if self.batch_first else x
        zeros = sequence.shape[1], self.hidden_size
        states = tuple(
            sequence.new_zeros(zeros) if start is None else quantize(plain_result(start)) for start, quantize in starts
        )
        sequence = sequence.flip(0) if self.reverse else sequence
        last, output = loop(self._step(matrices), sequence, states)
        output = output.flip(0) if self.reverse else output
        return output.transpose(0, 1) if self.batch_first else output, [state.unsqueeze(0) for state in last]

    def _step(self, matrices: Sequence[Tensor]) -> Step:
        """Return what a step computes.

        Parameters
        ----------
        matrices: of its sums.
        """
        raise NotImplementedError


class _RNNLoop(_Loop):
    """h = io_quant(tanh(gate_acc_quant(W x + U h + b))), or relu."""

    def __init__(self, layer: _QuantRNNLayer, codings: Mapping[QuantProxyFromInjector, Coding]) -> None:
        super().__init__(layer, codings, {"gate_params": "gate_acc_quant"})
        self.function = torch.relu if isinstance(layer.cell.act_fn, nn.ReLU) else torch.tanh

    def forward(self, inputs: Any, start: Any) -> tuple[Tensor, Tensor]:
        """Return the states behind all steps, and the last one."""
        output, (last,) = self._run(inputs, [(start, self.output_quant)])
        return output, last

    def _step(self, matrices: Sequence[Tensor]) -> Step:
        (gate,), (matrix,) = self.gates, matrices

        def step(x: Tensor, states: States) -> States:
            product = functional.linear(torch.cat([x, states[0]], dim=1), matrix)
            return (self.output_quant(self.function(gate.total(product))),)

        return step


class _LSTMLoop(_Loop):
    """A cell whose products and sum are rounded one by one.

        i, f, o = sigmoid_quant(sigmoid(gate_acc_quant(W x + U h + b)))
        g = tanh_quant(tanh(gate_acc_quant(W x + U h + b)))
        c = cell_state_quant(cell_state_quant(f * c) + cell_state_quant(i * g))
        h = io_quant(o * tanh_quant(tanh(c)))

    With coupled gates f is the code of 1 less i.
    """

    def __init__(self, layer: _QuantLSTMLayer, codings: Mapping[QuantProxyFromInjector, Coding]) -> None:
        names = ["input", "cell", "output", *([] if layer.cifg else ["forget"])]
        super().__init__(layer, codings, {f"{name}_gate_params": f"{name}_acc_quant" for name in names})
        self.coupled = layer.cifg

    def forward(self, inputs: Any, start: Any, cell_start: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states h behind all steps, and the last h and c."""
        output, (h, c) = self._run(inputs, [(start, self.output_quant), (cell_start, self.cell_state_quant)])
        return output, h, c

    def _step(self, matrices: Sequence[Tensor]) -> Step:
        gates, matrix, units = list(self.gates), torch.cat(list(matrices)), self.hidden_size

        def step(x: Tensor, states: States) -> States:
            h, c = states
            products = functional.linear(torch.cat([x, h], dim=1), matrix)
            totals = [gate.total(products[:, n * units : (n + 1) * units]) for n, gate in enumerate(gates)]
            i = self.input_sigmoid_quant(torch.sigmoid(totals[0]))
            if self.coupled:
                f = self.input_sigmoid_quant(torch.ones_like(i)) - i
            else:
                f = self.forget_sigmoid_quant(torch.sigmoid(totals[3]))
            g = self.cell_tanh_quant(torch.tanh(totals[1]))
            o = self.output_sigmoid_quant(torch.sigmoid(totals[2]))
            kept = self.cell_state_quant(f * c)
            added = self.cell_state_quant(i * g)
            c = self.cell_state_quant(kept + added)
            return self.output_quant(o * self.hidden_state_tanh_quant(torch.tanh(c))), c

        return step


_LOOPS: dict[type[nn.Module], Callable[..., nn.Module]] = {_QuantRNNLayer: _RNNLoop, _QuantLSTMLayer: _LSTMLoop}
