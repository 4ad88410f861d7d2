"""Programs: loaded when the device has another or none, retried on a bad link, never mistaken for one another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nnhw.driver
from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.driver import BatchError, Device
from nnhw.driver.connecting import make_model_link, read_program
from nnhw.driver.framing import FrameReader, encode_frame
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.errors import InputError, LinkError
from nnhw.protocol import REFUSAL_TEXT, Command, Frame, ProgramState, ProgramStatus, Reason, Refusal
from sim.noise import FrameNoise, Noise
from tests.driver.fakes import (
    ARRAY,
    TappedLink,
    golden,
    make_accelerator,
    make_board,
    make_codes,
    make_program,
    make_shared,
)

ACCELERATOR = make_shared()
PROGRAM = make_program(ACCELERATOR)
OTHER = make_program(ACCELERATOR, b"another one!")


def open_program(
    link: ModelLink,
    program: ProgramImage = PROGRAM,
    max_retries: int = 3,
    notice: Callable[[str], None] = lambda text: None,
) -> Device:
    return Device(link, ACCELERATOR, max_retries=max_retries, program=program, notice=notice)


class Counting(TappedLink):
    """Counts the bytes of LOAD frames."""

    def __init__(self, board: ModelBoard) -> None:
        super().__init__(board)
        self.loads = 0

    def write(self, data: bytes) -> None:
        self.loads += sum(frame is not None and frame.command == Command.LOAD for frame in FrameReader().feed(data))
        super().write(data)


def test_device_loads_its_program_once() -> None:
    board = make_board(ACCELERATOR)
    codes = make_codes(20)
    for loads in (3, 0, 0):
        link = Counting(board)
        with open_program(link) as device:
            assert link.loads == loads
            status = device.program_status()
            assert status == ProgramStatus(ProgramState.READY, Refusal.NONE, PROGRAM.crc, 20, ARRAY.id)
            assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


def test_device_loads_its_program_in_place_of_another() -> None:
    board = make_board(ACCELERATOR)
    open_program(ModelLink(board), OTHER).close()
    link = Counting(board)
    device = open_program(link)
    assert link.loads == 3
    assert device.program_status().crc == PROGRAM.crc


@pytest.mark.parametrize("rest", [b"", PROGRAM.data[:100], b"garbage" * 3], ids=["empty", "cut", "refused"])
def test_device_loads_behind_a_load_that_failed(rest: bytes) -> None:
    board = make_board(ACCELERATOR)
    board.exchange(encode_frame(Frame(Command.LOAD, 0, rest)))
    codes = make_codes(3)
    notices: list[str] = []
    device = open_program(ModelLink(board), notice=notices.append)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
    refused = rest.startswith(b"garbage")
    assert [f"refused the program that it had: {REFUSAL_TEXT[Refusal.NO_IMAGE]}" in text for text in notices] == (
        [True] if refused else []
    )


@pytest.mark.parametrize("size", [1, 219, 220, 221, 240, 3000, 4096])
def test_device_loads_programs_of_any_size(size: int) -> None:
    program = make_program(ACCELERATOR, bytes(place * 7 % 256 for place in range(size)))
    seen: list[tuple[int, int]] = []
    device = Device(
        ModelLink(make_board(ACCELERATOR)),
        ACCELERATOR,
        program=program,
        progress=lambda finished, total: seen.append((finished, total)),
    )
    assert device.program_status().crc == program.crc
    assert seen[-1] == (size + 20, size + 20)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("kind", [Noise, FrameNoise])
@pytest.mark.parametrize("seed", range(5))
def test_device_loads_over_a_bad_link(seed: int, kind: type[Noise]) -> None:
    program = make_program(ACCELERATOR, bytes(place * 7 % 256 for place in range(4096)))
    chance = 2e-5 if kind is Noise else 0.01
    outbound, inbound = kind(seed, chance), kind(seed + 100, chance)
    board = make_board(ACCELERATOR)
    device = open_program(TappedLink(board, outbound, inbound), program, max_retries=20)
    assert board.memory is not None
    assert (board.memory.status.state, board.memory.status.crc) == (ProgramState.READY, program.crc)
    codes = make_codes(30)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


def test_device_begins_again_behind_a_lost_frame() -> None:
    lost: list[bytes] = []

    def outbound(data: bytes) -> bytes:
        if not lost and len(data) > 600:
            frames = data.split(b"\0")
            lost.append(frames.pop(1))
            return b"\0".join(frames)
        return data

    board = make_board(ACCELERATOR)
    assert open_program(TappedLink(board, outbound)).program_status().crc == PROGRAM.crc
    assert lost


def test_device_gives_up_a_load_that_gets_no_further() -> None:
    def outbound(data: bytes) -> bytes:
        return data if len(data) < 400 else data.split(b"\0")[0] + b"\0"

    link = TappedLink(make_board(ACCELERATOR), outbound)
    with pytest.raises(LinkError) as caught:
        open_program(link, max_retries=2)
    assert str(caught.value) == (
        "link 'model': the program could not be loaded: 3 faults without getting further than 240 of 620 bytes, the "
        "last: silence for 0.1 s; check the cable and the baud rate"
    )
    assert link.closed


def test_device_rejects_a_program_for_another_array() -> None:
    array = dataclasses.replace(ARRAY, rows=8)
    program = make_program(make_shared(array=array))
    link = Counting(make_board(ACCELERATOR))
    with pytest.raises(LinkError) as caught:
        open_program(link, program)
    assert str(caught.value) == (
        f"link 'model': the program is for array {array.id:08x}, the device has {ARRAY.id:08x}; "
        "load the bitstream of its build with 'nnhw program', or build the model for the device's array"
    )
    assert link.loads == 0


def refusing(reason: Refusal) -> ModelBoard:
    """Return a board that refuses every program at its end."""
    board = make_board(ACCELERATOR)
    assert board.memory is not None
    memory = board.memory
    take = memory.take

    def refuse(data: bytes) -> None:
        take(data)
        if memory.status.state == ProgramState.READY:
            memory.status = dataclasses.replace(memory.status, state=ProgramState.REFUSED, reason=reason)

    memory.take = refuse  # type: ignore[method-assign]
    return board


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Refusal.NO_IMAGE, "what came is no program"),
        (Refusal.OTHER_ARRAY, "the program is for another array"),
        (Refusal.LENGTH, "the program does not fit the memory"),
        (Refusal.CHECKSUM, "the checksum does not hold"),
    ],
)
def test_device_reports_why_a_program_was_refused(reason: Refusal, text: str) -> None:
    with pytest.raises(LinkError) as caught:
        open_program(ModelLink(refusing(reason)))
    assert str(caught.value) == (
        f"link 'model': the device did not accept the program (620 bytes, CRC {PROGRAM.crc:08x}): {text}; "
        "load the bitstream of this build with 'nnhw program' and try again"
    )


def test_device_reports_a_program_that_is_too_long() -> None:
    with pytest.raises(LinkError, match="the program does not fit the memory"):
        open_program(ModelLink(make_board(ACCELERATOR)), make_program(ACCELERATOR, bytes(4097)))


def test_device_rejects_a_damaged_program_before_it_sends_it() -> None:
    link = Counting(make_board(ACCELERATOR))
    device = open_program(link)
    with pytest.raises(InputError, match="the program is damaged"):
        device.load_program(PROGRAM.data[:50] + b"x" + PROGRAM.data[51:])
    assert link.loads == 3
    assert device.program_status().state is ProgramState.READY


def test_device_without_programs_does_not_know_the_command() -> None:
    accelerator = make_accelerator()
    device = Device(ModelLink(make_board(accelerator)), accelerator)
    with pytest.raises(LinkError) as caught:
        device.load_program(PROGRAM)
    assert str(caught.value) == (
        "link 'model': the device does not know the command PROGRAM; "
        "build the accelerator again with this nnhw, and load it with 'nnhw program'"
    )


def test_device_sends_no_image_to_another_program() -> None:
    """Another host, or the device's own flash, put it there."""
    board = make_board(ACCELERATOR)
    device = open_program(ModelLink(board))
    device.load_program(OTHER)
    with pytest.raises(BatchError) as caught:
        device.infer_codes(make_codes(3))
    assert str(caught.value) == (
        "link 'model': batch stopped after 0 of 3 images: the device has "
        f"program {OTHER.crc:08x}, not {PROGRAM.crc:08x} of this build: it was restarted, or loaded by another; "
        "open it again (the finished results are in the exception's 'results')"
    )
    device.load_program(PROGRAM)
    codes = make_codes(3)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


