"""The link between host and engine in gateware: UART, SPI, COBS, CRC, frames, commands, identity and counters."""

from .device import LinkedEngine, UartDevice
from .devices import device_at
from .flash import FlashReader
from .processor import Link
from .program import ProgramSignature
from .spi import SpiDevice, SpiPeripheral
from .uart import UartReceiver, UartTransmitter, clocks_per_bit

__all__ = [
    "FlashReader",
    "Link",
    "LinkedEngine",
    "ProgramSignature",
    "SpiDevice",
    "SpiPeripheral",
    "UartDevice",
    "UartReceiver",
    "UartTransmitter",
    "clocks_per_bit",
    "device_at",
]
