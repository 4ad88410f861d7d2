"""Where the choices of a random network come from: a seed of NumPy's, or whoever makes them, such as hypothesis."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


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

    def factor(self, low: float, high: float) -> float:
        """Return a factor of a scale."""
        ...


class Seeded(Draws):
    """All from one seed, the same network for each: a benchmark repeats one by its number, in whichever process."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.numbers = np.random.default_rng(seed)

    def between(self, low: int, high: int) -> int:
        return int(self.numbers.integers(low, high + 1))

    def pick(self, *choices: Any) -> Any:
        return choices[self.between(0, len(choices) - 1)]

    def flip(self, probability: float) -> bool:
        return bool(self.numbers.random() < probability)

    def late_flip(self, probability: float) -> bool:
        return bool(self.numbers.spawn(1)[0].random() < probability)

    def factor(self, low: float, high: float) -> float:
        return float(self.numbers.uniform(low, high))
