from __future__ import annotations

import numpy as np

from nnhw.ir import IntType
from nnhw.ir.ops import Absolute, Quantize
from nnhw.passes import RoundingNote, find_rounding_notes
from tests.passes.models import SIGN, ChainBuilder

SUMS = IntType(-50, 50)


def test_rounding_notes_name_layer_channel_and_sums() -> None:
    # 0.1 * 5 - 0.5 is 0 in exact arithmetic; in float32 with 0.1 and 0.5 - 1e-9, too, but not in float64.
    chain = ChainBuilder(SUMS, (2,), scale=0.1).add([-0.5 - 1e-9, -0.55]).quantize(SIGN)
    notes = find_rounding_notes(chain.build())
    assert [(note.layer, note.channel, note.sums) for note in notes] == [("sums", 0, (5,))]
    assert str(notes[0]) == (
        "sums 'fc' (net.py:1), channel 0: for the sums 5 float32 rounds to another code than float64; hardware follows "
        "float64; scales that are powers of two avoid it"
    )
    assert isinstance(notes[0], RoundingNote)


def test_rounding_notes_find_nothing_for_powers_of_two() -> None:
    chain = ChainBuilder(SUMS, (3,), scale=0.25).multiply([1.0, -1.0, 0.0]).add([0.5, 0.25, 0.0])
    assert find_rounding_notes(chain.quantize(Quantize(-8, 7), 0.5).build()) == ()


def test_rounding_notes_hold_what_a_scan_of_the_range_finds() -> None:
    chain = ChainBuilder(SUMS, (1,), scale=float(np.float32(0.3))).quantize(Quantize(-100, 100), float(np.float32(0.2)))
    noted = {value for note in find_rounding_notes(chain.build()) for value in note.sums}
    single = [
        value
        for value in range(SUMS.low, SUMS.high + 1)
        if np.rint(np.float32(value) * np.float32(0.3) / np.float32(0.2))
        != np.rint(value * float(np.float32(0.3)) / float(np.float32(0.2)))
    ]
    assert noted == set(single)
    assert single


def test_rounding_notes_look_at_both_sides_of_every_step_of_a_table() -> None:
    chain = ChainBuilder(SUMS, (1,), scale=float(np.float32(0.3))).then(Absolute())
    notes = find_rounding_notes(chain.quantize(Quantize(-100, 100), float(np.float32(0.2))).build())
    noted = {value for note in notes for value in note.sums}
    assert noted
    assert noted == {-value for value in noted}
