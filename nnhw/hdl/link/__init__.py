"""The link between host and engine in gateware: UART, COBS, CRC, frames, commands, identity and counters."""

from .device import LinkedEngine, UartDevice
from .flash import FlashReader
from .processor import Link
from .program import ProgramSignature
from .uart import UartReceiver, UartTransmitter, clocks_per_bit

__all__ = [
    "FlashReader",
    "Link",
    "LinkedEngine",
    "ProgramSignature",
    "UartDevice",
    "UartReceiver",
    "UartTransmitter",
    "clocks_per_bit",
]
