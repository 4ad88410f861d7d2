"""Channel A of an FT2232H behind its USB, with an MPSSE: the commands that SPI needs, and the time that it takes.

Time is that of the simulation, in picoseconds. The host calls one transfer after the other, as pyusb does; the chip
works between the calls, until the time that the host has come to.

Source: FTDI, AN_108 (commands), DS_FT2232H (buffers of 4 kB each way); USB 2.0, 5.8.4 (13 bulk packets of 512 bytes fit
a micro-frame of 125 microseconds) and 8.5.1 (NAK). What a command takes that shifts nothing, and what the host's system
takes for a call, is in no data sheet: these are the parameters `command_ps` and `host_ps`.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

PS = 1_000_000_000_000
MICRO_FRAME_PS = 125_000_000
PACKET_BYTES = 512
STATUS = b"\x32\x60"
PACKET_PS = MICRO_FRAME_PS // 13
FIFO_BYTES = 4096
"""Bytes of each of its two buffers. Source: DS_FT2232H; those of an FT4232H have 2 KiB, of an FT232H 1 KiB."""
HOST_PS = 50_000_000
COMMAND_PS = 200_000
BASE_HZ = 60_000_000

SCK, COPI, CIPO, SELECT, DONE, CRESET = (1 << place for place in (0, 1, 2, 4, 6, 7))


class TimedOut(Exception):
    """A transfer that did not end in time."""


class Pins(Protocol):
    """The eight pins ADBUS0 to ADBUS7, in a simulation that goes on while they are used."""

    def drive(self, levels: int, outputs: int) -> None:
        """Drive the pins of the mask `outputs`; the others are inputs."""

    def sample(self) -> int:
        """Return the levels of all pins."""

    def shift(self, data: bytes, bit_ps: int) -> bytes:
        """Exchange bytes in SPI mode 0, highest bit first; 8 periods a byte."""

    def rest(self, time_ps: int) -> None:
        """Let time pass."""


class Ft2232h:
    """The chip, and the time of its host.

    Parameters
    ----------
    pins: its channel A.
    host_ps: time that the host takes for a call, on top of the USB.
    command_ps: time of a command that shifts nothing.
    fifo_bytes: bytes of each of its two buffers, which differ from chip to chip.

    Members
    -------
    now_ps: time of the host. shifted: bytes that were exchanged.
    """

    def __init__(
        self, pins: Pins, host_ps: int = HOST_PS, command_ps: int = COMMAND_PS, fifo_bytes: int = FIFO_BYTES
    ) -> None:
        self._pins, self._host_ps, self._command_ps, self._fifo_bytes = pins, host_ps, command_ps, fifo_bytes
        self.now_ps = self._chip_ps = 0
        self.shifted = 0
        self._mpsse = False
        self._latency_ps = 16 * PS // 1000
        self._bit_ps = 2 * PS // 12_000_000
        self._base_hz = 12_000_000
        self._clear()

    def _clear(self) -> None:
        self._out, self._in = deque[int](), bytearray()
        self._flush, self._left = False, 0
        self._sent_ps = self.now_ps

    # What the host asks for.

    def control(self, request: int, value: int) -> None:
        """Obey a request of the vendor's kind: reset and purge, latency timer, mode; others have no effect here."""
        self.now_ps = self._boundary(self.now_ps + self._host_ps)
        self._run(self.now_ps)
        if request == 0x00:
            self._clear()
        elif request == 0x09:
            self._latency_ps = value * PS // 1000
        elif request == 0x0B:
            self._mpsse = value >> 8 == 0x02
            self._pins.drive(0, 0)
            self._clear()

    def bulk_out(self, data: bytes, timeout_ms: int) -> int:
        """Take bytes from the host, a packet as soon as there is room for all of it."""
        time_ps = self._boundary(self.now_ps + self._host_ps)
        end_ps = time_ps + timeout_ms * PS // 1000
        for start in range(0, len(data), PACKET_BYTES):
            packet = data[start : start + PACKET_BYTES]
            self._run(time_ps)
            while len(self._out) + len(packet) > self._fifo_bytes:
                time_ps += PACKET_PS
                self._run(time_ps)
                if time_ps > end_ps:
                    self.now_ps = time_ps
                    raise TimedOut
            time_ps += PACKET_PS
            self._run(time_ps)
            self._out += packet
        self.now_ps = self._boundary(time_ps)
        self._run(self.now_ps)
        return len(data)

    def bulk_in(self, size: int, timeout_ms: int) -> bytes:
        """Give packets to the host until one is short, or `size` is reached; each begins with two bytes of status."""
        time_ps, data = self._boundary(self.now_ps + self._host_ps), b""
        end_ps = time_ps + timeout_ms * PS // 1000
        most = PACKET_BYTES - len(STATUS)
        while len(data) + PACKET_BYTES <= size:
            self._run(time_ps)
            is_due = self._flush or time_ps >= self._sent_ps + self._latency_ps
            time_ps += PACKET_PS
            if len(self._in) >= most or is_due:
                packet = bytes(self._in[:most])
                del self._in[:most]
                # A flush lasts until all that was there has left.
                self._flush = self._flush and bool(self._in)
                self._sent_ps = time_ps
                data += STATUS + packet
                if len(packet) < most:
                    break
            elif time_ps > end_ps:
                self.now_ps = time_ps
                raise TimedOut
            elif not self._out:
                # Nothing will come before the timer expires: the attempts until then are one.
                time_ps = max(time_ps, self._sent_ps + self._latency_ps)
        self.now_ps = self._boundary(time_ps)
        self._run(self.now_ps)
        return data

    @staticmethod
    def _boundary(time_ps: int) -> int:
        """Return the beginning of the next micro-frame: the host's controller plans and reports by these."""
        return -(-time_ps // MICRO_FRAME_PS) * MICRO_FRAME_PS

    # What the chip does meanwhile.

    def _run(self, until_ps: int) -> None:
        """Work until a time, which a command that has begun may exceed."""
        while self._chip_ps < until_ps:
            took_ps = self._step(until_ps - self._chip_ps) if self._mpsse else 0
            if not took_ps:
                took_ps = until_ps - self._chip_ps
                self._pins.rest(took_ps)
            self._chip_ps += took_ps

    def _step(self, room_ps: int) -> int:
        """Shift some bytes, or obey a command that is complete; return the time that it took, 0 if there is nothing."""
        if self._left:
            return self._exchange(room_ps)
        if not self._out or len(self._out) < 1 + _OPERANDS.get(self._out[0], 0):
            return 0
        command = self._out.popleft()
        operands = bytes(self._out.popleft() for _ in range(_OPERANDS.get(command, 0)))
        if command == 0x31:
            self._left = 1 + int.from_bytes(operands, "little")
        else:
            self._obey(command, operands)
        self._pins.rest(self._command_ps)
        return self._command_ps

    def _exchange(self, room_ps: int) -> int:
        byte_ps = 8 * self._bit_ps
        count = min(self._left, len(self._out), self._fifo_bytes - len(self._in), -(-room_ps // byte_ps))
        if not count:
            return 0
        data = bytes(self._out.popleft() for _ in range(count))
        self._in += self._pins.shift(data, self._bit_ps)
        self._left -= count
        self.shifted += count
        return count * byte_ps

    def _obey(self, command: int, operands: bytes) -> None:
        if command == 0x80:
            self._pins.drive(*operands)
        elif command == 0x81:
            self._in.append(self._pins.sample())
        elif command in (0x8A, 0x8B):
            self._base_hz = BASE_HZ if command == 0x8A else BASE_HZ // 5
        elif command == 0x86:
            self._bit_ps = 2 * PS * (1 + int.from_bytes(operands, "little")) // self._base_hz
        elif command == 0x87:
            self._flush = True
        elif command not in (0x82, 0x84, 0x85, 0x8D, 0x97):
            self._in += bytes((0xFA, command))


_OPERANDS = {0x31: 2, 0x80: 2, 0x82: 2, 0x86: 2}
"""Bytes behind a command; none behind others. 0x31: exchange bytes, out with falling edges, in with rising ones."""
