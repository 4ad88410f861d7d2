"""A link over a serial port; the only module that imports pyserial."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import serial
from serial.tools import list_ports

from nnhw.driver.links.base import (
    LINE_WINDOW_BYTES,
    LINE_WRITE_BYTES,
    USB_LATENCY_S,
    USB_WRITE_BYTES,
    closed_error,
    window_bytes,
)
from nnhw.errors import LinkError
from nnhw.protocol import BITS_PER_UART_BYTE, USB_BYTES_PER_S, USB_PRODUCT, USB_VENDOR

_ANY_BAUD = 115_200
"""The rate of a port behind which there is no serial line: pyserial asks for one."""
# FTDI chips with two interfaces: the first one programs the board, the second one is the serial line.
_TWO_INTERFACES = {(0x0403, 0x6010)}


class SerialLink:
    """Bytes over a serial port: 8 data bits, no parity, 1 stop bit, no flow control.

    Parameters
    ----------
    port: name of the port on this system: `/dev/ttyUSB1`, `/dev/cu.usbserial-1`, `COM3`.
    baud: bits per second.

    Raises
    ------
    LinkError: the port is absent, in use, or not permitted; the message lists the ports of this system.
    """

    flow_controlled = False
    slack_s = 1.0
    window_bytes = LINE_WINDOW_BYTES
    write_bytes: int | None = LINE_WRITE_BYTES

    def __init__(self, port: str, baud: int) -> None:
        self.name = port
        self.bytes_per_s = baud / BITS_PER_UART_BYTE
        try:
            self._port = serial.Serial(port, baud, timeout=0, write_timeout=2 * self.slack_s, exclusive=True)
        except (serial.SerialException, OSError, ValueError) as error:
            raise LinkError(f"serial port '{port}' cannot be opened ({error}); {describe_ports()}") from error
        # USB adapters collect bytes for 16 ms before they hand them over, unless told otherwise.
        with contextlib.suppress(AttributeError, NotImplementedError, ValueError, OSError):
            self._port.set_low_latency_mode(True)
        with contextlib.suppress(serial.SerialException, OSError):
            self._port.reset_input_buffer()

    def write(self, data: bytes) -> None:
        """Send bytes.

        Raises
        ------
        LinkError: the port is gone.
        """
        try:
            self._port.write(data)
        except (serial.SerialException, OSError, TypeError) as error:
            raise self._gone(error) from error

    def read(self, timeout_s: float) -> bytes:
        """Return what has come, or the first byte within the timeout.

        Raises
        ------
        LinkError: the port is gone.
        """
        try:
            # pyserial sets up the whole port anew for each assignment, so only for a change.
            if self._port.timeout != timeout_s:
                self._port.timeout = timeout_s
            return bytes(self._port.read(max(1, self._port.in_waiting)))
        except (serial.SerialException, OSError, TypeError) as error:
            raise self._gone(error) from error

    def _gone(self, error: Exception) -> LinkError:
        if not self._port.is_open:
            return closed_error(self.name)
        return LinkError(f"link '{self.name}': the serial port is gone ({error}); plug the board in and open it again")

    def now(self) -> float:
        """Return the system's steady clock."""
        return time.monotonic()

    def close(self) -> None:
        """Close the port."""
        with contextlib.suppress(serial.SerialException, OSError):
            self._port.close()


class UsbSerialLink(SerialLink):
    """Bytes over the USB port of an FPGA, which the system shows as a serial port; they wait until the device has room.

    Parameters
    ----------
    name: `usb` for the only device with the numbers of nnhw, `usb:PORT` for a port of this system.

    Raises
    ------
    LinkError: there is none, or more than one; see `SerialLink`.
    """

    flow_controlled = True
    write_bytes: int | None = USB_WRITE_BYTES

    window_bytes = window_bytes(USB_BYTES_PER_S, USB_LATENCY_S)

    def __init__(self, name: str) -> None:
        _, _, port = name.partition(":")
        # Any rate would do: there is no line behind the port.
        super().__init__(port or find_usb_port(), _ANY_BAUD)
        self.bytes_per_s = USB_BYTES_PER_S


def find_usb_port() -> str:
    """Return the port of the only FPGA with the gateware of a USB port.

    Raises
    ------
    LinkError: there is none, or more than one; the message lists the ports of this system.
    """
    ports = sorted(port.device for port in list_ports.comports() if (port.vid, port.pid) == (USB_VENDOR, USB_PRODUCT))
    if len(ports) != 1:
        found = ", ".join(ports) or "no device"
        raise LinkError(
            f"link 'usb' needs one device {USB_VENDOR:04x}:{USB_PRODUCT:04x}, but finds {found}; {describe_ports()}; "
            "load the accelerator, or name the port with --link usb:PORT"
        )
    return ports[0]


def describe_ports() -> str:
    """Return a sentence that lists the serial ports of this system."""
    ports = sorted(list_ports.comports())
    if not ports:
        return "this system has no serial port; plug the board in"
    return "serial ports here: " + ", ".join(f"{port.device} ({port.description})" for port in ports)


def find_port() -> str:
    """Return the serial port of the only board that is plugged in.

    Raises
    ------
    LinkError: there is none, or more than one; the message lists them.
    """
    boards: dict[tuple[Any, ...], list[Any]] = {}
    for port in sorted(list_ports.comports()):
        if port.vid is not None:
            one_of_two = (port.vid, port.pid) in _TWO_INTERFACES
            chip = (port.vid, port.pid, port.serial_number) if one_of_two else (port.device,)
            boards.setdefault(chip, []).append(port)
    if len(boards) != 1:
        how_many = "no USB serial port" if not boards else f"{len(boards)} boards with a USB serial port"
        raise LinkError(f"--link auto finds {how_many}; {describe_ports()}; name one with --link")
    (ports,) = boards.values()
    return str(ports[-1].device)
