"""Links between boards and hosts: a class for each kind, whose fields are the keys of a table in the board file."""

from .base import BoardLink, LinkPort
from .ftdi import Ftdi
from .spi import Spi
from .uart import Uart
from .ulpi import Ulpi
from .usb import Usb

LINKS: dict[str, type[BoardLink]] = {link.kind: link for link in (Uart, Spi, Ftdi, Usb, Ulpi)}
"""The kinds of links by name: that of the table in a board file, and of the value of `--link`."""

__all__ = ["LINKS", "BoardLink", "Ftdi", "LinkPort", "Spi", "Uart", "Ulpi", "Usb"]
