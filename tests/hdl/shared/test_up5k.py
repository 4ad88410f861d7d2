"""The shared engine as the UP5K gets it: its step memory takes the block RAMs of the cost model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nnhw.boards import load_board
from nnhw.engines.shared.array import Requantizing
from nnhw.families import ICE40
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.mapping.shared.compile import network_of
from nnhw.mapping.shared.program.needs import task_needs, with_widths
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.mapping.shared.shared_accelerator import map_program
from tests.flow.designs import top_of
from tests.mapping.shared.networks import CURVED
from tests.mapping.shared.programs import array_of
from tests.synthesized import facts_of

BOARD = load_board("icebreaker")


def test_a_step_memory_of_the_up5k_takes_the_blocks_of_the_cost_model(tmp_path: Path) -> None:
    body = CURVED["curved"](0)
    shape = array_of(4, 1, 8, words=1 << 14, rows=256)
    array = replace(with_widths(task_needs(network_of(body), shape), shape, Requantizing.LOGIC), dsp=True)
    accelerator, _ = map_program(body, BOARD.name, array)
    assert BOARD.uart is not None
    device = make_linked_device(accelerator, 24_000_000, BOARD.uart)
    made = facts_of(top_of(device, BOARD, 24e6).rtlil, BOARD, tmp_path, dsp=True)
    taken, plain = (array_cost(one, ICE40, True) for one in (array, replace(array, step_memory=None)))
    assert made["ebr"] == taken.ebr + ICE40.room.link.ebr > plain.ebr + ICE40.room.link.ebr + 2
    lookups = [ebr for name, ebr in made["memories"].items() if "lookup" in name]
    assert len(lookups) == 3
    assert sum(lookups) == taken.ebr - plain.ebr
