"""The device on links that behave, and on links that fail in one known way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cobs import cobs

import nnhw.driver
from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.driver import BatchError, Device
from nnhw.driver.device import make_pace
from nnhw.driver.framing import FrameReader, encode_frame
from nnhw.driver.links.base import LINE_WINDOW_BYTES, LINE_WRITE_BYTES
from nnhw.driver.links.model import ModelBoard, ModelLink
from nnhw.errors import InputError, LinkError
from nnhw.ir.ops import Dequantize, Quantize
from nnhw.protocol import Command, Frame
from tests.driver.fakes import HASH, TappedLink, golden, make_accelerator, make_board, make_codes, open_toy


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (12, 5), (240, 60), (241, 61), (1000, 300)])
@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_device_infers_codes(inputs: int, outputs: int, count: int) -> None:
    accelerator = make_accelerator(inputs, outputs)
    codes = make_codes(count, inputs)
    with open_toy(ModelLink(make_board(accelerator)), accelerator) as device:
        for _ in range(2):
            got = device.infer_codes(codes)
            assert got.dtype == np.int64
            assert np.array_equal(got, golden(codes, outputs))


def test_device_reports_progress() -> None:
    accelerator = make_accelerator()
    seen: list[tuple[int, int]] = []
    open_toy(ModelLink(make_board(accelerator)), accelerator).infer_codes(
        make_codes(9), lambda finished, total: seen.append((finished, total))
    )
    assert seen == [(number, 9) for number in range(1, 10)]


def test_device_reads_status_and_identity() -> None:
    accelerator = make_accelerator(12, 65)
    device = open_toy(ModelLink(make_board(accelerator)), accelerator)
    device.infer_codes(make_codes(7))
    assert device.status().images == 7
    assert device.status().clock_hz == 48_000_000
    assert device.identity.model_hash == HASH[:16]


def test_device_goes_on_after_an_interrupted_batch() -> None:
    """Ctrl-C in the middle: what was on its way must not become the next batch's answer."""
    accelerator = make_accelerator()
    device = open_toy(ModelLink(make_board(accelerator)), accelerator)

    def interrupt(finished: int, total: int) -> None:
        if finished == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.infer_codes(make_codes(50), interrupt)
    codes = make_codes(20, seed=5)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


def test_device_opens_behind_an_abandoned_batch() -> None:
    """The host before died: half a frame is on the line, and answers wait."""
    accelerator = make_accelerator()
    board = make_board(accelerator)
    link = ModelLink(board)
    stale = encode_frame(Frame(Command.RESET, 1)) + encode_frame(Frame(Command.DATA, 0, bytes(100)))
    link.write(stale + encode_frame(Frame(Command.DATA, 1, bytes(range(1, 100))))[:50])
    codes = make_codes(20)
    assert np.array_equal(open_toy(link, accelerator).infer_codes(codes), golden(codes, 5))


def test_device_asks_again_after_a_result_of_another_size() -> None:
    accelerator = make_accelerator()
    short = [encode_frame(Frame(Command.RESULT, 0, b"12345"))]

    def inbound(data: bytes) -> bytes:
        frames = [part + b"\0" for part in data.split(b"\0")[:-1]]
        results = [frame for frame in frames if cobs.decode(frame[:-1])[0] == Command.RESULT]
        if results and short:
            return short.pop()
        return data

    codes = make_codes(3)
    device = open_toy(TappedLink(make_board(accelerator), inbound=inbound), accelerator)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
    assert not short


def test_device_rejects_another_model() -> None:
    board = make_board(make_accelerator(model_hash="00" * 32))
    link = TappedLink(board)
    with pytest.raises(LinkError) as caught:
        open_toy(link, make_accelerator())
    assert str(caught.value) == (
        "link 'model': the device runs model 0000000000000000, the build folder holds model 3f1c09a5b77e2d84 ('toy'); "
        "load this build with 'nnhw program', or open the folder of the other model"
    )
    assert link.closed


def test_device_rejects_other_sizes() -> None:
    with pytest.raises(LinkError) as caught:
        open_toy(ModelLink(make_board(make_accelerator(13))), make_accelerator(12))
    assert str(caught.value) == (
        "link 'model': the device takes 13 bytes an image and gives 20, "
        "the build folder's accelerator 'toy' 12 and 20; load this build with 'nnhw program'"
    )


def test_device_rejects_another_protocol_version() -> None:
    class Newer(ModelBoard):
        def _answer(self, frame: Frame, payload: bytes = b"") -> bytes:
            return super()._answer(frame, payload.replace(b"NNHW\2", b"NNHW\3"))

    accelerator = make_accelerator()
    plain = make_board(accelerator)
    with pytest.raises(LinkError, match="the device speaks protocol version 3, this nnhw speaks 2"):
        open_toy(ModelLink(Newer(plain.identity, lambda frames: frames)), accelerator)


