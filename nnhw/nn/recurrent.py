"""Recurrent layers of quantized weights, gates and states: a Python loop in eager mode, one loop when exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nnhw.errors import InputError

from .quantizers import PER_TENSOR, Int, Quantizer, UInt

States = tuple[Tensor, ...]
Cell = Callable[[Sequence[Tensor], States], States]
"""Of the products of a step with the input's weights, and the states: the next states, the first of them the output."""

STATE_SCALE, GATE_SCALE, CELL_SCALE = 2.0**-7, 2.0**-8, 2.0**-11
"""Default scales: 8 bits in -1..1, 8 bits in 0..1, and 16 bits in -16..16."""
CELL_BITS = 16
"""Bits of an LSTM's cell state: it adds up over many steps, and is read by no product of weights."""


def run_steps(cell: Cell, weights: Sequence[Tensor], sequence: Tensor, states: States) -> tuple[States, Tensor]:
    """Run a cell for each step of a sequence.

    In eager mode the products with the input's weights are computed for all steps at once. An exported program has one
    loop (`torch._higher_order_ops.scan`), which runs for any number of steps.

    Parameters
    ----------
    weights: matrices [sums, features]; the cell gets the product of the input with each of them.
    sequence: [steps, batch, features].

    Returns
    -------
    The last states, and the first state behind each step: [steps, batch, units].
    """
    if torch.compiler.is_exporting():
        return loop(
            lambda x, states: cell([functional.linear(x, weight) for weight in weights], states), sequence, states
        )
    products = zip(*(functional.linear(sequence, weight) for weight in weights), strict=True)
    return loop(cell, list(products), states)


def loop(step: Callable[[Any, States], States], sequence: Any, states: States) -> tuple[States, Tensor]:
    """Compute states step by step; an exported program has one loop, for any number of steps.

    Parameters
    ----------
    step: function of the sequence's values in a step and of the states; returns the next states, the first of which is
        the output.
    sequence: [steps, ..]; in eager mode anything that has a length.

    Returns
    -------
    The last states, and the first state behind each step: [steps, batch, units].
    """
    if torch.compiler.is_exporting():
        from torch._higher_order_ops.scan import scan

        def following(states: States, x: Tensor) -> tuple[States, Tensor]:
            made = step(x, states)
            # A copy, as scan takes no tensor that is both the next state and the result.
            return made, made[0].clone()

        last, results = scan(following, states, sequence, dim=0)
        return last, results
    outputs = []
    for x in sequence:
        states = step(x, states)
        outputs.append(states[0])
    return states, torch.stack(outputs)


