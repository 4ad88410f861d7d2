"""Drivers for microcontrollers against the gateware, through the pins of its SPI port."""

from __future__ import annotations

import ast
import ctypes
import dataclasses
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nnhw
from nnhw import ir
from nnhw.boards import load_board
from nnhw.driver.links.model import ModelBoard
from nnhw.errors import InputError
from nnhw.export.driver import DriverModel, make_driver
from nnhw.flow.commands.exporting_driver import export_driver
from nnhw.flow.virtual.compiled import find_cc
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.spi import SpiDevice
from nnhw.nn import Int, QuantLinear, UInt
from nnhw.protocol import Command, DeviceIdentity
from tests.driver.fakes import LostFrames
from tests.hdl.link.engines import HangingEngine, SumEngine
from tests.hdl.link.spi_pins import SpiPins

CC = find_cc()
MICROPYTHON = shutil.which("micropython")
needs_cc = pytest.mark.skipif(CC is None, reason="needs a C compiler (gcc, clang, or 'pip install ziglang')")
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic")
ROOT = Path(__file__).resolve().parents[2]
HASH = "3f1c09a5b77e2d84"
MODEL = DriverModel("sums", HASH, 12, 5, 8_000_000, 512, ("An image: 12 bytes.",))
COUNT = 8
"""Images of a batch without faults."""
MANY = 40
"""Images of a batch with faults."""
FEW = 10
"""Images of a batch with faults through a whole network, whose cycles take long."""
OK, NO_ANSWER, OTHER_MODEL, BAD_LINK = 0, 1, 4, 5
_TRANSFER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_SHIM = """
#include "@MODEL@_model.h"
static nnhw_device device;
typedef void (*transfer)(void *, const uint8_t *, uint8_t *, size_t);
int test_open(transfer function)
{
    nnhw_port port = {function, NULL, NULL};
    return nnhw_open(&device, &port, &@MODEL@_model, 40);
}
int test_infer(const uint8_t *images, uint8_t *outputs, uint32_t count, uint32_t *done)
{
    return nnhw_infer(&device, images, outputs, count, done);
}
uint32_t test_faults(void) { return device.faults; }
"""


def device(model_hash: str = HASH, engine: Any = None) -> SpiDevice:
    return SpiDevice(LinkedEngine(engine or SumEngine(12, 5), DeviceIdentity(model_hash, 12, 5, 48_000_000)))


def images(count: int) -> tuple[bytes, bytes]:
    """Return images, zeros among them, and their outputs, one behind the other."""
    made = [bytes((number * place * 7) & 0xFF for place in range(12)) for number in range(count)]
    outputs = [bytes((sum(image) + 3 * place) & 0xFF for place in range(5)) for image in made]
    return b"".join(made), b"".join(outputs)


class CDriver:
    """The C, compiled as a library, whose transfers go to the pins.

    Parameters
    ----------
    folder: has the files of the driver, or takes those of a model.
    """

    def __init__(self, folder: Path, pins: Any, model: DriverModel = MODEL, exported: bool = False) -> None:
        self._model = model
        for name, text in ({} if exported else make_driver(model, "c")).items():
            (folder / name).write_text(text)
        (folder / "shim.c").write_text(_SHIM.replace("@MODEL@", model.name))
        assert CC is not None
        command = [*CC, *FLAGS, "-O1", "-shared", "-fPIC", "-o", "driver.so", "nnhw_spi.c", "shim.c"]
        subprocess.run(command, cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "driver.so"))

        def transfer(_: Any, send: int, receive: int, count: int) -> None:
            ctypes.memmove(receive, pins.transfer(ctypes.string_at(send, count)), count)

        self._transfer = _TRANSFER(transfer)

    def open(self) -> int:
        return int(self._library.test_open(self._transfer))

    def infer(self, data: bytes) -> tuple[int, int, bytes]:
        """Return status, images done, and their outputs."""
        count, done, size = len(data) // self._model.input_bytes, ctypes.c_uint32(), self._model.output_bytes
        outputs = ctypes.create_string_buffer(size * count)
        status = self._library.test_infer(data, outputs, count, ctypes.byref(done))
        return status, done.value, outputs.raw[: size * done.value]

    @property
    def faults(self) -> int:
        return int(self._library.test_faults())


def python_driver() -> Any:
    """Return the module of the MicroPython driver."""
    module = types.ModuleType("nnhw_spi")
    exec(make_driver(MODEL, "micropython")["nnhw_spi.py"], module.__dict__)
    return module


def python_model(model: DriverModel = MODEL) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(make_driver(model, "micropython")["sums_model.py"], names)
    return dict(names["MODEL"])


