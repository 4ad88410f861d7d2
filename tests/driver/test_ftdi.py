"""The link of an FTDI chip: what pyftdi sends goes to a simulated chip, behind whose pins a board in Python answers."""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnhw.driver.links.ftdi import FtdiLink
from nnhw.driver.links.model import ModelBoard
from nnhw.errors import ClosedError, LinkError
from sim.ft2232h import COPI, CRESET, DONE, FIFO_BYTES, MICRO_FRAME_PS, PS, SCK, SELECT, Ft2232h
from sim.usb_bus import UsbBus, UsbChip
from tests.driver.fakes import SwappedBoard, golden, make_accelerator, make_board, make_codes, open_toy, refusal


class BytePins:
    """Pins behind which a board in Python takes whole bytes, and gives zeros while it has nothing to say.

    Parameters
    ----------
    board: its method `exchange` answers.
    fault_rate: share of bytes that come or go with another bit.

    Members
    -------
    driven: masks of pins that were driven, in order. levels: of them. shifted_unselected: bytes while the flash was not
    selected. done: level of CDONE. selected_by_others: how often the flash's select is seen low before it is high.
    """

    def __init__(self, board: ModelBoard | SwappedBoard, fault_rate: float = 0.0) -> None:
        self.board, self._fault_rate, self._random = board, fault_rate, random.Random(5)
        self._answer = bytearray()
        self.driven: list[int] = []
        self.levels = 0
        self.bytes = self.faults = self.bytes_to_flash = 0
        self.done, self.selected_by_others = True, 0

    def drive(self, levels: int, outputs: int) -> None:
        self.levels = levels
        self.driven.append(outputs)

    def sample(self) -> int:
        self.selected_by_others -= 1
        select = 0 if self.selected_by_others >= 0 else SELECT
        return CRESET | select | (DONE if self.done else 0)

    def shift(self, data: bytes, bit_ps: int) -> bytes:
        self.bytes += len(data)
        if not self.levels & SELECT:
            self.bytes_to_flash += len(data)
        self._answer += self.board.exchange(self._harm(data)) or b""
        came = bytes(self._answer[: len(data)]).ljust(len(data), b"\0")
        del self._answer[: len(data)]
        return self._harm(came)

    def _harm(self, data: bytes) -> bytes:
        harmed = bytearray(data)
        for place in range(len(data)):
            if self._random.random() < self._fault_rate:
                harmed[place] ^= 1 << self._random.randrange(8)
                self.faults += 1
        return bytes(harmed)

    def rest(self, time_ps: int) -> None:
        pass


class LatePins(BytePins):
    """Pins behind which a board takes a while: its answers begin `LATE_BYTES` behind what they answer."""

    LATE_BYTES = 16

    def __init__(self, board: ModelBoard) -> None:
        super().__init__(board)
        self._line = [b""] * self.LATE_BYTES

    def shift(self, data: bytes, bit_ps: int) -> bytes:
        came = bytearray()
        for byte in data:
            self._line.append(self.board.exchange(bytes((byte,))) or b"")
            self._answer += self._line.pop(0)
            came.append(self._answer.pop(0) if self._answer else 0)
        return bytes(came)


def ftdi_link(
    pins: BytePins, name: str = "ftdi", hz: float = 30e6, product: int = 0x6010, fifo_bytes: int = FIFO_BYTES
) -> tuple[FtdiLink, UsbChip]:
    chip = Ft2232h(pins, fifo_bytes=fifo_bytes)
    usb = UsbChip(chip, product)
    return FtdiLink(name, hz, UsbBus([usb]), lambda: chip.now_ps / PS), usb


def test_ftdi_device_infers_and_never_selects_the_flash_while_it_shifts() -> None:
    accelerator = make_accelerator(60, 5)
    codes, pins = make_codes(1000, 60), BytePins(make_board(accelerator))
    link, _ = ftdi_link(pins)
    assert link.bytes_per_s == 3_750_000
    with open_toy(link, accelerator) as device:
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
        assert device.status().images == 1000
    assert pins.bytes > 60_000
    assert pins.bytes_to_flash == 0
    # In the end no pin is driven; nor are, at any time, those that configure the FPGA.
    assert pins.driven[-1] == 0
    assert set(pins.driven) == {0, SCK | COPI | SELECT}


