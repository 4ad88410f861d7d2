"""A device that several threads use, that is interrupted, that is closed; and images of other kinds than NumPy's."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from nnhw import ir
from nnhw.driver import BatchError, Device
from nnhw.driver.conversion import as_array
from nnhw.driver.links.base import closed_error
from nnhw.driver.links.hardware import HardwareLink
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.driver.sending import Fault, Pace, Sender
from nnhw.driver.turns import Turns
from nnhw.errors import ClosedError, InputError, LinkError
from nnhw.protocol import Frame
from tests.driver.fakes import golden, make_accelerator, make_board, make_codes, make_program, make_shared, open_toy

ACCELERATOR = make_accelerator()
CLOSED = "link 'model': the device is closed; open it again"


class Recorded(ModelLink):
    """Notes which thread uses it, whenever that is another one than before."""

    def __init__(self, board: ModelBoard) -> None:
        super().__init__(board)
        self.users: list[int | None] = []

    def write(self, data: bytes) -> None:
        self._note()
        super().write(data)

    def read(self, timeout_s: float) -> bytes:
        self._note()
        return super().read(timeout_s)

    def _note(self) -> None:
        if self.users[-1:] != [threading.get_ident()]:
            self.users.append(threading.get_ident())


class NoticedLock:
    """A lock that says when somebody comes to wait for it."""

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.comes = threading.Event()

    def __enter__(self) -> None:
        self.comes.set()
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def test_device_serves_threads_one_after_the_other() -> None:
    """The second one comes in the middle of the first one's batch."""
    link = Recorded(make_board(ACCELERATOR))
    device = open_toy(link, ACCELERATOR)
    codes, results = [make_codes(9000, seed=seed) for seed in range(2)], []
    second = threading.Thread(target=lambda: results.append(device.infer_codes(codes[1])))

    def begin(finished: int, total: int) -> None:
        if finished == 3:
            device._turns._lock = lock = NoticedLock(device._turns._lock)  # type: ignore[assignment]
            second.start()
            while not lock.comes.is_set() and link.users[-1] != second.ident:
                pass

    results.append(device.infer_codes(codes[0], begin))
    second.join()
    assert [np.array_equal(found, golden(one, 5)) for found, one in zip(results, codes, strict=True)] == [True, True]
    assert link.users == [threading.get_ident(), second.ident]


def test_device_serves_many_threads() -> None:
    threads, batches, together = 8, 5, threading.Barrier(8)
    device = open_toy(ModelLink(make_board(ACCELERATOR)), ACCELERATOR)

    def work(number: int) -> list[bool]:
        together.wait()
        codes = [make_codes(40, seed=100 * number + batch) for batch in range(batches)]
        return [np.array_equal(device.infer_codes(one), golden(one, 5)) for one in codes] + [device.status().images > 0]

    with ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(work, range(threads))) == [[True] * (batches + 1)] * threads
    assert device.status().resets == 1


class Held(ModelBoard):
    """Keeps its results back, but not its answers to questions, as an engine does that is slow."""

    held = False

    def _results(self) -> bytes:
        return b"" if self.held else super()._results()


class Interrupted(ModelLink):
    """Ctrl-C while the host waits for results; they come when the next batch is on its way."""

    def __init__(self, board: Held) -> None:
        super().__init__(board)
        self.held = board
        self.interrupts = 0

    def read(self, timeout_s: float) -> bytes:
        data = super().read(timeout_s)
        if self.held.held and not data:
            self.held.held = False
            self.interrupts += 1
            raise KeyboardInterrupt
        return data


def test_device_gives_no_result_of_an_interrupted_batch_to_the_next_one() -> None:
    board = make_board(ACCELERATOR)
    held = Held(board.identity, board._compute)
    link = Interrupted(held)
    device = open_toy(link, ACCELERATOR)
    held.held = True
    with pytest.raises(KeyboardInterrupt):
        device.infer_codes(make_codes(20))
    assert link.interrupts == 1
    codes = make_codes(20, seed=5)
    held.held = True
    questions = device._session.guard

    def release() -> None:
        questions()
        held.held = False

    device._session.guard = release
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


