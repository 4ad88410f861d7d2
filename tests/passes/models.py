"""Hand-made and random graphs with chains, for tests of passes."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from nnhw.ir import Graph, GraphBuilder, IntType, Location, TensorType
from nnhw.ir.ops import (
    Absolute,
    Add,
    BatchNorm,
    Clamp,
    Dequantize,
    Divide,
    Elu,
    Gelu,
    HardSwish,
    LeakyRelu,
    Mish,
    Multiply,
    Negate,
    PRelu,
    Quantize,
    Relu,
    Sigmoid,
    Silu,
    Softplus,
    Square,
    Subtract,
    Tanh,
)
from tests.ir.graphs import floats

Floats = list[float]


class ChainBuilder:
    """Builds codes --> dequantize --> ops --> quantize, one op per call.

    Parameters
    ----------
    sums: range of the integers at the start.
    shape: theirs; the first axis is the channels.
    """

    def __init__(self, sums: IntType, shape: tuple[int, ...], scale: float | Floats = 1.0) -> None:
        self.graph = GraphBuilder("chain")
        self.shape = shape
        place = Location("fc", "net.py", 1)
        self.value = self.graph.input("sums", TensorType(shape, sums), place)
        self.value = self.graph.add("dequantize", Dequantize(), [self.value, self.constant(scale)], place)
        self.lines = 1

    def constant(self, values: float | Floats) -> str:
        array = np.asarray(values, dtype=np.float64)
        spread = array.reshape((-1,) + (1,) * (len(self.shape) - 1)) if array.ndim else array
        return floats(self.graph, "constant", spread)

    def then(self, op: object, *inputs: str) -> ChainBuilder:
        self.lines += 1
        name = op.name  # type: ignore[attr-defined]
        self.value = self.graph.add(name, op, inputs or [self.value], Location(name, "net.py", self.lines))  # type: ignore[arg-type]
        return self

    def add(self, values: float | Floats) -> ChainBuilder:
        return self.then(Add(), self.value, self.constant(values))

    def subtract_from(self, values: float | Floats) -> ChainBuilder:
        return self.then(Subtract(), self.constant(values), self.value)

    def multiply(self, values: float | Floats) -> ChainBuilder:
        return self.then(Multiply(), self.value, self.constant(values))

    def divide(self, values: float | Floats) -> ChainBuilder:
        return self.then(Divide(), self.value, self.constant(values))

    def batch_norm(self, weight: Floats, bias: Floats, mean: Floats, variance: Floats) -> ChainBuilder:
        names = [floats(self.graph, "statistic", values) for values in (weight, bias, mean, variance)]
        return self.then(BatchNorm(1e-5), self.value, *names)

    def quantize(self, op: Quantize, scale: float | Floats = 1.0) -> ChainBuilder:
        return self.then(op, self.value, self.constant(scale))

    def build(self) -> Graph:
        return self.graph.build([self.value])


CONSTANTS = st.floats(-4, 4, width=32)
SIGN = Quantize(-1, 1, bipolar=True)
RISING_OPS = (Elu(), Sigmoid(), Tanh(), LeakyRelu(0.1), Softplus(1.0, float("inf")))
TURNING_OPS = (
    Silu(),
    Mish(),
    Gelu(),
    Gelu(tanh_form=True),
    HardSwish(),
    LeakyRelu(-0.5),
    Absolute(),
    Square(),
    Softplus(2.0, 3.0),
)


@st.composite
def random_chains(draw: st.DrawFn, turning: bool = False) -> Graph:
    """Draw a chain of up to five ops over one to four channels, with falling, rising and constant channels.

    Parameters
    ----------
    turning: with ops that are not monotone, and with values that are used twice.
    """
    low = draw(st.integers(-60, 20))
    sums = IntType(low, low + draw(st.integers(0, 90)))
    shape = draw(st.sampled_from([(1,), (4,), (3, 2), (2, 2, 2)]))
    channels = st.lists(CONSTANTS, min_size=shape[0], max_size=shape[0])
    builder = ChainBuilder(sums, shape, draw(st.floats(0.01, 2)))
    for kind in draw(st.lists(st.integers(0, 8), max_size=5)):
        _random_op(draw, builder, kind, channels)
        if turning and draw(st.booleans()):
            _random_turn(draw, builder, channels)
    bits = draw(st.integers(1, 5))
    signed = draw(st.booleans())
    op = Quantize(-(1 << bits - 1), (1 << bits - 1) - 1) if signed else Quantize(0, (1 << bits) - 1)
    builder.quantize(SIGN if bits == 1 else op, draw(st.floats(0.05, 3)))
    return builder.build()


def _random_op(draw: st.DrawFn, builder: ChainBuilder, kind: int, channels: st.SearchStrategy[Floats]) -> None:
    match kind:
        case 0:
            builder.add(draw(channels))
        case 1:
            builder.subtract_from(draw(CONSTANTS))
        case 2:
            builder.multiply(draw(channels))
        case 3:
            builder.divide([value if abs(value) > 0.1 else -0.5 for value in draw(channels)])
        case 4:
            variance = draw(st.lists(st.floats(0, 9), min_size=builder.shape[0], max_size=builder.shape[0]))
            builder.batch_norm(draw(channels), draw(channels), draw(channels), variance)
        case 5:
            builder.then(draw(st.sampled_from([Negate(), Relu()])))
        case 6:
            builder.then(draw(st.sampled_from(RISING_OPS)))
        case _:
            builder.then(Clamp(-3.0, draw(st.floats(-3, 9))))


def _random_turn(draw: st.DrawFn, builder: ChainBuilder, channels: st.SearchStrategy[Floats]) -> None:
    before = builder.value
    match draw(st.integers(0, 2)):
        case 0:
            builder.then(draw(st.sampled_from(TURNING_OPS)))
        case 1:
            builder.then(Sigmoid()).then(draw(st.sampled_from([Add(), Multiply()])), before, builder.value)
        case _:
            builder.then(PRelu(), before, floats(builder.graph, "slopes", draw(channels)))


def all_sums(graph: Graph) -> np.ndarray:
    """Return one image per integer of the input's range, each filled with it."""
    node = graph.inputs[0]
    assert isinstance(node.type.dtype, IntType)
    values = np.arange(node.type.dtype.low, node.type.dtype.high + 1)
    return np.broadcast_to(values.reshape(-1, *[1] * len(node.type.shape)), (len(values), *node.type.shape)).copy()
