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
