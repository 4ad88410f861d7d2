"""Random recurrent networks: graphs of floats between quantizers, with a loop of one to three states or two of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnhw.ir import BIPOLAR, Builder, Graph, Node, Value

ACTIVATIONS: tuple[Callable[[Value], Value], ...] = (Value.tanh, Value.sigmoid, Value.relu, Value.hardsigmoid)


def random_recurrent(seed: int, reverses: bool = False, behind: bool = False) -> Graph:
    """Return a graph of sequences [steps, features] --> a result of the last step, or of each step.

    Codes have 2 to 6 bits, states up to 12, one of four is of signs; a state is computed from the step and from states,
    by products with weights and now and then by one of two codes, or is an older one of another state.

    Parameters
    ----------
    reverses: a loop may run from the last step to the first.
    behind: a convolution, and now and then a pooling, compute the steps from an image [channels, 1, columns].
    """
    rng = np.random.default_rng(seed)
    builder = Builder(f"recurrent_{seed}", locations=False)
    low, high = _range(rng, 6)
    features = int(rng.integers(1, 5))
    if behind:
        steps = _convolved(rng, builder, features, low, high)
    else:
        steps = builder.input("x", (features,), is_sequence=True).quantize(2.0**-3, low, high, name="codes")
    for number in range(int(rng.integers(1, 3))):
        body = _body(rng, f"body_{number}", steps)
        backwards = reverses and rng.random() < 0.5
        given = steps.reverse_steps() if backwards else steps
        made = given.scan(body, *(_start(rng, builder, state) for state in body.inputs[1:]))
        steps = made.reverse_steps() if backwards else made
    value = steps.last_step() if rng.random() < 0.5 else steps
    weight = rng.integers(-3, 4, (int(rng.integers(1, 4)), value.shape[0]))
    return builder.build(value.linear(weight).dequantize(0.5))


def _convolved(rng: np.random.Generator, builder: Builder, features: int, low: int, high: int) -> Value:
    """Return 1 to 6 steps that a convolution computes."""
    count, pooled, channels = int(rng.integers(1, 7)), int(rng.integers(1, 3)), int(rng.integers(1, 4))
    image = builder.input("x", (channels, 1, count * pooled)).quantize(2.0**-3, -8, 7, name="codes")
    sums = image.conv2d(rng.integers(-3, 4, (features, channels, 1, 3)), padding=(0, 1))
    made = sums.dequantize(2.0**-3).quantize(2.0**-1, low, high).max_pool2d((1, pooled))
    # Now and then the features are the steps.
    if features <= 2 and rng.random() < 0.5:
        return made.reshape((features, count)).as_steps()
    return made.reshape((features, count)).permute((1, 0)).as_steps()


def _start(rng: np.random.Generator, builder: Builder, state: Node) -> Value:
    """Return what a state begins as: any codes of its range."""
    kind = state.type.int_dtype
    codes = rng.integers(kind.low, kind.high, state.type.shape, endpoint=True)
    return builder.constant(np.where(codes < 0, -1, 1) if kind.bipolar else codes, BIPOLAR if kind.bipolar else None)


def _range(rng: np.random.Generator, most_bits: int) -> tuple[int, int]:
    bits = int(rng.integers(2, most_bits + 1))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if rng.random() < 0.6 else (0, (1 << bits) - 1)


def _body(rng: np.random.Generator, name: str, steps: Value) -> Graph:
    builder = Builder(name, locations=False)
    kind = steps.type.int_dtype
    step = builder.input("step", steps.shape, *((None, None, True) if kind.bipolar else (kind.low, kind.high)))
    units = int(rng.integers(1, 5))
    states = [_state(rng, builder, f"state_{number}", units) for number in range(int(rng.integers(1, 4)))]
    following = [_next(rng, step, states, number, units) for number in range(len(states))]
    result = following[int(rng.integers(len(following)))]
    return builder.build(result, *following)


def _state(rng: np.random.Generator, builder: Builder, name: str, units: int) -> Value:
    if rng.random() < 0.25:
        return builder.input(name, (units,), bipolar=True)
    low, high = _range(rng, 12 if rng.random() < 0.2 else 6)
    return builder.input(name, (units,), low, high)


def _next(rng: np.random.Generator, step: Value, states: list[Value], number: int, units: int) -> Value:
    """Return what a state becomes."""
    state = states[number]
    alike = [other for other in states if other.type == state.type and other is not state]
    if alike and rng.random() < 0.3:
        return alike[0]
    kind = state.type.int_dtype
    other = states[int(rng.integers(len(states)))]
    sums = step.linear(rng.integers(-3, 4, (units, step.shape[0]))).dequantize(2.0**-4)
    if rng.random() < 0.4:
        sums = sums.add(other.product(state).dequantize(2.0 ** -int(rng.integers(3, 6))))
    else:
        sums = sums.add(other.linear(rng.integers(-3, 4, (units, units))).dequantize(2.0 ** -int(rng.integers(3, 6))))
    sums = sums.add(rng.normal(size=units).astype(np.float32).astype(np.float64))
    if kind.bipolar:
        return sums.quantize(1.0, bipolar=True)
    activated = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))](sums)
    return activated.quantize(2.0 ** -max(kind.bits - 1, 1), kind.low, kind.high)
