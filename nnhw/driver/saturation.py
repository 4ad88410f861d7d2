"""Noticing inputs that the model's first quantizer clips far more often than those that it was made for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

import numpy as np

from nnhw.errors import BuildError
from nnhw.ir import IntType
from nnhw.reading import parse_json

MORE_OFTEN = 4
"""How many times as often as usual codes may be at an end of their range."""
ALWAYS = 0.01
"""Share of codes at an end that is always accepted on top of that."""
MARGIN = 0.05
"""Share of the usual range by which inputs have to leave it: black and white images within it are no saturation."""
CHANCE = 5
"""How many standard deviations a small batch may exceed that by chance."""


@dataclass(frozen=True)
class InputUse:
    """How inputs use the range of the device's input codes.

    Parameters
    ----------
    lowest, highest: number among the inputs.
    at_low, at_high: shares of the codes, 0 to 1, that are the lowest or the highest one that there is.
    """

    lowest: float
    highest: float
    at_low: float
    at_high: float

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what a build noted of the data that its model was made with; None where it noted nothing.

        Raises
        ------
        BuildError: the file is damaged.
        """
        path = folder / "lower.json"
        if not path.exists():  # a folder with what the driver needs alone
            return None
        try:
            noted = parse_json(path.read_bytes())["input"]
            return None if noted is None else cls(**{field.name: float(noted[field.name]) for field in fields(cls)})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise BuildError(f"build file '{path}' cannot be read ({error}); run 'nnhw build' again") from None

    @classmethod
    def of(cls, inputs: np.ndarray, codes: np.ndarray, kind: IntType) -> Self | None:
        """Return how inputs use the codes that a head made of them; None where there are none, or only two values.

        Parameters
        ----------
        inputs: [N, *shape].
        codes: [N, *shape] of the head's result, int.
        kind: type of the codes.
        """
        if not inputs.size or kind.high - kind.low < 2 or kind.bipolar:
            return None
        at_low, at_high = float((codes == kind.low).mean()), float((codes == kind.high).mean())
        return cls(float(inputs.min()), float(inputs.max()), at_low, at_high)

    def more_than(self, usual: InputUse, count: int) -> str | None:
        """Return a message if the inputs are clipped far more often than usual; None otherwise.

        Parameters
        ----------
        usual: of the inputs that the quantizer was calibrated with, or of the example input.
        count: number of the codes.
        """
        margin = MARGIN * (usual.highest - usual.lowest)
        for end, found, known, beyond in (
            ("highest", self.at_high, usual.at_high, self.highest > usual.highest + margin),
            ("lowest", self.at_low, usual.at_low, self.lowest < usual.lowest - margin),
        ):
            # Where most codes are at an end anyway, such as black pixels: a quarter of the others has to be left.
            limit = min(MORE_OFTEN * known + ALWAYS, 1 - (1 - known) / MORE_OFTEN)
            spread = CHANCE * (max(known * (1 - known), 1 / count) / count) ** 0.5
            if beyond and found > limit + spread:
                return (
                    f"{found:.1%} of the input values have the {end} code of the input quantizer, but only {known:.1%} "
                    f"of the calibration or example data: values are {self.lowest:g} to {self.highest:g} now, and were "
                    f"{usual.lowest:g} to {usual.highest:g} then; values beyond the quantizer's range are clipped, so "
                    "scale the input as in calibration (such as x / 255), or calibrate with data like this"
                )
        return None
