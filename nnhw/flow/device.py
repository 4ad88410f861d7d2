"""The hardware of an accelerator behind the link. Whoever calls this imports amaranth."""

from __future__ import annotations

from nnhw.accelerator import Accelerator
from nnhw.hdl.engine import ByteEngine
from nnhw.hdl.link.device import Device, UartDevice
from nnhw.protocol import DeviceIdentity


def make_device(accelerator: Accelerator, clock_hz: int) -> Device:
    """Return engine and link, with byte streams from and to the host."""
    identity = DeviceIdentity(
        accelerator.model_hash,
        accelerator.input_format.frame_bytes,
        accelerator.output_format.frame_bytes,
        clock_hz,
    )
    return Device(ByteEngine(accelerator), identity)


def make_uart_device(accelerator: Accelerator, clock_hz: int, baud: int) -> UartDevice:
    """Return engine, link and serial port."""
    return UartDevice(make_device(accelerator, clock_hz), baud)