class _Recurrent(nn.RNNBase):
    """What the recurrent layers have in common; parameters have the names, shapes and start values of torch's."""

    exports_loop = True
    """Whether an exported program has a loop for the layer, instead of a copy of the cell for each step."""
    _states = 1
    """Number of states: the output, and for an LSTM its cell."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        formats: dict[str, Quantizer],
        **options: Any,
    ) -> None:
        if options.get("proj_size"):
            raise InputError(f"{type(self).__name__} has no projection; leave proj_size out, and use a linear layer")
        super().__init__(mode, input_size, hidden_size, num_layers, **options)
        for name, quantizer in formats.items():
            setattr(self, name, _checked(type(self).__name__, name, quantizer))

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Any]:  # type: ignore[override]
        """[N, T, input_size] if batch_first, else [T, N, input_size] --> the same with units, and the last states.

        Parameters
        ----------
        hx: start values of the states: [layers * directions, N, units], or a pair of them; zeros without it. They are
            quantized as the states are.
        """
        if input.dim() != 3 or input.shape[-1] != self.input_size:
            order = "batch, steps" if self.batch_first else "steps, batch"
            raise InputError(
                f"{type(self).__name__} needs an input of shape [{order}, {self.input_size}], got "
                f"{list(input.shape)}; give a batch of sequences, also for one"
            )
        sequence = input.transpose(0, 1) if self.batch_first else input
        if not torch.compiler.is_exporting() and not sequence.shape[0]:
            raise InputError(f"{type(self).__name__} needs sequences of one step or more, got {list(input.shape)}")
        starts = self._starts(sequence, hx)
        lasts: list[States] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(1 + self.bidirectional):
                start = tuple(state[len(lasts)] for state in starts)
                last, output = self._run(layer, direction, sequence, start)
                lasts.append(last)
                outputs.append(output)
            sequence = torch.cat(outputs, dim=-1) if self.bidirectional else outputs[0]
            if layer < self.num_layers - 1:
                sequence = functional.dropout(sequence, self.dropout, self.training)
        ends = tuple(torch.stack(column) for column in zip(*lasts, strict=True))
        output = sequence.transpose(0, 1) if self.batch_first else sequence
        return output, ends[0] if self._states == 1 else ends

    def _run(self, layer: int, direction: int, sequence: Tensor, start: States) -> tuple[States, Tensor]:
        suffix = f"l{layer}{'_reverse' if direction else ''}"
        names = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        ih, hh, *biases = (getattr(self, f"{name}_{suffix}") for name in names)
        biases = [self._ordered(bias) for bias in biases]
        own, recurrent = self._matrices(self._ordered(ih), self._ordered(hh))
        cell = self._cell(recurrent, biases)
        if not direction:
            return run_steps(cell, own, sequence, start)
        last, output = run_steps(cell, own, sequence.flip(0), start)
        return last, output.flip(0)

    def _ordered(self, parameter: Tensor) -> Tensor:
        """Return the rows of a parameter as the cell takes them: those of gates first."""
        return parameter

    def _matrices(self, ih: Tensor, hh: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the quantized weights of the input, in matrices whose products the cell gets, and of the state.

        Both share a scale for each sum, so that their products add up as integers.
        """
        weight, inputs = self.weight_quant(torch.cat([ih, hh], dim=1)), ih.shape[1]  # type: ignore[operator]
        return [_part(weight, slice(inputs), 1)], _part(weight, slice(inputs, None), 1)

    def _starts(self, sequence: Tensor, hx: Any) -> list[Sequence[Tensor]]:
        """Return what each state begins as, by layer and direction."""
        count = self.num_layers * (1 + self.bidirectional)
        if hx is None:
            # Each state gets zeros of its own: tracing takes one tensor in two places for a single state.
            return [
                [sequence.new_zeros(sequence.shape[1], self.hidden_size) for _ in range(count)]
                for _ in range(self._states)
            ]
        given = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        wanted = [count, sequence.shape[1], self.hidden_size]
        if len(given) != self._states or any(list(state.shape) != wanted for state in given):
            shapes = ", ".join(str(list(state.shape)) for state in given)
            what = "a state" if self._states == 1 else "a pair of states"
            raise InputError(f"{type(self).__name__} needs {what} of shape {wanted}, got {shapes}")
        formats = (self.state_quant, self.cell_quant) if self._states > 1 else (self.state_quant,)
        return [
            [format(state[place]) for place in range(count)]  # type: ignore[operator]
            for format, state in zip(formats, given, strict=True)
        ]

    def _cell(self, recurrent: Tensor, biases: Sequence[Tensor]) -> Cell:
        """Return the cell of one layer and direction.

        Parameters
        ----------
        recurrent: quantized weights of the state.
        biases: of the input and of the state; none without bias.
        """
        raise NotImplementedError


