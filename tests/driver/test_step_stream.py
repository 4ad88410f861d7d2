"""Sequences: batches of unlike lengths and streams, on links that behave, and on those that lose frames."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.accelerator import Accelerator
from nnhw.driver import BatchError, Device
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.driver.step_stream import StepStream
from nnhw.errors import ClosedError, InputError, LinkError
from nnhw.ir import Builder, Graph, IntType
from nnhw.protocol import DeviceIdentity
from sim.noise import FrameNoise, Noise
from tests.driver.fakes import TappedLink, make_accelerator, make_board

FEATURES, RESULTS = 3, 2
MODULUS = 251
LENGTHS = (1, 9, 10, 1, 4)
TURNS = (1, 2, 3, 7)


def make_recurrent(last_step: bool = False, turns: int = 1) -> Accelerator:
    """Return an accelerator whose frames are steps."""
    plain = make_accelerator(FEATURES, RESULTS)
    i_format = dataclasses.replace(plain.input_format, headed=True, turns=turns)
    o_format = dataclasses.replace(plain.output_format, last_step=last_step)
    return dataclasses.replace(plain, input_format=i_format, output_format=o_format)


def after(state: int, codes: np.ndarray) -> int:
    """Return the state behind a step."""
    return (7 * state + int(codes @ [1, 2, 3])) % MODULUS


def expected(sequence: np.ndarray) -> np.ndarray:
    """Return int64 [steps, RESULTS], the results behind the steps of a sequence."""
    state, results = 1, []
    for codes in sequence:
        state = after(state, codes)
        results.append([state, -3 * state])
    return np.array(results, np.int64).reshape(-1, RESULTS)


class StatefulBoard(ModelBoard):
    """A board that keeps the states of some sequences from step to step, and loses them when it is reset."""

    def __init__(self, accelerator: Accelerator) -> None:
        identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, 48_000_000)
        super().__init__(identity, self.run_steps)
        self.accelerator = accelerator
        self.values = [-1] * accelerator.input_format.turns
        self.steps = 0

    def run_steps(self, frames: np.ndarray) -> np.ndarray:
        """Return the results of steps, in bytes."""
        form = self.accelerator.input_format
        results = []
        for codes, begins in zip(form.unpack(frames), form.begins(frames), strict=True):
            value = after(1 if begins else self.values[0], codes)
            self.values = [*self.values[1:], value]
            results.append([value, -3 * value])
        self.steps += len(frames)
        return self.accelerator.output_format.pack(np.array(results))

    def _reset(self, token: int) -> None:
        super()._reset(token)
        self.values = [-1] * len(self.values)


def sequences(*lengths: int, seed: int = 1) -> list[np.ndarray]:
    """Return codes of sequences, [steps, FEATURES] each."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, (length, FEATURES)) for length in lengths]


def open_board(
    outbound: Callable[[bytes], bytes] = bytes,
    inbound: Callable[[bytes], bytes] = bytes,
    last_step: bool = False,
    turns: int = 1,
) -> tuple[Device, StatefulBoard]:
    """Return a device with a head and a tail that change nothing, and its board."""
    accelerator = make_recurrent(last_step, turns)
    board = StatefulBoard(accelerator)
    link = TappedLink(board, outbound, inbound)
    return Device(link, accelerator, *ends(last_step)), board


def ends(last_step: bool) -> tuple[Graph, Graph]:
    """Return head and tail of the model: numbers are codes, and results are numbers."""
    head = Builder("head")
    steps = head.input("x", (FEATURES,), is_sequence=True)
    tail = Builder("tail")
    element = make_recurrent().output_format.element
    values = tail.input("y", (RESULTS,), element.low, element.high, is_sequence=not last_step)
    return head.build(steps.quantize(1.0, 0, 255)), tail.build(values.dequantize(0.5))


@pytest.mark.parametrize("turns", TURNS)
def test_sequences_of_unlike_lengths_give_their_results(turns: int) -> None:
    device, _ = open_board(turns=turns)
    given_codes = sequences(*LENGTHS)
    for got, codes in zip(device.infer_codes(given_codes), given_codes, strict=True):
        assert got.dtype == np.int64
        assert np.array_equal(got, expected(codes))


@pytest.mark.parametrize("turns", TURNS)
def test_sequences_in_one_array_give_one_array(turns: int) -> None:
    device, _ = open_board(turns=turns)
    codes = np.stack(sequences(5, 5, 5))
    assert np.array_equal(device.infer_codes(codes), np.stack([expected(one) for one in codes]))
    assert device.infer_codes(codes[:0]).shape == (0, 5, RESULTS)
    assert device.infer_codes([]) == []


@pytest.mark.parametrize("turns", TURNS)
def test_only_the_last_result_counts_where_the_network_ends_in_the_last_step(turns: int) -> None:
    device, _ = open_board(last_step=True, turns=turns)
    codes = sequences(*LENGTHS)
    assert np.array_equal(device.infer_codes(codes), np.stack([expected(one)[-1] for one in codes]))
    assert device.infer_codes([]).shape == (0, RESULTS)


