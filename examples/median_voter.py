"""An engine of one's own: three redundant sensors, of which the median counts, in front of a small network.

PyTorch says the median of three values by four minima and maxima, each an engine of nnhw. A rewrite finds them and puts
one operator in their place, `median3`; its engine is below. See docs/rewrites.md.

    nnhw build --board icebreaker examples/median_voter.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from nnhw import Rewrite
from nnhw.engines.own import OwnEngine, Port, pipeline, register
from nnhw.ir import IntType, Op, Operand, TensorType
from nnhw.nn import QuantIdentity, QuantLinear, QuantReLU

SENSORS, READINGS = 3, 16


# 1. The model, as anybody would write it.
class MedianVoter(nn.Module):
    """The median of three sensors, reading by reading, and a network that looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = QuantIdentity(8)
        self.layers = nn.Sequential(QuantLinear(READINGS, 12), QuantReLU(), QuantLinear(12, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [N, 4] of readings [N, 3, 16]."""
        a, b, c = self.codes(x).unbind(1)
        median = torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))
        return self.layers(self.codes(median))  # a median has the codes of what it is of


# 2. The operator: its type, and its meaning on integers.
@dataclass(frozen=True)
class Median3(Op):
    """Median of three values of codes, element by element."""

    name: ClassVar[str] = "median3"
    arity: ClassVar[int] = 3

    def infer(self, operands: Sequence[Operand]) -> TensorType:
        """Return the type of the first; all are of the same."""
        return operands[0].type

    def evaluate(self, *inputs: np.ndarray) -> np.ndarray:
        """Return the median."""
        return np.sort(np.stack(inputs), axis=0)[1]


# 3. The engine: its parameters, how many beats it takes, what they mean, when they pass, and what it costs.
@dataclass(frozen=True)
class Median3Engine(OwnEngine):
    """Three streams, one beat of each at once; a register behind the comparisons, and one behind the selection."""

    element: IntType
    elements: int
    width: int

    LATENCY: ClassVar[int] = 3

    @classmethod
    def plan(cls, op: Median3, inputs: Sequence[Port], output: Port, lanes: int) -> Median3Engine:
        """Return the engine; any number of lanes will do."""
        return cls(output.element, output.elements, lanes)

    @property
    def lanes(self) -> int:
        """Elements of a beat."""
        return self.width

    @property
    def i_beats(self) -> int:
        """Beats of a frame at each input."""
        return self.elements // self.width

    @property
    def o_beats(self) -> int:
        """Beats of a frame that leave."""
        return self.i_beats

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the median of the three beats."""
        return np.sort(np.stack(beats), axis=0)[1]

    def model(self) -> Any:
        """Return the cycle model."""
        return pipeline(3, self.LATENCY)

    def cost(self, wide_luts: bool) -> Mapping[str, float]:
        """Return three comparisons and a choice of three a lane, and the buffer."""
        bits = self.element.bits
        registers = self.width * (3 * bits + 3 + bits + 2 * bits)
        return {"lc": self.width * 9 * bits + 6, "ff": registers}

    def hardware(self) -> Any:
        """Return the Amaranth component."""
        return median3_hardware(self)


# 4. The hardware, in Amaranth. `Pipeline` has the handshakes.
def median3_hardware(config: Median3Engine) -> Any:
    """Return the component of an engine."""
    from amaranth.hdl import Module, Mux, Signal, Value

    from nnhw.hdl.own import Pipeline

    class Median3Hardware(Pipeline):
        def compute(self, m: Module, ce: Value, inputs: Sequence[Sequence[Value]]) -> Sequence[Value]:
            return [self._lane(m, ce, *values) for values in zip(*inputs, strict=True)]

        def _lane(self, m: Module, ce: Value, *values: Value) -> Value:
            a, b, c = (Signal.like(value) for value in values)
            a_below_b, b_below_c, a_below_c = Signal(), Signal(), Signal()
            result = Signal.like(a)
            with m.If(ce):
                m.d.sync += [register.eq(value) for register, value in zip((a, b, c), values, strict=True)]
                m.d.sync += [
                    a_below_b.eq(values[0] < values[1]),
                    b_below_c.eq(values[1] < values[2]),
                    a_below_c.eq(values[0] < values[2]),
                ]
                m.d.sync += result.eq(Mux(a_below_b == b_below_c, b, Mux(a_below_b == a_below_c, c, a)))
            return result

    return Median3Hardware([config.element] * 3, config.element, config.width, config.width, config.LATENCY)


register(Median3, Median3Engine)


# 5. The rewrite: where in the graph the operator takes the place of minima and maxima.
def median_of_three(ir: Any, a: Any, b: Any, c: Any, s: Any, t: Any) -> Any:
    """Return the pattern: the median of codes by minima and maxima, and the quantizer that reads it as a number."""
    median = ir.maximum(ir.minimum(a, b), ir.minimum(ir.maximum(a, b), c))
    return ir.quantize(ir.dequantize(median, s), t)


def same_scale(match: Any) -> bool:
    """Return whether the quantizer gives the codes that it reads."""
    types = {match[name].type for name in ("a", "b", "c")} | {match.root.type}
    return len(types) == 1 and np.array_equal(match["s"].constant, match["t"].constant)


rewrites = [Rewrite(median_of_three, lambda ir, match: ir.median3(match.a, match.b, match.c), where=same_scale)]

torch.manual_seed(1)
model = MedianVoter()
with torch.no_grad():
    model(torch.randn(256, SENSORS, READINGS))  # sets the scales
model.eval()
example_input = torch.randn(8, SENSORS, READINGS)
