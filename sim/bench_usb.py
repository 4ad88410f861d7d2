"""Bench of a device at a USB, with a whole host at the other end: driver, host controller, and wires or PHY.

The driver is the one that runs on a computer; in place of the system's serial port stands `sim.usb_host`.

Environment: NNHW_PLAN, path of a JSON document with

    link: `usb`, wires of full speed; `ulpi`, a PHY with those of high speed
    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes]
    clock_hz: clock of the design
    hurry: number by which the device's times of a reset are divided
    faults: now and then a packet on the wires is harmed, and once the bus is reset
    ports: speeds of the computer's ports, with a reset of the bus at each, and a pause in which it is suspended; none
        where the device has one speed, or the fastest is to be taken
    stepwise: a frame is sent only when the one before is taken
    result: path of the JSON document to write
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge, resume

from nnhw.driver.links.base import USB_FLOWS, UsbFlow
from nnhw.driver.sending import Pace
from nnhw.driver.session import BatchError, Session
from nnhw.errors import LinkError
from nnhw.links import Usb
from nnhw.protocol import DeviceIdentity

from .harness import CLOCK_NS, BenchFailure, start
from .ulpi_phy import UlpiPhy
from .usb_host import SPEEDS, UsbHost, Wires
from .usb_wires import FullSpeedWires

CALL_S = 50e-6
"""What the system takes for each call of the driver."""
POLL_S = 20e-6
FAULT_EVERY = 7
"""Transactions with bytes between two faults."""
PATIENCE_S, MAX_RETRIES = 0.1, 3


class UsbHostLink:
    """A serial port of the simulated computer; its calls come from the thread of the driver.

    Parameters
    ----------
    flow: what the driver does with a port of this speed.
    """

    flow_controlled = True
    slack_s = 0.01
    name = "usb"

    def __init__(self, host: UsbHost, flow: UsbFlow) -> None:
        self._host = host
        self.bytes_per_s, self.window_bytes = flow.bytes_per_s, flow.window_bytes
        self.write_bytes: int | None = flow.write_bytes
        self._left: int | None = None
        self._sleeps = False
        self.write = resume(self._write)
        self.read = resume(self._read)

    def disturb(self, lost_after: int | None, sleeps: bool) -> None:
        """Have the bus disturbed from here on.

        Parameters
        ----------
        lost_after: bytes from the device after which the bus is reset, as by another program; None: it is not.
        sleeps: the bus is suspended once, when the first bytes come.
        """
        self._left, self._sleeps = lost_after, sleeps

    async def _write(self, data: bytes) -> None:
        await self._host.wait(CALL_S)
        self._host.outgoing += data

    async def _read(self, timeout_s: float) -> bytes:
        host = self._host
        await host.wait(CALL_S)
        deadline = host.now() + timeout_s
        while not host.incoming and host.is_plugged and host.now() < deadline:
            await host.wait(POLL_S)
        if self._sleeps and host.incoming:
            self._sleeps = False
            await host.sleep()
        data = bytes(host.incoming)
        if self._left is not None and len(data) > self._left:
            data = data[: self._left]
            await host.pull_out()
        if not host.is_plugged and not data:
            raise LinkError("link 'usb': the serial port is gone")
        host.incoming.clear()
        if self._left is not None:
            self._left -= len(data)
        return data

    def now(self) -> float:
        """See `ByteLink`, as the others."""
        return self._host.now()

    def close(self) -> None:
        """Leave the host as it is."""


def drive(
    link: UsbHostLink, images: np.ndarray, output_bytes: int, stepwise: bool, lost_after: int | None, sleeps: bool
) -> tuple[np.ndarray, float]:
    """Run images as the driver does; return the outputs that came, and the seconds that the host waited for them.

    Parameters
    ----------
    lost_after, sleeps: see `UsbHostLink.disturb`; what is sent in front of the images does not count.
    """
    session = Session(link, MAX_RETRIES)
    told: list[DeviceIdentity] = []
    session.accept = told.append
    session.identify()
    if (told[-1].input_bytes, told[-1].output_bytes) != (images.shape[1], output_bytes):
        raise BenchFailure(f"the device says {told[-1]}, but the images have {images.shape[1]} bytes")
    link.disturb(lost_after, sleeps)
    begin = link.now()
    try:
        outputs = session.run(images, output_bytes, Pace(PATIENCE_S, link.window_bytes, stepwise))
    except BatchError as error:
        return error.results, link.now() - begin
    seconds = link.now() - begin
    counted = session.counters().results
    if session.resets == 1 and counted != len(images) * -(-output_bytes // 240):
        raise BenchFailure(f"the device counts {counted} results of {len(images)} images")
    return outputs, seconds


def wires_of(dut: Any, link: str, scale: float, hurry: int) -> Wires:
    """Return what carries packets to and from a device with a link of this kind, with its clock running."""
    if link == Usb.kind:
        period_ps = 2 * round(scale / Usb.own_clock_hz * 1e12 / 2)
        cocotb.start_soon(Clock(dut.link_clock, period_ps, unit="ps").start())
        return FullSpeedWires(dut, scale)
    return UlpiPhy(dut, scale, hurry)


@cocotb.test()
async def device_answers_the_driver(dut: Any) -> None:
    """Identity, reset, images back to back: every output byte equal, nothing missing, nothing extra."""
    plan = json.loads(Path(os.environ["NNHW_PLAN"]).read_text(encoding="utf-8"))
    with np.load(plan["arrays"], allow_pickle=False) as stored:
        images, outputs = stored["input"], stored["output"]
    scale = CLOCK_NS * 1e-9 * plan["clock_hz"]
    wires, flow = wires_of(dut, plan["link"], scale, plan.get("hurry", 1)), USB_FLOWS[plan["link"]]
    host = UsbHost(wires, scale, FAULT_EVERY if plan["faults"] else 0, o_first=bool(plan["ports"]))
    speeds = [SPEEDS[name] for name in plan["ports"]] or [wires.speeds[0]] * (2 if plan["faults"] else 1)
    await start(dut)
    found, seconds = np.zeros((0, outputs.shape[1]), np.uint8), 0.0
    for more, speed in zip(range(len(speeds) - 1, -1, -1), speeds, strict=True):
        await host.plug_in(speed)
        rest = images[len(found) :]
        lost_after = len(rest) * outputs.shape[1] // (more + 1) if more else None
        link, sleeps = UsbHostLink(host, flow), bool(plan["ports"])
        part, part_s = await bridge(drive)(link, rest, outputs.shape[1], plan["stepwise"], lost_after, sleeps)
        if more and not 0 < len(part) < len(rest):
            raise BenchFailure(f"the bus was reset, and {len(part)} of {len(rest)} images are finished")
        found, seconds = np.concatenate([found, part]), seconds + part_s
    mismatches = int((found != outputs).any(axis=1).sum())
    cycles = round(seconds * plan["clock_hz"])
    faults = host.faults + len(speeds) - 1
    document = {"frames": len(images), "mismatches": mismatches, "cycles": cycles, "faults": faults}
    Path(plan["result"]).write_text(json.dumps(document), encoding="utf-8")
    if mismatches:
        raise BenchFailure(f"usb: {mismatches} of {len(images)} images have a wrong output")
