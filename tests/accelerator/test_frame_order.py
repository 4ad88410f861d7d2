"""The order of steps: every step once, behind the one before it in its sequence, by as many frames as take turns."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.accelerator.frame_order import FrameOrder


@pytest.mark.parametrize("sequences", [1, 2, 3, 8])
@pytest.mark.parametrize("lengths", [(), (1,), (5,), (1, 9, 10, 1, 4), (3, 3, 3), (7, 1, 1, 1, 1, 1, 2)])
def test_each_step_is_one_frame_and_its_sequence_lies_in_one_place(lengths: tuple[int, ...], sequences: int) -> None:
    order = FrameOrder.of(lengths, sequences)
    steps = sum(lengths)
    assert len(set(order.places.tolist())) == len(order.places) == steps
    assert order.rows[order.places].tolist() == list(range(steps))
    assert len(order.rows) % sequences == 0
    first = 0
    for length in lengths:
        places = order.places[first : first + length]
        assert (np.diff(places) == sequences).all()
        assert order.begins[places].tolist() == [True, *[False] * (length - 1)]
        assert len(set(order.starts[places].tolist())) == 1
        first += length
    fillers = np.setdiff1d(np.arange(len(order.rows)), order.places)
    assert order.begins[fillers].all()
    assert (order.rows[fillers] == 0).all()
    starts = np.unique(order.starts)
    assert (starts % sequences == 0).all()
    assert order.begins[(starts[:, None] + np.arange(sequences)).reshape(-1)].all()
    assert (order.starts <= np.arange(len(order.starts))).all()


def test_sequences_alone_keep_their_order_and_take_no_frame_more() -> None:
    order = FrameOrder.of((2, 1, 3), 1)
    assert order.rows.tolist() == list(range(6))
    assert order.begins.tolist() == [True, False, True, True, False, False]
    assert order.starts.tolist() == [0, 0, 2, 3, 3, 3]


def test_sequences_of_like_lengths_take_turns() -> None:
    order = FrameOrder.of((4, 1, 4), 2)
    assert order.rows.tolist() == [0, 5, 1, 6, 2, 7, 3, 8, 4, 0]
    assert order.begins.tolist() == [True, True, *[False] * 6, True, True]