def test_device_gives_no_answer_to_an_interrupted_question_to_the_next_one() -> None:
    class Interrupting(ModelLink):
        interrupts = False

        def read(self, timeout_s: float) -> bytes:
            if self.interrupts:
                self.interrupts = False
                raise KeyboardInterrupt
            return super().read(timeout_s)

    link = Interrupting(make_board(ACCELERATOR))
    device = open_toy(link, ACCELERATOR)
    link.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        device.status()
    link.board._counters = dataclasses.replace(link.board._counters, bad_frames=7)
    assert device.status().bad_frames == 7


def test_device_takes_no_result_for_an_image_that_is_not_sent() -> None:
    """The line waits for each frame to be taken; the device answers an image of four frames behind the first."""
    accelerator = make_accelerator(784, 5, interval_cycles=10**6)
    early: list[bytes] = []

    class Eager(ModelBoard):
        def _take(self, frame: Frame) -> bytes:
            taken = super()._take(frame)
            if early:
                return taken
            early.append(self._result(bytes(20)))
            return taken + early[0]

    class Line(ModelLink):
        flow_controlled = False
        bytes_per_s = 300_000.0

    board = make_board(accelerator)
    codes = make_codes(3, 784)
    device = open_toy(Line(Eager(board.identity, board._compute)), accelerator)  # type: ignore[arg-type]
    assert device.pace.stepwise
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
    assert early


def test_sender_rejects_an_answer_to_an_image_that_is_not_sent() -> None:
    sender = Sender(memoryview(bytes(3 * 300)), 300, Pace(1.0, 1000, stepwise=True))
    sender.due(0, 0, None)
    with pytest.raises(Fault, match="a result came for an image that is not sent"):
        sender.answer()


USES: dict[str, Callable[[Device], Any]] = {
    "call": lambda device: device(np.ones((2, 12))),
    "no image": lambda device: device.infer_codes(make_codes(0)),
    "infer_codes": lambda device: device.infer_codes(make_codes(2)),
    "status": Device.status,
    "idle_status": Device.idle_status,
    "program_status": Device.program_status,
    "load_program": lambda device: device.load_program(make_program(make_shared())),
}


def parts() -> tuple[ir.Graph, ir.Graph]:
    """Return a head that quantizes with a scale of 1, and a tail that changes nothing."""
    head = ir.GraphBuilder("head")
    image = head.input("image", ir.TensorType((12,), ir.FLOAT))
    one = head.constant("one", np.array(1.0), ir.TensorType((), ir.FLOAT))
    tail = ir.GraphBuilder("tail")
    sums = tail.input("sums", ir.TensorType((5,), ir.IntType(-(2**31), 2**31 - 1)))
    return (
        head.build([head.add("codes", ir.ops.Quantize(0, 255), (image, one))]),
        tail.build([tail.add("out", ir.ops.Reshape((5,)), (sums,))]),
    )


@pytest.mark.parametrize("use", USES)
def test_device_rejects_use_after_close(use: str) -> None:
    device = Device(ModelLink(make_board(ACCELERATOR)), ACCELERATOR, *parts())
    device.close()
    device.close()
    with pytest.raises(ClosedError) as caught:
        USES[use](device)
    assert str(caught.value) == CLOSED


def test_links_reject_use_after_close() -> None:
    class Nothing:
        cycles = 0

        def transfer(self, data: bytes, budget_cycles: int) -> bytes:
            raise AssertionError("freed hardware is used")

        def close(self) -> None: ...

    hardware = HardwareLink(Nothing(), 48_000_000)  # type: ignore[arg-type]
    model = ModelLink(make_board(ACCELERATOR))
    for link in (hardware, model):
        link.close()
    for name, use in (("sim", lambda: hardware.read(0)), ("sim", hardware.now), ("model", lambda: model.read(0))):
        with pytest.raises(ClosedError, match=f"link '{name}': the device is closed; open it again"):
            use()
    with pytest.raises(ClosedError):
        model.write(b"\0")


def test_device_that_another_thread_closes_stops_its_batch() -> None:
    link = ModelLink(make_board(ACCELERATOR))
    device = open_toy(link, ACCELERATOR)
    closer = threading.Thread(target=device.close)
    codes = make_codes(9000)

    def close(finished: int, total: int) -> None:
        if finished == 3:
            closer.start()
            while not device._session.closed:
                pass

    with pytest.raises(BatchError) as caught:
        device.infer_codes(codes, close)
    closer.join()
    assert isinstance(caught.value.__cause__, ClosedError)
    assert 3 <= caught.value.finished < 9000
    assert np.array_equal(caught.value.results, golden(codes[: caught.value.finished], 5))


