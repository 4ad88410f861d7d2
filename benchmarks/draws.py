"""Where the choices of a random network come from: a seed of NumPy's, or whoever makes them, such as hypothesis."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st


class Draws(Protocol):
    """Choices of structure, one by one, and a generator of the numbers that fill it.

    Members
    -------
    seed: of PyTorch's first weights.
    numbers: fills weights, statistics and images, which are no structure.
    """

    seed: int
    numbers: np.random.Generator

    def between(self, low: int, high: int) -> int:
        """Return a whole number, both ends included."""
        ...

    def pick(self, *choices: Any) -> Any:
        """Return one of the choices, the simplest of which come first."""
        ...

    def flip(self, probability: float) -> bool:
        """Return whether something that is left out else is there."""
        ...

    def late_flip(self, probability: float) -> bool:
        """Flip, and leave all that is drawn behind as it is without: networks of earlier seeds stay what they are."""
        ...

    def gate_flip(self, probability: float) -> bool:
        """Flip for products, as `late_flip`, and leave the choices of that as they are, too."""
        ...

    def factor(self, low: float, high: float) -> float:
        """Return a factor of a scale."""
        ...


class Seeded(Draws):
    """All from one seed, the same network for each: a benchmark repeats one by its number, in whichever process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.numbers = np.random.default_rng(seed)
        self._gates = np.random.default_rng((seed, 1))

    def between(self, low: int, high: int) -> int:
        return int(self.numbers.integers(low, high + 1))

    def pick(self, *choices: Any) -> Any:
        return choices[self.between(0, len(choices) - 1)]

    def flip(self, probability: float) -> bool:
        return bool(self.numbers.random() < probability)

    def late_flip(self, probability: float) -> bool:
        return bool(self.numbers.spawn(1)[0].random() < probability)

    def gate_flip(self, probability: float) -> bool:
        return bool(self._gates.random() < probability)

    def factor(self, low: float, high: float) -> float:
        return float(self.numbers.uniform(low, high))


class Drawn(Draws):
    """Choices by hypothesis; what is no structure comes from a seed that it draws, and shrinks to the numbers of 0."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.seed = draw(st.integers(0, 2**16))
        self.numbers = np.random.default_rng(self.seed)

    def between(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def pick(self, *choices: Any) -> Any:
        return choices[self.between(0, len(choices) - 1)]

    def flip(self, probability: float) -> bool:
        return self.between(0, 99) >= 100 - 100 * probability  # shrinks to False

    late_flip = gate_flip = flip

    def factor(self, low: float, high: float) -> float:
        return self._draw(st.floats(low, high))
