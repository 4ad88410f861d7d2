"""Frames on their way: never more than their numbers tell apart, so that no loss shifts the answers of a batch."""

from __future__ import annotations

import dataclasses
from collections import deque
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.driver.framing import FrameReader
from nnhw.driver.links.base import LINE_WINDOW_BYTES, LINE_WRITE_BYTES
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.driver.sending import Pace, Sender
from nnhw.driver.session import Session
from nnhw.protocol import SEQUENCES, SESSIONS, WINDOW_FRAMES, Command, Frame, result_frames
from tests.driver.fakes import LostFrames, TappedLink, golden, make_accelerator, make_board, make_codes, open_toy

LOSSES = (1, WINDOW_FRAMES, SEQUENCES - 1, SEQUENCES, SEQUENCES + 1, 2 * SEQUENCES)


class Line(TappedLink):
    """A line without flow control."""

    flow_controlled = False
    window_bytes, write_bytes = LINE_WINDOW_BYTES, LINE_WRITE_BYTES


@pytest.mark.parametrize("lost", LOSSES)
@pytest.mark.parametrize("kind", [Line, TappedLink])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (12, 5), (7, 65)])
def test_device_is_right_when_results_are_lost(kind: type[TappedLink], inputs: int, outputs: int, lost: int) -> None:
    accelerator = make_accelerator(inputs, outputs)
    results = LostFrames(Command.RESULT, 300, lost)
    codes = make_codes(1500, inputs)
    device = open_toy(kind(make_board(accelerator), inbound=results), accelerator)
    assert np.array_equal(device.infer_codes(codes), golden(codes, outputs))
    assert results.seen >= len(codes) * result_frames(4 * outputs) + min(lost, 1)


@pytest.mark.parametrize("lost", LOSSES)
def test_device_is_right_when_images_are_lost(lost: int) -> None:
    """Images of one byte and of two frames each, all in one writing."""
    for inputs, count in ((1, 1500), (480, 300)):
        accelerator = make_accelerator(inputs, 2)
        images = LostFrames(Command.DATA, 20, lost)
        codes = make_codes(count, inputs)
        device = open_toy(TappedLink(make_board(accelerator), outbound=images), accelerator, max_retries=600)
        assert np.array_equal(device.infer_codes(codes), golden(codes, 2))


@pytest.mark.parametrize("lost", LOSSES)
def test_device_is_right_when_it_does_not_hear_what_is_taken(lost: int) -> None:
    accelerator = make_accelerator(480, 2)
    taken = LostFrames(Command.TAKEN, 20, lost)
    codes = make_codes(600, 480)
    device = open_toy(TappedLink(make_board(accelerator), inbound=taken), accelerator)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 2))
    assert taken.seen >= 1200


@pytest.mark.parametrize("lost", LOSSES)
def test_device_is_right_when_part_of_a_long_result_is_lost(lost: int) -> None:
    """An image whose output takes 512 frames, all full, so that a shift by 256 would not show in their sizes."""
    accelerator = make_accelerator(3, 512 * 60)
    results = LostFrames(Command.RESULT, 600, lost)
    codes = make_codes(4, 3)
    device = open_toy(TappedLink(make_board(accelerator), inbound=results), accelerator)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 512 * 60))
    # 424 frames of the second image are left when the loss begins.
    assert device.status().resets == (3 if lost > 424 else 2)


class Miscounting(ModelBoard):
    """Says once, of its tenth frame, that it has taken another number of frames than it has."""

    off_by = 0

    def _take(self, frame: Frame) -> bytes:
        answer = super()._take(frame)
        if self._taken != 10 or not self.off_by:
            return answer
        off_by, self.off_by = self.off_by, 0
        return self._encode(Frame(Command.TAKEN, (self._taken + off_by) % SEQUENCES))


@pytest.mark.parametrize(
    ("stepwise", "off_by"), [(True, 1), (True, 2), (True, -2), (False, -2), (False, -10), (False, -16)]
)
def test_device_believes_no_number_of_frames_that_cannot_be(stepwise: bool, off_by: int) -> None:
    """One more than were sent, or fewer than before, as of a frame that is late while a whole window is on its way."""
    accelerator = make_accelerator(480, 2)
    board, codes = make_board(accelerator), make_codes(300, 480)
    board = Miscounting(board.identity, board._compute)
    device = open_toy(ModelLink(board), accelerator)
    device.pace = dataclasses.replace(device.pace, window_bytes=1 << 20, stepwise=stepwise)
    board.off_by = off_by
    assert np.array_equal(device.infer_codes(codes), golden(codes, 2))
    assert device.status().resets == 2


