"""Small integer networks, and their accelerators, for tests of generated hardware."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnhw.accelerator import Accelerator
from nnhw.ir import BIPOLAR, BIT, Graph, GraphBuilder, IntType, Location, TensorType
from nnhw.ir.ops import Conv2d, Flatten, Linear, MaxPool2d, Threshold
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from sim.cases import random_values

UINT4, INT4, UINT2 = IntType(0, 15), IntType(-8, 7), IntType(0, 3)
ROOMY = Budget(lc=3000.0, ebr=28)
SMALL = Budget(lc=900.0, ebr=12)


class Chain:
    """Builds the body of a network layer by layer, with seeded random weights."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: IntType, seed: int = 1) -> None:
        self.builder = GraphBuilder(name)
        self.rng = np.random.default_rng(seed)
        self.value = self.builder.input("image", TensorType(shape, dtype))
        self.layers = 0

    def linear(self, outputs: int, weight: IntType = BIPOLAR, code: IntType | None = BIPOLAR) -> Chain:
        """Add a linear layer, thresholds behind it where `code` is given."""
        name, here = self._next("fc")
        if len(self.builder.type_of(self.value).shape) > 1:
            self.value = self.builder.add(f"{name}.flat", Flatten(), [self.value], here)
        weights = self._weights(name, (outputs, self.builder.type_of(self.value).size), weight)
        self.value = self.builder.add(f"{name}.sum", Linear(), [self.value, weights], here)
        return self._codes(name, here, code)

    def convolution(self, outputs: int, kernel: int, weight: IntType = BIPOLAR, stride: int = 1) -> Chain:
        """Add a square convolution, with bipolar codes behind it."""
        name, here = self._next("conv")
        channels = self.builder.type_of(self.value).shape[0]
        weights = self._weights(name, (outputs, channels, kernel, kernel), weight)
        self.value = self.builder.add(f"{name}.sum", Conv2d((stride, stride)), [self.value, weights], here)
        return self._codes(name, here, BIPOLAR)

    def pool(self) -> Chain:
        """Add 2 x 2 max pooling."""
        name = self.value.replace(".code", ".pool")
        self.value = self.builder.add(name, MaxPool2d((2, 2), (2, 2)), [self.value])
        return self

    def body(self) -> Graph:
        """Return the graph."""
        return self.builder.build([self.value])

    def _weights(self, name: str, shape: tuple[int, ...], dtype: IntType) -> str:
        values = random_values(self.rng, dtype, shape)
        return self.builder.constant(f"{name}.weight", values, TensorType(shape, dtype))

    def _next(self, kind: str) -> tuple[str, Location]:
        """Return the name of the next layer, and where it is."""
        self.layers += 1
        name = f"{kind}{self.layers}"
        return name, Location(name, "network.py", self.layers)

    def _codes(self, name: str, here: Location, code: IntType | None) -> Chain:
        if code is None:
            return self
        channels = self.builder.type_of(self.value).shape[0]
        spread = int(np.sqrt(self.builder.type_of(self.value).int_dtype.high))
        levels = 1 if code.bipolar else code.high - code.low
        steps = np.sort(self.rng.integers(-spread, spread + 1, (channels, levels)), axis=1)
        falls = self.rng.random(channels) < 0.5
        names = [
            self.builder.constant(f"{name}.steps", steps, TensorType(steps.shape, IntType(-spread, spread))),
            self.builder.constant(f"{name}.falls", falls, TensorType(falls.shape, BIT)),
        ]
        op = Threshold(-1 if code.bipolar else code.low, code.bipolar)
        self.value = self.builder.add(f"{name}.code", op, [self.value, *names], here)
        return self


def mlp() -> Graph:
    """Three binary linear layers."""
    return Chain("mlp", (48,), BIPOLAR).linear(16).linear(12).linear(5, code=None).body()


def cnn() -> Graph:
    """Two convolutions with pooling of odd maps, 4-bit input, and a linear layer."""
    chain = Chain("cnn", (1, 14, 13), UINT4).convolution(8, 3).pool()
    return chain.convolution(4, 3).pool().linear(3, code=None).body()


def mixed() -> Graph:
    """Several bits: signed input, 4-bit weights, 2-bit codes, codes as output."""
    chain = Chain("mixed", (12,), INT4).linear(8, INT4, UINT2).linear(6, IntType(-1, 1), UINT2)
    return chain.linear(4, INT4, UINT2).body()


NETWORKS = {"mlp": mlp, "cnn": cnn, "mixed": mixed}


def accelerator_of(body: Graph, budget: Budget = ROOMY) -> Accelerator:
    """Return the fastest accelerator of a body within a budget."""
    return map_body(body, "icebreaker", budget)


def random_codes(body: Graph, count: int, seed: int = 1) -> np.ndarray:
    """Return random codes [count, *shape] for a body's input."""
    type_ = body.inputs[0].type
    return random_values(np.random.default_rng(seed), type_.int_dtype, (count, *type_.shape))


def random_body(seed: int) -> Graph:
    """Return a random network: layers, sizes, formats and pooling drawn from the seed."""
    rng = np.random.default_rng(seed)
    formats = [BIPOLAR, UINT2, UINT4, INT4, IntType(-1, 1)]

    def some(choices: Sequence[IntType]) -> IntType:
        return choices[int(rng.integers(len(choices)))]

    image = bool(rng.integers(2))
    shape = tuple(int(size) for size in rng.integers((1, 6, 6), (4, 12, 12))) if image else (int(rng.integers(4, 40)),)
    chain = Chain(f"random{seed}", shape, some(formats), seed)
    for _ in range(int(rng.integers(0, 3)) if image else 0):
        if min(chain.builder.type_of(chain.value).shape[1:]) < 4:
            break
        chain.convolution(int(rng.integers(2, 9)), int(rng.integers(1, 4)), some(formats), int(rng.integers(1, 3)))
        if rng.integers(2) and min(chain.builder.type_of(chain.value).shape[1:]) > 1:
            chain.pool()
    for _ in range(int(rng.integers(0, 3))):
        chain.linear(int(rng.integers(2, 17)), some(formats), some(formats))
    return chain.linear(int(rng.integers(1, 11)), some(formats), None if rng.integers(2) else BIPOLAR).body()
