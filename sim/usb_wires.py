"""The wires of a USB of full speed, driven bit by bit at the pins of a design. Source: USB 2.0, chapter 7.1."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from cocotb.triggers import First, RisingEdge, Timer, ValueChange
from cocotb.utils import get_sim_time

from .harness import BenchFailure
from .usb_host import FULL, Speed
from .usb_packets import Level, PacketError, levels, packet_of

BIT_S = 1 / 12e6
TURNAROUND_BITS, ANSWER_BITS = 3, 18
"""Pause between two packets, and the longest one before an answer. Source: USB 2.0, 7.1.18 and 7.1.19."""
RESET_S, PULLUP_S = 50e-6, 5e-3
"""Lengths of a reset, which takes 10 ms on real wires and is the same to a device, and of the wait for the pull-up."""
SUSPEND_S, RESUME_END_S = 3.1e-3, 1.3e-6
"""Rest after which a device is suspended, and the end of the K that resumes it. Source: USB 2.0, 7.1.7.6, 7.1.7.7."""


class FullSpeedWires:
    """See `sim.usb_host.Wires`.

    Parameters
    ----------
    scale: simulated seconds for each real one.
    """

    speeds = (FULL,)

    def __init__(self, dut: Any, scale: float, seed: int = 1) -> None:
        self._dut, self._scale = dut, scale
        self._bit_ps = round(BIT_S * scale * 1e12)
        self._random = random.Random(seed)
        dut.usb_d_p.value, dut.usb_d_n.value = 0, 0

    async def reset(self, speed: Speed) -> None:
        """See `sim.usb_host.Wires`, as the others."""
        if not self._dut.usb_pullup.value:
            await First(RisingEdge(self._dut.usb_pullup), Timer(round(PULLUP_S * self._scale * 1e12), unit="ps"))
        if not self._dut.usb_pullup.value:
            raise BenchFailure("usb_pullup: it stays 0, so no computer sees the device")
        for level in (Level.J, Level.SE0, Level.J):
            await self._hold(level, RESET_S)

    async def suspend(self) -> None:
        await self._hold(Level.J, SUSPEND_S)
        await self._hold(Level.K, RESET_S)
        await self._hold(Level.SE0, RESUME_END_S)
        self._drive(Level.J)

    async def _hold(self, level: Level, seconds: float) -> None:
        self._drive(level)
        await Timer(round(seconds * self._scale * 1e12), unit="ps")

    async def send(self, packet: bytes, harm: str = "") -> None:
        if harm == "cut":
            packet = packet[: max(2, len(packet) // 2)]
        sent = levels(packet)
        if harm == "bit":
            self._turn(sent)
        await Timer(TURNAROUND_BITS * self._bit_ps, unit="ps")
        for level in sent:
            self._drive(level)
            await Timer(self._bit_ps, unit="ps")

    async def receive(self, harm: Callable[[int], bool]) -> bytes | None:
        late = Timer(ANSWER_BITS * self._bit_ps, unit="ps")
        driven = self._dut.usb_driven
        if not driven.value and await First(RisingEdge(driven), late) is late:
            return None
        seen = await self._watch()
        # Two bits of the end and the idle one, and the byte in front of each packet, are none of its bytes.
        if harm((len(seen) - 11) // 8):
            self._turn(seen)
        try:
            return packet_of(seen)
        except PacketError:
            return None

    def _turn(self, sent: list[Level]) -> None:
        """Turn a bit of a packet."""
        place = self._random.randrange(16, len(sent) - 4)
        sent[place] = Level(sent[place] ^ 0b11)

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