@pytest.mark.parametrize(
    ("inbound", "what"),
    [
        (lambda data: b"", "nothing came"),
        (lambda data: b"garbage\0" * 3, "bytes came, "),
        (lambda data: b"\xff" * 1000, "bytes came, 0 broken frames"),
    ],
    ids=["silence", "garbage", "no delimiter"],
)
def test_device_rejects_a_link_without_a_device(inbound: object, what: str) -> None:
    accelerator = make_accelerator()
    link = TappedLink(make_board(accelerator), inbound=inbound)  # type: ignore[arg-type]
    with pytest.raises(LinkError) as caught:
        open_toy(link, accelerator)
    assert str(caught.value).startswith("link 'model': the device does not answer: ")
    assert what in str(caught.value)
    assert str(caught.value).endswith(
        "in 4 attempts of 0.1 s; is the accelerator loaded ('nnhw program'), the port the right one, "
        "and the baud rate that of the build?"
    )


def test_device_keeps_what_is_finished_when_the_link_dies() -> None:
    accelerator = make_accelerator()
    left = 3000

    def dying(data: bytes) -> bytes:
        nonlocal left
        kept = data[: max(0, left)]
        left -= len(data)
        return kept

    codes = make_codes(500)
    device = open_toy(TappedLink(make_board(accelerator), inbound=dying), accelerator)
    with pytest.raises(BatchError) as caught:
        device.infer_codes(codes)
    error = caught.value
    assert 20 < error.finished < 500
    assert np.array_equal(error.results, golden(codes[: error.finished], 5))
    assert str(error).startswith(f"link 'model': batch stopped after {error.finished} of 500 images: ")
    assert str(error).endswith("(the finished results are in the exception's 'results')")


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (np.zeros((3, 11), int), "needs codes of shape [N, 12], not [3, 11]; the first axis counts the images"),
        (np.zeros(12, int), "needs codes of shape [N, 12], not [12]; the first axis counts the images"),
        (np.zeros((3, 12)), "needs integer codes, not float64; call the device with images instead"),
        (
            np.full((2, 12), 256),
            (
                "needs codes of 0 to 255, but [0, 0] is 256; quantize as the model's first quantizer does, "
                "or call the device with images instead"
            ),
        ),
    ],
    ids=["shape", "no batch", "floats", "range"],
)
def test_device_rejects_codes(codes: np.ndarray, message: str) -> None:
    accelerator = make_accelerator()
    device = open_toy(ModelLink(make_board(accelerator)), accelerator)
    with pytest.raises(InputError) as caught:
        device.infer_codes(codes)
    assert str(caught.value) == f"accelerator 'toy' {message}"


def _parts(step: float = 0.25) -> tuple[ir.Graph, ir.Graph]:
    """Quantize by a step before the device, dequantize by 1/8 behind it."""
    head = ir.GraphBuilder("head")
    image = head.input("image", ir.TensorType((12,), ir.FLOAT))
    scale = head.constant("scale", np.array(step), ir.TensorType((), ir.FLOAT))
    codes = head.add("codes", Quantize(0, 255), (image, scale))
    tail = ir.GraphBuilder("tail")
    sums = tail.input("sums", ir.TensorType((5,), ir.IntType(-(2**31), 2**31 - 1)))
    eighth = tail.constant("eighth", np.array(0.125), ir.TensorType((), ir.FLOAT))
    out = tail.add("out", Dequantize(), (sums, eighth))
    return head.build([codes]), tail.build([out])


def test_device_runs_head_and_tail_in_the_form_of_the_images() -> None:
    torch = pytest.importorskip("torch")
    accelerator = make_accelerator()
    device = Device(ModelLink(make_board(accelerator)), accelerator, *_parts())
    codes = make_codes(6)
    images = (codes * 0.25).astype(np.float32)
    expected = golden(codes, 5) * 0.125
    assert np.array_equal(device(images), expected)
    answers = device(torch.from_numpy(images))
    assert isinstance(answers, torch.Tensor)
    assert np.array_equal(answers.numpy(), expected)


def test_device_rejects_images_that_are_not_finite() -> None:
    accelerator = make_accelerator()
    device = Device(ModelLink(make_board(accelerator)), accelerator, *_parts())
    images = np.zeros((3, 12))
    images[1, 4] = np.nan
    with pytest.raises(InputError) as caught:
        device(images)
    assert str(caught.value) == "images: [1, 4] is nan; every value must be finite; repair or drop that image"


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_device_rejects_bytes_for_a_model_of_small_numbers(kind: str) -> None:
    accelerator = make_accelerator()
    device = Device(ModelLink(make_board(accelerator)), accelerator, *_parts(1 / 255))
    # Only a later image has values that the model cannot take.
    images = np.zeros((40, 12), np.uint8)
    images[30, 4] = 200
    given = images if kind == "numpy" else pytest.importorskip("torch").from_numpy(images)
    with pytest.raises(InputError) as caught:
        device(given)
    assert str(caught.value) == (
        "images: they are uint8 with values up to 200, but the input of this model does not distinguish values from "
        "1 on, so it was made for smaller numbers; scale the images as in training, such as (x / 255)."
        "astype(np.float32), or use x.astype(np.float32) if the values are right as they are"
    )
    assert np.array_equal(device(images.astype(np.float32)), golden(np.minimum(images, 1) * 255, 5) * 0.125)