def test_every_reset_has_a_token_that_is_no_zero_and_not_that_before() -> None:
    """Session 0 is that of a device that has just started, whose frames must not count."""
    tokens: list[int] = []

    def note(data: bytes) -> bytes:
        frames = [frame for frame in FrameReader().feed(data) if frame is not None]
        tokens.extend(frame.sequence for frame in frames if frame.command == Command.RESET)
        return data

    session = Session(TappedLink(make_board(make_accelerator()), outbound=note))
    for _ in range(2 * SESSIONS):
        session.reset()
    assert all(set(tokens[at : at + SESSIONS - 1]) == set(range(1, SESSIONS)) for at in range(SESSIONS))


def test_numbers_of_a_window_are_those_of_one_frame_each() -> None:
    assert 0 < WINDOW_FRAMES < SEQUENCES


@settings(max_examples=60, deadline=None)
@given(
    image_bytes=st.integers(1, 1000),
    image_results=st.integers(1, 600),
    images=st.integers(1, 700),
    window_bytes=st.integers(1, 100_000),
    stepwise=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_sender_keeps_to_what_numbers_tell_apart(
    image_bytes: int, image_results: int, images: int, window_bytes: int, stepwise: bool, seed: int
) -> None:
    """A device that takes and answers in any order that is allowed gets all images, and never too many frames."""
    random, pace = Random(seed), Pace(1.0, window_bytes, stepwise)
    sender = Sender(memoryview(bytes(images * image_bytes)), image_bytes, pace, image_results)
    sent = taken = came = results = arrived = 0
    on_the_way: deque[int] = deque()
    while sender.answered < images:
        for frame in sender.due(sent, taken, None):
            assert frame.sequence == sent % SEQUENCES
            sent += 1
            arrived += len(frame.payload)
            on_the_way.append(arrived)
        assert sent - taken <= (1 if stepwise else WINDOW_FRAMES)
        missing = arrived // image_bytes * image_results - results
        assert missing <= max(WINDOW_FRAMES, image_results)
        assert missing or on_the_way, "nothing is on its way, and nothing is sent"
        # Results come only of images that are taken as a whole.
        for _ in range(random.randint(0, len(on_the_way))):
            came, taken = on_the_way.popleft(), taken + 1
        ready = came // image_bytes * image_results - results
        for _ in range(random.randint(0, ready) if on_the_way else ready):
            sender.answer()
            results += 1
    assert (arrived, sent, results) == (images * image_bytes, taken, images * image_results)


@pytest.mark.parametrize(("image_bytes", "frame_bytes"), [(1, 60), (3, 180), (4, 240), (1000, 240)])
def test_sender_splits_frames_of_many_images(image_bytes: int, frame_bytes: int) -> None:
    """Four frames fit the window of results, so that the line is not idle until those of the first have come."""
    sender = Sender(memoryview(bytes(1000 * image_bytes)), image_bytes, Pace(1.0, 1 << 20, stepwise=False))
    sizes = [len(frame.payload) for frame in sender.due(0, 0, None)]
    assert set(sizes) == {frame_bytes}
    assert len(sizes) == (4 if image_bytes < 5 else WINDOW_FRAMES)


def test_device_uses_the_whole_window() -> None:
    """Results are waited for once in 240 images, not after each frame."""
    accelerator = make_accelerator(1, 1)
    reads: list[int] = []

    class Counted(ModelLink):
        def read(self, timeout_s: float) -> bytes:
            reads.append(len(self._waiting))
            return super().read(timeout_s)

    codes = make_codes(2400, 1)
    device = open_toy(Counted(make_board(accelerator)), accelerator)
    reads.clear()
    assert np.array_equal(device.infer_codes(codes), golden(codes, 1))
    assert len(reads) == 10


def test_pace_waits_for_no_more_images_than_the_window_holds() -> None:
    accelerator = make_accelerator(1, 1)
    device = open_toy(Line(make_board(accelerator)), accelerator)
    assert device.pace.window_bytes == WINDOW_FRAMES