@pytest.mark.parametrize("restarted", [None, OTHER], ids=["empty", "from flash"])
def test_device_stops_when_it_was_restarted_in_a_batch(restarted: ProgramImage | None) -> None:
    accelerator = make_shared(1000)
    device = Device(ModelLink(make_board(accelerator)), accelerator, program=PROGRAM)

    def restart(finished: int, total: int) -> None:
        if finished == 7:
            fresh = make_board(accelerator)
            assert fresh.memory is not None
            if restarted is not None:
                fresh.memory.take(restarted.data)
            device.link.board = fresh  # type: ignore[attr-defined]

    codes = make_codes(150, 1000)
    with pytest.raises(BatchError, match="it was restarted, or loaded by another") as caught:
        device.infer_codes(codes, restart)
    assert 7 <= caught.value.finished < 150
    assert np.array_equal(caught.value.results, golden(codes[: caught.value.finished], 5))


class Interrupted(ModelLink):
    """Ctrl-C where the host asks what became of a program that it has sent."""

    sent = asked = False

    def write(self, data: bytes) -> None:
        super().write(data)
        commands = [frame.command for frame in FrameReader().feed(data) if frame is not None]
        self.asked = self.sent and Command.PROGRAM in commands
        self.sent |= Command.LOAD in commands

    def read(self, timeout_s: float) -> bytes:
        if self.asked:
            self.sent = self.asked = False
            raise KeyboardInterrupt
        return super().read(timeout_s)