@needs_cc
@pytest.mark.parametrize(("count", "fault_rate"), [(COUNT, 0.0), (MANY, 0.04)])
def test_c_driver_gives_the_outputs_of_the_gateware(tmp_path: Path, count: int, fault_rate: float) -> None:
    pins, (data, outputs) = SpiPins(device()), images(count)
    driver = CDriver(tmp_path, pins)
    assert driver.open() == OK
    pins.fault_rate = fault_rate
    assert driver.infer(data) == (OK, count, outputs)
    assert (driver.faults > 0) == (pins.faults > 0) == (fault_rate > 0)


@needs_cc
def test_c_driver_survives_a_restart_and_rejects_another_bitstream(tmp_path: Path) -> None:
    pins, (data, outputs) = SpiPins(device()), images(4)
    driver = CDriver(tmp_path, pins)
    assert driver.open() == OK
    pins.replace(device())
    assert driver.infer(data) == (OK, 4, outputs)
    pins.replace(device("00" * 8))
    assert driver.infer(data) == (OTHER_MODEL, 0, b"")
    assert driver.open() == OTHER_MODEL


@needs_cc
def test_exported_driver_gives_the_outputs_of_the_model_under_faults(tmp_path: Path) -> None:
    """From a PyTorch module to C that drives the RTL through its pins: the integers are those of the graph."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(UInt(4, scale=2**-4), QuantLinear(6, 5, weight_quant=Int(4, "max_abs"))).eval()
    example = torch.rand(4, 6)
    options: Any = {"style": "streaming", "link": "spi", "frames": 0}
    build = nnhw.build(model, example, name="small", out=tmp_path / "b", stop_at="map", **options)
    export_driver(build.path, to="c", out=tmp_path / "driver")
    accelerator, board = build.accelerator, load_board("icebreaker").with_link("spi")
    pins = SpiPins(make_linked_device(accelerator, board.target_clock_hz, board.host_link))
    known = dataclasses.replace(
        MODEL, name="small", input_bytes=accelerator.device_bytes[0], output_bytes=accelerator.device_bytes[1]
    )
    driver = CDriver(tmp_path / "driver", pins, known, exported=True)
    codes = np.random.default_rng(1).integers(0, 16, (FEW, 6))
    expected = accelerator.output_format.pack(ir.run(ir.load(build.path / "lower.ir"), codes)[0]).tobytes()
    assert driver.open() == OK
    pins.fault_rate = 0.2
    assert driver.infer(accelerator.input_format.pack(codes).tobytes()) == (OK, FEW, expected)
    assert driver.faults > 0


class _Dead:
    def __init__(self, byte: int) -> None:
        self.byte = byte

    def transfer(self, data: bytes) -> bytes:
        return bytes([self.byte]) * len(data)


@needs_cc
def test_c_driver_says_that_nothing_answers(tmp_path: Path) -> None:
    wires = _Dead(0x00)
    driver = CDriver(tmp_path, wires)
    for wires.byte in (0x00, 0xFF, 0x55):
        assert driver.open() == NO_ANSWER


@needs_cc
def test_c_driver_gives_up_on_an_engine_that_hangs(tmp_path: Path) -> None:
    driver = CDriver(tmp_path, SpiPins(device(engine=HangingEngine())))
    assert driver.open() == OK
    assert driver.infer(images(2)[0]) == (BAD_LINK, 0, b"")


@pytest.mark.parametrize(("count", "fault_rate"), [(COUNT, 0.0), (MANY, 0.04)])
def test_micropython_driver_gives_the_outputs_of_the_gateware(count: int, fault_rate: float) -> None:
    pins, (data, outputs) = SpiPins(device()), images(count)
    driver = python_driver().Accelerator(pins.transfer, python_model())
    pins.fault_rate = fault_rate
    assert driver.infer(data) == outputs
    assert (driver.faults > 0) == (pins.faults > 0) == (fault_rate > 0)


def test_micropython_driver_survives_a_restart_and_rejects_another_bitstream() -> None:
    module, pins, (data, outputs) = python_driver(), SpiPins(device()), images(4)
    driver = module.Accelerator(pins.transfer, python_model())
    pins.replace(device())
    assert driver.infer(data) == outputs
    pins.replace(device("00" * 8))
    with pytest.raises(module.NnhwError, match="another model"):
        driver.infer(data)


def test_micropython_driver_says_that_nothing_answers() -> None:
    module, attempt = python_driver(), _Dead(0xFF).transfer
    build: Callable[[], Any] = lambda: module.Accelerator(attempt, python_model())  # noqa: E731
    with pytest.raises(module.NnhwError, match="does not answer"):
        build()


class Wires:
    """SPI to a board in Python that computes in no time; it loses RESULT frames in a row.

    Parameters
    ----------
    first, lost: frames that pass before, and that are lost.
    """

    def __init__(self, image_bytes: int, output_bytes: int, first: int, lost: int) -> None:
        identity = DeviceIdentity(HASH, image_bytes, output_bytes, 48_000_000)
        self._board = ModelBoard(identity, lambda images: np.repeat(images[:, :1] * 3, output_bytes, axis=1))
        self._lost = LostFrames(Command.RESULT, first, lost)
        self._waiting = bytearray()

    def transfer(self, data: bytes) -> bytes:
        session = self._board._session
        answers = self._lost(self._board.exchange(bytes(data)))
        if self._board._session != session:
            self._waiting.clear()  # RESET empties the device
        self._waiting += answers
        answer = bytes(self._waiting[: len(data)])
        del self._waiting[: len(data)]
        return answer + bytes(len(data) - len(answer))


BURSTS = [(1, 1, lost) for lost in (1, 255, 256, 257, 512)] + [(3, 250, 256), (1, 1, 0)]
"""Bytes of an image and of an output, and RESULT frames that are lost."""


def burst(image_bytes: int, output_bytes: int, lost: int) -> tuple[Wires, DriverModel, bytes, bytes]:
    """Return wires, the model at their end, images that differ from their neighbours, and their outputs."""
    model = dataclasses.replace(MODEL, input_bytes=image_bytes, output_bytes=output_bytes)
    given = np.random.default_rng(lost).integers(0, 256, (1500, image_bytes), np.uint8)
    outputs = np.repeat(given[:, :1] * 3, output_bytes, axis=1)
    return Wires(image_bytes, output_bytes, 300, lost), model, given.tobytes(), outputs.tobytes()


@needs_cc
@pytest.mark.parametrize(("image_bytes", "output_bytes", "lost"), BURSTS)
def test_c_driver_is_right_when_results_are_lost(
    tmp_path: Path, image_bytes: int, output_bytes: int, lost: int
) -> None:
    wires, model, data, outputs = burst(image_bytes, output_bytes, lost)
    driver = CDriver(tmp_path, wires, model)
    assert driver.open() == OK
    assert driver.infer(data) == (OK, 1500, outputs)
    assert (driver.faults > 0) == (lost > 0)


@pytest.mark.parametrize(("image_bytes", "output_bytes", "lost"), BURSTS)
def test_micropython_driver_is_right_when_results_are_lost(image_bytes: int, output_bytes: int, lost: int) -> None:
    wires, model, data, outputs = burst(image_bytes, output_bytes, lost)
    driver = python_driver().Accelerator(wires.transfer, python_model(model))
    assert driver.infer(data) == outputs
    assert (driver.faults > 0) == (lost > 0)


_REPLAY = """
class Wires:
    def __init__(self, log):
        self.log = log

    def transfer(self, data):
        sent, answer = self.log.pop(0)
        assert bytes(data) == sent
        return answer

