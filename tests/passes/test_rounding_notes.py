from __future__ import annotations

import numpy as np
import pytest

from nnhw.ir import Graph, IntType
from nnhw.ir.ops import Absolute, Add, Quantize
from nnhw.passes import RoundingNote, find_rounding_notes, rounding_notes
from tests.passes.models import SIGN, ChainBuilder
from tests.passes.test_joins import INT4, Branches

SUMS = IntType(-50, 50)


def test_rounding_notes_name_layer_channel_and_sums() -> None:
    # 0.1 * 5 - 0.5 is 0 in exact arithmetic; in float32 with 0.1 and 0.5 - 1e-9, too, but not in float64.
    chain = ChainBuilder(SUMS, (2,), scale=0.1).add([-0.5 - 1e-9, -0.55]).quantize(SIGN)
    notes = find_rounding_notes(chain.build())
    assert [(note.layer, note.channel, note.sums) for note in notes] == [("sums", 0, ((5,),))]
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
    noted = {value for note in find_rounding_notes(chain.build()) for (value,) in note.sums}
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
    noted = {value for note in notes for (value,) in note.sums}
    assert noted
    assert noted == {-value for value in noted}


def joined(first: IntType, second: IntType) -> tuple[Graph, set[tuple[int, int]]]:
    """Return a sum of two branches, and all pairs of codes at which float32 and float64 differ."""
    net = Branches((first, 0.3), (second, 0.7), shape=(1,))
    graph = net.build(net.then(Add(), *net.values), Quantize(-100, 100), 0.2)

    def codes(kind: type) -> np.ndarray:
        a, b = np.meshgrid(*(np.arange(dtype.low, dtype.high + 1) for dtype in (first, second)), indexing="ij")
        return np.rint((a.astype(kind) * kind(0.3) + b.astype(kind) * kind(0.7)) / kind(0.2)).clip(-100, 100)

    differs = np.argwhere(codes(np.float32) != codes(np.float64))
    return graph, {(int(a) + first.low, int(b) + second.low) for a, b in differs}


@pytest.mark.parametrize(("first", "second"), [(SUMS, INT4), (INT4, SUMS), (INT4, INT4)])
def test_rounding_notes_of_branches_hold_what_a_scan_of_all_pairs_finds(first: IntType, second: IntType) -> None:
    graph, wanted = joined(first, second)
    assert wanted
    (note,) = find_rounding_notes(graph)
    assert set(note.sums) == wanted
    assert note.layers == ("a", "b")
    assert f"({len(wanted)} in all) of a and b float32 rounds to another code than float64" in str(note)


def test_rounding_notes_of_branches_take_an_even_spread_of_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, wanted = joined(SUMS, INT4)
    monkeypatch.setattr(rounding_notes, "SCANNED_AT_MOST", 101 * 4)
    (note,) = find_rounding_notes(graph)
    assert set(note.sums) == {pair for pair in wanted if pair[1] in (-8, -3, 2, 7)}
