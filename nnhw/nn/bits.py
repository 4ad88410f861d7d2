"""Bits of quantizers: one number for all layers, or a rule by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from nnhw.errors import InputError

Widths = int | Mapping[str, int]
"""Bits of all layers, or of those whose names match a pattern: {"conv1": 8, "features.*": 4, "*": 2}."""
WIDTH_MIN, WIDTH_MAX = 1, 8
"""Fewest and most bits of weights, activations and inputs."""


class LayerBits:
    """The bits of each layer, by its name.

    Parameters
    ----------
    given: a number, or numbers by patterns as of `fnmatch`, of which the first that matches counts; '*' comes last.
    name: of the argument, for messages.
    """

    def __init__(self, given: Widths, name: str) -> None:
        self._name = name
        self._rules = dict(given) if isinstance(given, Mapping) else {"*": given}
        self._used: set[str] = set()

    def problems(self) -> Iterator[InputError]:
        """Yield what is wrong with the numbers, and with a rule that leaves layers without."""
        for pattern in self._rules:
            if not isinstance(pattern, str):
                yield InputError(f"{self._name} needs names of layers as its keys, got {pattern!r}")
                return
        for pattern, bits in self._rules.items():
            if isinstance(bits, bool) or not isinstance(bits, int) or not WIDTH_MIN <= bits <= WIDTH_MAX:
                where = "" if pattern == "*" and len(self._rules) == 1 else f" of '{pattern}'"
                yield InputError(
                    f"{self._name}{where} must be a whole number from {WIDTH_MIN} to {WIDTH_MAX}, got {bits!r}"
                )
        if "*" not in self._rules:
            yield InputError(f"{self._name} needs an entry '*' for the remaining layers, such as {{'*': 8}}")

    def of(self, layer: str) -> int:
        """Return the bits of a layer."""
        others = (pattern for pattern in self._rules if pattern != "*")
        pattern = next((pattern for pattern in others if fnmatchcase(layer, pattern)), "*")
        self._used.add(pattern)
        return self._rules[pattern]

    def unused(self, layers: Iterable[str]) -> Iterator[InputError]:
        """Yield a problem for each entry that no layer took, once all layers have asked.

        Parameters
        ----------
        layers: names of all layers.
        """
        named = ", ".join(f"'{layer}'" for layer in layers)
        for pattern in self._rules:
            if pattern not in self._used and pattern != "*":
                yield InputError(
                    f"{self._name} names '{pattern}', but no layer without a quantizer matches; there are {named}"
                )

    @property
    def least(self) -> int:
        """The fewest bits."""
        return min(self._rules.values())

    @property
    def most(self) -> int:
        """The most bits."""
        return max(self._rules.values())
