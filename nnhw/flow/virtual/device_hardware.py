"""The hardware of an accelerator behind its link. This module imports amaranth."""

from __future__ import annotations

from amaranth.lib import wiring

from nnhw.accelerator import Accelerator
from nnhw.boards import Board, Flash
from nnhw.hdl.engine import ByteEngine
from nnhw.hdl.link.devices import device_at
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.sensors import SensorDevice
from nnhw.links import BoardLink
from nnhw.protocol import DeviceIdentity, joined_id
from nnhw.sensors import SensorFront


def make_device(
    accelerator: Accelerator, clock_hz: int, flash: Flash | None = None, fastest_hz: int = 0
) -> LinkedEngine:
    """Return the engine with the protocol of the link, with byte streams from and to the host.

    Parameters
    ----------
    clock_hz: clock of the device, in Hz.
    flash: flash memory from which a shared engine loads its program when it starts; None: it does not.
    fastest_hz: up to this clock, in Hz, devices differ in the contents of lookup tables alone, so that a layout can be
        changed to another clock; 0: the device is for `clock_hz` alone.
    """
    identity = DeviceIdentity(accelerator.device_hash, *accelerator.device_bytes, clock_hz)
    arrays = [program.array.id for program in accelerator.programs]
    if not arrays:
        return LinkedEngine(ByteEngine(accelerator), identity, fastest_hz=fastest_hz)
    offset = None if flash is None else flash.offset
    return LinkedEngine(ByteEngine(accelerator), identity, joined_id(arrays), offset, fastest_hz)


def make_linked_device(
    accelerator: Accelerator, clock_hz: int, link: BoardLink, flash: Flash | None = None, fastest_hz: int = 0
) -> wiring.Component:
    """Return the engine with the protocol and the pins of a link; see `make_device`.

    Raises
    ------
    InputError: the link does not work with this clock.
    """
    return device_at(link, make_device(accelerator, clock_hz, flash, fastest_hz))


def make_sensor_device(accelerator: Accelerator, front: SensorFront, board: Board, clock_hz: int) -> SensorDevice:
    """Return the network behind the front end of the sensor that a board is chosen for."""
    assert board.sensor is not None
    return SensorDevice(accelerator, front, board.sensor, clock_hz)
