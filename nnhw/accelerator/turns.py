"""The order in which steps of sequences come into an accelerator that keeps a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Turns:
    """Frames, each of which is a step of a sequence. Steps are counted through all sequences, one behind the other.

    An accelerator with states for k sequences takes a frame of each of them in turn. Sequences are grouped by k, the
    longest first; where one is shorter than the longest of its group, or missing, frames fill its place.

    Parameters
    ----------
    rows: int64 [frames], the step that each frame is; those that fill a place repeat the first step of all.
    begins: bool [frames], whether a frame begins a sequence.
    starts: int64 [frames], the first frame of the group of each: a device that lost its states is taken up from there.
    places: int64 [steps], the frame of each step.
    """

    rows: np.ndarray
    begins: np.ndarray
    starts: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, lengths: Sequence[int], sequences: int) -> Turns:
        """Return the order of sequences of some lengths, each at least 1, in turns of so many."""
        given, firsts = np.asarray(lengths, np.int64), np.cumsum([0, *lengths])
        order = np.argsort(-given, kind="stable") if sequences > 1 else np.arange(len(given))
        rows, begins, starts = ([np.zeros(0, np.int64)] for _ in range(3))
        places, count = np.zeros(firsts[-1], np.int64), 0
        for first in range(0, len(order), sequences):
            group = order[first : first + sequences]
            step = np.arange(given[group].max())[:, None]
            real, wanted = np.zeros((2, len(step), sequences), np.int64)
            real[:, : len(group)] = step < given[group]
            wanted[:, : len(group)] = firsts[group] + step
            row = (real * wanted).reshape(-1)
            frames = count + np.arange(len(row))
            places[row[real.reshape(-1) == 1]] = frames[real.reshape(-1) == 1]
            rows.append(row)
            begins.append(((step == 0) | (real == 0)).reshape(-1))
            starts.append(np.full(len(row), count))
            count += len(row)
        return cls(np.concatenate(rows), np.concatenate(begins).astype(bool), np.concatenate(starts), places)
