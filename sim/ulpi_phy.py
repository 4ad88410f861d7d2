"""A PHY with ULPI and the wires of a USB behind it, of high or full speed, at the pins of a design.

It has the registers that a device writes, tells changes of the wires by RX CMDs, and takes and gives packets at a byte
a cycle, 40 cycles at full speed, with pauses where bits are stuffed. It looks at the pins, and changes its own, at
falling edges of its clock.
Source: ULPI 1.1, chapter 3; UTMI+ 1.0; USB 2.0, 7.1.7.5 (high speed is agreed upon) and 7.1.18 (pauses).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, FallingEdge, First, RisingEdge, Timer, ValueChange

from .harness import BenchFailure
from .usb_host import FULL, HIGH, Speed

CLOCK_HZ = 60e6
PHY_CYCLES = 8
"""What the chip itself takes both ways; ULPI 1.1, table 8, allows 3 to 10 from a packet's end, and 1 to 2 to send."""
TURN_CYCLES = 4
STUFF_EVERY = 50
"""One byte in so many comes a cycle later, as bits were stuffed."""
STARTUP_CYCLES = 100
ATTACH_S, SETTLE_S = 5e-3, 50e-6
"""Longest wait for the pull-up, and how long lines rest before a reset."""
SILENCE_S = 3e-3
"""How long a computer of full speed gives no answer to a device's K, longer than a device waits for one."""
SUSPEND_S, RESUME_END_CYCLES = 3.1e-3, 80
"""Rest after which a device is suspended, and the end of the K that resumes it. Source: USB 2.0, 7.1.7.6, 7.1.7.7."""
CHIRP_S = 50e-6
"""Length of each K and J of a computer, of which three pairs are needed. Source: USB 2.0, 7.1.7.5."""
CHIRP_START_S, CHIRP_LEAST_S, CHIRP_MOST_S = 6e-3, 1e-3, 7e-3
"""Latest begin of a device's K in a reset, and its shortest and longest length. Source: as above."""

_FUNCTION_CONTROL, _OTG_CONTROL = 0x04, 0x0A
_FAST, _FULL, _CHIRP, _TERMINATED, _NORMAL = 0b00, 0b01, 0b10, 1, 0b00
_RX_ACTIVE, _VBUS_VALID = 1 << 4, 0b11 << 2


class Line(IntEnum):
    """What the wires show in an RX CMD; at high speed, J stands for any signal."""

    SE0 = 0b00
    J = 0b01
    K = 0b10


@dataclass(frozen=True)
class Pace:
    """What packets take at a speed, in cycles of the PHY's clock.

    Parameters
    ----------
    byte, bit: a byte, and a bit that is stuffed, or a cycle where that is shorter.
    sync, end: in front of a packet and behind it on the wires, which is no byte of it. Source: USB 2.0, 7.1.10, 7.1.13.
    gap: pause between two packets of a computer. Source: USB 2.0, 7.1.18.2, 88 bits of high speed.
    decision: longest time from a packet's end to the device's answer at the pins. Source: ULPI 1.1, table 9.
    mode: what the device has chosen.
    rest, signal: what the wires show between packets and in them.
    """

    byte: int
    bit: int
    sync: int
    end: int
    gap: int
    decision: int
    mode: tuple[int, int, int]
    rest: Line
    signal: Line


PACES = {
    HIGH: Pace(1, 1, 4, 1, gap=11, decision=14, mode=(_FAST, 0, _NORMAL), rest=Line.SE0, signal=Line.J),
    FULL: Pace(40, 5, 40, 10, gap=15, decision=18, mode=(_FULL, _TERMINATED, _NORMAL), rest=Line.J, signal=Line.K),
}


