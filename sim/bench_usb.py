"""Bench of a device at a USB, with a whole host at the other end: driver, host controller, and wires or PHY.

The driver is the one that runs on a computer; in place of the system's serial port stands `sim.usb_host`.

Environment: NNHW_PLAN, path of a JSON document with

    link: `usb`, wires of full speed; `ulpi`, a PHY with those of high speed
    arrays: path of an .npz: `input` uint8 [frames, bytes], `output` uint8 [frames, bytes]
    clock_hz: clock of the design
    hurry: number by which the device's times of a reset are divided
    faults: now and then a packet on the wires is harmed, and once the bus is reset
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
from .usb_host import UsbHost, Wires
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
    lost_after: bytes from the device after which the bus is reset, as by another program; None: it is not.
    """

    flow_controlled = True
    slack_s = 0.01
    name = "usb"

    def __init__(self, host: UsbHost, flow: UsbFlow, lost_after: int | None = None) -> None:
        self._host, self._lost_after = host, lost_after
        self.bytes_per_s, self.window_bytes = flow.bytes_per_s, flow.window_bytes
        self.write_bytes: int | None = flow.write_bytes
        self._read_bytes = 0
        self.write = resume(self._write)
        self.read = resume(self._read)

    async def _write(self, data: bytes) -> None:
        await self._host.wait(CALL_S)
        self._host.outgoing += data

    async def _read(self, timeout_s: float) -> bytes:
        host = self._host
        await host.wait(CALL_S)
        deadline = host.now() + timeout_s
        while not host.incoming and host.is_plugged and host.now() < deadline:
            await host.wait(POLL_S)
        data = bytes(host.incoming)
        if self._lost_after is not None and self._read_bytes + len(data) > self._lost_after:
            data = data[: self._lost_after - self._read_bytes]
            await host.pull_out()
        if not host.is_plugged and not data:
            raise LinkError("link 'usb': the serial port is gone")
        host.incoming.clear()
        self._read_bytes += len(data)
        return data

    def now(self) -> float:
        """See `ByteLink`, as the others."""
        return self._host.now()

    def close(self) -> None:
        """Leave the host as it is."""


def drive(link: UsbHostLink, images: np.ndarray, output_bytes: int, stepwise: bool) -> tuple[np.ndarray, float]:
    """Run images as the driver does; return the outputs that came, and the seconds that the host waited for them."""
    session = Session(link, MAX_RETRIES)
    told: list[DeviceIdentity] = []
    session.accept = told.append
    session.identify()
    if (told[-1].input_bytes, told[-1].output_bytes) != (images.shape[1], output_bytes):
        raise BenchFailure(f"the device says {told[-1]}, but the images have {images.shape[1]} bytes")
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
    host = UsbHost(wires, scale, FAULT_EVERY if plan["faults"] else 0)
    await start(dut)
    await host.plug_in()
    half = images.shape[0] * outputs.shape[1] // 2
    link = UsbHostLink(host, flow, half if plan["faults"] else None)
    found, seconds = await bridge(drive)(link, images, outputs.shape[1], plan["stepwise"])
    if plan["faults"]:
        if not 0 < len(found) < len(images):
            raise BenchFailure(f"the bus was reset, and {len(found)} of {len(images)} images are finished")
        await host.plug_in()
        link = UsbHostLink(host, flow)
        rest, _ = await bridge(drive)(link, images[len(found) :], outputs.shape[1], plan["stepwise"])
        found = np.concatenate([found, rest])
    mismatches = int((found != outputs).any(axis=1).sum())
    cycles = round(seconds * plan["clock_hz"])
    faults = host.faults + int(plan["faults"])
    document = {"frames": len(images), "mismatches": mismatches, "cycles": cycles, "faults": faults}
    Path(plan["result"]).write_text(json.dumps(document), encoding="utf-8")
    if mismatches:
        raise BenchFailure(f"usb: {mismatches} of {len(images)} images have a wrong output")
