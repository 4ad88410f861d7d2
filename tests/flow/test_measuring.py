"""What a device counts of a program: whole frames and their waits, and each part by programs that end behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnhw import ir
from nnhw.boards import load_board
from nnhw.driver import Device
from nnhw.driver.device import CountedWork
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.hardware import HardwareLink
from nnhw.engines.shared.counters import least_cycles, program_parts
from nnhw.errors import InputError
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.running.measuring import count_parts, measure_parts
from nnhw.flow.virtual.device_hardware import make_device
from nnhw.flow.virtual.virtual_board import CompiledHardware, compile_component
from nnhw.ir import Graph
from tests.driver.fakes import make_accelerator, make_board, open_toy
from tests.flow.test_virtual import needs_compiler
from tests.mapping.bodies import codes_of
from tests.mapping.shared.networks import I4, NETWORKS, decoder

CLOCK_HZ = 12_000_000
CASES = ("wide", "grouped")
"""Sums leave, with waits that cost nothing; and codes, behind engines of the first layers."""


@pytest.fixture(scope="module", params=CASES)
def body(request: pytest.FixtureRequest) -> Graph:
    """A network."""
    return NETWORKS[request.param](0)


@pytest.fixture(scope="module")
def device(body: Graph, compiled_cache: Path) -> Iterator[Device]:
    """Its virtual board, with its program."""
    with open_virtual(body, compiled_cache) as device:
        yield device


def open_virtual(body: Graph, cache: Path) -> Device:
    """Return the virtual board of a network, with its program."""
    accelerator = map_on_board(body, load_board("icebreaker"), Options(style="shared"))[0].accelerator
    library = compile_component(make_device(accelerator, CLOCK_HZ), (), cache)
    link = HardwareLink(CompiledHardware(library), CLOCK_HZ)
    assert accelerator.image is not None
    return Device(link, accelerator, program=ProgramImage(accelerator.image))


def codes(body: Graph, frames: int) -> np.ndarray:
    """Return random frames."""
    kind = body.inputs[0].type
    return codes_of(kind.int_dtype, (frames, *kind.shape), np.random.default_rng(frames))


@needs_compiler
@pytest.mark.parametrize("frames", [1, 4])
def test_device_counts_the_cycles_of_the_parts_and_of_nothing_else(device: Device, body: Graph, frames: int) -> None:
    program = device.accelerator.programs[0]
    assert program is not None
    before = device.idle_status()
    found = device.infer_codes(codes(body, frames))
    work = device.idle_status().since(before)
    assert (found == ir.run(body, codes(body, frames))[0]).all()
    assert work is not None
    assert work.input_wait > 0
    assert work.output_wait > 0
    count = count_parts(program, frames, work)
    assert count.as_predicted
    assert count.most == frames * sum(part.cycles for part in program_parts(program))
    if least_cycles(program) * frames == count.most:
        assert work.cycles == count.most
        assert sum(part.cycles for part in count.parts) == work.cycles + work.input_wait + work.output_wait
    assert sum(part.busy for part in count.parts) == frames * sum(part.busy for part in program_parts(program))


@needs_compiler
def test_device_measures_each_part_as_predicted(device: Device, body: Graph) -> None:
    program = device.accelerator.programs[0]
    assert program is not None
    assert measure_parts(device) == tuple(part.cycles for part in program_parts(program))
    assert (device.infer_codes(codes(body, 2)) == ir.run(body, codes(body, 2))[0]).all()


@needs_compiler
def test_device_with_layers_behind_counts_its_program_and_measures_no_parts(compiled_cache: Path) -> None:
    body = decoder(I4)
    with open_virtual(body, compiled_cache) as device:
        program, before = device.accelerator.programs[0], device.idle_status()
        assert program is not None
        assert program.o_beats != device.accelerator.output_format.frame_bytes
        found = device.infer_codes(codes(body, 3))
        work = device.idle_status().since(before)
        assert (found == ir.run(body, codes(body, 3))[0]).all()
        assert work is not None
        assert count_parts(program, 3, work).as_predicted
        with pytest.raises(InputError, match="cannot be measured one by one where layers stand behind the shared"):
            measure_parts(device)


def test_count_finds_a_cycle_too_many_and_one_too_few() -> None:
    accelerator = map_on_board(NETWORKS["joined"](0), load_board("icebreaker"), Options(style="shared"))[0].accelerator
    program = accelerator.programs[0]
    assert program is not None
    cycles = 7 * sum(part.cycles for part in program_parts(program))
    right = count_parts(program, 7, CountedWork(cycles, 30, 5))
    assert right.as_predicted
    assert (right.parts[0].input_wait, right.parts[-1].output_wait) == (30, 5)
    for wrong in (cycles - 1, cycles + 1):
        assert not count_parts(program, 7, CountedWork(wrong, 30, 5)).as_predicted


def test_measure_rejects_a_device_without_a_program() -> None:
    from nnhw.driver.links.model import ModelLink

    accelerator = make_accelerator()
    device = open_toy(ModelLink(make_board(accelerator)), accelerator)
    with pytest.raises(InputError) as error:
        measure_parts(device)
    assert str(error.value) == (
        "link 'model': cycles of layers can be measured where a shared engine runs a program, on a board or the "
        "virtual one; build with '--style shared', and use another link than 'model'"
    )


def test_status_knows_that_a_reset_came_between() -> None:
    from nnhw.driver.links.model import ModelLink

    accelerator = make_accelerator()
    status = open_toy(ModelLink(make_board(accelerator)), accelerator).idle_status()
    later = replace(status, cycles=2**32 + status.cycles + 50 - 2**32, input_wait=status.input_wait + 20)
    assert later.since(status) == CountedWork(30, 20, 0)
    assert replace(later, resets=status.resets + 1).since(status) is None