@pytest.mark.parametrize("turns", TURNS)
def test_every_result_is_that_of_each_step(turns: int) -> None:
    device, _ = open_board(last_step=True, turns=turns)
    codes = sequences(*LENGTHS)
    assert np.array_equal(device.every_result(codes), np.concatenate([expected(one) for one in codes]))


def test_model_takes_sequences_as_numbers() -> None:
    device, _ = open_board()
    codes = np.stack(sequences(6, 6))
    assert np.array_equal(device(codes.astype(np.float64)), 0.5 * np.stack([expected(one) for one in codes]))


def test_batch_behind_a_fault_goes_on_from_the_first_step_of_its_sequence() -> None:
    """The answer behind the sixth step is lost on its way, when the board has gone further."""
    spoil = [False]

    def inbound(data: bytes) -> bytes:
        if not spoil[0] or len(data) < 40:
            return data
        spoil[0] = False
        return data[: len(data) // 2] + data[len(data) // 2 + 9 :]

    device, board = open_board(inbound=inbound)
    codes = sequences(3, 20, 2)
    spoil[0] = True
    results = device.infer_codes(codes)
    assert not spoil[0]
    assert board.steps > 25
    assert all(np.array_equal(got, expected(one)) for got, one in zip(results, codes, strict=True))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    chance=st.sampled_from([0.0, 1e-3, 5e-3, 2e-2]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    kind=st.sampled_from([Noise, FrameNoise]),
    last_step=st.booleans(),
    turns=st.sampled_from(TURNS),
)
def test_sequences_are_right_or_an_error_is_reported(
    seed: int, chance: float, lengths: list[int], kind: type[Noise], last_step: bool, turns: int
) -> None:
    codes = sequences(*lengths, seed=seed % 1000)
    wanted = [expected(one)[-1] if last_step else expected(one) for one in codes]
    try:
        device, _ = open_board(kind(seed, chance), kind(seed + 1, chance), last_step, turns)
    except LinkError:
        assert chance > 0
        return
    failed = False
    try:
        results = device.infer_codes(codes)
    except BatchError as error:
        failed, results = True, error.results
    assert failed or len(results) == len(lengths)
    assert all(np.array_equal(got, right) for got, right in zip(results, wanted, strict=False))
    assert chance > 0 or not failed


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    chance=st.sampled_from([0.0, 2e-3, 1e-2]),
    kind=st.sampled_from([Noise, FrameNoise]),
    turns=st.sampled_from(TURNS),
)
def test_streams_are_right_or_report_an_error(seed: int, chance: float, kind: type[Noise], turns: int) -> None:
    """Two streams take turns, with batches in between; a step that failed is given again."""
    rng = np.random.default_rng(seed)
    try:
        device, _ = open_board(kind(seed, chance), kind(seed + 1, chance), last_step=True, turns=turns)
    except LinkError:
        return
    streams = [device.stream(), device.stream()]
    codes = sequences(15, 15, seed=seed % 1000)
    failures = 0
    while min(stream.steps for stream in streams) < 15 and failures < 20:
        index = int(rng.integers(2))
        stream, step = streams[index], streams[index].steps
        if step == 15:
            continue
        try:
            if rng.random() < 0.1:
                device.infer_codes(codes[:1])
            result = stream(codes[index][step].astype(np.float64))
        except BatchError:
            failures += 1
            assert stream.steps == step
            continue
        assert np.array_equal(result, 0.5 * expected(codes[index])[step])
    assert chance > 0 or not failures


def test_stream_has_the_first_turn_of_a_device_of_several_sequences() -> None:
    device, board = open_board(last_step=True, turns=3)
    codes = sequences(24)[0]
    stream, run = device.stream(), steps_of(codes)
    run(stream, 0, 17)
    assert board.steps == 3 * 17
    saved = stream.save()
    device.infer_codes(sequences(2, 5))
    board.steps = 0
    run(stream, 17, 20)
    assert board.steps == 3 * 20
    stream.set(saved)
    run(stream, 17, 24)


def test_sequences_of_like_lengths_share_their_turns() -> None:
    device, board = open_board(turns=2)
    codes = sequences(1, 9, 1, 9, 4)
    results = device.infer_codes(codes)
    assert board.steps == 2 * 9 + 2 * 4 + 2 * 1
    assert all(np.array_equal(got, expected(one)) for got, one in zip(results, codes, strict=True))


def test_stream_sends_one_step_at_a_time_and_all_again_where_its_state_is_lost() -> None:
    device, board = open_board(last_step=True)
    codes = sequences(12)[0]
    run = steps_of(codes)
    with device.stream() as stream:
        run(stream, 0, 6)
        assert board.steps == 6
        device.infer_codes([codes[:2]])
        run(stream, 6, 8)
        assert board.steps == 6 + 2 + 7 + 1
        saved = stream.save()
        run(stream, 8, 12)
        stream.set(saved)
        assert stream.steps == 8
        board.steps = 0
        run(stream, 8, 12)
        assert board.steps == 12
        stream.reset()
        run(stream, 0, 3)
        assert board.steps == 15