@pytest.mark.parametrize(("hz", "rate"), [(30e6, 3_750_000), (15e6, 1_875_000), (6e6, 750_000)])
def test_ftdi_device_infers_at_each_rate(hz: float, rate: float) -> None:
    accelerator = make_accelerator(60, 5)
    codes = make_codes(200, 60)
    link, _ = ftdi_link(BytePins(make_board(accelerator)), hz=hz)
    assert link.bytes_per_s == rate
    with open_toy(link, accelerator) as device:
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


@pytest.mark.parametrize(("product", "fifo_bytes"), [(0x6011, 2048), (0x6014, 1024)], ids=["FT4232H", "FT232H"])
def test_ftdi_link_keeps_to_the_buffers_of_smaller_chips(product: int, fifo_bytes: int) -> None:
    accelerator = make_accelerator(240, 5)
    codes = make_codes(100, 240)
    link, _ = ftdi_link(BytePins(make_board(accelerator)), product=product, fifo_bytes=fifo_bytes)
    with open_toy(link, accelerator) as device:
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))


def test_ftdi_link_is_not_bound_by_the_latency_of_its_usb() -> None:
    accelerator = make_accelerator(96, 5)
    codes = make_codes(2000, 96)
    link, _ = ftdi_link(BytePins(make_board(accelerator)))
    with open_toy(link, accelerator) as device:
        begin = link.now()
        device.infer_codes(codes)
        rate = 2000 * 96 / (link.now() - begin)
    assert rate >= 3_000_000


def test_ftdi_link_takes_one_round_trip_for_a_frame_and_its_answer() -> None:
    accelerator = make_accelerator(240, 5)
    codes = make_codes(100, 240)
    link, _ = ftdi_link(LatePins(make_board(accelerator)))
    with open_toy(link, accelerator) as device:
        device.pace = replace(device.pace, stepwise=True)
        begin = link.now()
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
        seconds = link.now() - begin
    # A call each way, of two micro-frames; a second round trip for each answer would take twice as long.
    assert seconds / 100 <= 4 * MICRO_FRAME_PS / PS * 1.1


@pytest.mark.parametrize("fault_rate", [0.0001, 0.0005])
def test_ftdi_device_gives_no_wrong_row_under_faults(fault_rate: float) -> None:
    accelerator = make_accelerator(60, 5)
    codes, pins = make_codes(1000, 60), BytePins(make_board(accelerator), fault_rate)
    link, _ = ftdi_link(pins)
    with open_toy(link, accelerator, max_retries=20) as device:
        assert np.array_equal(device.infer_codes(codes), golden(codes, 5))
    assert pins.faults > 5


@pytest.mark.parametrize("at", [0, 50, 256])
def test_ftdi_device_gives_no_row_of_another_board(at: int) -> None:
    accelerator = make_accelerator(240, 5)
    other = make_board(make_accelerator(240, 5, "77" * 32), wrong_by=1)
    boards = SwappedBoard(make_board(accelerator), {at: other})
    link, _ = ftdi_link(BytePins(boards))
    with open_toy(link, accelerator) as device:
        why = refusal(device, make_codes(300, 240))
    assert "was loaded with another bitstream while its link was open" in why


def test_ftdi_link_is_gone_when_the_cable_is_pulled() -> None:
    accelerator = make_accelerator(60, 5)
    link, usb = ftdi_link(BytePins(make_board(accelerator)))
    with open_toy(link, accelerator) as device:
        usb.gone = True
        with pytest.raises(LinkError) as caught:
            device.infer_codes(make_codes(10, 60))
    assert "link 'ftdi': batch stopped after 0 of 10 images: the FTDI chip is gone (" in str(caught.value)
    assert "No such device" in str(caught.value)
    assert str(caught.value).count("plug the board in and open it again") == 1


def test_ftdi_link_rejects_use_after_close() -> None:
    link, _ = ftdi_link(BytePins(make_board(make_accelerator())))
    link.close()
    link.close()
    uses: tuple[Callable[[], object], ...] = (lambda: link.write(b"1"), lambda: link.read(0.0))
    for use in uses:
        with pytest.raises(ClosedError, match="link 'ftdi': the device is closed; open it again"):
            use()


def test_ftdi_link_waits_until_the_flash_is_at_rest() -> None:
    pins = BytePins(make_board(make_accelerator()))
    pins.selected_by_others = 100
    link, _ = ftdi_link(pins)
    assert pins.selected_by_others <= -8
    assert link.now() > 0.01


