"""The host runtime: open a device, send images, get results. Imports neither torch nor amaranth nor pyserial."""

from .connecting import open
from .device import Device, Status
from .session import BatchError

__all__ = ["BatchError", "Device", "Status", "open"]