class QuantRNN(_Recurrent):
    """`nn.RNN` of quantized weights and states: h = state_quant(tanh(W x + U h + b)).

    Parameters
    ----------
    nonlinearity: 'tanh' or 'relu'.
    weight_quant: number format of the weights, of which an input's and a state's share a scale; 8 bits without it.
    state_quant: of the state; 8 bits in -1..1 without it.
    options: those of `nn.RNN` (bias, batch_first, dropout, bidirectional, device, dtype).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *,
        weight_quant: Quantizer | None = None,
        state_quant: Quantizer | None = None,
        **options: Any,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise InputError(f"QuantRNN needs the nonlinearity 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity
        formats = {"weight_quant": _weights(weight_quant), "state_quant": state_quant or Int(8, STATE_SCALE)}
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(mode, input_size, hidden_size, num_layers, formats, **options)

    def _cell(self, recurrent: Tensor, biases: Sequence[Tensor]) -> Cell:
        bias = biases[0] + biases[1] if biases else 0.0

        def cell(sums: Sequence[Tensor], states: States) -> States:
            total = sums[0] + functional.linear(states[0], recurrent) + bias
            activated = torch.tanh(total) if self.nonlinearity == "tanh" else torch.relu(total)
            return (self.state_quant(activated),)  # type: ignore[operator]

        return cell


class QuantGRU(_Recurrent):
    """`nn.GRU` of quantized weights, gates and states.

        r, z = gate_quant(sigmoid(W x + U h + b))
        m = sum_quant(U h + b)
        n = tanh_quant(tanh(W x + b + r * m))
        h = state_quant(n + z * difference_quant(h - n))

    Parameters
    ----------
    weight_quant: of the weights of r, z and m; see `QuantRNN`.
    candidate_quant: of the weights of n, with one scale for all, since what they give is added to r * m as integers;
        8 bits without it.
    state_quant: of the state; 8 bits in -1..1 without it.
    gate_quant: of r and z; 8 bits in 0..1 without it.
    sum_quant: of m; 8 bits, observed, without it.
    tanh_quant: of n; 8 bits in -1..1 without it.
    difference_quant: of h - n; 9 bits in -2..2, which is exact with the formats above, without it.
    options: those of `nn.GRU`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        weight_quant: Quantizer | None = None,
        candidate_quant: Quantizer | None = None,
        state_quant: Quantizer | None = None,
        gate_quant: Quantizer | None = None,
        sum_quant: Quantizer | None = None,
        tanh_quant: Quantizer | None = None,
        difference_quant: Quantizer | None = None,
        **options: Any,
    ) -> None:
        formats = {
            "weight_quant": _weights(weight_quant),
            "candidate_quant": candidate_quant or Int(8),
            "state_quant": state_quant or Int(8, STATE_SCALE),
            "gate_quant": gate_quant or UInt(8, GATE_SCALE),
            "sum_quant": sum_quant or Int(8, "observed"),
            "tanh_quant": tanh_quant or Int(8, STATE_SCALE),
            "difference_quant": difference_quant or Quantizer(-256, 255, STATE_SCALE),
        }
        super().__init__("GRU", input_size, hidden_size, num_layers, formats, **options)

    def _matrices(self, ih: Tensor, hh: Tensor) -> tuple[list[Tensor], Tensor]:
        first = slice(2 * self.hidden_size)
        (whole,), recurrent = super()._matrices(ih, hh)
        candidate: Tensor = self.candidate_quant(ih[2 * self.hidden_size :])  # type: ignore[operator]
        return [_part(whole, first), candidate], recurrent

    def _cell(self, recurrent: Tensor, biases: Sequence[Tensor]) -> Cell:
        units = self.hidden_size
        first, last = slice(2 * units), slice(2 * units, None)
        gates, candidate = _part(recurrent, first), _part(recurrent, last)
        gate_bias = biases[0][first] + biases[1][first] if biases else 0.0
        outer, inner = (_part(bias, last) for bias in biases) if biases else (0.0, None)

        def cell(sums: Sequence[Tensor], states: States) -> States:
            (h,) = states
            gate = sums[0] + functional.linear(h, gates)
            gate = self.gate_quant(torch.sigmoid(gate + gate_bias))  # type: ignore[operator]
            r, z = gate[:, :units], gate[:, units:]
            m = self.sum_quant(functional.linear(h, candidate, inner))  # type: ignore[operator]
            n = self.tanh_quant(torch.tanh(sums[1] + r * m + outer))  # type: ignore[operator]
            return (self.state_quant(n + z * self.difference_quant(h - n)),)  # type: ignore[operator]

        return cell