def test_ftdi_link_rejects_a_flash_that_stays_selected() -> None:
    pins = BytePins(make_board(make_accelerator()))
    pins.selected_by_others = 10**9
    with pytest.raises(LinkError) as caught:
        ftdi_link(pins)
    assert set(pins.driven) == {0}
    assert str(caught.value) == (
        "link 'ftdi': the flash, with which the FPGA shares these pins, was selected by somebody else for 5 s; "
        "close other programs, or load a bitstream of this link with 'nnhw program'"
    )


def test_ftdi_link_rejects_an_fpga_without_bitstream() -> None:
    pins = BytePins(make_board(make_accelerator()))
    pins.done = False
    with pytest.raises(LinkError) as caught:
        ftdi_link(pins)
    assert set(pins.driven) == {0}
    assert str(caught.value) == ("link 'ftdi': the FPGA has no bitstream (CDONE is low); load one with 'nnhw program'")


KINDS = "needs one of FT2232H (0403:6010), FT4232H (0403:6011), FT232H (0403:6014)"


@pytest.mark.parametrize(
    ("chips", "name", "message"),
    [
        ([], "ftdi", f"link 'ftdi': this system has no FTDI chip, {KINDS}; plug the board in"),
        (
            [UsbChip(product=0x6015)],
            "ftdi",
            (
                "link 'ftdi': this system has only the FTDI chips 0403:6015, which have no MPSSE of this kind, "
                f"{KINDS}; plug the board in"
            ),
        ),
        (
            [UsbChip(serial="a"), UsbChip(serial="b")],
            "ftdi",
            "link 'ftdi': 2 FTDI chips are here: FT2232H 'a', FT2232H 'b'; name one as 'ftdi:SERIAL'",
        ),
        (
            [UsbChip(serial="a"), UsbChip(serial="", product=0x6014)],
            "ftdi:c",
            "link 'ftdi:c': none of the FTDI chips here has this serial number once; here are FT2232H 'a', FT232H '?'",
        ),
    ],
    ids=["none", "another chip", "two", "no such serial number"],
)
def test_ftdi_link_rejects_what_is_not_the_only_chip(chips: list[UsbChip], name: str, message: str) -> None:
    with pytest.raises(LinkError) as caught:
        FtdiLink(name, backend=UsbBus(chips))
    assert str(caught.value) == message


def test_ftdi_link_takes_the_chip_with_the_serial_number() -> None:
    chip = Ft2232h(BytePins(make_board(make_accelerator())))
    bus = UsbBus([UsbChip(serial="a"), UsbChip(chip, serial="b")])
    assert FtdiLink("ftdi:b", backend=bus, clock=lambda: chip.now_ps / PS).name == "ftdi:b"


@pytest.mark.parametrize("product", [0x6010, 0x6014])
def test_ftdi_link_rejects_a_chip_without_permission(product: int) -> None:
    with pytest.raises(LinkError) as caught:
        FtdiLink(backend=UsbBus([UsbChip(product=product, permitted=False)]))
    text = str(caught.value)
    assert text.startswith("link 'ftdi': no permission to use the FTDI chip (")
    assert f'ATTRS{{idVendor}}=="0403", ATTRS{{idProduct}}=="{product:04x}", MODE="0660", GROUP="plugdev"' in text


@pytest.mark.parametrize("hz", [0, 499, 30_000_001])
def test_ftdi_link_rejects_a_clock_that_the_chip_does_not_make(hz: int) -> None:
    with pytest.raises(LinkError) as caught:
        FtdiLink(hz=hz, backend=UsbBus([]))
    assert str(caught.value) == (
        f"link 'ftdi': the FTDI chip makes clocks of 500 to 30,000,000 Hz, given {hz:,}; leave out the rate, or give "
        "one of these"
    )


def test_ftdi_link_rejects_a_system_without_pyftdi(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def absent(name: str, *args: Any, **given: Any) -> Any:
        if name.startswith("pyftdi"):
            raise ModuleNotFoundError("No module named 'pyftdi'")
        return known(name, *args, **given)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(LinkError) as caught:
        FtdiLink()
    assert str(caught.value) == (
        "link 'ftdi' needs pyftdi, which cannot be imported (No module named 'pyftdi'); install it with "
        "'pip install pyftdi'"
    )


def test_ftdi_link_rejects_a_system_without_libusb(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyftdi.usbtools import UsbTools

    monkeypatch.setattr(UsbTools, "BACKENDS", ())
    with pytest.raises(LinkError) as caught:
        FtdiLink()
    assert str(caught.value) == (
        "link 'ftdi' needs libusb, which this system does not have; install it, as 'libusb-1.0-0' on Debian"
    )
