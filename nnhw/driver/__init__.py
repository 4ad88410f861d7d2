"""The host runtime: open a device, send images, get results. Imports neither torch nor amaranth nor pyserial."""

from .device import Device, Status
from .opening import open
from .session import BatchError

__all__ = ["BatchError", "Device", "Status", "open"]
