"""Networks behind a sensor: from the sensor's bits to the result, equal to PyTorch; and what is refused."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nnhw
from nnhw import sensors
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.errors import BoardError, DoesNotFitError, InputError, MappingError
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.implementation.timing_closure import usable_clocks
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.sensor_build import check_formats, check_speed, sensor_options
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.verification import sensing
from nnhw.flow.verification.netlist import find_pins, sensor_bench
from nnhw.flow.verification.sensing import PLAYERS, run_sensor, run_sensor_netlist
from nnhw.flow.virtual.device_hardware import make_sensor_device
from nnhw.flow.virtual.sensor import SensorOutput
from nnhw.frontend.source import Source, sensed
from nnhw.hdl.sensors.sensor_device import CONNECTIONS
from nnhw.hdl.top import make_top
from nnhw.nn import AveragePixels, Int, LogMel, QuantConv2d, QuantLinear, QuantReLU, SensorModel, UInt
from nnhw.sensors import LogMelConfig
from nnhw.sensors.results import lines_of

HEARING = {"window": 64, "hop": 32, "bands": 4, "steps": 4, "lowest_hz": 150.0, "highest_hz": 3000.0}
SEEING = {"width": 12, "height": 10, "left": 1, "top": 1, "rows": 4, "columns": 5, "block": 2, "bits": 4}


def hearing(end: nn.Module | None = None, start: nn.Module | None = None, **parameters: Any) -> SensorModel:
    """Return a small network behind a microphone."""
    torch.manual_seed(4)
    given = {**HEARING, **parameters}
    inner = (given["steps"] - 1) * (given["bands"] - 1) * 3
    network = nn.Sequential(
        *(start or Int(8, scale=2**-6), QuantConv2d(1, 3, 2, weight_quant=Int(4)), QuantReLU(4), nn.Flatten()),
        *(QuantLinear(inner, 5, weight_quant=Int(4)), end or Int(8, scale=2**-5)),
    )
    return SensorModel(LogMel(**given), network)


def sounds(count: int = 2, samples: int = 128) -> torch.Tensor:
    """Return noise of a loudness for each of them, whole numbers [count, samples]."""
    rng = np.random.default_rng(1)
    loudness = 2.0 ** np.linspace(14, 6, count)[:, None]
    return torch.from_numpy(rng.normal(0, loudness, (count, samples)).round().clip(-32768, 32767)).float()


def seeing() -> SensorModel:
    """Return a small network behind a camera."""
    torch.manual_seed(2)
    network = nn.Sequential(UInt(4, scale=2**-4), nn.Flatten(), QuantLinear(20, 6, weight_quant=Int(4)), Int(8, 2**-5))
    return SensorModel(AveragePixels(**SEEING), network)


def test_microphone_to_result_equals_pytorch_in_every_frame(tmp_path: Path) -> None:
    model, example = hearing(), sounds()
    made = nnhw.build(model, example, input="i2s", out=tmp_path / "b", stop_at="sense", frames=6, progress=False)
    assert made.report["sensor"] == {
        **{"input": "i2s", "front": "log_mel", "frames": 6, "codes": 0, "labels": 0, "lines": 0}
    }
    labels = model(example).argmax(2)
    assert len(set(labels.flatten().tolist())) > 1, "frames that are all alike show little"


def test_pdm_microphone_to_result_equals_pytorch(tmp_path: Path) -> None:
    model, out = hearing(), tmp_path / "b"
    made = nnhw.build(model, sounds(1), input="pdm", out=out, stop_at="elaborate", progress=False)
    pins = load_board("icebreaker").pdm
    assert pins is not None
    clock_hz = int(made.report["planned"]["clock_hz"])
    verilog = (out / "sensor.v").read_text(encoding="utf-8")
    run = run_sensor(verilog, out, model.front.config, pins, clock_hz, 3)
    assert run.equal
    assert (run.frames, run.elements) == (3, 12)


def test_camera_to_result_equals_pytorch_and_a_wrong_pixel_is_found(tmp_path: Path) -> None:
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (5, 10, 12)))
    model, out = seeing(), tmp_path / "b"
    made = nnhw.build(model, images, input="camera", out=out, stop_at="elaborate", progress=False)
    assert len(set(model(images).argmax(2).flatten().tolist())) > 1
    verilog, front = (out / "sensor.v").read_text(encoding="utf-8"), model.front.config
    pins = load_board("icebreaker").camera
    assert pins is not None
    clock_hz = int(made.report["planned"]["clock_hz"])
    run = run_sensor(verilog, out, front, pins, clock_hz, 5)
    assert run.equal
    assert (run.frames, run.elements) == (5, 100)
    # The device is the same, and what it is compared with is another one.
    moved = dataclasses.replace(front, left=2)
    kept = np.load(out / "signals.npz")
    np.savez(out / "signals.npz", signals=kept["signals"], labels=kept["labels"], codes=moved.codes(kept["signals"]))
    assert run_sensor(verilog, out, front, pins, clock_hz, 5).codes > 10


def test_netlist_of_a_camera_shows_the_results_of_pytorch_at_its_pins(tmp_path: Path) -> None:
    images, out = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (4, 10, 12))), tmp_path / "b"
    board, front = load_board("icebreaker").with_input("camera"), seeing().front.config
    made = nnhw.build(seeing(), images, input="camera", out=out, stop_at="map", progress=False)
    clock_hz, accelerator = int(made.report["planned"]["clock_hz"]), Accelerator.load(out)
    settings = next(clock for clock in usable_clocks(board) if clock.output_hz == clock_hz)
    design = make_top(lambda hz: make_sensor_device(accelerator, front, board, hz), board, settings)
    synthesize(design.rtlil, board, out)
    run = run_sensor_netlist(out, board, front, clock_hz, 4, SilentProgress())
    assert (run.samples, run.mismatches, run.bad_frames) == (4, 0, 0)
    # The wire of a pixel's highest bit is cut.
    document = json.loads((out / NETLIST).read_text(encoding="utf-8"))
    top = document["modules"]["top"]
    (pad,) = top["ports"]["nnhw_sensor_0__data_7__io"]["bits"]
    cells = [cell for cell in top["cells"].values() if cell["type"] == "SB_IO"]
    (cell,) = (one for one in cells if one["connections"]["PACKAGE_PIN"] == [pad])
    cell["connections"]["PACKAGE_PIN"] = top["ports"]["nnhw_sensor_0__data_6__io"]["bits"]
    (out / NETLIST).write_text(json.dumps(document), encoding="utf-8")
    assert run_sensor_netlist(out, board, front, clock_hz, 4, SilentProgress()).mismatches


def test_bench_of_a_sensor_connects_the_pins_that_the_board_has() -> None:
    board = load_board("icebreaker").with_input("i2s")
    names = ["clk12_0__io", "uart_0__tx__io", *(f"nnhw_sensor_0__{name}__io" for name in ("sd", "bclk", "ws"))]
    names += [f"nnhw_result_0__{name}__io" for name in ("label_0", "label_1", "label_2", "label_3", "changes")]
    pins = find_pins(dict.fromkeys(names), board)
    assert pins.inputs == {"sensor_sd": "nnhw_sensor_0__sd__io"}
    assert set(pins.outputs) == {"tx", "sensor_bclk", "sensor_ws", "result_changes"} | {
        f"result_label_{number}" for number in range(4)
    }
    text = sensor_bench(board)
    assert all(f".{name}(" in text for name in ("clk", *pins.inputs, *pins.outputs))
    assert "assign label[4] = 0;" in text
    without = sensor_bench(dataclasses.replace(board, result=None))
    assert "assign label[0] = 0;" in without
    assert "assign changes = 0;" in without


def test_what_is_missing_or_too_much_counts_as_a_difference() -> None:
    codes, labels = np.arange(6).reshape(3, 2), np.array([1, 2, 3])
    part = sensing._Part(sensing.SensorInput(codes, 10, 4), codes, labels)

    def differences(codes: list[int], labels: list[int], text: bytes) -> tuple[int, ...]:
        came = SensorOutput(np.array(codes, np.uint8), np.array(labels, np.uint8), text)
        return sensing._compared(part, came)[2:5]

    text = lines_of(labels)
    assert differences([*range(6)], [1, 2, 3], text) == (0, 0, 0)
    assert differences([*range(5)], [1, 2], text[:-3]) == (1, 1, 1)
    assert differences([*range(7)], [1, 2, 3, 3], text + b"03\n") == (1, 1, 1)
    assert differences([0, 1, 2, 3, 4, 9], [1, 9, 3], b"01\n02\n04\n") == (1, 1, 1)
    assert differences([], [], b"") == (6, 3, 3)


def test_frames_of_a_sensor_are_the_example_of_its_network() -> None:
    model, example = hearing(), sounds(3, 32 * 9)
    source = sensed(Source(model, example, "net"))
    assert source.model is model.network
    assert source.example_input.shape == (14, 1, 4, 4)
    assert source.signals is example
    with pytest.raises(InputError, match=r"of shape \[2, 31\], gives no frame of LogMel"):
        sensed(Source(model, sounds(2, 31), "net"))
    with pytest.raises(InputError, match=r"LogMel: signals are \[N, samples\] of whole numbers from -32768 to 32767"):
        sensed(Source(model, sounds() + 0.5, "net"))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: hearing(start=Int(8, scale=2**-5)), "begins with a quantizer whose codes are those of LogMel; use"),
        (lambda: hearing(start=UInt(8, scale=2**-6)), "codes -128 to 127; the first quantizer of the network gives 0"),
        (
            lambda: hearing(end=nn.Identity()),
            "nothing may change which result is the largest; end the network in a quantizer with one scale, such as",
        ),
    ],
    ids=["scale", "range", "no quantizer at the end"],
)
def test_sensor_rejects_a_network_that_does_not_fit_to_it(model: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=re.escape(message)):
        nnhw.build(model(), sounds(), input="i2s", out=tmp_path / "b", stop_at="map", progress=False)


def test_sensor_rejects_models_without_a_front_end_or_with_another_one(tmp_path: Path) -> None:
    options: dict[str, Any] = {"out": tmp_path / "b", "stop_at": "map", "progress": False}
    plain = seeing().network
    with pytest.raises(InputError, match="--input i2s needs a model that begins with a front end, and this one has"):
        nnhw.build(plain, torch.rand(2, 1, 4, 5), input="i2s", **{**options, "out": tmp_path / "plain"})
    with pytest.raises(InputError, match="--input i2s is for the I2S microphone of a board, and the model"):
        nnhw.build(seeing(), torch.zeros(2, 10, 12), input="i2s", **options)


def test_sensor_rejects_clocks_that_miss_the_sampling_rate() -> None:
    board, front = load_board("icebreaker").with_input("i2s"), LogMelConfig()
    with pytest.raises(InputError, match="with 4 or more cycles in half a bit clock"):
        sensor_options(
            board, LogMelConfig(rate_hz=60000, bands=2, lowest_hz=1000, highest_hz=20000), Options(clock_hz=25.5e6)
        )
    chosen = sensor_options(board, front, Options())
    assert chosen.target_fps == pytest.approx(62.5 * 1.05)
    assert chosen.clock_hz is not None
    assert board.sensor is not None
    assert not board.sensor.clock_problem(chosen.clock_hz, 8000)
    assert board.sensor.clock_problem(12e6, 8000) == (
        "I2S microphone: the model wants 8000 samples a second, and a clock of 12 MHz makes 7812 (12 MHz / 128 / 12); "
        "it must be within 2%, with 4 or more cycles in half a bit clock; use another --clock"
    )


def test_sensor_rejects_a_network_that_is_slower_than_its_frames_or_has_a_state(tmp_path: Path) -> None:
    nnhw.build(hearing(), sounds(), input="i2s", out=tmp_path / "b", stop_at="map", progress=False)
    accelerator = Accelerator.load(tmp_path / "b")
    check_speed(accelerator, LogMelConfig(**HEARING), 24e6)
    with pytest.raises(DoesNotFitError, match=r"at 0.01 MHz a frame comes every 40 cycles, and the network takes \d+"):
        check_speed(accelerator, LogMelConfig(**HEARING), 10e3)
    recurrent = dataclasses.replace(
        accelerator, input_format=dataclasses.replace(accelerator.input_format, headed=True)
    )
    with pytest.raises(MappingError, match="a recurrent network has to be told where a sequence begins, which no sens"):
        check_formats(recurrent, LogMelConfig(**HEARING))


def test_boards_without_the_pins_or_the_link_are_named_before_the_model_is_read(tmp_path: Path) -> None:
    file = tmp_path / "never_run.py"
    file.write_text("raise SystemExit")
    with pytest.raises(BoardError, match="board 'icestick' has no pins for the input 'i2s'"):
        build_file(str(file), "icestick", Options(input="i2s"))
    with pytest.raises(BoardError, match="board 'icestick' has no link 'usb'"):
        build_file(str(file), "icestick", Options(link="usb"))


def test_front_ends_and_sensors_have_a_row_in_every_table() -> None:
    fronts = [front for front in vars(sensors).values() if hasattr(front, "signal_axes")]
    fronts = [front for front in fronts if front is not sensors.SensorFront]
    assert {front.kind for front in fronts} == CONNECTIONS.keys() == {"log_mel", "pixels"}
    assert {kind for front in fronts for kind in front.inputs} == sensors.INPUTS.keys() == PLAYERS.keys()
    needed = {name for name in vars(sensors.SensorFront) if not name.startswith("_")}
    needed |= sensors.SensorFront.__annotations__.keys()
    assert {front.kind: [name for name in needed if not hasattr(front, name)] for front in fronts} == {
        "log_mel": [],
        "pixels": [],
    }


def test_boards_without_the_pins_are_named() -> None:
    with pytest.raises(BoardError) as error:
        load_board("icestick").with_input("i2s")
    assert str(error.value) == (
        "board 'icestick' has no pins for the input 'i2s'; its board file has no sensor; give one with a table 'i2s' "
        "that names the pins 'bclk', 'ws', 'sd'"
    )
    with pytest.raises(
        BoardError, match="--input is one of 'i2s', 'pdm', 'camera'; given 'ears'; board 'icebreaker' has"
    ):
        load_board("icebreaker").with_input("ears")
