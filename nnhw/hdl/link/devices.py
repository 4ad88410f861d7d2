"""The gateware of each link of a board: what stands between its pins and the byte streams of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from amaranth.lib import wiring

from nnhw.errors import InputError
from nnhw.hdl.link.device import LinkedEngine, UartDevice
from nnhw.hdl.link.spi import SpiDevice
from nnhw.links import BoardLink

DEVICES: Mapping[str, Callable[[LinkedEngine, Any], wiring.Component]] = {
    "uart": lambda device, link: UartDevice(device, link.baud),
    "spi": lambda device, link: SpiDevice(device),
}
"""By the kind of the link."""


def device_at(link: BoardLink, device: LinkedEngine) -> wiring.Component:
    """Return a device behind the pins of a link, whose ports are those that `link.ports` names.

    Raises
    ------
    InputError: the device's clock does not serve the link.
    """
    if problem := link.clock_problem(device.identity.clock_hz):
        raise InputError(problem)
    return DEVICES[link.kind](device, link)
