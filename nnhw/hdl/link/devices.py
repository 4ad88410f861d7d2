"""The gateware of each kind of link: what stands between a board's pins and the byte streams of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amaranth.lib import wiring

from nnhw.errors import InputError
from nnhw.hdl.link.ftdi import FtdiDevice
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.spi import SpiDevice
from nnhw.hdl.link.uart import UartDevice
from nnhw.links import BoardLink, Uart, Usb
from nnhw.links.uart import clocks_per_bit


def _uart_device(device: LinkedEngine, link: BoardLink) -> UartDevice:
    """Return a device at a serial port.

    If the link has a faster rate at some clocks, the logic for two rates is there at every clock, so that one layout
    serves all; at a clock that allows one rate only, both are that rate.
    """
    assert isinstance(link, Uart)
    rates = link.rates(device.identity.clock_hz)
    if link.faster_rates:
        rates = (rates[0], rates[-1])
    divisors = (clocks_per_bit(device.identity.clock_hz, rate) for rate in rates)
    return UartDevice(device, *divisors, most=clocks_per_bit(device.fastest_hz, link.baud))


def _usb_device(device: LinkedEngine, link: BoardLink) -> wiring.Component:
    """Return a device at the wires of the USB, or at a PHY that has them.

    Raises
    ------
    InputError: luna-usb is missing, an optional package.
    """
    # Imported here, as devices with other links must not need an optional package.
    try:
        from nnhw.hdl.link.ulpi import UlpiDevice
        from nnhw.hdl.link.usb import UsbDevice
    except ImportError as error:
        raise InputError(
            f"link '{link.kind}' needs luna-usb, which cannot be imported ({error}); install it with "
            "'pip install luna-usb'"
        ) from None
    return UsbDevice(device) if link.kind == Usb.kind else UlpiDevice(device)


DEVICES: Mapping[str, Callable[[LinkedEngine, BoardLink], wiring.Component]] = {
    "uart": _uart_device,
    "spi": lambda device, link: SpiDevice(device),
    "ftdi": lambda device, link: FtdiDevice(device),
    "usb": _usb_device,
    "ulpi": _usb_device,
}
"""Makes the component between pins and device, by the kind of the link."""


def device_at(link: BoardLink, device: LinkedEngine) -> wiring.Component:
    """Return a component with the ports that `link.ports` names, and the device behind them.

    Raises
    ------
    InputError: the link cannot work at the device's clock.
    """
    if problem := link.clock_problem(device.identity.clock_hz):
        raise InputError(problem)
    return DEVICES[link.kind](device, link)
