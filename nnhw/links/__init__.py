"""Links of boards to their hosts: one class each, whose fields are a table of the board file."""

from .base import BoardLink, Port
from .spi import Spi
from .uart import Uart

LINKS: dict[str, type[BoardLink]] = {link.kind: link for link in (Uart, Spi)}
"""The links by the name of their table in a board file, and of `--link`."""

__all__ = ["LINKS", "BoardLink", "Port", "Spi", "Uart"]