def test_device_gives_no_answer_to_an_interrupted_load_to_the_next_question() -> None:
    board = make_board(ACCELERATOR)
    open_program(ModelLink(board)).close()
    device = open_program(Interrupted(board))
    with pytest.raises(KeyboardInterrupt):
        device.load_program(OTHER)
    assert board.memory is not None
    board.memory.status = dataclasses.replace(board.memory.status, crc=7)
    assert device.program_status().crc == 7


def test_model_board_drops_images_without_a_program() -> None:
    board = make_board(ACCELERATOR)
    assert board.exchange(encode_frame(Frame(Command.DATA, 0, bytes(12)))) == encode_frame(
        Frame(Command.ERROR, 0, bytes([Reason.PROGRAM]))
    )


def body() -> ir.Graph:
    """Return a graph that gives the first five codes as they are."""
    graph = ir.GraphBuilder("body")
    codes = graph.input("codes", ir.TensorType((12,), ir.IntType(0, 255)))
    return graph.build([graph.add("flat", ir.ops.Reshape((12,)), (codes,))])


def save_build(folder: Path, accelerator: Accelerator, program: ProgramImage | None) -> None:
    accelerator.save(folder)
    for name in ("head", "lower", "tail"):
        ir.save(body(), folder / f"{name}.ir")
    (folder / "lower.json").write_text('{"input": null}', encoding="utf-8")
    if program is not None:
        (folder / "program.bin").write_bytes(program.data)


def test_open_loads_the_program_of_a_build_folder(tmp_path: Path) -> None:
    accelerator = make_shared(12, 12)
    program = make_program(accelerator)
    save_build(tmp_path, accelerator, program)
    seen: list[int] = []
    device = nnhw.driver.open(tmp_path, "model", progress=lambda finished, total: seen.append(finished))
    assert device.program_status().crc == program.crc
    assert seen == [240, 480, 620] or seen == [620]
    codes = make_codes(3)
    assert np.array_equal(device.infer_codes(codes), codes)


def test_open_rejects_a_build_folder_without_its_program(tmp_path: Path) -> None:
    accelerator = make_shared(12, 12)
    save_build(tmp_path, accelerator, None)
    with pytest.raises(InputError) as caught:
        nnhw.driver.open(tmp_path, "model")
    assert str(caught.value) == f"build folder '{tmp_path}' has no 'program.bin'; run 'nnhw build' again"


def test_open_rejects_the_program_of_another_build(tmp_path: Path) -> None:
    program = make_program(make_shared(12, 9))
    accelerator = make_shared(12, 12)
    save_build(tmp_path, accelerator, program)
    with pytest.raises(InputError) as caught:
        read_program(tmp_path, accelerator)
    assert str(caught.value) == (
        f"'{tmp_path / 'program.bin'}' is for array {ARRAY.id:08x} and gives 36 bytes a frame, the accelerator beside "
        f"it has array {ARRAY.id:08x} and 48 bytes; run 'nnhw build' again"
    )


def test_open_asks_for_no_program_where_there_is_none(tmp_path: Path) -> None:
    accelerator = make_accelerator(12, 12)
    save_build(tmp_path, accelerator, None)
    device = nnhw.driver.open(tmp_path, make_model_link(accelerator, body()))
    codes = make_codes(3)
    assert np.array_equal(device.infer_codes(codes), codes)


def test_device_loads_a_program_of_more_frames_than_there_are_numbers() -> None:
    accelerator = make_shared(array=dataclasses.replace(ARRAY, words=1 << 14))
    image = make_program(accelerator, body=bytes(range(250)) * 300)
    device = Device(ModelLink(make_board(accelerator)), accelerator, program=image)
    # One RESET to open, one to load, one behind it.
    assert (device.program_status().crc, device.status().resets) == (image.crc, 3)