wires = Wires(LOG)
driver = Accelerator(wires.transfer, MODEL)
assert driver.infer(IMAGES) == OUTPUTS
assert not wires.log
print("faults", driver.faults)
"""


@pytest.mark.skipif(MICROPYTHON is None, reason="needs micropython, the port for Unix")
def test_micropython_driver_does_the_same_in_micropython(tmp_path: Path) -> None:
    """CPython drives the gateware under faults; MicroPython has to send the same bytes for the same answers."""
    pins, (data, outputs), log = SpiPins(device(), fault_rate=0.04), images(MANY), []

    def transfer(sent: bytes) -> bytes:
        log.append((bytes(sent), pins.transfer(bytes(sent))))
        return log[-1][1]

    driver = python_driver().Accelerator(transfer, python_model())
    assert driver.infer(data) == outputs
    assert driver.faults > 0
    given = f"MODEL = {python_model()!r}\nLOG = {log!r}\nIMAGES = {data!r}\nOUTPUTS = {outputs!r}\n"
    script = tmp_path / "replay.py"
    script.write_text(make_driver(MODEL, "micropython")["nnhw_spi.py"] + given + _REPLAY)
    done = subprocess.run([str(MICROPYTHON), str(script)], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (f"faults {driver.faults}", 0), done.stderr


def test_micropython_driver_uses_nothing_that_micropython_lacks() -> None:
    """MicroPython 1.27 has no `*` in a tuple or list, deletes no part of a bytearray, has no typing."""
    tree = ast.parse(make_driver(MODEL, "micropython")["nnhw_spi.py"])
    found = {type(node).__name__ for node in ast.walk(tree)}
    assert not found & {"Starred", "Delete", "Match", "AnnAssign", "TryStar"}
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert modules == {"struct", "binascii"}


_PICO = {
    "hardware/gpio.h": """
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
enum { GPIO_FUNC_SPI = 1, GPIO_OUT = 1 };
void gpio_init(unsigned);
void gpio_put(unsigned, bool);
bool gpio_get(unsigned);
void gpio_set_dir(unsigned, bool);
void gpio_set_function(unsigned, int);
""",
    "hardware/spi.h": """
