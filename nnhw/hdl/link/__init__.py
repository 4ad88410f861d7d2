"""The link between host and engine in gateware: UART, SPI, COBS, CRC, frames, commands, identity and counters."""

from .devices import device_at
from .flash import FlashReader
from .ftdi import ClockedSpiPeripheral, FtdiDevice
from .linked_engine import LinkedEngine
from .processor import Link
from .program_signature import ProgramSignature
from .spi import SpiDevice, SpiPeripheral
from .uart import RateDetector, UartDevice, UartReceiver, UartTransmitter

__all__ = [
    "ClockedSpiPeripheral",
    "FlashReader",
    "FtdiDevice",
    "Link",
    "LinkedEngine",
    "ProgramSignature",
    "RateDetector",
    "SpiDevice",
    "SpiPeripheral",
    "UartDevice",
    "UartReceiver",
    "UartTransmitter",
    "device_at",
]