class QuantLSTM(_Recurrent):
    """`nn.LSTM` of quantized weights, gates and states.

        i, f, o = gate_quant(sigmoid(W x + U h + b))
        g = tanh_quant(tanh(W x + U h + b))
        c = cell_quant(f * c + i * g)
        h = state_quant(o * tanh_quant(tanh(c)))

    Parameters
    ----------
    weight_quant: see `QuantRNN`.
    state_quant: of h; 8 bits in -1..1 without it.
    cell_quant: of c, with 8 to 16 bits; 16 bits in -16..16 without it.
    gate_quant: of i, f and o; 8 bits in 0..1 without it.
    tanh_quant: of g and of tanh(c); 8 bits in -1..1 without it.
    options: those of `nn.LSTM` but proj_size.
    """

    _states = 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        weight_quant: Quantizer | None = None,
        state_quant: Quantizer | None = None,
        cell_quant: Quantizer | None = None,
        gate_quant: Quantizer | None = None,
        tanh_quant: Quantizer | None = None,
        **options: Any,
    ) -> None:
        most = 1 << (CELL_BITS - 1)
        formats = {
            "weight_quant": _weights(weight_quant),
            "state_quant": state_quant or Int(8, STATE_SCALE),
            "cell_quant": cell_quant or Quantizer(-most, most - 1, CELL_SCALE),
            "gate_quant": gate_quant or UInt(8, GATE_SCALE),
            "tanh_quant": tanh_quant or Int(8, STATE_SCALE),
        }
        super().__init__("LSTM", input_size, hidden_size, num_layers, formats, **options)

    def _ordered(self, parameter: Tensor) -> Tensor:
        """i, f, g, o --> i, f, o, g."""
        rows = [parameter[k * self.hidden_size : (k + 1) * self.hidden_size] for k in (0, 1, 3, 2)]
        return torch.cat(rows)

    def _cell(self, recurrent: Tensor, biases: Sequence[Tensor]) -> Cell:
        units = self.hidden_size
        first, last = slice(3 * units), slice(3 * units, None)
        gates, candidate = _part(recurrent, first), _part(recurrent, last)
        gate_bias, bias = (biases[0][part] + biases[1][part] if biases else 0.0 for part in (first, last))

        def cell(sums: Sequence[Tensor], states: States) -> States:
            h, c = states
            gate = sums[0][:, first] + functional.linear(h, gates)
            gate = self.gate_quant(torch.sigmoid(gate + gate_bias))  # type: ignore[operator]
            i, f, o = (gate[:, k * units : (k + 1) * units] for k in range(3))
            g = torch.tanh(sums[0][:, last] + functional.linear(h, candidate) + bias)
            c = self.cell_quant(f * c + i * self.tanh_quant(g))  # type: ignore[operator]
            return self.state_quant(o * self.tanh_quant(torch.tanh(c))), c  # type: ignore[operator]

        return cell


def _part(tensor: Tensor, part: slice, axis: int = 0) -> Tensor:
    """Return a part of a parameter: a copy when exporting, for a loop takes no two views of one tensor."""
    taken = tensor[part] if axis == 0 else tensor[:, part]
    return taken.clone() if torch.compiler.is_exporting() else taken


def _weights(weight_quant: Quantizer | None) -> Quantizer:
    return Int(8, axis=0) if weight_quant is None else weight_quant


def _checked(layer: str, name: str, quantizer: Quantizer) -> Quantizer:
    if not isinstance(quantizer, Quantizer):
        raise InputError(f"{layer} needs {name} to be a quantizer such as Int(8), got {quantizer!r}")
    is_weight = name in ("weight_quant", "candidate_quant")
    wrong = "observed" if is_weight else "max_abs"
    if quantizer.scale_source == wrong:
        right = "a number or 'max_abs'" if is_weight else "a number or 'observed'"
        raise InputError(f"{layer} needs the scale of {name} to be {right}, got '{wrong}'")
    if name == "candidate_quant" and quantizer.axis != PER_TENSOR:
        raise InputError(f"{layer} needs one scale for all weights of candidate_quant, got axis {quantizer.axis}")
    return quantizer