def test_turn_of_who_waited_is_none_behind_the_close() -> None:
    closed, ended = threading.Event(), list[str]()

    def check() -> None:
        if closed.is_set():
            raise closed_error("model")

    turns = Turns("model", check)

    def wait() -> None:
        try:
            with turns.take():
                ended.append("a turn")
        except ClosedError as error:
            ended.append(str(error))

    second = threading.Thread(target=wait)
    with turns.take():
        turns._lock = lock = NoticedLock(turns._lock)  # type: ignore[assignment]
        second.start()
        lock.comes.wait()
        closed.set()
    second.join()
    assert ended == [CLOSED]


def test_device_may_be_closed_by_who_is_told_about_progress() -> None:
    device = open_toy(ModelLink(make_board(ACCELERATOR)), ACCELERATOR)
    with pytest.raises(BatchError, match="the device is closed"):
        device.infer_codes(make_codes(9000), lambda finished, total: device.close())


def test_device_rejects_use_in_its_own_progress_function() -> None:
    device = open_toy(ModelLink(make_board(ACCELERATOR)), ACCELERATOR)
    codes = make_codes(3)
    with pytest.raises(LinkError) as caught:
        device.infer_codes(codes, lambda finished, total: device.status() and None)
    assert "the device is in the middle of a batch or a program that this thread itself has begun" in str(caught.value)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


def test_device_says_the_shapes_of_the_whole_model() -> None:
    head = ir.GraphBuilder("head")
    image = head.input("image", ir.TensorType((3, 4), ir.IntType(0, 255)))
    codes = head.add("codes", ir.ops.Reshape((12,)), (image,))
    accelerator = dataclasses.replace(ACCELERATOR, name="toy_body")
    with Device(ModelLink(make_board(ACCELERATOR)), accelerator, head.build([codes]), parts()[1]) as device:
        assert repr(device) == "<Device 'toy' on icebreaker, link 'model': images [3, 4] -> [5], model 3f1c09a5>"


def test_device_converts_tensors_that_numpy_has_not() -> None:
    torch = pytest.importorskip("torch")
    device = Device(ModelLink(make_board(ACCELERATOR)), ACCELERATOR, *parts())
    codes = make_codes(6)
    plain = torch.from_numpy(codes.astype(np.float32))
    expected = golden(codes, 5)
    given = [
        plain.to(torch.bfloat16),
        plain.to_sparse(),
        plain.to_sparse_csr(),
        plain.to(torch.bfloat16).to_sparse(),
        plain.clone().requires_grad_(),
        torch._neg_view(-plain),
    ]
    for images in given:
        results = device(images)
        assert isinstance(results, torch.Tensor)
        assert results.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            np.ones((2, 12), complex),
            "images: they hold complex128, but real numbers are needed; convert them to float32 or integers",
        ),
        (
            np.array([["a"]]),
            "images: they hold <U1, but real numbers are needed; convert them to float32 or integers",
        ),
        (
            [object()],
            "images: they hold object, but real numbers are needed; convert them to float32 or integers",
        ),
    ],
    ids=["complex", "text", "objects"],
)
def test_device_rejects_images_that_are_no_real_numbers(images: Any, message: str) -> None:
    device = Device(ModelLink(make_board(ACCELERATOR)), ACCELERATOR, *parts())
    with pytest.raises(InputError) as caught:
        device(images)
    assert str(caught.value) == message


def test_device_rejects_tensors_that_are_no_numbers() -> None:
    torch = pytest.importorskip("torch")
    for images in (torch.ones(2, 12, device="meta"), torch.ones(2, 12, dtype=torch.complex64)):
        with pytest.raises(InputError, match="images: "):
            as_array(images)


def test_device_rejects_lists_that_are_no_array() -> None:
    with pytest.raises(InputError, match=r"images: they are no array of numbers \(.*\); give an array \[N, ..\]"):
        as_array([[1, 2], [3]])