class UlpiPhy:
    """See `sim.usb_host.Wires`.

    Parameters
    ----------
    scale: simulated seconds for each real one.
    hurry: number by which the milliseconds of a reset are divided.

    Members
    -------
    interrupted: writes of registers that an RX CMD cut short, which the device has to begin again.
    """

    speeds = (HIGH, FULL)

    def __init__(self, dut: Any, scale: float, hurry: int = 1, seed: int = 1) -> None:
        self._dut, self._scale, self._hurry = dut, scale, hurry
        self._random = random.Random(seed)
        self._line, self._speed = Line.SE0, FULL
        self._control, self._otg = 0b0100_0001, 0b110
        self._busy = False
        self._sent, self._packets = Event(), list[bytes]()
        self._chirps, self._ended = Event(), Event()
        self._started = Event()
        self.interrupted = 0
        dut.ulpi_dir.value, dut.ulpi_nxt.value, dut.ulpi_data.value = 1, 0, 0
        cocotb.start_soon(self._run())

    @property
    def _mode(self) -> tuple[int, int, int]:
        """Transceiver, termination and operating mode that the device has chosen."""
        return self._control & 3, self._control >> 2 & 1, self._control >> 3 & 3

    # The computer's side.

    @property
    def _pace(self) -> Pace:
        return PACES[self._speed]

    async def reset(self, speed: Speed) -> None:
        """See `sim.usb_host.Wires`, as the others."""
        if self._mode == PACES[HIGH].mode:
            # A device of high speed sees nothing for three milliseconds before it looks closer.
            await self._show(Line.SE0)
            await self._until_mode(FULL, ATTACH_S / self._hurry, "does not notice a reset")
        else:
            await self._until_mode(FULL, ATTACH_S / self._hurry, "shows no pull-up")
            await self._show(Line.J)
            await self._wait(SETTLE_S)
        if self._otg & 0b110:
            raise BenchFailure("ulpi: the device leaves the pull-downs of a host on")
        await self._listen_to_chirp()
        await (self._chirp() if speed == HIGH else self._wait(SILENCE_S / self._hurry))
        await self._show(PACES[speed].rest)
        await self._until_mode(speed, SETTLE_S, "has another speed than the computer's port")
        self._speed = speed

    async def suspend(self) -> None:
        if self._speed == HIGH:
            # Once the device is back at its pull-up, the wires show it.
            await self._until_mode(FULL, ATTACH_S / self._hurry, "does not notice a suspended bus")
            await self._show(Line.J)
        await self._wait(SUSPEND_S / self._hurry)
        await self._show(Line.K)
        await self._until_mode(self._speed, SETTLE_S, "does not resume")
        await self._show(Line.SE0)
        await self._idle(RESUME_END_CYCLES)
        await self._show(self._pace.rest)

    async def _listen_to_chirp(self) -> None:
        """Hold the wires at SE0, and wait for the device's K."""
        await self._show(Line.SE0)
        self._chirps.clear()
        self._ended.clear()
        if not await self._event(self._chirps, CHIRP_START_S / self._hurry):
            raise BenchFailure("ulpi: the device sends no K in a reset")
        ended_early = await self._event(self._ended, CHIRP_LEAST_S / self._hurry)
        if ended_early or not await self._event(self._ended, (CHIRP_MOST_S - CHIRP_LEAST_S) / self._hurry):
            raise BenchFailure("ulpi: the device's K is shorter or longer than the standard has it")

    async def _chirp(self) -> None:
        """Answer by pairs of K and J."""
        await self._wait(SETTLE_S)
        for _ in range(3):
            for line in (Line.K, Line.J):
                await self._show(line)
                await self._wait(CHIRP_S / self._hurry)

    async def send(self, packet: bytes, harm: str = "") -> None:
        """See `sim.usb_host.Wires`, as the others."""
        if harm == "cut":
            packet = packet[: max(2, len(packet) // 2)]
        if harm == "bit":
            packet = self._turned(packet)
        await self._idle(self._pace.gap + self._pace.sync)
        if self._packets:
            raise BenchFailure(f"ulpi: nobody asked for the device's packet {self._packets[0].hex()}, or it is late")
        await self._give(packet)

    async def receive(self, harm: Callable[[int], bool]) -> bytes | None:
        if not self._packets:
            self._sent.clear()
            # While it sends, its answer is there already, and comes to an end.
            await First(self._sent.wait(), Timer(self._cycles(self._pace.decision + TURN_CYCLES), unit="ps"))
            if not self._packets and not self._busy:
                return None
            while not self._packets:
                self._sent.clear()
                await self._sent.wait()
        packet = self._packets.pop(0)
        await self._idle(PHY_CYCLES + self._pace.sync + self._pace.end)
        return self._turned(packet) if harm(len(packet)) else packet

    def _turned(self, packet: bytes) -> bytes:
        """Return a packet with a bit turned."""
        place = self._random.randrange(8 * len(packet))
        changed = bytearray(packet)
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)

    # The pins.

    async def _run(self) -> None:
        """Start the clock, and obey what the device puts on the data whenever the PHY does not drive them."""
        dut = self._dut
        cocotb.start_soon(Clock(dut.ulpi_clk, 2 * round(self._cycles(1) / 2), unit="ps").start())
        await self._idle(STARTUP_CYCLES)
        dut.ulpi_dir.value = 0
        self._started.set()
        await self._tell()
        while True:
            if not int(dut.ulpi_data_out.value):
                await ValueChange(dut.ulpi_data_out)
            await FallingEdge(dut.ulpi_clk)
            command = int(dut.ulpi_data_out.value)
            if not command or self._busy or not int(dut.ulpi_driven.value):
                continue
            self._busy = True
            await self._obey(command)
            self._busy = False
            self._sent.set()

    async def _obey(self, command: int) -> None:
        """Take a command of the device."""
        if command >> 6 == 0b10:
            await self._write(command & 0x3F)
        elif command >> 6 == 0b01 and self._mode[2] == _CHIRP:
            await self._take_chirp()
        elif command >> 6 == 0b01:
            await self._take(command)
        else:
            raise BenchFailure(f"ulpi: the device sends the command {command:#x}")

    async def _write(self, address: int) -> None:
        """Take the write of a register, which the PHY may cut short to tell something else."""
        dut = self._dut
        dut.ulpi_nxt.value = 1
        await FallingEdge(dut.ulpi_clk)
        if not self.interrupted:
            self.interrupted += 1
            dut.ulpi_nxt.value = 0
            await self._command(self._line | _VBUS_VALID)
            return
        value = int(dut.ulpi_data_out.value)
        await FallingEdge(dut.ulpi_clk)
        dut.ulpi_nxt.value = 0
        if not int(dut.ulpi_stp.value):
            raise BenchFailure("ulpi: no STP ends the write of a register")
        if address == _FUNCTION_CONTROL:
            self._control = value
        elif address == _OTG_CONTROL:
            self._otg = value
        else:
            raise BenchFailure(f"ulpi: the device writes {value:#x} to the register {address:#x}")

    async def _take_chirp(self) -> None:
        """Take a chirp, which is bytes without a packet around them: as long as it lasts, the wires show K."""
        dut = self._dut
        if self._mode[:2] != (_FAST, _TERMINATED):
            raise BenchFailure(f"ulpi: the device chirps in the mode {self._mode}")
        dut.ulpi_nxt.value = 1
        self._chirps.set()
        await RisingEdge(dut.ulpi_stp)
        await FallingEdge(dut.ulpi_clk)
        dut.ulpi_nxt.value = 0
        self._ended.set()

    async def _take(self, command: int) -> None:
        """Take a packet."""
        dut, packet = self._dut, bytearray([command & 0xF | (~command & 0xF) << 4])
        if self._mode != self._pace.mode:
            raise BenchFailure(f"ulpi: the device sends a packet in the mode {self._mode}")
        while True:
            # What it shows at the falling edge in front is taken in this cycle.
            dut.ulpi_nxt.value = 1
            if await self._stops(1):
                break
            dut.ulpi_nxt.value = 0
            if (pause := self._pause()) and await self._stops(pause):
                break
            packet.append(int(dut.ulpi_data_out.value))
        dut.ulpi_nxt.value = 0
        if self._speed == FULL:
            await self._command(Line.SE0 | _VBUS_VALID)
            await self._pass(self._pace.end)
            await self._command(Line.J | _VBUS_VALID)
        self._packets.append(bytes(packet))

    async def _stops(self, cycles: int) -> bool:
        """Return whether STP comes within so many cycles."""
        stp = self._dut.ulpi_stp
        late = Timer(self._cycles(cycles - 0.5), unit="ps")
        if cycles > 1 and not int(stp.value):
            await First(RisingEdge(stp), late)
        await FallingEdge(self._dut.ulpi_clk)
        return bool(int(stp.value))

    def _pause(self) -> int:
        """Return the cycles between two bytes: bits may be stuffed."""
        return self._pace.byte - 1 + (0 if self._random.randrange(STUFF_EVERY) else self._pace.bit)

    async def _give(self, packet: bytes) -> None:
        """Hand a packet to the device."""
        await self._free()
        dut = self._dut
        dut.ulpi_dir.value, dut.ulpi_nxt.value = 1, 1
        await self._pass(1)
        active = self._pace.signal | _VBUS_VALID | _RX_ACTIVE
        dut.ulpi_nxt.value, dut.ulpi_data.value = 0, active
        for byte in packet:
            await self._pass(1)
            if pause := self._pause():
                dut.ulpi_nxt.value, dut.ulpi_data.value = 0, active
                await self._pass(pause)
            dut.ulpi_nxt.value, dut.ulpi_data.value = 1, byte
        await self._pass(1)
        dut.ulpi_nxt.value = 0
        if self._speed == FULL:
            # The packet's end is told when the wires are at rest again.
            dut.ulpi_data.value = Line.SE0 | _VBUS_VALID | _RX_ACTIVE
            await self._pass(self._pace.end)
        dut.ulpi_data.value = self._pace.rest | _VBUS_VALID
        await self._pass(1)
        dut.ulpi_dir.value = 0
        self._busy = False

    async def _show(self, line: Line) -> None:
        """Set the wires, and tell the device about it."""
        await self._started.wait()
        self._line = line
        await self._tell()

    async def _tell(self) -> None:
        """Send an RX CMD with the state of the wires."""
        await self._free()
        await self._command(self._line | _VBUS_VALID)
        self._busy = False

    async def _command(self, value: int) -> None:
        dut = self._dut
        dut.ulpi_dir.value = 1
        await FallingEdge(dut.ulpi_clk)
        dut.ulpi_data.value = value
        await FallingEdge(dut.ulpi_clk)
        dut.ulpi_dir.value = 0

    async def _free(self) -> None:
        """Wait until nothing passes the pins, and take them."""
        await FallingEdge(self._dut.ulpi_clk)
        while self._busy:
            await FallingEdge(self._dut.ulpi_clk)
        self._busy = True

    # Time.

    async def _pass(self, cycles: int) -> None:
        """Wait for a falling edge of the clock, so many cycles later."""
        if cycles > 1:
            await Timer(self._cycles(cycles - 0.5), unit="ps")
        await FallingEdge(self._dut.ulpi_clk)

    def _cycles(self, count: float) -> int:
        """Return the length of cycles in simulated picoseconds."""
        return round(count * self._scale / CLOCK_HZ * 1e12)

    async def _idle(self, cycles: int) -> None:
        await Timer(self._cycles(cycles), unit="ps")

    async def _wait(self, seconds: float) -> None:
        await Timer(round(seconds * self._scale * 1e12), unit="ps")

    async def _event(self, event: Event, seconds: float) -> bool:
        """Wait for an event; return whether it came in time."""
        late = Timer(round(seconds * self._scale * 1e12), unit="ps")
        return event.is_set() or await First(event.wait(), late) is not late

    async def _until_mode(self, speed: Speed, seconds: float, problem: str) -> None:
        """Wait until the device has chosen the mode of a speed.

        Raises
        ------
        BenchFailure: it does not in time.
        """
        for _ in range(100):
            if self._mode == PACES[speed].mode:
                return
            await self._wait(seconds / 100)
        raise BenchFailure(f"ulpi: the device {problem}: it has chosen the mode {self._mode}")
