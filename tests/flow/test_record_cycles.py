"""Cycles of each part of a program: counted in compiled hardware, as predicted, and what of it is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnhw.boards import load_board
from nnhw.engines.shared.counters import program_parts
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.verification.equality import check_equality
from nnhw.flow.verification.record_cycles import Counted, program_rows
from tests.flow.test_virtual import needs_compiler
from tests.mapping.bodies import codes_of
from tests.mapping.shared.networks import NETWORKS
from tests.sim.networks import mlp

FRAMES = 3


@needs_compiler
@pytest.mark.parametrize(("name", "in_front"), [("alike", False), ("bipolar", True), ("residual", True)])
def test_counted_cycles_of_every_part_are_those_predicted(name: str, in_front: bool) -> None:
    body = NETWORKS[name](0)
    accelerator = map_on_board(body, load_board("icebreaker"), Options(style="shared"))[0].accelerator
    assert (len(accelerator.stages) > 1) == in_front
    kind = body.inputs[0].type
    codes = codes_of(kind.int_dtype, (FRAMES, *kind.shape), np.random.default_rng(1))
    for equality in check_equality(accelerator, body, codes):
        assert equality.equal
        assert equality.miscounted == 0
        (counted,) = equality.counted
        rows = program_rows(equality.counted)
        for row in rows:
            assert row["busy"]["simulated"] == row["busy"]["predicted"]
            waits = row["input_wait"] + row["output_wait"]
            if equality.pattern[1] == "none":
                assert row["cycles"]["simulated"] == row["cycles"]["predicted"] + waits
                assert not waits or (in_front and row["kind"] == "input")
        if equality.pattern[1] == "none":
            assert sum(row["cycles"]["simulated"] for row in rows) == equality.interval_cycles
        check_mutants(counted)


def check_mutants(counted: Counted) -> None:
    """See that a cycle too many, one of work, records in another order, and missing ones are found."""
    for column in (0, 1, 2):
        words = counted.words.copy()
        words[len(words) // 2, column] += 1
        assert replace(counted, words=words).mismatches == 1
    assert replace(counted, came=counted.came - 1).mismatches == 1
    assert replace(counted, came=counted.came + 1).mismatches == 1


def test_rows_without_a_count_say_what_is_predicted() -> None:
    accelerator = map_on_board(NETWORKS["joined"](0), load_board("icebreaker"), Options(style="shared"))[0].accelerator
    rows, parts = program_rows(accelerator.programs), program_parts(accelerator.programs[0])
    assert [row["kind"] for row in rows] == ["input", *["layer"] * (len(rows) - 2), "output"]
    assert [row["cycles"] for row in rows] == [{"predicted": part.cycles, "simulated": None} for part in parts]
    assert all(row["input_wait"] is None for row in rows)
    assert sum(part.cycles for part in parts) == accelerator.schedule.interval_cycles


@needs_compiler
def test_bipolar_codes_of_layers_in_front_are_the_same_numbers_in_the_program() -> None:
    body = mlp()
    accelerator = map_on_board(body, load_board("icebreaker"), Options(style="shared"))[0].accelerator
    assert accelerator.stages[-2].output.element.bipolar
    kind = body.inputs[0].type
    codes = codes_of(kind.int_dtype, (FRAMES, *kind.shape), np.random.default_rng(1))
    assert all(equality.equal for equality in check_equality(accelerator, body, codes))
