"""Accuracy of a device's results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.errors import InputError


@dataclass(frozen=True)
class Score:
    """Number of images that are classified as their label says, and number of all images."""

    right: int
    count: int

    def __str__(self) -> str:
        return f"accuracy {self.right / self.count:.2%}: {self.right} of {self.count} right"


def score(results: np.ndarray, labels: np.ndarray) -> Score:
    """Compare results with labels [N].

    Parameters
    ----------
    results: [N, classes], of which the greatest wins; or integers [N, 1] or [N], of a model that ends in argmax.

    Raises
    ------
    InputError: results of another shape, or labels that are no class.
    """
    found = results.reshape(len(results), -1)
    # The model ends in argmax: its results are classes.
    if results.dtype.kind in "iu" and found.shape[1] == 1:
        return Score(int((found[:, 0] == labels).sum()), len(labels))
    if results.ndim != 2 or found.shape[1] < 2:
        raise InputError(f"accuracy needs results [N, classes], got {list(results.shape)}; leave --labels out")
    classes = found.shape[1]
    astray = np.flatnonzero((labels < 0) | (labels >= classes))
    if astray.size:
        raise InputError(
            f"labels need numbers from 0 to {classes - 1}, for the model has {classes} outputs, got others in "
            f"{astray.size} of {len(labels)} places, first {int(labels[astray[0]])} at [{astray[0]}]; number the "
            f"classes as the outputs, from 0"
        )
    return Score(int((found.argmax(axis=1) == labels).sum()), len(labels))
