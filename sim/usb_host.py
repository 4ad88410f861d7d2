"""The computer's end of a USB: it sends and receives packets, and knows nothing of the gateware at the other end.

It resets the bus, reads the descriptors, sets address and configuration, and then moves bytes by bulk transactions,
with the repetitions and the order that the standard demands. Source: USB 2.0, chapters 8.4 to 8.6, 9.4; USB CDC, PSTN
devices 1.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import cocotb
from cocotb.task import Task
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from .harness import BenchFailure
from .usb_packets import PacketError, Pid, data_packet, head, parse, token

ATTEMPTS = 3
"""Transactions without an answer after which a computer gives an endpoint up. Source: USB 2.0, 8.6.1 and 10.2.6."""
ADDRESS, CONTROL_BYTES = 21, 64
FAULTS = ("o_bit", "i_bit", "i_ack", "o_ack", "token", "cut", "halt")
"""Faults on the wires, each in one transaction: a bit of a packet to the device or from it is turned, the computer's or
the device's ACK gets lost, a token is damaged, and a packet to the device ends early. With the last one, the computer
takes both endpoints to be halted, as after a STALL, and has them go on, as drivers of serial ports do."""
CONTROL_S = 10e-3
"""Longest time in which a device says NAK to a request."""


class Silence(Exception):
    """No answer came, or none that counts."""


class Stalled(Exception):
    """The device refuses a request."""


@dataclass(frozen=True)
class Speed:
    """What a computer does at a speed of the bus.

    Parameters
    ----------
    packet_bytes: largest bulk packet.
    frame_s, frame_parts: time from one SOF to the next, and how many of them have the same number.
    last_s: time before the end of a frame in which no transaction begins: the longest one ends before.
    idle_s: pause behind a question that the device had nothing to answer to.
    is_fast: the bus has high speed: a packet to the device that does not fit is announced by PING.
    batched: what came is handed to the driver at the next SOF.
    """

    packet_bytes: int
    frame_s: float
    frame_parts: int
    last_s: float
    idle_s: float
    is_fast: bool = False
    batched: bool = False


FULL = Speed(packet_bytes=64, frame_s=1e-3, frame_parts=1, last_s=1000 / 12e6, idle_s=5e-6)
HIGH = Speed(512, frame_s=125e-6, frame_parts=8, last_s=12e-6, idle_s=0.5e-6, is_fast=True, batched=True)
SPEEDS = {"full": FULL, "high": HIGH}


class Wires(Protocol):
    """What carries packets: the wires of full speed, or a PHY with those of either speed.

    Members
    -------
    speeds: those that the device has.
    """

    speeds: tuple[Speed, ...]

    async def reset(self, speed: Speed) -> None:
        """Wait for the device, and reset the bus, behind a port of a speed.

        Raises
        ------
        BenchFailure: the device does not do what the standard demands of it.
        """

    async def suspend(self) -> None:
        """Leave the wires at rest until the device must be suspended, and resume.

        Raises
        ------
        BenchFailure: the device does not do what the standard demands of it.
        """

    async def send(self, packet: bytes, harm: str = "") -> None:
        """Send a packet, with a bit that is turned (`bit`), or without its second half (`cut`)."""

    async def receive(self, harm: Callable[[int], bool]) -> bytes | None:
        """Return the next packet of the device; None if none comes in time.

        Parameters
        ----------
        harm: is told the bytes of the packet, and returns whether one of its bits is to be turned.
        """


class UsbHost:
    """A host controller with the driver of a serial port.

    Parameters
    ----------
    scale: simulated seconds for each real one.
    fault_every: transactions with bytes between two faults; 0: there are none.
    o_first: as long as the device takes bytes it is not asked for any, so that its packets get long.

    Members
    -------
    outgoing, incoming: bytes that wait for the device, and that came from it.
    faults: that were injected. pings: that were sent.
    """

    def __init__(self, wires: Wires, scale: float, fault_every: int = 0, o_first: bool = False) -> None:
        self._wires, self._scale, self._speed = wires, scale, wires.speeds[0]
        self._fault_every, self._until_fault, self._o_first = fault_every, fault_every, o_first
        self._frame, self._next_frame_s = 0, 0.0
        self.outgoing, self.incoming, self._arrived = bytearray(), bytearray(), bytearray()
        self.faults = self.pings = 0
        self._address = self._i_endpoint = self._o_endpoint = 0
        self._i_toggle = self._o_toggle = 0
        self._must_ping = False
        self._pump: Task[None] | None = None

    def now(self) -> float:
        """Return the real time in seconds."""
        return float(get_sim_time("ps")) / 1e12 / self._scale

    async def wait(self, seconds: float) -> None:
        """Let real time pass."""
        await Timer(max(1, round(seconds * self._scale * 1e12)), unit="ps")

    async def plug_in(self, speed: Speed) -> None:
        """Reset the bus, enumerate the device, and begin to move bytes, at a port of a speed that the device has.

        Raises
        ------
        BenchFailure: the device does not do what the standard demands of it.
        """
        for waiting in (self.outgoing, self.incoming, self._arrived):
            waiting.clear()
        self._address = self._i_toggle = self._o_toggle = 0
        self._must_ping = False
        await self._wires.reset(speed)
        self._speed = speed
        self._next_frame_s = self.now()
        await self._enumerate()
        self._pump = cocotb.start_soon(self._move())

    async def sleep(self) -> None:
        """Suspend the bus where the next transaction would begin, and go on behind it as before."""
        await self.pull_out()
        await self._wires.suspend()
        self._next_frame_s = self.now()
        self._pump = cocotb.start_soon(self._move())

    async def pull_out(self) -> None:
        """Stop where the next transaction would begin."""
        pump, self._pump = self._pump, None
        if pump is not None:
            await pump

    @property
    def is_plugged(self) -> bool:
        """Whether bytes move."""
        return self._pump is not None and not self._pump.done()

    async def _enumerate(self) -> None:
        """Read the descriptors; set address, configuration and what a serial port has."""
        device = await self.control(0x80, 6, 0x0100, 0, 18)
        if device[0] != 18 or device[1] != 1 or device[7] != CONTROL_BYTES:
            raise BenchFailure(f"the descriptor of the device is {device.hex()}")
        await self.control(0x00, 5, ADDRESS, 0, 0)
        await self.wait(2e-6)
        self._address = ADDRESS
        total = int.from_bytes((await self.control(0x80, 6, 0x0200, 0, 9))[2:4], "little")
        found = await self.control(0x80, 6, 0x0200, 0, total)
        self._o_endpoint, self._i_endpoint = _endpoints_of(found, total, 2, self._speed)
        await self._look_at_other_speed(device, total)
        await self._ask_too_much()
        for index in (device[14], device[15]):
            text = await self.control(0x80, 6, 0x0300 | index, 0x0409, 255)
            if len(text) < 4 or text[0] != len(text) or text[1] != 3:
                raise BenchFailure(f"string {index} is {text.hex()}")
        await self.control(0x00, 9, 1, 0, 0)
        await self.control(0x21, 0x20, 0, 0, 7, bytes((0x00, 0xC2, 0x01, 0x00, 0, 0, 8)))

    async def _look_at_other_speed(self, device: bytes, total: int) -> None:
        """Read what the device would be at its other speed; one without refuses. Source: USB 2.0, 9.6.2 and 9.6.4."""
        others = [speed for speed in self._wires.speeds if speed != self._speed]
        if not others:
            await self.refused(0x80, 6, 0x0600, 0, 10)
            return
        qualifier = await self.control(0x80, 6, 0x0600, 0, 10)
        if qualifier != bytes((10, 6)) + device[2:8] + device[17:18] + bytes(1):
            raise BenchFailure(f"the qualifier of the device {device.hex()} is {qualifier.hex()}")
        _endpoints_of(await self.control(0x80, 6, 0x0700, 0, 255), total, 7, others[0])

    async def _ask_too_much(self) -> None:
        """Make requests that the device does not know; those behind them are answered as if there were none.

        A second configuration, a string, the lines of a modem, which every system sets, and a vendor's request.
        """
        await self.refused(0x80, 6, 0x0201, 0, 9)
        await self.refused(0x80, 6, 0x0309, 0x0409, 255)
        await self.refused(0x21, 0x22, 3, 0, 0)
        await self.refused(0xC0, 1, 0, 0, 4)

    async def refused(self, kind: int, request: int, value: int, index: int, length: int) -> None:
        """Make a request that the device must answer by STALL. Raises BenchFailure: it does not."""
        try:
            answer = await self._ask(kind, request, value, index, length)
        except Stalled:
            return
        raise BenchFailure(f"the device answers {answer.hex()} to the unknown request {kind:#x}, {request}, {value:#x}")

    async def control(self, kind: int, request: int, value: int, index: int, length: int, data: bytes = b"") -> bytes:
        """Make a request at endpoint 0, and return what comes; `data` is sent.

        Raises
        ------
        BenchFailure: the device refuses it.
        """
        try:
            return await self._ask(kind, request, value, index, length, data)
        except Stalled:
            raise BenchFailure(f"the device refuses the request {kind:#x}, {request}, {value:#x}") from None

    async def _ask(self, kind: int, request: int, value: int, index: int, length: int, data: bytes = b"") -> bytes:
        """Make a request; see `control`. Raises Stalled: the device refuses it."""
        setup = bytes((kind, request)) + b"".join(word.to_bytes(2, "little") for word in (value, index, length))
        await self._until_taken(Pid.SETUP, 0, Pid.DATA0, setup)
        answer, toggle = b"", 1
        if data:
            await self._until_taken(Pid.OUT, 0, Pid.DATA1, data)
        while kind & 0x80 and len(answer) < length:
            part = await self._until_given(0, toggle)
            answer, toggle = answer + part, toggle ^ 1
            if len(part) < CONTROL_BYTES:
                break
        if kind & 0x80:
            await self._until_taken(Pid.OUT, 0, Pid.DATA1, b"")
        elif await self._until_given(0, 1):
            raise BenchFailure(f"the request {setup.hex()} ends with bytes")
        return answer

    async def _until_taken(self, pid: Pid, endpoint: int, toggle: Pid, payload: bytes) -> None:
        await self._until(lambda: self._give(pid, endpoint, toggle, payload))

    async def _until_given(self, endpoint: int, toggle: int) -> bytes:
        found = list[bytes]()

        async def ask() -> bool:
            part = await self._take(endpoint, toggle)
            found.extend([] if part is None else [part])
            return part is not None

        await self._until(ask)
        return found[0]

    async def _until(self, attempt: Callable[[], Any]) -> None:
        """Repeat a transaction while the device says NAK."""
        deadline = self.now() + CONTROL_S
        while self.now() < deadline:
            await self._keep_frames()
            try:
                if await attempt():
                    return
            except Silence:
                continue
        raise BenchFailure("the device does not answer a request")

    async def _move(self) -> None:
        """Move bytes in both directions as long as the device answers, one transaction of each after the other."""
        silent = 0
        while self._pump is not None and silent < ATTEMPTS:
            await self._keep_frames()
            if self._fault_every and FAULTS[self.faults % len(FAULTS)] == "halt":
                await self._go_on_behind_halts()
            moved, answered = False, True
            for one in (self._move_out, self._move_in):
                if moved and self._o_first:
                    break
                try:
                    moved |= await one()
                except Silence:
                    answered, self._must_ping = False, self._speed.is_fast
            silent = 0 if answered else silent + 1
            if not moved and answered:
                await self.wait(self._speed.idle_s)

    async def _go_on_behind_halts(self) -> None:
        """Clear the halts of both endpoints, behind which their packets begin with DATA0. Source: USB 2.0, 9.4.5."""
        self.faults += 1
        for endpoint in (self._o_endpoint, self._i_endpoint | 0x80):
            await self.control(0x02, 1, 0, endpoint, 0)
        self._o_toggle = self._i_toggle = 0

    async def _move_out(self) -> bool:
        part = bytes(self.outgoing[: self._speed.packet_bytes])
        if not part or (self._must_ping and not await self._ping()):
            return False
        if not await self._give(Pid.OUT, self._o_endpoint, _DATA[self._o_toggle], part):
            self._must_ping = self._speed.is_fast
            return False
        self._o_toggle ^= 1
        del self.outgoing[: len(part)]
        return True

    async def _ping(self) -> bool:
        """Ask whether there is room for a packet, which a NAK, or silence, leaves open. Source: USB 2.0, 8.5.1.1."""
        self.pings += 1
        await self._wires.send(token(Pid.PING, self._address | self._o_endpoint << 7))
        kind, _ = await self._receive()
        if kind not in (Pid.ACK, Pid.NAK):
            raise BenchFailure(f"the device answers {kind.name} to PING")
        self._must_ping = kind == Pid.NAK
        return not self._must_ping

    async def _move_in(self) -> bool:
        part = await self._take(self._i_endpoint, self._i_toggle)
        if part is None:
            return False
        self._i_toggle ^= 1
        if len(part) > self._speed.packet_bytes:
            raise BenchFailure(
                f"the device sends a packet of {len(part)} bytes, {self._speed.packet_bytes} are allowed"
            )
        (self._arrived if self._speed.batched else self.incoming).extend(part)
        return True

    async def _give(self, pid: Pid, endpoint: int, toggle: Pid, payload: bytes) -> bool:
        """Send a packet; return whether the device took it, as it may be busy.

        Raises
        ------
        Silence: it did not answer. BenchFailure: its answer is none of those that it may give.
        """
        fault = self._next_fault(("o_bit", "o_ack", "token", "cut")) if endpoint and payload else ""
        await self._wires.send(token(pid, self._address | endpoint << 7), "bit" if fault == "token" else "")
        await self._wires.send(data_packet(toggle, payload), {"o_bit": "bit", "cut": "cut"}.get(fault, ""))
        kind, _ = await self._receive()
        if fault and fault != "o_ack":
            raise BenchFailure(f"the device answers {kind.name} to a packet with the fault '{fault}'")
        if fault == "o_ack":
            raise Silence
        # NYET: it took this one, and has no room for the next one. Source: USB 2.0, 8.5.1.
        taken = (Pid.ACK, Pid.NYET) if self._speed.is_fast and endpoint else (Pid.ACK,)
        if kind == Pid.STALL and not endpoint:
            raise Stalled
        if kind not in (*taken, Pid.NAK):
            raise BenchFailure(f"the device answers {kind.name} to a packet on endpoint {endpoint}")
        self._must_ping = kind == Pid.NYET
        return kind in taken

    async def _take(self, endpoint: int, toggle: int) -> bytes | None:
        """Ask for a packet; return its payload, None if the device has none, or gave one for the second time.

        Raises
        ------
        Silence: there was no answer that counts. BenchFailure: it is none of those that the device may give.
        """
        await self._wires.send(token(Pid.IN, self._address | endpoint << 7))
        kind, payload = await self._receive(self._turned)
        if kind == Pid.NAK:
            return None
        if kind == Pid.STALL and not endpoint:
            raise Stalled
        if kind not in _DATA:
            raise BenchFailure(f"the device answers {kind.name} where endpoint {endpoint} is asked for bytes")
        is_lost = endpoint and self._next_fault(("i_ack",)) == "i_ack"
        if not is_lost:
            await self._wires.send(head(Pid.ACK))
        # The computer has the packet even if the device does not hear of it, and gives it again.
        return payload if kind == _DATA[toggle] else None

    def _turned(self, size: int) -> bool:
        """Return whether a packet of the device of so many bytes is to be harmed: one with a payload, if it is due."""
        return size > 3 and self._next_fault(("i_bit",)) == "i_bit"

    def _next_fault(self, kinds: tuple[str, ...]) -> str:
        """Return the fault that this transaction suffers, if the next one in turn is of these kinds; else nothing."""
        if not self._fault_every:
            return ""
        self._until_fault -= 1
        kind = FAULTS[self.faults % len(FAULTS)]
        if self._until_fault > 0 or kind not in kinds:
            return ""
        self.faults, self._until_fault = self.faults + 1, self._fault_every
        return kind

    async def _keep_frames(self) -> None:
        """Begin a frame when it is time; none of the transactions reaches into the next one."""
        speed = self._speed
        while True:
            left_s = self._next_frame_s - self.now()
            if left_s > speed.last_s:
                return
            if left_s > 0:
                await self.wait(left_s)
            self.incoming += self._arrived
            self._arrived.clear()
            await self._wires.send(token(Pid.SOF, self._frame // speed.frame_parts))
            self._frame = (self._frame + 1) % (2048 * speed.frame_parts)
            self._next_frame_s += speed.frame_s

    async def _receive(self, harm: Callable[[int], bool] = lambda size: False) -> tuple[Pid, bytes]:
        """Return kind and payload of the device's packet.

        Raises
        ------
        Silence: none came in time, or one that a receiver must ignore.
        """
        packet = await self._wires.receive(harm)
        if packet is None:
            raise Silence
        try:
            return parse(packet)
        except PacketError:
            raise Silence from None


def _endpoints_of(text: bytes, total: int, kind: int, speed: Speed) -> tuple[int, int]:
    """Return the bulk endpoints for data, to the device and from it, of a configuration at a speed.

    Parameters
    ----------
    kind: type of its descriptor.

    Raises
    ------
    BenchFailure: it is none, or not that of the speed.
    """
    if (len(text), text[1]) != (total, kind):
        raise BenchFailure(f"the configuration has {len(text)} bytes and type {text[1]}, not {total} and {kind}")
    found, sizes, interface, at = dict[int, int](), set[int](), -1, 0
    while at < total:
        part = text[at : at + text[at]]
        at += text[at]
        if part[1] == 4:
            interface = part[5]
        size = int.from_bytes(part[4:6], "little")
        if part[1] == 5 and size > speed.packet_bytes:
            raise BenchFailure(f"endpoint {part[2]:#x} has packets of {size} bytes, {speed.packet_bytes} are allowed")
        if part[1] == 5 and interface == 0x0A and part[3] & 3 == 2:
            found[part[2] >> 7] = part[2] & 0xF
            sizes.add(size)
    if found.keys() != {0, 1}:
        raise BenchFailure(f"the configuration has the endpoints {found} for the data of a serial port")
    if sizes != {speed.packet_bytes}:
        raise BenchFailure(f"the endpoints have packets of {sizes} bytes, not {speed.packet_bytes}")
    return found[0], found[1]


_DATA = (Pid.DATA0, Pid.DATA1)
