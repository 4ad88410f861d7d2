"""A link over the SPI port of an FTDI chip; the only module that imports pyftdi and pyusb, and only when it is used."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from nnhw.driver.links.base import LINE_WINDOW_BYTES, LINE_WRITE_BYTES, closed_error
from nnhw.errors import LinkError

NAME = "ftdi"
"""Name of the link, before a colon and a serial number."""
_VENDOR = 0x0403
_PRODUCTS = {0x6010: "FT2232H", 0x6011: "FT4232H", 0x6014: "FT232H"}
# Commands of the MPSSE. Source: FTDI, AN_108.
_SHIFT, _SET_PINS, _GET_PINS, _SEND_NOW, _WRONG = 0x31, 0x80, 0x81, 0x87, 0xAA
_COMPLAINT = bytes((0xFA, _WRONG))
# Pins of the low byte. The select of the flash and the two of the configuration are where `iceprog` has them.
_SCK, _COPI, _SELECT, _DONE = 1 << 0, 1 << 1, 1 << 4, 1 << 6
_OUTPUTS = _SCK | _COPI | _SELECT
# In front of each transfer the flash is selected and released again. The flash ignores that, as no bit follows, and the
# FPGA counts the bits of its next byte from there: a bit that is lost or added harms one transfer, and not the next.
_ALIGN = bytes((_SET_PINS, 0, _OUTPUTS, _SET_PINS, _SELECT, _OUTPUTS))
_HEAD_BYTES = 48
"""Bytes that a transfer leaves free of half a buffer of the chip: more than its commands take, and so many that its
last USB packet (510 bytes, and two of status) is short, which ends a read."""
_READ_BYTES = 2048
"""Bytes for which pyftdi asks at once."""
_POLL_BYTES = 256
"""Zeros that are exchanged at once while an answer is waited for."""
_ANSWER_BYTES = 128
"""Zeros behind the last bytes before an answer is waited for: one that comes so soon comes with the same transfer, and
not a round trip later. TAKEN needs 20 of them, the result of a fast engine some more."""
_LATENCY_MS = 16
"""Latency timer of the chip, its default. Every transfer ends in a command to send at once, so none waits for it."""
# Answers without data that are waited for: the chip gives one when its latency timer expires.
_EMPTY_READS = 64
_IDLE_READS = 8
"""Reads of the pins, 125 microseconds apart or more, that must show the flash at rest. The longest pause of a device
that loads a program from it is 164 microseconds (`nnhw.hdl.link.flash`)."""
_IDLE_S = 5.0
"""Seconds after which a flash that stays selected is an error: a device has loaded its program long before."""
_ACCESS_DENIED = 13
_SLOWEST_HZ, _FASTEST_HZ = 500, 30_000_000
"""Clocks that the chip makes: 30 MHz and less, divided by at most 2^16. Source: FTDI, AN_108, command 0x86."""


class FtdiLink:
    """Bytes over the MPSSE of an FTDI chip, at the pins of a board's flash: SPI mode 0, highest bit first.

    The flash is never selected while bits are shifted. As many bytes are read as are written; zeros fill both ways.

    Parameters
    ----------
    name: `ftdi` for the only board that is plugged in, `ftdi:SERIAL` for that with a serial number.
    hz: frequency of the clock, 500 Hz to 30 MHz; the chip takes the nearest that it can divide to.
    backend: of pyusb; None: libusb of this system.
    clock: returns the time in seconds.

    Raises
    ------
    LinkError: pyftdi or libusb is missing; no board, several, or another chip; not permitted, or in use; the FPGA has
        no bitstream; somebody else talks to the flash; a clock that the chip does not make.
    """

    flow_controlled = False
    slack_s = 0.25
    window_bytes = LINE_WINDOW_BYTES
    write_bytes: int | None = LINE_WRITE_BYTES

    def __init__(
        self, name: str = NAME, hz: float = 30e6, backend: Any = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not _SLOWEST_HZ <= hz <= _FASTEST_HZ:
            raise LinkError(
                f"link '{name}': the FTDI chip makes clocks of {_SLOWEST_HZ} to {_FASTEST_HZ:,} Hz, given {hz:,.0f}; "
                "leave out the rate, or give one of these"
            )
        self.name = name
        self._now = clock
        self._queue = bytearray()
        self._shifting: deque[int] = deque()
        self._ended = True
        self._usb = _find(name, backend)
        self._product = self._usb.idProduct
        self._fifo_bytes = self._shift_bytes = 0
        self._chip: Any = None
        try:
            self._open(hz)
        except OSError as error:
            self.close()
            raise _not_opened(name, self._product, error) from error
        except BaseException:
            # Ctrl-C, too: the chip would stay claimed, and the next opening of it fail.
            self.close()
            raise

    def _open(self, hz: float) -> None:
        from pyftdi.ftdi import Ftdi

        self._chip = Ftdi()
        self.bytes_per_s = self._chip.open_mpsse_from_device(self._usb, frequency=hz, latency=_LATENCY_MS) / 8
        self._chip.read_data_set_chunksize(_READ_BYTES)
        # Two transfers fit the buffers, so one is shifted while the next one crosses the USB. An FT2232H has 4 KiB each
        # way, an FT4232H 2 KiB and an FT232H 1 KiB: with more on its way the chip would wait for the host to read, and
        # the host for the chip to take what it writes.
        self._fifo_bytes = min(self._chip.fifo_sizes)
        self._shift_bytes = self._fifo_bytes // 2 - _HEAD_BYTES
        if self._ask(bytes((_WRONG, _SEND_NOW)), 2) != _COMPLAINT:
            raise LinkError(f"link '{self.name}': the FTDI chip does not answer as an MPSSE; plug the board in again")
        self._wait_for_flash()
        self._chip.write_data(bytes((_SET_PINS, _SELECT, _OUTPUTS)))

    def _wait_for_flash(self) -> None:
        """Wait, without driving any pin, until nobody selects the flash: a device may load its program from there."""
        idle, deadline = 0, self._now() + _IDLE_S
        while idle < _IDLE_READS:
            (pins,) = self._ask(bytes((_GET_PINS, _SEND_NOW)), 1)
            if not pins & _DONE:
                raise LinkError(
                    f"link '{self.name}': the FPGA has no bitstream (CDONE is low); load one with 'nnhw program'"
                )
            idle = idle + 1 if pins & _SELECT else 0
            if self._now() > deadline:
                raise LinkError(
                    f"link '{self.name}': the flash, with which the FPGA shares these pins, was selected by somebody "
                    f"else for {_IDLE_S:g} s; close other programs, or load a bitstream of this link with "
                    "'nnhw program'"
                )

    def _ask(self, command: bytes, count: int) -> bytes:
        self._chip.write_data(command)
        answer = bytes(self._chip.read_data_bytes(count, attempt=_EMPTY_READS))
        if len(answer) < count:
            raise LinkError(f"link '{self.name}': the FTDI chip does not answer; plug the board in again")
        return answer

    def write(self, data: bytes) -> None:
        """Hold bytes until the next `read`.

        Raises
        ------
        LinkError: it is closed.
        """
        if self._usb is None:
            raise closed_error(self.name)
        self._queue += data

    def read(self, timeout_s: float) -> bytes:
        """Send what is held, and return what has come; with a timeout go on with zeros until something comes.

        A caller who gives no timeout has more to send. So the last bytes, which are less than a transfer, are then held
        until the next call.

        Raises
        ------
        LinkError: the chip is gone, or the link is closed.
        """
        if self._usb is None:
            raise closed_error(self.name)
        try:
            deadline = self.now() + timeout_s
            if timeout_s and self._queue:
                self._queue += bytes(_ANSWER_BYTES)
            came = self._send(0 if timeout_s else self._shift_bytes - 1)
            while not came and self.now() < deadline:
                if not self._shifting:
                    self._shift(bytes(_POLL_BYTES))
                came = self._take()
        except OSError as error:
            raise LinkError(
                f"link '{self.name}': the FTDI chip is gone ({error}); plug the board in and open it again"
            ) from error
        return came

    def _send(self, keep_bytes: int) -> bytes:
        """Hand the held bytes to the chip until at most `keep_bytes` are left; return what came in the meantime."""
        came = b""
        while len(self._queue) > keep_bytes:
            part = bytes(self._queue[: self._shift_bytes])
            # What is being shifted must fit the chip's buffer towards the host, or its clock would stand still.
            while self._shifting and sum(self._shifting) + len(part) > self._fifo_bytes:
                came += self._take()
            self._shift(part)
            del self._queue[: len(part)]
        return came

    def _shift(self, data: bytes) -> None:
        """Let the chip exchange bytes."""
        count = (len(data) - 1).to_bytes(2, "little")
        self._chip.write_data(_ALIGN + bytes((_SHIFT,)) + count + data + bytes((_SEND_NOW,)))
        self._shifting.append(len(data))

    def _take(self) -> bytes:
        """Return what came in exchange for the oldest bytes that were not taken, without the zeros between frames."""
        count = self._shifting.popleft()
        data = bytes(self._chip.read_data_bytes(count, attempt=_EMPTY_READS))
        if len(data) < count:
            raise LinkError(
                f"link '{self.name}': the FTDI chip gave {len(data)} of {count} bytes; plug the board in again"
            )
        text = re.sub(b"\0+", b"\0", data)
        if self._ended:
            text = text.removeprefix(b"\0")
        if text:
            self._ended = text.endswith(b"\0")
        return text

    def now(self) -> float:
        """Return the clock."""
        return self._now()

    def close(self) -> None:
        """Let go of the pins, and of the chip."""
        if self._usb is None:
            return
        from usb.util import dispose_resources

        usb, self._usb = self._usb, None
        with contextlib.suppress(OSError, AttributeError):
            self._chip.write_data(bytes((_SET_PINS, 0, 0)))
        with contextlib.suppress(OSError, AttributeError):
            self._chip.close()
        with contextlib.suppress(OSError):
            dispose_resources(usb)


def _find(name: str, backend: Any) -> Any:
    """Return the USB device of a link's name; see `FtdiLink`."""
    try:
        from pyftdi.usbtools import UsbTools
        from usb.core import find
    except ImportError as error:
        raise LinkError(
            f"link '{name}' needs pyftdi, which cannot be imported ({error}); install it with 'pip install pyftdi'"
        ) from None
    try:
        backend = backend or UsbTools.find_backend()
    except ValueError:
        raise LinkError(
            f"link '{name}' needs libusb, which this system does not have; install it, as 'libusb-1.0-0' on Debian"
        ) from None
    found = list(find(find_all=True, backend=backend, idVendor=_VENDOR))
    chips = [device for device in found if device.idProduct in _PRODUCTS]
    others = ", ".join(f"0403:{device.idProduct:04x}" for device in found if device.idProduct not in _PRODUCTS)
    if not chips:
        has = f"only the FTDI chips {others}, which have no MPSSE of this kind" if others else "no FTDI chip"
        kinds = ", ".join(f"{title} (0403:{product:04x})" for product, title in _PRODUCTS.items())
        raise LinkError(f"link '{name}': this system has {has}, needs one of {kinds}; plug the board in")
    _, _, serial = name.partition(":")
    chosen = [device for device in chips if not serial or _serial(device) == serial]
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(f"{_PRODUCTS[device.idProduct]} '{_serial(device)}'" for device in chips)
    if serial:
        raise LinkError(f"link '{name}': none of the FTDI chips here has this serial number once; here are {listed}")
    raise LinkError(f"link '{name}': {len(chips)} FTDI chips are here: {listed}; name one as 'ftdi:SERIAL'")


def _serial(device: Any) -> str:
    """Return the serial number of a chip; a question mark if it has none, or may not be read."""
    try:
        return device.serial_number or "?"
    except (OSError, ValueError):
        return "?"


def _not_opened(name: str, product: int, error: OSError) -> LinkError:
    """Return the error of a chip that is there and cannot be opened."""
    if error.errno == _ACCESS_DENIED:
        rule = f'ATTRS{{idVendor}}=="{_VENDOR:04x}", ATTRS{{idProduct}}=="{product:04x}", MODE="0660", GROUP="plugdev"'
        return LinkError(
            f"link '{name}': no permission to use the FTDI chip ({error}); on Linux put the line {rule}, "
            'TAG+="uaccess" into /etc/udev/rules.d/99-nnhw.rules, and plug the board in again'
        )
    return LinkError(
        f"link '{name}': the FTDI chip cannot be opened ({error}); close other programs that use it, or plug the board "
        "in again"
    )
