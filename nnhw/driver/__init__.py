"""The host runtime: open a device, give it images, get answers. Imports neither torch nor amaranth nor pyserial."""

from .device import Device, Status
from .opening import open
from .session import BatchError

__all__ = ["BatchError", "Device", "Status", "open"]
