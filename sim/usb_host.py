"""The computer's end of a USB of full speed: it drives the wires of a design, and knows nothing of its gateware.

It resets the bus, reads the descriptors, sets address and configuration, and then moves bytes by bulk transactions,
with the repetitions and the order that the standard demands. Source: USB 2.0, chapters 7.1.7, 8.4 to 8.6, 9.4; USB CDC,
PSTN devices 1.2.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.task import Task
from cocotb.triggers import First, RisingEdge, Timer, ValueChange
from cocotb.utils import get_sim_time

from .harness import BenchFailure
from .usb_packets import Level, PacketError, Pid, data_packet, head, levels, packet_of, parse, token

BIT_S, FRAME_S = 1 / 12e6, 1e-3
TURNAROUND_BITS, ANSWER_BITS = 3, 18
"""Pause between two packets, and the longest one before an answer. Source: USB 2.0, 7.1.18 and 7.1.19."""
LAST_BITS = 1000
"""Bits before the end of a frame in which no transaction begins: the longest one and its answer end before."""
IDLE_S = 5e-6
"""Pause behind a question that the device had nothing to answer to."""
RESET_S, PULLUP_S = 50e-6, 5e-3
"""Lengths of a reset, which takes 10 ms on real wires and is the same to a device, and of the wait for the pull-up."""
ATTEMPTS = 3
"""Transactions without an answer after which a computer gives an endpoint up. Source: USB 2.0, 8.6.1 and 10.2.6."""
ADDRESS, PACKET_BYTES = 21, 64
FAULTS = ("o_bit", "i_bit", "i_ack", "o_ack", "token", "cut")
"""Faults on the wires, each in one transaction: a bit of a packet to the device or from it is turned, the computer's or
the device's ACK gets lost, a token is damaged, and a packet to the device ends early."""


class Silence(Exception):
    """No answer came, or none that counts."""


class Unplugged(Exception):
    """The device was lost: too many transactions had no answer, or the bus was reset."""