typedef struct spi_inst spi_inst_t;
extern spi_inst_t *const spi0;
unsigned spi_init(spi_inst_t *, unsigned);
int spi_write_read_blocking(spi_inst_t *, const uint8_t *, uint8_t *, size_t);
""",
    "pico/time.h": "void sleep_us(uint64_t);",
}
"""What the example calls, as the Pico SDK declares it."""


def example(language: str) -> str:
    """Return the program of the page in a language."""
    text = (ROOT / "docs" / "microcontrollers.md").read_text(encoding="utf-8")
    (program,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return str(program)


@needs_cc
def test_example_for_an_rp2040_compiles_without_warnings(tmp_path: Path) -> None:
    model = dataclasses.replace(MODEL, name="mnist_mlp")
    for name, text in {**make_driver(model, "c"), **_PICO, "example.c": example("c")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert CC is not None
    subprocess.run([*CC, *FLAGS, "-I.", "-c", "example.c", "nnhw_spi.c"], cwd=tmp_path, check=True)


def test_example_for_an_esp32_gives_the_output_of_the_gateware(monkeypatch: pytest.MonkeyPatch) -> None:
    pins, (data, outputs) = SpiPins(device()), images(1)
    levels = []

    class Spi:
        def __init__(self, number: int, **settings: Any) -> None:
            assert settings.keys() == {"baudrate", "sck", "mosi", "miso"}

        def write_readinto(self, sent: bytes, answer: bytearray) -> None:
            assert levels[-1] == 0
            answer[:] = pins.transfer(bytes(sent))

    class Pin:
        OUT = 1

        def __init__(self, number: int, mode: int = 0, value: int = 0) -> None:
            levels.append(value)

        def __call__(self, value: int) -> None:
            levels.append(value)

    modules = {
        "machine": {"SPI": Spi, "Pin": Pin},
        "mnist_mlp_model": {"MODEL": python_model()},
        "nnhw_spi": vars(python_driver()),
    }
    for name, members in modules.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**members))
    names: dict[str, Any] = {"image": data}
    exec(example("python"), names)
    assert names["output"] == outputs
    assert levels[-1] == 1


@pytest.mark.parametrize(("name", "word"), [("net", "net"), ("net-2.b", "net_2_b"), ("8x8", "model_8x8")])
def test_export_driver_makes_names_that_c_takes(name: str, word: str) -> None:
    from nnhw.flow.commands.exporting_driver import _identifier

    assert _identifier(name) == word


def test_make_driver_rejects_other_languages() -> None:
    with pytest.raises(InputError) as caught:
        make_driver(MODEL, "rust")
    assert str(caught.value) == "--to is one of c, micropython; given 'rust'"


@pytest.mark.parametrize(
    ("link", "programs", "headed", "message"),
    [
        (
            "uart",
            (),
            False,
            "is for the board's link 'uart', and drivers for microcontrollers are for 'spi'; build it with --link spi",
        ),
        (
            "spi",
            (1,),
            False,
            (
                "has a shared engine, to which the driver would have to send a program, which it cannot; build it with "
                "--style streaming"
            ),
        ),
        (
            "spi",
            (),
            True,
            (
                "keeps a state from step to step, which the driver could not restore behind a fault, as it sends only "
                "the image again that has no answer; build it with another link, and drive it from a computer"
            ),
        ),
    ],
)
def test_export_driver_rejects_a_build_that_it_cannot_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, programs: tuple[int, ...], headed: bool, message: str
) -> None:
    from nnhw.flow.commands import exporting_driver

    accelerator = types.SimpleNamespace(programs=programs, input_format=types.SimpleNamespace(headed=headed))
    monkeypatch.setattr(exporting_driver, "board_of", lambda *_: load_board("icebreaker").with_link(link))
    monkeypatch.setattr(exporting_driver, "read_fact", lambda *_: {})
    monkeypatch.setattr(exporting_driver.BuildFolder, "open", lambda path: _Folder(path))
    monkeypatch.setattr(exporting_driver.Accelerator, "load", lambda path: accelerator)
    with pytest.raises(InputError) as caught:
        exporting_driver.export_driver(tmp_path)
    assert str(caught.value) == f"build '{tmp_path}' {message}"


class _Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def require(self, stage: str) -> None:
        assert stage == "map"
