"""Bench of a device at the pins of a flash, with the whole host behind them: driver, pyftdi, USB, FTDI chip.

The driver is the one that runs on a computer; pyusb's backend is `sim.usb_bus`, so USB and chip take their time.

Environment: NNHW_PLAN, path of a JSON document with

    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes]
    rate: bits per second
    clock_hz: clock of the design
    faults: now and then a bit is turned, one too many or one too few is clocked, in either direction
    stepwise: a frame is sent only when the one before is taken
    result: path of the JSON document to write
"""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, Timer

from nnhw.driver.links.ftdi import FtdiLink
from nnhw.driver.sending import Pace
from nnhw.driver.session import Session
from nnhw.protocol import DeviceIdentity

from .frames import conclude, read_plan
from .ft2232h import CIPO, COPI, CRESET, DONE, PS, SCK, SELECT, Ft2232h
from .harness import CLOCK_NS, BenchFailure, start
from .usb_bus import UsbBus, UsbChip

FIRST_FAULT_BYTES, FAULT_BYTES = 150, 1500
"""Bytes in front of the first fault, and between two: several images, so that a batch gets on."""
OPENING_REST_PS = 2_000_000
"""Longest pause while the chip is opened, which takes tens of milliseconds in which the device does nothing."""
WINDOW_BYTES, PATIENCE_S, MAX_RETRIES = 16_384, 0.1, 3


class CocotbPins:
    """The pins of the chip at a design; see `sim.ft2232h.Pins`. Its calls come from the thread of the host.

    Parameters
    ----------
    clock_hz: real clock of the design, which is simulated with a period of `CLOCK_NS`: all times are scaled by that.
    fault_bytes: bytes between two faults; 0: there are none.

    Members
    -------
    faults: that were injected.
    longest_rest_ps: longer pauses are cut to this.
    """

    def __init__(self, dut: Any, clock_hz: int, fault_bytes: int) -> None:
        self._dut, self._scale = dut, CLOCK_NS * 1000 * clock_hz / PS
        self._levels = self._outputs = 0
        self._fault_bytes, self._until_fault = fault_bytes, FIRST_FAULT_BYTES
        self.faults = 0
        self.longest_rest_ps = OPENING_REST_PS
        self.shift = resume(self._shift)
        self.rest = resume(self._rest)
        self.drive = resume(self._drive)
        self.sample = resume(self._sample)

    async def _drive(self, levels: int, outputs: int) -> None:
        self._levels, self._outputs = levels, outputs
        for pin, port in ((SELECT, self._dut.ftdi_cs), (SCK, self._dut.ftdi_sck), (COPI, self._dut.ftdi_copi)):
            port.value = 1 if not outputs & pin else int(bool(levels & pin))
        await Timer(1, unit="ns")

    async def _sample(self) -> int:
        cipo = CIPO if self._dut.ftdi_cipo.value else 0
        return CRESET | DONE | cipo | (self._levels & self._outputs) | (SELECT & ~self._outputs)

    async def _rest(self, time_ps: int) -> None:
        await Timer(max(1, round(min(time_ps, self.longest_rest_ps) * self._scale)), unit="ps")

    async def _shift(self, data: bytes, bit_ps: int) -> bytes:
        half, answer = round(bit_ps * self._scale / 2), bytearray()
        for byte in data:
            kind = self._next_fault()
            sent = byte ^ 0x10 if kind == 0 else byte
            bits = {1: 7, 2: 9}.get(kind, 8)
            received = 0
            for place in range(bits):
                self._dut.ftdi_copi.value = sent >> max(0, 7 - place) & 1
                await Timer(half, unit="ps")
                received = received << 1 | int(self._dut.ftdi_cipo.value)
                self._dut.ftdi_sck.value = 1
                await Timer(half, unit="ps")
                self._dut.ftdi_sck.value = 0
            answer.append((received ^ 0x10 if kind == 3 else received) & 0xFF)
        return bytes(answer)

    def _next_fault(self) -> int:
        """Return the kind of the fault that this byte suffers, -1 for none."""
        self._until_fault -= 1
        if self._until_fault or not self._fault_bytes:
            return -1
        self._until_fault = self._fault_bytes
        self.faults += 1
        return (self.faults - 1) % 4


def drive(link: FtdiLink, images: np.ndarray, output_bytes: int, stepwise: bool) -> tuple[np.ndarray, float]:
    """Run images as the driver does; return their outputs, and the seconds that the host waited for them."""
    session = Session(link, MAX_RETRIES)
    told: list[DeviceIdentity] = []
    session.accept = told.append
    session.identify()
    if (told[-1].input_bytes, told[-1].output_bytes) != (images.shape[1], output_bytes):
        raise BenchFailure(f"the device says {told[-1]}, but the images have {images.shape[1]} bytes")
    begin = link.now()
    outputs = session.run(images, output_bytes, Pace(PATIENCE_S, WINDOW_BYTES, stepwise))
    seconds = link.now() - begin
    counted = session.counters().results
    if session.resets == 1 and counted != len(images) * -(-output_bytes // 240):
        raise BenchFailure(f"the device counts {counted} results of {len(images)} images")
    return outputs, seconds


@cocotb.test()
async def device_answers_the_driver(dut: Any) -> None:
    """Identity, reset, images back to back: every output byte equal, nothing missing, nothing extra."""
    plan, images, outputs = read_plan()
    dut.ftdi_cs.value, dut.ftdi_sck.value, dut.ftdi_copi.value = 1, 1, 1
    await start(dut)
    await ClockCycles(dut.clk, 20)
    pins = CocotbPins(dut, plan["clock_hz"], FAULT_BYTES if plan["faults"] else 0)
    chip = Ft2232h(pins)

    def host() -> tuple[np.ndarray, float]:
        link = FtdiLink("ftdi", plan["rate"], UsbBus([UsbChip(chip)]), lambda: chip.now_ps / PS)
        pins.longest_rest_ps = PS
        found = drive(link, images, outputs.shape[1], plan["stepwise"])
        link.close()
        return found

    found, seconds = await bridge(host)()
    mismatches = int((found != outputs).any(axis=1).sum())
    cycles = round(seconds * plan["clock_hz"])
    conclude(plan, len(images), mismatches, cycles, pins.faults, "cipo")
