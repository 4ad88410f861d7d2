"""Chips beside a device, as processes of the simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FlashChip:
    """SPI flash that is asleep: knows the release and the read command, in mode 0.

    Parameters
    ----------
    content: from address 0 on; behind it all bits are 1.
    sleepy_cycles: that it needs between its release and a command; a command before is not heard.
    shortest_cycles: of a half period of the clock.

    Members
    -------
    reads: addresses at which a read began.
    bits: data bits that were clocked out.
    selected: it is selected now.
    """

    def __init__(self, content: bytes, sleepy_cycles: int = 1, shortest_cycles: int = 1) -> None:
        self.content = content
        self.reads: list[int] = []
        self.bits = 0
        self.selected = False
        self._sleepy, self._shortest = sleepy_cycles, shortest_cycles
        self._awake_at: int | None = None
        self._received: list[int] = []

    def at(self, pins: Any) -> Callable[[Any], Any]:
        """Return the process that answers at the pins of a component, within the cycle of the falling edge."""

        async def run(ctx: Any) -> None:
            clk, edge, cycle = 0, 0, 0
            while True:
                await ctx.tick()
                cycle += 1
                cs, new = ctx.get(pins.cs), ctx.get(pins.clk)
                if cs != self.selected:
                    assert not new, "the clock must be low when the select changes"
                    self.selected = bool(cs)
                    self._select(cycle)
                if new == clk:
                    continue
                assert not cs or cycle - edge >= self._shortest, f"half a period of {cycle - edge} cycles"
                clk, edge = new, cycle
                if cs and new:
                    self._received.append(ctx.get(pins.copi))
                elif cs:
                    self._answer(ctx, pins, cycle)

        return run

    def _select(self, cycle: int) -> None:
        if not self.selected and self._received == _bits(0xAB, 8):
            self._awake_at = cycle + self._sleepy
        self._received.clear()

    def _answer(self, ctx: Any, pins: Any, cycle: int) -> None:
        """Give the next bit, behind a whole read command."""
        if self._awake_at is None or cycle < self._awake_at:
            return
        if len(self._received) >= 32 and self._received[:8] == _bits(0x03, 8):
            start = int("".join(map(str, self._received[8:32])), 2)
            place = len(self._received) - 32
            if not place:
                self.reads.append(start)
            address = start + place // 8
            byte = self.content[address] if address < len(self.content) else 0xFF
            ctx.set(pins.cipo, byte >> (7 - place % 8) & 1)
            self.bits += 1


def _bits(value: int, count: int) -> list[int]:
    return [value >> (count - 1 - bit) & 1 for bit in range(count)]


class SharedFlash:
    """SPI flash at pins that others use, too: sees every edge, knows what a programmer needs, and records it.

    Parameters
    ----------
    content: from address 0 on; behind it all bits are 1.

    Members
    -------
    content: that it has now.
    commands: first byte of each transfer in which it was awake, and of those that wake it.
    edges: rising edges of the clock while it was selected.
    awake: it is not in deep power-down, in which the configuration of an iCE40 leaves it.
    """

    READ, WRITE_ENABLE, PROGRAM, ERASE, SLEEP, WAKE_UP, IDENTIFY = 0x03, 0x06, 0x02, 0xC7, 0xB9, 0xAB, 0x9F
    IDENTITY = bytes((0xEF, 0x70, 0x18))

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.commands: list[int] = []
        self.edges = 0
        self.awake = self._writable = False
        self._bits: list[int] = []

    def at(self, pins: Any) -> Callable[[Any], Any]:
        """Return the process at pins `selected`, `clk`, `copi`, which answers at `flash_cipo` and `flash_drives`."""

        async def run(ctx: Any) -> None:
            before = 0
            async for selected, clk in ctx.changed(pins.selected, pins.clk):
                if not selected:
                    self._end()
                    ctx.set(pins.flash_drives, 0)
                elif clk and not before:
                    self.edges += 1
                    self._bits.append(ctx.get(pins.copi))
                elif before and not clk:
                    self._answer(ctx, pins)
                before = clk

        return run

    def _received(self) -> bytes:
        whole = len(self._bits) // 8 * 8
        return int("0" + "".join(map(str, self._bits[:whole])), 2).to_bytes(whole // 8, "big")

    def _end(self) -> None:
        """Obey a command when the select goes away, if it ends with a whole byte."""
        told, whole = self._received(), len(self._bits) % 8 == 0
        self._bits.clear()
        if not told or not (self.awake or told[0] == self.WAKE_UP):
            return
        self.commands.append(told[0])
        if not whole:
            return
        if told[0] in (self.WAKE_UP, self.SLEEP):
            self.awake = told[0] == self.WAKE_UP
        if self._writable and told[0] == self.ERASE:
            self.content[:] = b"\xff" * len(self.content)
        if self._writable and told[0] == self.PROGRAM:
            at = int.from_bytes(told[1:4], "big")
            self.content[at : at + len(told) - 4] = told[4:]
        self._writable = told[0] == self.WRITE_ENABLE

    def _answer(self, ctx: Any, pins: Any) -> None:
        told, place = self._received(), len(self._bits)
        if not told or not self.awake:
            return
        if told[0] == self.IDENTIFY:
            data, place = self.IDENTITY, place - 8
        elif told[0] == self.READ and len(told) >= 4:
            data, place = bytes(self.content[int.from_bytes(told[1:4], "big") :]), place - 32
        else:
            return
        byte = data[place // 8] if place // 8 < len(data) else 0xFF
        ctx.set(pins.flash_drives, 1)
        ctx.set(pins.flash_cipo, byte >> (7 - place % 8) & 1)
