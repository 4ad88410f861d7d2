"""The shared engine as the ECP5 gets it: wide words in block RAM, constants in LUTs, products in MULT18X18D."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnhw.accelerator import stream_order
from nnhw.boards import load_board
from nnhw.families import ECP5
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.mapping.budget import Budget
from nnhw.mapping.shared import choose_array, network_of
from nnhw.mapping.shared.search.array_cost import array_cost
from nnhw.mapping.shared.shared_accelerator import map_program
from tests.flow.designs import top_of
from tests.hdl.shared.bench import check, run_engine
from tests.mapping.bodies import codes_of
from tests.mapping.shared.networks import NETWORKS
from tests.mapping.shared.programs import check_program
from tests.synthesized import facts_of

BOARD = load_board("ulx3s_25f")
BODY = NETWORKS["wide"](0)
CHOICE = choose_array(network_of(BODY), Budget(lc=6000, ebr=40, dsp=8), ECP5)


def test_an_array_of_the_ecp5_has_wide_words_and_several_requantizers() -> None:
    array = CHOICE.compiled.config.array
    assert not array.dsp
    assert array.dsp_lanes * array.simd == 8
    assert array.word_bits > 64
    assert array.drains > 1
    assert array.constant_lanes > 1
    assert array_cost(array, ECP5, False) == CHOICE.cost


def test_an_array_of_the_ecp5_gives_the_golden_output() -> None:
    check_program(BODY, CHOICE.compiled)
    kind = BODY.inputs[0].type
    frames = stream_order(codes_of(kind.int_dtype, (2, *kind.shape), np.random.default_rng(3)))
    program = CHOICE.compiled.config
    check(program, list(frames), run_engine(program, list(frames)))


def test_an_array_of_the_ecp5_takes_the_blocks_of_the_cost_model(tmp_path: Path) -> None:
    array = CHOICE.compiled.config.array
    accelerator, _ = map_program(BODY, BOARD.name, array)
    assert BOARD.uart is not None
    device = make_linked_device(accelerator, 60_000_000, BOARD.uart)
    made = facts_of(top_of(device, BOARD, 60e6).rtlil, BOARD, tmp_path, dsp=True)
    assert made["dsp"] == array.dsp_lanes * array.simd == CHOICE.cost.dsp
    assert abs(made["lc"] - CHOICE.cost.lc - ECP5.room.link.lc) < 0.1 * made["lc"]
    assert made["ebr"] == CHOICE.cost.ebr + ECP5.room.link.ebr
    in_luts = [ebr for name, ebr in made["memories"].items() if "constants" in name]
    assert in_luts
    assert not any(in_luts)
    assert made["cells"]["TRELLIS_DPR16X4"] * 4 >= array.drains * array.constant_bits
