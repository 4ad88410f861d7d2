"""The hardware of an accelerator behind the link. Whoever calls this imports amaranth."""

from __future__ import annotations

from nnhw.accelerator import Accelerator
from nnhw.boards import Flash
from nnhw.hdl.engine import ByteEngine
from nnhw.hdl.link.device import LinkedEngine, UartDevice
from nnhw.protocol import DeviceIdentity, joined_id


def make_device(accelerator: Accelerator, clock_hz: int, flash: Flash | None = None) -> LinkedEngine:
    """Return engine and link, with byte streams from and to the host.

    Parameters
    ----------
    flash: where a shared engine looks for its program when it starts; None: nowhere.
    """
    identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, clock_hz)
    arrays = [program.array.id for program in accelerator.programs]
    if not arrays:
        return LinkedEngine(ByteEngine(accelerator), identity)
    return LinkedEngine(ByteEngine(accelerator), identity, joined_id(arrays), None if flash is None else flash.offset)


def make_uart_device(accelerator: Accelerator, clock_hz: int, baud: int, flash: Flash | None = None) -> UartDevice:
    """Return engine, link and serial port; see `make_device`."""
    return UartDevice(make_device(accelerator, clock_hz, flash), baud)