class FullSpeedHost:
    """A host controller with the driver of a serial port.

    Parameters
    ----------
    scale: simulated seconds for each real one.
    fault_every: transactions with bytes between two faults; 0: there are none.

    Members
    -------
    outgoing, incoming: bytes that wait for the device, and that came from it.
    faults: that were injected.
    """

    def __init__(self, dut: Any, scale: float, fault_every: int = 0, seed: int = 1) -> None:
        self._dut, self._scale = dut, scale
        self._bit_ps = round(BIT_S * scale * 1e12)
        self._random = random.Random(seed)
        self._fault_every, self._until_fault, self._fault = fault_every, fault_every, ""
        self._frame, self._next_frame_s = 0, 0.0
        self.outgoing, self.incoming, self.faults = bytearray(), bytearray(), 0
        self._address = self._i_endpoint = self._o_endpoint = 0
        self._i_toggle = self._o_toggle = 0
        self._pump: Task[None] | None = None
        dut.usb_d_p.value, dut.usb_d_n.value = 0, 0

    def now(self) -> float:
        """Return the real time in seconds."""
        return float(get_sim_time("ps")) / 1e12 / self._scale

    async def wait(self, seconds: float) -> None:
        """Let real time pass."""
        await Timer(max(1, round(seconds * self._scale * 1e12)), unit="ps")

    async def plug_in(self) -> None:
        """Wait for the pull-up, reset the bus, enumerate the device, and begin to move bytes.

        Raises
        ------
        BenchFailure: the device does not do what the standard demands of it.
        """
        if not self._dut.usb_pullup.value:
            await First(RisingEdge(self._dut.usb_pullup), Timer(round(PULLUP_S * self._scale * 1e12), unit="ps"))
        if not self._dut.usb_pullup.value:
            raise BenchFailure("usb_pullup: it stays 0, so no computer sees the device")
        self.outgoing.clear()
        self.incoming.clear()
        self._address = self._i_toggle = self._o_toggle = 0
        await self._idle(Level.J, RESET_S)
        await self._idle(Level.SE0, RESET_S)
        await self._idle(Level.J, RESET_S)
        self._next_frame_s = self.now()
        await self._enumerate()
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
        if device[0] != 18 or device[1] != 1 or device[7] != PACKET_BYTES:
            raise BenchFailure(f"the descriptor of the device is {device.hex()}")
        await self.control(0x00, 5, ADDRESS, 0, 0)
        await self.wait(2e-6)
        self._address = ADDRESS
        total = int.from_bytes((await self.control(0x80, 6, 0x0200, 0, 9))[2:4], "little")
        await self._find_endpoints(await self.control(0x80, 6, 0x0200, 0, total), total)
        for index in (device[14], device[15]):
            text = await self.control(0x80, 6, 0x0300 | index, 0x0409, 255)
            if len(text) < 4 or text[0] != len(text) or text[1] != 3:
                raise BenchFailure(f"string {index} is {text.hex()}")
        await self.control(0x00, 9, 1, 0, 0)
        await self.control(0x21, 0x20, 0, 0, 7, bytes((0x00, 0xC2, 0x01, 0x00, 0, 0, 8)))

    async def _find_endpoints(self, text: bytes, total: int) -> None:
        """Take the two bulk endpoints of the interface for data from a configuration."""
        if len(text) != total:
            raise BenchFailure(f"the configuration has {len(text)} bytes, and says {total}")
        found, kind, at = dict[int, int](), -1, 0
        while at < total:
            part = text[at : at + text[at]]
            at += text[at]
            if part[1] == 4:
                kind = part[5]
            if part[1] == 5 and kind == 0x0A and part[3] & 3 == 2:
                found[part[2] >> 7] = part[2] & 0xF
        if found.keys() != {0, 1}:
            raise BenchFailure(f"the configuration has the endpoints {found} for the data of a serial port")
        self._o_endpoint, self._i_endpoint = found[0], found[1]

    async def control(self, kind: int, request: int, value: int, index: int, length: int, data: bytes = b"") -> bytes:
        """Make a request at endpoint 0, and return what comes; `data` is sent.

        Raises
        ------
        BenchFailure: the device refuses it.
        """
        setup = bytes((kind, request)) + b"".join(word.to_bytes(2, "little") for word in (value, index, length))
        await self._until_taken(Pid.SETUP, 0, Pid.DATA0, setup)
        answer, toggle = b"", 1
        if data:
            await self._until_taken(Pid.OUT, 0, Pid.DATA1, data)
        while kind & 0x80 and len(answer) < length:
            part = await self._until_given(0, toggle)
            answer, toggle = answer + part, toggle ^ 1
            if len(part) < PACKET_BYTES:
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
        deadline = self.now() + 10 * FRAME_S
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
            moved, answered = False, True
            for one in (self._move_out, self._move_in):
                try:
                    moved |= await one()
                except Silence:
                    answered = False
            silent = 0 if answered else silent + 1
            if not moved and answered:
                await self.wait(IDLE_S)

    async def _move_out(self) -> bool:
        part = bytes(self.outgoing[:PACKET_BYTES])
        if not part or not await self._give(Pid.OUT, self._o_endpoint, _DATA[self._o_toggle], part):
            return False
        self._o_toggle ^= 1
        del self.outgoing[: len(part)]
        return True

    async def _move_in(self) -> bool:
        part = await self._take(self._i_endpoint, self._i_toggle)
        if part is None:
            return False
        self._i_toggle ^= 1
        self.incoming += part
        return True

    async def _give(self, pid: Pid, endpoint: int, toggle: Pid, payload: bytes) -> bool:
        """Send a packet; return whether the device took it, as it may be busy.

        Raises
        ------
        Silence: it did not answer. BenchFailure: its answer is none of those that it may give.
        """
        fault = self._next_fault(("o_bit", "o_ack", "token", "cut")) if endpoint and payload else ""
        await self._send(token(pid, self._address | endpoint << 7), "bit" if fault == "token" else "")
        await self._send(data_packet(toggle, payload), {"o_bit": "bit", "cut": "cut"}.get(fault, ""))
        kind, _ = await self._receive()
        if fault and fault != "o_ack":
            raise BenchFailure(f"the device answers {kind.name} to a packet with the fault '{fault}'")
        if fault == "o_ack":
            raise Silence
        if kind not in (Pid.ACK, Pid.NAK):
            raise BenchFailure(f"the device answers {kind.name} to a packet on endpoint {endpoint}")
        return kind == Pid.ACK

    async def _take(self, endpoint: int, toggle: int) -> bytes | None:
        """Ask for a packet; return its payload, None if the device has none, or gave one for the second time.

        Raises
        ------
        Silence: there was no answer that counts. BenchFailure: it is none of those that the device may give.
        """
        await self._send(token(Pid.IN, self._address | endpoint << 7))
        kind, payload = await self._receive(self._turned)
        if kind == Pid.NAK:
            return None
        if kind not in _DATA:
            raise BenchFailure(f"the device answers {kind.name} where endpoint {endpoint} is asked for bytes")
        is_lost = endpoint and self._next_fault(("i_ack",)) == "i_ack"
        if not is_lost:
            await self._send(head(Pid.ACK))
        # The computer has the packet even if the device does not hear of it, and gives it again.
        return payload if kind == _DATA[toggle] else None

    def _turned(self, seen: list[Level]) -> list[Level]:
        """Return the levels of a packet of the device, with a fault in it where one is due."""
        if len(seen) > 40 and self._next_fault(("i_bit",)):
            place = self._random.randrange(16, len(seen) - 4)
            seen[place] = Level(seen[place] ^ 0b11)
        return seen

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
        while True:
            left_s = self._next_frame_s - self.now()
            if left_s > LAST_BITS * BIT_S:
                return
            await self.wait(max(left_s, BIT_S))
            await self._send(token(Pid.SOF, self._frame))
            self._frame, self._next_frame_s = (self._frame + 1) % 2048, self._next_frame_s + FRAME_S

    async def _send(self, packet: bytes, harm: str = "") -> None:
        """Drive a packet, with a bit that is turned, or without its second half; then leave the wires idle."""
        if harm == "cut":
            packet = packet[: max(2, len(packet) // 2)]
        sent = levels(packet)
        if harm == "bit":
            place = self._random.randrange(16, len(sent) - 4)
            sent[place] = Level(sent[place] ^ 0b11)
        await Timer(TURNAROUND_BITS * self._bit_ps, unit="ps")
        for level in sent:
            self._drive(level)
            await Timer(self._bit_ps, unit="ps")

    async def _receive(self, harm: Callable[[list[Level]], list[Level]] = lambda seen: seen) -> tuple[Pid, bytes]:
        """Return kind and payload of the device's packet.

        Raises
        ------
        Silence: none came in time, or one that a receiver must ignore.
        """
        late = Timer(ANSWER_BITS * self._bit_ps, unit="ps")
        driven = self._dut.usb_driven
        if not driven.value and await First(RisingEdge(driven), late) is late:
            raise Silence
        seen = harm(await self._watch())
        try:
            return parse(packet_of(seen))
        except PacketError:
            raise Silence from None

    async def _watch(self) -> list[Level]:
        """Return the levels that the device drives, one for each bit: a receiver counts bits between two changes."""
        dut, seen = self._dut, list[Level]()
        wires = dut.usb_d_p_out, dut.usb_d_n_out, dut.usb_driven
        level, since = self._shown(), get_sim_time("ps")
        while dut.usb_driven.value:
            await First(*(ValueChange(wire) for wire in wires))
            await Timer(1, unit="ps")  # both wires change
            now = get_sim_time("ps")
            if level != Level.J or seen:
                seen += [level] * round((now - since) / self._bit_ps)
            level, since = self._shown(), now
            self._drive(level)
        self._drive(Level.J)
        return [*seen, Level.J]

    def _shown(self) -> Level:
        return Level(int(self._dut.usb_d_p_out.value) | int(self._dut.usb_d_n_out.value) << 1)

    def _drive(self, level: Level) -> None:
        self._dut.usb_d_p.value, self._dut.usb_d_n.value = level & 1, level >> 1

    async def _idle(self, level: Level, seconds: float) -> None:
        self._drive(level)
        await self.wait(seconds)


_DATA = (Pid.DATA0, Pid.DATA1)
