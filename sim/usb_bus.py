"""A USB bus for pyusb with simulated FTDI chips on it, in place of libusb: what pyftdi sends is what the chip gets."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from usb.backend import IBackend
from usb.core import USBError, USBTimeoutError

from .ft2232h import Ft2232h, TimedOut

_PACKET_BYTES = 512


@dataclass
class UsbChip:
    """A chip at the bus.

    Parameters
    ----------
    chip: None: nobody opens it.
    product: 0x6010 for the FT2232H.
    serial: its serial number; empty: it has none.
    permitted: whether this user may open it.

    Members
    -------
    gone: it was unplugged.
    """

    chip: Ft2232h | None = None
    product: int = 0x6010
    serial: str = "ib1234"
    permitted: bool = True
    gone: bool = False


class UsbBus(IBackend):  # type: ignore[misc]
    """The backend of pyusb."""

    def __init__(self, chips: Sequence[UsbChip]) -> None:
        super().__init__()
        self._chips = chips

    def enumerate_devices(self) -> Any:
        """See `usb.backend.IBackend`, as the others."""
        return iter(self._chips)

    def get_device_descriptor(self, dev: UsbChip) -> Any:
        numbers = {"bLength": 18, "bDescriptorType": 1, "bcdUSB": 0x200, "bMaxPacketSize0": 64, "bNumConfigurations": 1}
        classes = {"bDeviceClass": 0, "bDeviceSubClass": 0, "bDeviceProtocol": 0, "iManufacturer": 0, "iProduct": 0}
        # The version says which chip it is: 7 for the FT2232H, 8 for the FT4232H, 9 for the FT232H.
        kind = {
            "idVendor": 0x0403,
            "idProduct": dev.product,
            "bcdDevice": {0x6011: 0x800, 0x6014: 0x900}.get(dev.product, 0x700),
        }
        place = {"bus": 1, "address": 1 + self._chips.index(dev), "port_number": None, "port_numbers": None, "speed": 3}
        return SimpleNamespace(**numbers, **classes, **kind, **place, iSerialNumber=3 if dev.serial else 0)

    def get_configuration_descriptor(self, dev: UsbChip, config: int) -> Any:
        if config:
            raise IndexError
        head = {"bLength": 9, "bDescriptorType": 2, "wTotalLength": 55, "bConfigurationValue": 1, "iConfiguration": 0}
        return SimpleNamespace(
            **head, bNumInterfaces=2, bmAttributes=0x80, bMaxPower=250, extra_descriptors=b"", extralen=0
        )

    def get_interface_descriptor(self, dev: UsbChip, intf: int, alt: int, config: int) -> Any:
        if intf > 1 or alt or config:
            raise IndexError
        head = {"bLength": 9, "bDescriptorType": 4, "bInterfaceNumber": intf, "bAlternateSetting": 0, "iInterface": 0}
        classes = {"bInterfaceClass": 255, "bInterfaceSubClass": 255, "bInterfaceProtocol": 255}
        return SimpleNamespace(**head, **classes, bNumEndpoints=2, extra_descriptors=b"", extralen=0)

    def get_endpoint_descriptor(self, dev: UsbChip, ep: int, intf: int, alt: int, config: int) -> Any:
        address = (0x81 if ep == 0 else 0x02) + 2 * intf
        head = {"bLength": 7, "bDescriptorType": 5, "bEndpointAddress": address, "bmAttributes": 2, "bInterval": 0}
        more = {"wMaxPacketSize": _PACKET_BYTES, "bRefresh": 0, "bSynchAddress": 0, "extra_descriptors": b""}
        return SimpleNamespace(**head, **more, extralen=0)

    def open_device(self, dev: UsbChip) -> UsbChip:
        if not dev.permitted:
            raise USBError("Access denied (insufficient permissions)", -3, errno.EACCES)
        return dev

    def close_device(self, dev_handle: UsbChip) -> None:
        pass

    def set_configuration(self, dev_handle: UsbChip, config_value: int) -> None:
        pass

    def get_configuration(self, dev_handle: UsbChip) -> int:
        return 1

    def claim_interface(self, dev_handle: UsbChip, intf: int) -> None:
        pass

    def release_interface(self, dev_handle: UsbChip, intf: int) -> None:
        pass

    def is_kernel_driver_active(self, dev_handle: UsbChip, intf: int) -> bool:
        return False

    def attach_kernel_driver(self, dev_handle: UsbChip, intf: int) -> None:
        pass

    def bulk_write(self, dev_handle: UsbChip, ep: int, intf: int, data: Any, timeout: int) -> int:
        chip = _present(dev_handle)
        try:
            return chip.bulk_out(bytes(data), timeout)
        except TimedOut:
            raise USBTimeoutError("Operation timed out", -7, errno.ETIMEDOUT) from None

    def bulk_read(self, dev_handle: UsbChip, ep: int, intf: int, buff: Any, timeout: int) -> int:
        chip = _present(dev_handle)
        try:
            data = chip.bulk_in(len(buff), timeout)
        except TimedOut:
            raise USBTimeoutError("Operation timed out", -7, errno.ETIMEDOUT) from None
        memoryview(buff).cast("B")[: len(data)] = data
        return len(data)

    def ctrl_transfer(
        self,
        dev_handle: UsbChip,
        bmRequestType: int,  # the names are pyusb's
        bRequest: int,
        wValue: int,
        wIndex: int,
        data: Any,
        timeout: int,
    ) -> int:
        if bmRequestType == 0x80 and bRequest == 6 and wValue >> 8 == 3:
            text = b"\x09\x04" if wValue == 0x300 else dev_handle.serial.encode("utf-16-le")
            answer = (bytes((2 + len(text), 3)) + text)[: len(data)]
            memoryview(data).cast("B")[: len(answer)] = answer
            return len(answer)
        chip = _present(dev_handle)
        if bmRequestType == 0x40 and wIndex == 1:
            chip.control(bRequest, wValue)
            return len(data)
        raise USBError(f"request {bmRequestType:#04x} {bRequest:#04x} at {wIndex} is not known here", -9, errno.EPIPE)


def _present(device: UsbChip) -> Ft2232h:
    if device.gone or device.chip is None:
        raise USBError("No such device (it may have been disconnected)", -4, errno.ENODEV)
    return device.chip
