"""Bounds of rounding: float32 stays within them, and what is no rounding does not."""

import numpy as np
import pytest

from nnhw.ir import FLOAT, Graph, GraphBuilder, IntType, TensorType, run
from nnhw.ir.noise import rounding_noise
from nnhw.ir.ops import (
    Add,
    BatchNorm,
    Concat,
    Dequantize,
    Divide,
    Elu,
    Exp,
    Flatten,
    Gelu,
    GreaterEqual,
    HardSwish,
    Linear,
    LogSoftmax,
    Mish,
    Multiply,
    Op,
    PRelu,
    Sigmoid,
    Silu,
    Softmax,
    Softplus,
    Sqrt,
    Square,
    Subtract,
    Tanh,
    Where,
)

CODES, INPUTS, CHANNELS = IntType(-128, 127), 40, 6
RNG = np.random.default_rng(3)
UNARY = (Tanh(), Sigmoid(), Silu(), Mish(), Gelu(), Gelu(True), Elu(), Softplus(), Square(), HardSwish(), Exp())


def chain(*ops: Op) -> Graph:
    """Return a layer and ops behind it: constants where an op needs some."""
    builder = GraphBuilder("chain")
    x = builder.input("x", TensorType((INPUTS,), CODES))
    weights = RNG.integers(-128, 128, (CHANNELS, INPUTS))
    sums = builder.add("sums", Linear(), [x, builder.constant("w", weights, TensorType(weights.shape, CODES))])
    value = builder.add("first", Dequantize(), [sums, number(builder, np.array(0.1 * 0.00037))])
    for index, op in enumerate(ops):
        count = 1 if isinstance(op, PRelu | Add | Subtract | Multiply | Divide) else 4 * isinstance(op, BatchNorm)
        constants = [number(builder, RNG.uniform(0.2, 3.0, CHANNELS)) for _ in range(count)]
        value = builder.add(f"op{index}", op, [value, *constants])
    return builder.build([value])


def number(builder: GraphBuilder, array: np.ndarray) -> str:
    """Add a float32 number, as models have them."""
    array = array.astype(np.float32).astype(np.float64)
    return builder.constant("c", array, TensorType(array.shape, FLOAT))


def in_float32(graph: Graph, images: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Evaluate a chain in float32, its sums in another order."""
    x = images.astype(np.float32)
    values: dict[str, np.ndarray] = {"x": x}
    values |= {name: array.astype(np.float32) for name, array in graph.constants.items()}
    for node in graph.nodes:
        operands = [values[name] for name in node.inputs]
        if isinstance(node.op, Linear):
            scale = graph.constants[graph.node("first").inputs[1]].astype(np.float32)
            terms = (operands[0][:, np.newaxis] * (operands[1] * scale)[np.newaxis])[:, :, order]
            values[node.name] = np.add.accumulate(terms, axis=2, dtype=np.float32)[:, :, -1]
        elif isinstance(node.op, Dequantize):
            values[node.name] = operands[0]
        elif operands:
            values[node.name] = node.op.evaluate(*operands).astype(np.float32)
    return values[graph.outputs[0]]


@pytest.mark.parametrize("op", [*UNARY, Softmax(0), LogSoftmax(0), PRelu(), BatchNorm(1e-5), Add(), Divide()])
def test_noise_bounds_float32(op: Op) -> None:
    graph = chain(BatchNorm(1e-5), Subtract(), Multiply(), op)
    images = RNG.integers(-128, 128, (200, INPUTS))
    values: dict[str, np.ndarray] = {}
    (exact,) = run(graph, images, values.__setitem__)
    bound = rounding_noise(graph, values, 2.0**-24)[graph.outputs[0]]
    for _ in range(5):
        assert (np.abs(in_float32(graph, images, RNG.permutation(INPUTS)) - exact) <= bound).all()
    assert np.isfinite(bound).all()
    # A bound that says nothing would hold, too: of float64 it is far below a step of any quantizer.
    tight = rounding_noise(graph, values, 2.0**-53)[graph.outputs[0]]
    assert (tight <= 1e-9 * (1 + np.abs(exact))).all()


def test_noise_of_codes_is_their_scale_alone() -> None:
    builder = GraphBuilder("codes")
    x = builder.input("x", TensorType((3,), CODES))
    value = builder.add("y", Dequantize(), [x, number(builder, np.array(0.1))])
    joined = builder.add("z", Concat(0), [builder.add("f", Flatten(), [value]), value])
    graph = builder.build([joined])
    values: dict[str, np.ndarray] = {}
    run(graph, np.array([[1, -2, 0]]), values.__setitem__)
    bound = rounding_noise(graph, values, 2.0**-53)["z"]
    assert bound.shape == (1, 6)
    assert (bound[0] <= np.abs(values["z"][0]) * 2.0**-48).all()


def test_noise_is_infinite_where_nothing_is_known() -> None:
    graph = chain(Sqrt())
    values: dict[str, np.ndarray] = {}
    run(graph, np.zeros((1, INPUTS), dtype=np.int64), values.__setitem__)
    values["x"] = np.full((1, INPUTS), 100)
    values["first"] = np.full((1, CHANNELS), 1e-30)  # so near 0 that a rounded sum may be negative
    assert np.isinf(rounding_noise(graph, values, 2.0**-24)["op0"]).all()


def test_a_choice_is_undecided_only_where_its_condition_is() -> None:
    builder = GraphBuilder("choice")
    x = builder.input("x", TensorType((3,), FLOAT))
    number = TensorType((), FLOAT)
    level, high, low = (
        builder.constant(name, np.array(value), number) for name, value in (("t", 0.1), ("a", 1.0), ("b", -1.0))
    )
    scale = builder.constant("s", np.array(1.0), number)
    y = builder.add("y", Multiply(), [x, scale])
    condition = builder.add("condition", GreaterEqual(), [y, level])
    graph = builder.build([builder.add("z", Where(), [condition, high, low])])
    values: dict[str, np.ndarray] = {}
    # Far below the level, next to it, and far above.
    run(graph, np.array([[-1.0, 0.1 - 1e-9, 1.0]]), observe=values.__setitem__)
    bound = rounding_noise(graph, values, 2.0**-24)["z"][0]
    assert bound[0] < 1e-3
    assert bound[1] >= 2
    assert bound[2] < 1e-3
