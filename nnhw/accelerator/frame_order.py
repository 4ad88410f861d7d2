"""The order in which the steps of sequences are sent to an accelerator that keeps states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FrameOrder:
    """The frames to send, each of which is a step of a sequence; steps are numbered through all sequences.

    An accelerator with states for k sequences takes a frame of each of them in turn. Sequences are put into groups of
    k, the longest first; where one is shorter than the longest of its group, or missing, filling frames take its turns.

    Parameters
    ----------
    rows: int64 [frames], number of the step that is sent as each frame; filling frames send step 0.
    begins: bool [frames], whether a frame begins a sequence.
    starts: int64 [frames], the first frame of each frame's group: from there on, frames are sent again to a device that
        has lost its states.
    places: int64 [steps], number of the frame in which each step is sent.
    """

    rows: np.ndarray
    begins: np.ndarray
    starts: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, lengths: Sequence[int], sequences: int) -> FrameOrder:
        """Return the order for sequences.

        Parameters
        ----------
        lengths: steps of each sequence, at least 1.
        sequences: how many take turns, k above.
        """
        given, firsts = np.asarray(lengths, np.int64), np.cumsum([0, *lengths])
        # Sequences of about the same length share a group, so that few frames only fill.
        order = np.argsort(-given, kind="stable") if sequences > 1 else np.arange(len(given))
        rows, begins, starts = ([np.zeros(0, np.int64)] for _ in range(3))
        places, count = np.zeros(firsts[-1], np.int64), 0
        for first in range(0, len(order), sequences):
            group = order[first : first + sequences]
            step = np.arange(given[group].max())[:, None]
            real, wanted = np.zeros((2, len(step), sequences), np.int64)
            real[:, : len(group)] = step < given[group]
            wanted[:, : len(group)] = firsts[group] + step
            # Row by row: the steps of the same number of all sequences of the group follow one another.
            row = (real * wanted).reshape(-1)
            frames = count + np.arange(len(row))
            places[row[real.reshape(-1) == 1]] = frames[real.reshape(-1) == 1]
            rows.append(row)
            # A filling frame begins a sequence of its own, so that what it leaves reaches no real step.
            begins.append(((step == 0) | (real == 0)).reshape(-1))
            starts.append(np.full(len(row), count))
            count += len(row)
        return cls(np.concatenate(rows), np.concatenate(begins).astype(bool), np.concatenate(starts), places)
