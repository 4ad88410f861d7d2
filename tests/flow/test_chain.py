"""Several shared engines in a row: their hardware, their programs on the way to it, and what a device says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.driver import Device
from nnhw.driver.connecting import make_model_link
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.hardware import HardwareLink
from nnhw.driver.session import Session
from nnhw.engines.shared import ArrayConfig, Emit
from nnhw.engines.shared.cycles import program_cycles
from nnhw.errors import InputError, LinkError
from nnhw.flow.options import load_array
from nnhw.flow.running.measuring import count_parts, measure_parts
from nnhw.flow.verification.record_cycles import program_rows
from nnhw.flow.virtual.device_hardware import make_device
from nnhw.flow.virtual.virtual_board import CompiledHardware, compile_component
from nnhw.ir import Graph
from nnhw.mapping.shared.compile import Compiled, compile_network, network_of
from nnhw.mapping.shared.search.partition import partitions
from nnhw.mapping.shared.shared_accelerator import assemble
from nnhw.protocol import ProgramState, Refusal, joined_crc, joined_id
from tests.flow.test_style import check_hardware
from tests.flow.test_virtual import needs_compiler
from tests.mapping.bodies import codes_of
from tests.mapping.shared.networks import NETWORKS
from tests.mapping.shared.programs import array_of

CLOCK_HZ = 12_000_000
BITS = {"depthwise": 4, "bipolar": 2, "zero_point": 8}
"""Networks, and the bits of the codes that arrays store for them."""


def cuts(body: Graph) -> list[tuple[Graph, Graph]]:
    """Return a network in two parts, in all ways."""
    ways = partitions(body, 99)
    return [(way.front, way.shared) for way in ways if way.front is not None]


def chain(body: Graph, parts: tuple[Graph, ...], arrays: tuple[ArrayConfig, ...]) -> Accelerator:
    """Return a network on an engine for each part."""
    programs: list[Compiled] = []
    for part, array in zip(parts, arrays, strict=True):
        network = replace(network_of(part), loaded=not programs, sent=part is parts[-1])
        programs.append(compile_network(network, array))
    return assemble(body, "icebreaker", (), tuple(programs))


def two(name: str) -> tuple[Graph, Accelerator]:
    """Return a network, and it on two engines of unlike sizes."""
    body, bits = NETWORKS[name](0), BITS[name]
    return body, chain(body, cuts(body)[0], (array_of(8, 2, bits), array_of(4, 4, bits, word_bits=32)))


@pytest.fixture(scope="module")
def virtual(compiled_cache: Path) -> tuple[Graph, Accelerator, HardwareLink]:
    """A network on two engines, and its virtual board without a program."""
    body, accelerator = two("depthwise")
    library = compile_component(make_device(accelerator, CLOCK_HZ), (), compiled_cache)
    return body, accelerator, HardwareLink(CompiledHardware(library), CLOCK_HZ)


def image_of(accelerator: Accelerator) -> ProgramImage:
    """Return the images of all its programs."""
    assert accelerator.image is not None
    return ProgramImage(accelerator.image)


@needs_compiler
@pytest.mark.parametrize("name", ["depthwise", "bipolar"])
def test_engines_in_a_row_equal_the_ir_at_everything_they_store(name: str) -> None:
    body, accelerator = two(name)
    first, second = accelerator.programs
    # The second engine waits for two cycles with each word that the first one reads to send it.
    cycles = [sum(one.total for one in program_cycles(program)) for program in (first, second)]
    emit = first.records[-1]
    assert isinstance(emit, Emit)
    waits = 2 * emit.pixels * -(-emit.elements // first.array.codes_per_word)
    assert max(cycles) <= accelerator.schedule.interval_cycles <= max(cycles[0], cycles[1] + waits) + 10
    check_hardware(accelerator, body)


@needs_compiler
def test_cycles_of_every_engine_are_counted_in_simulation() -> None:
    body, accelerator = two("zero_point")
    found = check_hardware(accelerator, body)
    assert [len(each.counted) for each in found] == [2, 2]
    rows = program_rows(found[0].counted)
    assert [row["engine"] for row in rows if row["kind"] == "input"] == [1, 2]


@needs_compiler
def test_programs_of_all_engines_are_loaded_and_run(virtual: tuple[Graph, Accelerator, HardwareLink]) -> None:
    body, accelerator, link = virtual
    image = image_of(accelerator)
    device = Device(link, accelerator, program=image)
    status = device.program_status()
    assert (status.state, status.crc, status.array_id) == (ProgramState.READY, image.crc, image.array_id)
    kind = body.inputs[0].type
    codes = codes_of(kind.int_dtype, (3, *kind.shape), np.random.default_rng(4))
    before = device.idle_status()
    assert (device.infer_codes(codes) == ir.run(body, codes)[0]).all()
    work = device.idle_status().since(before)
    assert work is not None
    assert count_parts(accelerator.programs[0], 3, work).as_predicted
    with pytest.raises(InputError, match="2 shared engines stand in a row"):
        measure_parts(device)


Damage = Callable[[bytes, int], bytes]
"""Makes something else of an image whose second program begins at a byte."""


@needs_compiler
@pytest.mark.parametrize(
    ("damage", "state", "reason"),
    [
        (lambda data, at: data[:at], ProgramState.LOADING, Refusal.NONE),
        (lambda data, at: data[: at + 30], ProgramState.LOADING, Refusal.NONE),
        (lambda data, at: data[at:], ProgramState.REFUSED, Refusal.OTHER_ARRAY),
        (lambda data, at: data[:at] * 2, ProgramState.REFUSED, Refusal.OTHER_ARRAY),
        (lambda data, at: data[: at + 40] + b"#" + data[at + 41 :], ProgramState.REFUSED, Refusal.CHECKSUM),
        (lambda data, at: data[:40] + b"#" + data[41:], ProgramState.REFUSED, Refusal.CHECKSUM),
    ],
    ids=["first alone", "cut", "second alone", "first twice", "second damaged", "first damaged"],
)
def test_device_runs_only_programs_of_one_load(
    virtual: tuple[Graph, Accelerator, HardwareLink], damage: Damage, state: ProgramState, reason: Refusal
) -> None:
    body, accelerator, link = virtual
    image = image_of(accelerator)
    first = len(accelerator.programs[0].image)
    kind = body.inputs[0].type
    codes = codes_of(kind.int_dtype, (1, *kind.shape), np.random.default_rng(5))
    for board in (link, make_model_link(accelerator, body)):
        device, session = Device(board, accelerator, program=image), Session(board, 3)
        if state == ProgramState.LOADING:
            with pytest.raises(LinkError, match="waits for more bytes than were sent"):
                session.load(damage(image.data, first))
            session.reset()
            assert session.program_status().state == ProgramState.EMPTY
        else:
            said = session.load(damage(image.data, first))
            assert (said.state, said.reason, said.array_id) == (state, reason, image.array_id)
        with pytest.raises(LinkError, match="the device has no program"):
            device.infer_codes(codes)
        assert (Device(board, accelerator, program=image).infer_codes(codes) == ir.run(body, codes)[0]).all()


def test_images_of_several_programs_are_checked() -> None:
    _, accelerator = two("bipolar")
    image = image_of(accelerator)
    parts = [ProgramImage(program.image_for(image.output_bytes)) for program in accelerator.programs]
    assert image.data == parts[0].data + parts[1].data
    assert image.array_id == joined_id([part.array_id for part in parts]) != parts[0].array_id
    assert image.crc == joined_crc([part.crc for part in parts])
    assert image.body_bytes == sum(part.body_bytes for part in parts)
    swapped = ProgramImage(parts[1].data + parts[0].data)
    assert (swapped.crc, swapped.array_id) != (image.crc, image.array_id)
    with pytest.raises(InputError, match="is cut"):
        ProgramImage(image.data[:-1])
    with pytest.raises(InputError, match="is too long"):
        ProgramImage(image.data + b"#")
    with pytest.raises(InputError, match="is damaged"):
        ProgramImage(image.data[:-1] + b"#")


def test_array_of_several_engines_takes_no_other_program(tmp_path: Path) -> None:
    _, accelerator = two("bipolar")
    accelerator.save(tmp_path)
    loaded = Accelerator.load(tmp_path)
    assert (loaded.image, loaded.device_hash) == (accelerator.image, accelerator.device_hash)
    with pytest.raises(InputError, match="2 shared engines in a row"):
        load_array(tmp_path, "icebreaker")
