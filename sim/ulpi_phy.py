"""A PHY with ULPI and the wires of a USB of high speed behind it, at the pins of a design.

It has the registers that a device writes, tells changes of the wires by RX CMDs, and takes and gives packets at a byte
a cycle, with pauses where bits are stuffed. It looks at the pins, and changes its own, at falling edges of its clock.
Source: ULPI 1.1, chapter 3; UTMI+ 1.0; USB 2.0, 7.1.7.5 (high speed is agreed upon) and 7.1.18 (pauses).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, FallingEdge, First, RisingEdge, Timer, ValueChange

from .harness import BenchFailure

CLOCK_HZ = 60e6
SYNC_CYCLES, END_CYCLES = 4, 1
"""Cycles in front of a packet and behind it on the wires, which are no bytes of it. Source: USB 2.0, 7.1.10, 7.1.13."""
GAP_CYCLES = 11
"""Pause between two packets of a computer. Source: USB 2.0, 7.1.18.2, 88 bits."""
DECISION_CYCLES = 14
"""Longest time from a packet's end to the device's answer at the pins. Source: ULPI 1.1, table 9."""
PHY_CYCLES = 8
"""What the chip itself takes both ways; ULPI 1.1, table 8, allows 3 to 10 from a packet's end, and 1 to 2 to send."""
TURN_CYCLES = 4
STUFF_EVERY = 50
"""One byte in so many comes a cycle later, as bits were stuffed."""
STARTUP_CYCLES = 100
ATTACH_S, SETTLE_S = 5e-3, 50e-6
"""Longest wait for the pull-up, and how long lines rest before a reset."""
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

    packet_bytes = 512
    frame_s, frame_parts = 125e-6, 8
    last_s = 12e-6
    idle_s = 0.5e-6
    is_fast = batched = True

    def __init__(self, dut: Any, scale: float, hurry: int = 1, seed: int = 1) -> None:
        self._dut, self._scale, self._hurry = dut, scale, hurry
        self._random = random.Random(seed)
        self._line = Line.SE0
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

    async def reset(self) -> None:
        """See `sim.usb_host.Wires`, as the others."""

        def pulled_up() -> bool:
            return self._mode == (_FULL, _TERMINATED, _NORMAL)

        if self._mode == (_FAST, 0, _NORMAL):
            # A device of high speed sees nothing for three milliseconds before it looks closer.
            await self._show(Line.SE0)
            await self._until(pulled_up, ATTACH_S / self._hurry, "does not notice a reset")
        else:
            await self._until(pulled_up, ATTACH_S / self._hurry, "shows no pull-up")
            await self._show(Line.J)
            await self._wait(SETTLE_S)
        if self._otg & 0b110:
            raise BenchFailure("ulpi: the device leaves the pull-downs of a host on")
        await self._agree_on_speed()
        await self._until(lambda: self._mode == (_FAST, 0, _NORMAL), SETTLE_S, "stays at full speed")

    async def _agree_on_speed(self) -> None:
        """Hold the wires at SE0, wait for the device's K, and answer by pairs of K and J."""
        await self._show(Line.SE0)
        self._chirps.clear()
        self._ended.clear()
        if not await self._event(self._chirps, CHIRP_START_S / self._hurry):
            raise BenchFailure("ulpi: the device sends no K in a reset")
        ended_early = await self._event(self._ended, CHIRP_LEAST_S / self._hurry)
        if ended_early or not await self._event(self._ended, (CHIRP_MOST_S - CHIRP_LEAST_S) / self._hurry):
            raise BenchFailure("ulpi: the device's K is shorter or longer than the standard has it")
        await self._wait(SETTLE_S)
        for _ in range(3):
            for line in (Line.K, Line.J):
                await self._show(line)
                await self._wait(CHIRP_S / self._hurry)
        await self._show(Line.SE0)

    async def send(self, packet: bytes, harm: str = "") -> None:
        """See `sim.usb_host.Wires`, as the others."""
        if harm == "cut":
            packet = packet[: max(2, len(packet) // 2)]
        if harm == "bit":
            packet = self._turned(packet)
        await self._idle(GAP_CYCLES + SYNC_CYCLES)
        if self._packets:
            raise BenchFailure(f"ulpi: nobody asked for the device's packet {self._packets[0].hex()}, or it is late")
        await self._give(packet)

    async def receive(self, harm: Callable[[int], bool]) -> bytes | None:
        if not self._packets:
            self._sent.clear()
            # While it sends, its answer is there already, and comes to an end.
            await First(self._sent.wait(), Timer(self._cycles(DECISION_CYCLES + TURN_CYCLES), unit="ps"))
            if not self._packets and not self._busy:
                return None
            while not self._packets:
                self._sent.clear()
                await self._sent.wait()
        packet = self._packets.pop(0)
        await self._idle(PHY_CYCLES + SYNC_CYCLES + END_CYCLES)
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
        if self._mode != (_FAST, 0, _NORMAL):
            raise BenchFailure(f"ulpi: the device sends a packet in the mode {self._mode}")
        dut.ulpi_nxt.value = 1
        goes_on = True
        while True:
            await FallingEdge(dut.ulpi_clk)
            if int(dut.ulpi_stp.value):
                break
            # What it shows now is taken in this cycle, unless bits are stuffed.
            goes_on = self._random.randrange(STUFF_EVERY) > 0
            dut.ulpi_nxt.value = int(goes_on)
            if goes_on:
                packet.append(int(dut.ulpi_data_out.value))
        dut.ulpi_nxt.value = 0
        self._packets.append(bytes(packet))

    async def _give(self, packet: bytes) -> None:
        """Hand a packet to the device."""
        await self._free()
        dut = self._dut
        dut.ulpi_dir.value, dut.ulpi_nxt.value = 1, 1
        await FallingEdge(dut.ulpi_clk)
        active = Line.J | _VBUS_VALID | _RX_ACTIVE
        dut.ulpi_nxt.value, dut.ulpi_data.value = 0, active
        for byte in packet:
            await FallingEdge(dut.ulpi_clk)
            if not self._random.randrange(STUFF_EVERY):
                dut.ulpi_nxt.value, dut.ulpi_data.value = 0, active
                await FallingEdge(dut.ulpi_clk)
            dut.ulpi_nxt.value, dut.ulpi_data.value = 1, byte
        await FallingEdge(dut.ulpi_clk)
        dut.ulpi_nxt.value, dut.ulpi_data.value = 0, Line.SE0 | _VBUS_VALID
        await FallingEdge(dut.ulpi_clk)
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

    def _cycles(self, count: int) -> int:
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

    async def _until(self, is_there: Callable[[], bool], seconds: float, problem: str) -> None:
        """Wait until something is there.

        Raises
        ------
        BenchFailure: it does not come in time.
        """
        for _ in range(100):
            if is_there():
                return
            await self._wait(seconds / 100)
        raise BenchFailure(f"ulpi: the device {problem}: it has chosen the mode {self._mode}")
