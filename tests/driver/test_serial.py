"""Serial ports: a pair of pseudo-terminals with a board behind it, ports that fail, ports that are found."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from serial.tools import list_ports

from nnhw.driver import BatchError
from nnhw.driver.connecting import make_link
from nnhw.driver.device import make_pace
from nnhw.driver.links import serial as module
from nnhw.driver.links.serial import SerialLink, UsbSerialLink, find_port
from nnhw.errors import ClosedError, LinkError
from tests.driver.fakes import SwappedBoard, golden, make_accelerator, make_board, make_codes, open_toy, refusal

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pseudo-terminals as on Linux")


@contextmanager
def far_end(answer: Callable[[bytes], bytes | None]) -> Iterator[str]:
    """Lend the name of a port whose far end answers with a function; None takes the port away."""
    master, slave = os.openpty()
    name = os.ttyname(slave)

    def serve() -> None:
        while True:
            try:
                data = os.read(master, 4096)
            except OSError:
                return
            out = answer(data)
            if out is None:
                os.close(master)
                return
            while out:
                out = out[os.write(master, out) :]

    threading.Thread(target=serve, daemon=True).start()
    yield name
    os.close(slave)


def serial_link(name: str, slack_s: float = 1.0) -> SerialLink:
    link = SerialLink(name, 3_000_000)
    link.slack_s = slack_s
    return link


def test_serial_device_infers() -> None:
    accelerator = make_accelerator()
    codes = make_codes(3000)
    with far_end(make_board(accelerator).exchange) as name, open_toy(serial_link(name), accelerator) as device:
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
        assert device.status().images == 3000


def test_usb_device_infers_without_steps() -> None:
    """Bytes wait in front of a slow device by themselves, and as many are on their way as its rate and latency need."""
    accelerator = make_accelerator(interval_cycles=10**6)
    codes = make_codes(200)
    with (
        far_end(make_board(accelerator).exchange) as name,
        open_toy(UsbSerialLink(f"usb:{name}"), accelerator) as device,
    ):
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
        assert (device.link.name, device.link.window_bytes) == (name, 1_216_000 * 16 // 1000)
        assert not make_pace(device.link, accelerator, 48_000_000).stepwise


def test_serial_rejects_an_absent_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_ports, "comports", lambda: [port("/dev/ttyS7", description="n/a")])
    with pytest.raises(LinkError) as caught:
        SerialLink("/dev/ttyNowhere", 3_000_000)
    assert str(caught.value).startswith("serial port '/dev/ttyNowhere' cannot be opened (")
    assert str(caught.value).endswith("); serial ports here: /dev/ttyS7 (n/a)")


def test_serial_rejects_garbage() -> None:
    accelerator = make_accelerator()
    with far_end(lambda data: b"login: \0" + data[::-1]) as name, pytest.raises(LinkError) as caught:
        open_toy(serial_link(name, 0.02), accelerator, max_retries=1)
    assert str(caught.value).startswith(f"link '{name}': the device does not answer: ")
    assert "broken frames among them, but no answer, in 2 attempts of 0.02 s" in str(caught.value)


def test_serial_keeps_what_is_finished_when_the_port_goes() -> None:
    accelerator = make_accelerator()
    board = make_board(accelerator)
    came = 0

    def vanish(data: bytes) -> bytes | None:
        nonlocal came
        came += len(data)
        return board.exchange(data) if came < 15_000 else None

    codes = make_codes(3000)
    with far_end(vanish) as name, open_toy(serial_link(name), accelerator) as device:
        with pytest.raises(BatchError) as caught:
            device.infer_codes(codes)
        error = caught.value
        assert 0 < error.finished < 3000
        assert np.array_equal(error.results, golden(codes[: error.finished], 5))
        assert str(error).startswith(
            f"link '{name}': batch stopped after {error.finished} of 3000 images: the serial port is gone ("
        )


@pytest.mark.parametrize("use", [lambda link: link.write(b"image"), lambda link: link.read(0.0)], ids=["write", "read"])
def test_serial_tells_a_broken_pipe_of_the_usb_stack(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[SerialLink], object]
) -> None:
    """A system answers EPIPE when an endpoint of the device is halted."""

    def fail(*_: object) -> int:
        raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))

    with far_end(lambda data: data) as name:
        link = serial_link(name)
        for call in ("write", "read"):
            monkeypatch.setattr(link._port, call, fail)
        with pytest.raises(LinkError) as caught:
            use(link)
        link.close()
    why = f"[Errno {errno.EPIPE}] {os.strerror(errno.EPIPE)}"
    assert str(caught.value) == f"link '{name}': the serial port is gone ({why}); plug the board in and open it again"


@pytest.mark.parametrize("at", [0, 100, 256])
@pytest.mark.parametrize("back", [False, True], ids=["another board", "and back"])
def test_serial_device_gives_no_row_of_another_board(at: int, back: bool) -> None:
    """An image is a frame, so behind 256 of them the sequences are those of a device just started."""
    accelerator = make_accelerator(240, 5)
    other = make_board(make_accelerator(240, 5, "77" * 32), wrong_by=1)
    boards = SwappedBoard(make_board(accelerator), {at: other, **({at + 20: make_board(accelerator)} if back else {})})
    codes = make_codes(300, 240)
    with far_end(boards.exchange) as name, open_toy(serial_link(name, 0.02), accelerator) as device:
        why = refusal(device, codes)
    assert "was loaded with another bitstream while its link was open" in why or (back and not why)


def test_serial_device_rejects_use_after_close() -> None:
    accelerator = make_accelerator()
    with far_end(make_board(accelerator).exchange) as name:
        device = open_toy(serial_link(name), accelerator)
        device.close()
        for use in (device.status, lambda: device.infer_codes(make_codes(3)), lambda: device.link.read(0.0)):
            with pytest.raises(ClosedError, match=f"link '{name}': the device is closed; open it again"):
                use()


def port(device: str, vid: int | None = None, pid: int = 0, serial: str = "1", description: str = "board") -> Any:
    class Port(SimpleNamespace):
        def __lt__(self, other: Any) -> bool:
            return str(self.device) < str(other.device)

    return Port(device=device, vid=vid, pid=pid, serial_number=serial, description=description)


FTDI, TWO, ONE = 0x0403, 0x6010, 0x6015


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        ([port("/dev/ttyS0"), port("/dev/ttyUSB0", FTDI, ONE)], "/dev/ttyUSB0"),
        ([port("/dev/ttyUSB1", FTDI, TWO), port("/dev/ttyUSB0", FTDI, TWO)], "/dev/ttyUSB1"),
        ([port("COM1"), port("COM4", FTDI, TWO), port("COM3", FTDI, TWO)], "COM4"),
        ([port("/dev/cu.usbserial-ib0", FTDI, TWO), port("/dev/cu.usbserial-ib1", FTDI, TWO)], "/dev/cu.usbserial-ib1"),
    ],
    ids=["one", "two interfaces", "windows", "macos"],
)
def test_find_port_takes_the_only_board(monkeypatch: pytest.MonkeyPatch, ports: list[Any], found: str) -> None:
    monkeypatch.setattr(module.list_ports, "comports", lambda: ports)
    assert find_port() == found


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        ([], "--link auto finds no USB serial port; this system has no serial port; plug the board in"),
        (
            [port("/dev/ttyS0")],
            "--link auto finds no USB serial port; serial ports here: /dev/ttyS0 (board)",
        ),
        (
            [port("/dev/ttyUSB0", FTDI, ONE), port("/dev/ttyUSB1", FTDI, ONE)],
            (
                "--link auto finds 2 boards with a USB serial port; "
                "serial ports here: /dev/ttyUSB0 (board), /dev/ttyUSB1 (board)"
            ),
        ),
    ],
    ids=["none", "not USB", "two"],
)
def test_find_port_rejects_a_choice(monkeypatch: pytest.MonkeyPatch, ports: list[Any], message: str) -> None:
    monkeypatch.setattr(module.list_ports, "comports", lambda: ports)
    with pytest.raises(LinkError) as caught:
        find_port()
    assert str(caught.value) == f"{message}; name one with --link"


NNHW = (0x1209, 0x0001)


def test_usb_finds_the_only_device_of_nnhw(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [port("/dev/ttyUSB0", FTDI, ONE), port("/dev/ttyACM0", *NNHW), port("/dev/ttyACM1", NNHW[0], 2)]
    monkeypatch.setattr(module.list_ports, "comports", lambda: ports)
    with pytest.raises(LinkError, match="serial port '/dev/ttyACM0' cannot be opened"):
        make_link("usb", Path(), make_accelerator(), (), 0, lambda text: None)


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        ([], "no device; this system has no serial port; plug the board in"),
        ([port("A", *NNHW), port("B", *NNHW)], "A, B;"),
    ],
    ids=["none", "two"],
)
def test_usb_rejects_a_choice(monkeypatch: pytest.MonkeyPatch, ports: list[Any], found: str) -> None:
    monkeypatch.setattr(module.list_ports, "comports", lambda: ports)
    with pytest.raises(LinkError, match=f"link 'usb' needs one device 1209:0001, but finds {found}"):
        UsbSerialLink("usb")