def steps_of(codes: np.ndarray) -> Callable[[StepStream, int, int], None]:
    """Return what gives a stream some steps of a sequence, and checks each result."""
    results = expected(codes)

    def run(stream: StepStream, first: int, end: int) -> None:
        for step in range(first, end):
            assert np.array_equal(stream(codes[step].astype(np.float64)), 0.5 * results[step])

    return run


def test_stream_keeps_more_steps_than_it_has_room_for_at_first() -> None:
    device, _ = open_board(last_step=True)
    codes = sequences(50)[0]
    stream, run = device.stream(), steps_of(codes)
    run(stream, 0, 45)
    device.infer_codes(sequences(1))
    run(stream, 45, 50)


def test_saved_state_goes_to_another_stream() -> None:
    device, _ = open_board(last_step=True)
    codes = sequences(9)[0]
    one, other, run = device.stream(), device.stream(), steps_of(codes)
    run(one, 0, 5)
    other.set(one.save())
    run(other, 5, 9)
    run(one, 5, 9)


def test_streams_of_results_for_each_step_give_them_without_the_axis_of_steps() -> None:
    device, _ = open_board(last_step=False)
    codes = sequences(4)[0]
    steps_of(codes)(device.stream(), 0, 4)


def test_tensors_come_back_as_tensors() -> None:
    import torch

    device, _ = open_board(last_step=True)
    codes = sequences(2)[0]
    result = device.stream()(torch.from_numpy(codes[:1]).double())
    assert isinstance(result, torch.Tensor)
    assert np.array_equal(result.numpy(), 0.5 * expected(codes)[0])


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros((2, 0, FEATURES), int), "one step or more of each sequence"),
        ([np.zeros((2, FEATURES), int), np.zeros((0, FEATURES), int)], "one step or more of each sequence"),
        (np.zeros((2, 4, FEATURES + 1), int), r"codes of shape \[N, steps, 3\], not \[2, 4, 4\]"),
        (np.zeros((4, FEATURES), int), r"codes of shape \[N, steps, 3\], not \[4, 3\]"),
        ([np.zeros(FEATURES, int)], r"codes of shape \[steps, 3\], not \[3\]"),
        ([np.zeros((2, FEATURES))], "integer codes, not float64"),
        ([np.full((2, FEATURES), 256)], "codes of 0 to 255"),
    ],
)
def test_codes_that_are_no_sequences_are_refused(codes: object, message: str) -> None:
    device, board = open_board()
    with pytest.raises(InputError, match=message):
        device.infer_codes(codes)  # type: ignore[arg-type]
    assert board.steps == 0


def test_step_of_another_shape_is_refused() -> None:
    device, board = open_board()
    with pytest.raises(InputError, match=r"a step has shape \[3\], given \[5, 3\]"):
        device.stream()(np.zeros((5, FEATURES)))
    assert board.steps == 0


def test_state_of_another_accelerator_is_refused() -> None:
    device, _ = open_board()
    saved = device.stream().save()
    other = dataclasses.replace(saved, frames=np.zeros((2, 9), np.uint8))
    with pytest.raises(InputError, match="frames of 9 bytes is not of accelerator 'toy', which takes 4"):
        device.stream().set(other)


def test_network_without_a_state_has_no_stream() -> None:
    accelerator = make_accelerator()
    device = Device(ModelLink(make_board(accelerator)), accelerator)
    with pytest.raises(InputError, match="keeps no state from one image to the next"):
        device.stream()


def test_stream_needs_head_and_tail() -> None:
    accelerator = make_recurrent()
    device = Device(ModelLink(StatefulBoard(accelerator)), accelerator)
    with pytest.raises(InputError, match="without head and tail"):
        device.stream()


def test_device_says_that_it_takes_steps() -> None:
    device, _ = open_board()
    assert "link 'model': steps [3] -> [2], model" in repr(device)
    assert ">steps<" in device._repr_html_()


def test_closed_device_takes_no_step() -> None:
    device, _ = open_board()
    stream = device.stream()
    device.close()
    with pytest.raises(ClosedError):
        stream(np.zeros(FEATURES))
    with pytest.raises(ClosedError):
        device.stream()


def test_wide_elements_keep_the_beat_in_front_of_a_step() -> None:
    form = dataclasses.replace(make_recurrent().input_format, element=IntType(0, 3), per_byte=1, beat_bytes=3)
    codes = np.arange(12).reshape(4, 3) % 4
    begins = np.array([True, False, False, True])
    frames = form.pack_steps(codes, begins)
    assert frames.shape == (4, form.frame_bytes) == (4, 6)
    assert np.array_equal(form.unpack(frames), codes)
    assert np.array_equal(form.begins(frames), begins)
    assert frames[:, :3].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]
