"""The link between host and engine in gateware: UART, COBS, CRC, frames, commands, identity and counters."""

from .device import Device, UartDevice
from .processor import Link
from .uart import UartReceiver, UartTransmitter, clocks_per_bit

__all__ = ["Device", "Link", "UartDevice", "UartReceiver", "UartTransmitter", "clocks_per_bit"]