@pytest.mark.parametrize(("step", "most"), [(1.0, 255), (17.0, 255), (0.25, 255), (1 / 255, 1), (1 / 255, 0)])
def test_device_takes_bytes_that_its_input_tells_apart(step: float, most: int) -> None:
    accelerator = make_accelerator()
    device = Device(ModelLink(make_board(accelerator)), accelerator, *_parts(step))
    images = np.random.default_rng(1).integers(0, most + 1, (20, 12)).astype(np.uint8)
    assert np.array_equal(device(images), device(images.astype(np.float64)))


def test_device_rejects_images_without_head_and_tail() -> None:
    accelerator = make_accelerator()
    with pytest.raises(InputError) as caught:
        open_toy(ModelLink(make_board(accelerator)), accelerator)(np.zeros((1, 12)))
    assert str(caught.value) == (
        "this device was opened without head and tail; use infer_codes, or open a build folder"
    )


class _Line(ModelLink):
    """A line without flow control."""

    flow_controlled = False
    bytes_per_s = 300_000.0
    window_bytes, write_bytes = LINE_WINDOW_BYTES, LINE_WRITE_BYTES


@pytest.mark.parametrize(
    ("inputs", "outputs", "interval_cycles", "stepwise"),
    [
        (98, 10, 200, False),
        (98, 10, 20_000, True),
        (12, 50, 100, True),
        (784, 10, 100_000, False),
        (784, 10, 130_000, True),
    ],
)
def test_pace_steps_where_the_line_is_faster(inputs: int, outputs: int, interval_cycles: int, stepwise: bool) -> None:
    accelerator = make_accelerator(inputs, outputs, interval_cycles=interval_cycles)
    board = make_board(accelerator)
    assert make_pace(_Line(board), accelerator, 48_000_000).stepwise is stepwise
    assert make_pace(ModelLink(board), accelerator, 48_000_000).stepwise is False


@pytest.mark.parametrize(("inputs", "outputs", "images"), [(100, 10, 50), (100, 125, 10), (4000, 10, 2), (10, 9000, 2)])
def test_pace_fills_the_window_of_the_larger_side(inputs: int, outputs: int, images: int) -> None:
    accelerator = make_accelerator(inputs, outputs)
    link = ModelLink(make_board(accelerator))
    link.window_bytes = 5000
    assert make_pace(link, accelerator, 48_000_000).window_bytes == images * inputs


def test_device_steps_frame_by_frame() -> None:
    """With a slow engine, no frame leaves before the one before it is taken."""
    accelerator = make_accelerator(784, 10, interval_cycles=10**6)
    writes: list[int] = []

    class Watched(_Line):
        def write(self, data: bytes) -> None:
            writes.append(
                sum(frame is not None and frame.command == Command.DATA for frame in FrameReader().feed(data))
            )
            super().write(data)

    codes = make_codes(5, 784)
    device = open_toy(Watched(make_board(accelerator)), accelerator)
    assert np.array_equal(device.infer_codes(codes), golden(codes, 10))
    assert max(writes) == 1
    assert sum(writes) == -(-5 * 784 // 240)


def _build_folder(folder: Path) -> Accelerator:
    """Write the files of a build that a driver reads; return the accelerator."""
    accelerator = make_accelerator()
    accelerator.save(folder)
    for graph, name in zip(_parts(), ("head", "tail"), strict=True):
        ir.save(graph, folder / f"{name}.ir")
    (folder / "lower.json").write_text('{"input": null}', encoding="utf-8")
    return accelerator


def test_open_takes_a_build_folder(tmp_path: Path) -> None:
    accelerator = _build_folder(tmp_path)
    codes = make_codes(4)
    with nnhw.driver.open(tmp_path, ModelLink(make_board(accelerator))) as device:
        assert np.array_equal(device(codes * 0.25), golden(codes, 5) * 0.125)


def test_open_rejects_sim(tmp_path: Path) -> None:
    _build_folder(tmp_path)
    with pytest.raises(InputError) as caught:
        nnhw.driver.open(tmp_path, "sim")
    assert str(caught.value) == (
        "link 'sim' needs the compiled hardware, which the driver alone cannot make; use nnhw.open"
    )
