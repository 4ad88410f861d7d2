"""The hardware of an accelerator behind the link. Whoever calls this imports amaranth."""

from __future__ import annotations

from amaranth.lib import wiring

from nnhw.accelerator import Accelerator
from nnhw.boards import Flash
from nnhw.hdl.engine import ByteEngine
from nnhw.hdl.link.device import LinkedEngine
from nnhw.hdl.link.devices import device_at
from nnhw.links import BoardLink
from nnhw.protocol import DeviceIdentity, joined_id


def make_device(
    accelerator: Accelerator, clock_hz: int, flash: Flash | None = None, fastest_hz: int = 0
) -> LinkedEngine:
    """Return engine and link, with byte streams from and to the host.

    Parameters
    ----------
    flash: where a shared engine looks for its program when it starts; None: nowhere.
    fastest_hz: clock up to which the device differs in lookup tables alone; 0: it is for one clock.
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
    """Return engine, protocol and the pins of a link; see `make_device`.

    Raises
    ------
    InputError: the clock does not serve the link.
    """
    return device_at(link, make_device(accelerator, clock_hz, flash, fastest_hz))
