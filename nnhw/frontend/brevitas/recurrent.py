"""Recurrent layers of Brevitas: their quantizers as modules that are called, and their steps as one loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
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
from .values import PlainQuantTensor, plain_result

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
_GATES = ("input", "cell", "output", "forget")
"""The sums of an LSTM, in the order in which Brevitas quantizes their weights."""
_INPUT, _CELL, _OUTPUT, _FORGET = range(4)

Quantizing = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, States], States]


class CodeOfOne(nn.Module):
    """The code that a quantizer gives to 1, for which cells with coupled gates ask in each step, for each image."""

    def __init__(self, proxy: QuantProxyFromInjector) -> None:
        super().__init__()
        self.proxy = proxy

    def forward(self, ones: Tensor) -> IntQuantTensor:
        """Quantize ones [N, units], without the function in front of the quantizer: to [1, 1], which serves all."""
        kernel = kernel_of(self.proxy)
        assert kernel is not None
        # Without the activation function of the quantizer, as Brevitas's cell calls it.
        return IntQuantTensor(*kernel(ones[:1, :1]), self.proxy.is_signed, self.training)


class _CalledProxy(nn.Module):
    """A quantizer in a cell, called as a module.

    Brevitas's cells reach around their quantizers for speed, so that no hook sees the calls.
    """

    def __init__(self, proxy: QuantProxyFromInjector) -> None:
        super().__init__()
        self.proxy = proxy

        self.tensor_quant = CodeOfOne(proxy)

    def forward(self, x: Tensor) -> tuple[Tensor | None, ...]:
        """Quantize a tensor: its value, scale, zero point and bit width, as cells take it."""
        made = self.proxy(x)
        if isinstance(made, IntQuantTensor):
            return made.value, made.scale, made.zero_point, made.bit_width
        return plain_result(made), None, None, None


def call_quantizers(model: nn.Module) -> None:
    """Let the cells of a model call their quantizers as modules, so that hooks see each step; numbers stay the same.

    Brevitas's own second cell, made by `fast_cell`, is what calls them.
    """
    for layer in model.modules():
        if isinstance(layer, QuantRecurrentLayerMixin):
            # Brevitas makes the second cell from quantizers by `_wrap_act_proxy`, and keeps it.
            layer.fast_mode, layer._fast_cell = True, None
            layer._wrap_act_proxy = lambda name, cell=layer.cell: _CalledProxy(getattr(cell, name))
            # With coupled gates, the last of four calls is the first one again.
            layer.gate_params_fwd = lru_cache(maxsize=3)(layer.gate_params_fwd)
            assert layer.fast_cell is not None  # it is made now, so that hooks find its modules


def with_loops(model: nn.Module, codings: Mapping[QuantProxyFromInjector, Coding]) -> None:
    """Put loops in the places of a model's recurrent layers.

    Parameters
    ----------
    codings: how each of their quantizers quantizes.
    """
    for stack in [module for module in model.modules() if isinstance(module, QuantRecurrentStackBase)]:
        # The class of a stack calls its layers by these lists, so that a loop in them is all that has to change.
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

    bias: Tensor | None

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

    exports_loop = True

    def __init__(
        self,
        layer: QuantRecurrentLayerMixin,
        codings: Mapping[QuantProxyFromInjector, Coding],
        gates: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.batch_first, self.reverse = layer.cell.batch_first, layer.reverse_input
        self.hidden_size, self.returns_codes = layer.hidden_size, layer.return_quant_tensor
        self.input_quant = None if layer.quantize_output_only else QuantizeCall(codings[layer.io_quant])
        for name in _ARGUMENTS:
            proxy = getattr(layer.cell, name, None)
            if proxy is not None:
                setattr(self, name, QuantizeCall(codings[proxy]))
        self.gates = nn.ModuleDict()
        for params, of_sum in gates.items():
            gate, proxy = getattr(layer, params), getattr(layer.cell, of_sum)
            rounded = None if kernel_of(proxy) is None else QuantizeCall(codings[proxy])
            self.gates[params] = _Gate(gate, codings[gate.input_weight.weight_quant], rounded)

    def _run(self, inputs: Any, starts: Sequence[tuple[Any, Quantizing]]) -> tuple[Any, list[Any]]:
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
        matrices = [gate.matrix() for gate in self._gates()]
        sequence = x.transpose(0, 1) if self.batch_first else x
        # The batch is axis 1 behind the transposition.
        zeros = sequence.shape[1], self.hidden_size
        states = tuple(
            sequence.new_zeros(zeros) if start is None else quantize(plain_result(start)) for start, quantize in starts
        )
        sequence = sequence.flip(0) if self.reverse else sequence
        last, output = loop(self._step(matrices), sequence, states)
        output = output.flip(0) if self.reverse else output
        output = output.transpose(0, 1) if self.batch_first else output
        return self._returned(output), [self._returned(torch.stack([state])) for state in last]

    def _gates(self) -> list[_Gate]:
        return [gate for gate in self.gates.values() if isinstance(gate, _Gate)]

    def _returned(self, codes: Tensor) -> Any:
        return PlainQuantTensor(codes) if self.returns_codes else codes

    def _step(self, matrices: Sequence[Tensor]) -> Step:
        """Return what a step computes.

        Parameters
        ----------
        matrices: of its sums.
        """
        raise NotImplementedError


class _RNNLoop(_Loop):
    """h = io_quant(tanh(gate_acc_quant(W x + U h + b))), or relu."""

    output_quant: QuantizeCall

    def __init__(self, layer: _QuantRNNLayer, codings: Mapping[QuantProxyFromInjector, Coding]) -> None:
        super().__init__(layer, codings, {"gate_params": "gate_acc_quant"})
        self.function = torch.relu if isinstance(layer.cell.act_fn, nn.ReLU) else torch.tanh

    def forward(self, inputs: Any, start: Any) -> tuple[Any, Any]:
        """Return the states behind all steps, and the last one."""
        output, (last,) = self._run(inputs, [(start, self.output_quant)])
        return output, last

    def _step(self, matrices: Sequence[Tensor]) -> Step:
        (gate,), (matrix,) = self._gates(), matrices

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

    output_quant: QuantizeCall
    cell_state_quant: QuantizeCall
    input_sigmoid_quant: QuantizeCall
    forget_sigmoid_quant: QuantizeCall
    cell_tanh_quant: QuantizeCall
    output_sigmoid_quant: QuantizeCall
    hidden_state_tanh_quant: QuantizeCall
    ones: Tensor

    def __init__(self, layer: _QuantLSTMLayer, codings: Mapping[QuantProxyFromInjector, Coding]) -> None:
        names = _GATES[:_FORGET] if layer.cifg else _GATES
        super().__init__(layer, codings, {f"{name}_gate_params": f"{name}_acc_quant" for name in names})
        self.coupled = layer.cifg
        self.register_buffer("ones", torch.ones(1, 1))

    def forward(self, inputs: Any, start: Any, cell_start: Any) -> tuple[Any, Any, Any]:
        """Return the states h behind all steps, and the last h and c."""
        output, (h, c) = self._run(inputs, [(start, self.output_quant), (cell_start, self.cell_state_quant)])
        return output, h, c

    def _step(self, matrices: Sequence[Tensor]) -> Step:
        gates, matrix, units, ones = self._gates(), torch.cat(list(matrices)), self.hidden_size, self.ones

        def step(x: Tensor, states: States) -> States:
            h, c = states
            products = functional.linear(torch.cat([x, h], dim=1), matrix)

            def total(gate: int) -> Tensor:
                return gates[gate].total(products[:, gate * units : (gate + 1) * units])

            # In the order in which Brevitas's cell calls its quantizers.
            i = self.input_sigmoid_quant(torch.sigmoid(total(_INPUT)))
            if self.coupled:
                # Brevitas's own rule of coupled gates (cifg): one gate forgets what the other adds.
                f = self.input_sigmoid_quant(ones) - i
            else:
                f = self.forget_sigmoid_quant(torch.sigmoid(total(_FORGET)))
            g = self.cell_tanh_quant(torch.tanh(total(_CELL)))
            o = self.output_sigmoid_quant(torch.sigmoid(total(_OUTPUT)))
            kept = self.cell_state_quant(f * c)
            added = self.cell_state_quant(i * g)
            c = self.cell_state_quant(kept + added)
            return self.output_quant(o * self.hidden_state_tanh_quant(torch.tanh(c))), c

        return step


_LOOPS: dict[type[nn.Module], Callable[..., nn.Module]] = {_QuantRNNLayer: _RNNLoop, _QuantLSTMLayer: _LSTMLoop}
