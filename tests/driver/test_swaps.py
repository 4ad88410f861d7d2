"""Another bitstream behind an open link, between batches and in the middle of one: an error, and no row of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from nnhw.driver import BatchError, Device
from nnhw.driver.framing import FrameReader, encode_frame
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.errors import LinkError, OtherDeviceError
from nnhw.protocol import Command, Frame
from tests.driver.fakes import (
    HASH,
    SwappedBoard,
    golden,
    make_accelerator,
    make_board,
    make_codes,
    make_program,
    make_shared,
    open_toy,
    refusal,
)

OTHER_HASH = "77" * 32
ACCELERATOR = make_accelerator(240, 5)
"""An image is a frame, and an answer is one: after 256 of both, the sequences are those of a device just started."""
SAME = (
    "the device was loaded with another bitstream while its link was open: it runs model 7777777777777777 at 48 MHz "
    "now, and not model 3f1c09a5b77e2d84 at 48 MHz ('toy'); load this build with 'nnhw program' and open it again"
)


def other_board() -> ModelBoard:
    """Return a board of another model of the same shapes, whose every answer is wrong."""
    return make_board(make_accelerator(240, 5, OTHER_HASH), wrong_by=1)


def fresh_board() -> ModelBoard:
    """Return the right board as it is after power-up."""
    return make_board(ACCELERATOR)


def swapping_link(board: ModelBoard, swaps: dict[int, ModelBoard]) -> ModelLink:
    """Return a link behind which the board changes; see `SwappedBoard`."""
    return ModelLink(SwappedBoard(board, swaps))  # type: ignore[arg-type]


def test_device_rejects_a_swap_between_batches() -> None:
    link = ModelLink(fresh_board())
    device = open_toy(link, ACCELERATOR)
    codes = make_codes(5, 240)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
    link.board = other_board()
    for _ in range(2):
        with pytest.raises(BatchError) as caught:
            device.infer_codes(codes)
        assert str(caught.value) == (
            f"link 'model': batch stopped after 0 of 5 images: {SAME}; no result of this batch is kept"
        )
        assert isinstance(caught.value.__cause__, OtherDeviceError)
        assert (caught.value.finished, len(caught.value.results)) == (0, 0)
    link.board = fresh_board()
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


@pytest.mark.parametrize(
    "ask", [Device.status, Device.idle_status, Device.program_status], ids=lambda ask: ask.__name__
)
def test_device_rejects_another_one_s_answer_to_a_question(ask: Callable[[Device], object]) -> None:
    link = ModelLink(fresh_board())
    device = open_toy(link, ACCELERATOR)
    link.board = other_board()
    with pytest.raises(OtherDeviceError, match=re.escape(SAME)):
        ask(device)


@pytest.mark.parametrize("at", [0, 1, 100, 255, 256, 257, 512, 599])
def test_device_keeps_no_row_of_a_batch_in_which_it_was_swapped(at: int) -> None:
    device = open_toy(swapping_link(fresh_board(), {at: other_board()}), ACCELERATOR)
    with pytest.raises(BatchError, match=re.escape(SAME)) as caught:
        device.infer_codes(make_codes(600, 240))
    assert (caught.value.finished, len(caught.value.results)) == (0, 0)


@pytest.mark.parametrize("at", [0, 1, 100, 255, 256, 257, 512, 599])
@pytest.mark.parametrize("frames", [1, 44, 256, 300])
def test_device_is_right_when_it_was_another_one_for_a_while(at: int, frames: int) -> None:
    """What comes back is just started, too: it begins anew where the right one was left."""
    codes = make_codes(600, 240)
    device = open_toy(swapping_link(fresh_board(), {at: other_board(), at + frames: fresh_board()}), ACCELERATOR)
    assert refusal(device, codes) in ("", SAME)


@pytest.mark.parametrize("at", [0, 1, 100, 255, 256, 257, 512, 599])
def test_device_is_right_when_its_board_was_reset(at: int) -> None:
    codes = make_codes(600, 240)
    device = open_toy(swapping_link(fresh_board(), {at: fresh_board()}), ACCELERATOR)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


@pytest.mark.parametrize("at", [0, 1, 256])
def test_device_with_a_program_is_asked_who_it_is(at: int) -> None:
    """The other array has the same program."""
    accelerator = make_shared(240)
    program, other = make_program(accelerator), make_board(accelerator, wrong_by=1)
    other.identity = other_board().identity
    assert other.memory is not None
    other.memory.take(program.data)
    device = Device(swapping_link(make_board(accelerator), {at: other}), accelerator, program=program)
    with pytest.raises(BatchError, match="was loaded with another bitstream while its link was open") as caught:
        device.infer_codes(make_codes(600, 240))
    assert len(caught.value.results) == 0


def test_device_asks_who_it_is_before_a_program_is_loaded() -> None:
    accelerator = make_shared()
    program, link = make_program(accelerator), ModelLink(make_board(accelerator))
    device = Device(link, accelerator, program=program)
    link.board = make_board(accelerator)
    link.board.identity = other_board().identity
    with pytest.raises(OtherDeviceError):
        device.load_program(program)


class Watched(ModelLink):
    """Lists the frames of the host."""

    def __init__(self, board: ModelBoard) -> None:
        super().__init__(board)
        self.commands: list[int] = []

    def write(self, data: bytes) -> None:
        self.commands += [frame.command for frame in FrameReader().feed(data) if frame is not None]
        super().write(data)


@pytest.mark.parametrize("has_program", [False, True])
def test_device_is_asked_by_one_frame_a_batch(has_program: bool) -> None:
    accelerator = make_shared() if has_program else make_accelerator()
    link = Watched(make_board(accelerator))
    device = Device(link, accelerator, program=make_program(accelerator) if has_program else None)
    device.infer_codes(make_codes(3))
    for _ in range(2):
        link.commands.clear()
        device.infer_codes(make_codes(3))
        assert link.commands == [*[Command.PROGRAM] * has_program, Command.IDENTIFY, Command.DATA]


def test_device_gives_no_row_of_another_one_in_the_same_state() -> None:
    """Its session and its sequences fit: what it says about itself is all that tells."""
    board, other = fresh_board(), other_board()
    link = ModelLink(board)
    device = open_toy(link, ACCELERATOR)
    other._session, other._taken, other._counters = board._session, board._taken, board._counters
    link.board = other
    with pytest.raises(BatchError, match=re.escape(SAME)) as caught:
        device.infer_codes(make_codes(5, 240))
    assert len(caught.value.results) == 0


def test_device_gives_no_row_before_it_has_said_who_it_is() -> None:
    class Shy(ModelBoard):
        shy = False

        def _answer(self, frame: Frame, payload: bytes = b"") -> bytes:
            return b"" if self.shy and frame.command == Command.IDENTIFY else super()._answer(frame, payload)

    board = Shy(fresh_board().identity, other_board()._compute)
    device = open_toy(ModelLink(board), ACCELERATOR)
    board.shy = True
    with pytest.raises(BatchError, match="no answer to IDENTIFY") as caught:
        device.infer_codes(make_codes(5, 240))
    assert len(caught.value.results) == 0


def test_device_is_asked_behind_every_reset() -> None:
    accelerator = make_shared()
    link = Watched(make_board(accelerator))
    device = Device(link, accelerator, program=make_program(accelerator))
    link.board = make_board(accelerator)
    with pytest.raises(BatchError, match="the device has no program"):
        device.infer_codes(make_codes(3))
    device.load_program(make_program(accelerator))
    device.infer_codes(make_codes(3))
    device._session.reset()
    device.status()
    resets = [place for place, command in enumerate(link.commands) if command == Command.RESET]
    assert len(resets) > 4
    assert {link.commands[place + 1] for place in resets} == {Command.IDENTIFY}


def test_device_rejects_one_that_knows_no_sessions() -> None:
    class Older(ModelBoard):
        def _encode(self, frame: Frame) -> bytes:
            return encode_frame(frame)

    board = fresh_board()
    with pytest.raises(LinkError) as caught:
        open_toy(ModelLink(Older(board.identity, lambda frames: frames)), ACCELERATOR)
    assert str(caught.value) == (
        "the device speaks protocol version 1, this nnhw speaks 2; build and load the accelerator again with this nnhw"
    )


def test_device_says_what_it_is() -> None:
    device = open_toy(ModelLink(fresh_board()), ACCELERATOR)
    assert repr(device) == f"<Device 'toy' on icebreaker, link 'model': images [240] -> [5], model {HASH[:8]}>"
    device.close()
    assert repr(device) == f"<Device 'toy' on icebreaker, link 'model': closed, images [240] -> [5], model {HASH[:8]}>"
