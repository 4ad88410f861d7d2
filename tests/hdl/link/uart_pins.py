"""A device at its serial pins in Amaranth's simulator, and ports of a computer that lead to it."""

from __future__ import annotations

from typing import Any

from nnhw.driver.links.base import LINE_WINDOW_BYTES, LINE_WRITE_BYTES
from nnhw.hdl.link.uart import UartDevice
from sim.simulator import Simulator

CYCLE_S = 1e-6


class UartPins:
    """The wires between a computer and a device.

    Parameters
    ----------
    device: a `UartDevice`; another one may be put in its place at any time, as when the FPGA is programmed again.

    Members
    -------
    cycles: clock cycles so far.
    """

    def __init__(self, device: UartDevice) -> None:
        self.cycles = 0
        self.replace(device)

    def replace(self, device: UartDevice) -> None:
        """Start a device."""
        self._device, self._levels, self._seen, self._time = device, list[int](), list[int](), 0
        self._simulator = Simulator(device)
        self._simulator.add_clock(CYCLE_S)
        self._simulator.add_testbench(self._bench)
        self.run([1] * 20)

    async def _bench(self, ctx: Any) -> None:
        while True:
            if self._levels:
                ctx.set(self._device.rx, self._levels.pop(0))
                self._seen.append(ctx.get(self._device.tx))
            await ctx.tick()

    def run(self, levels: list[int]) -> list[int]:
        """Drive `rx`; return `tx` of each cycle."""
        if not levels:
            return []
        self._levels, self._seen = list(levels), []
        self._time += len(levels)
        self.cycles += len(levels)
        self._simulator.run_until(CYCLE_S * self._time)
        assert len(self._seen) == len(levels)
        return self._seen


class PinsPort:
    """A `ByteLink`: a serial port whose adapter divides its rate from the clock of the device.

    Parameters
    ----------
    divisor: clock cycles of a bit.
    """

    flow_controlled = False
    window_bytes, write_bytes = LINE_WINDOW_BYTES, LINE_WRITE_BYTES
    name = "pins"
    CHUNK_CYCLES = 2000

    def __init__(self, pins: UartPins, clock_hz: int, divisor: int) -> None:
        self._pins, self._clock_hz, self._divisor = pins, clock_hz, divisor
        self.bytes_per_s = clock_hz / divisor / 10
        self.slack_s = 900 * divisor / clock_hz
        self._held = bytearray()
        self._levels: list[int] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        """Hold bytes until the next `read`."""
        self._held += data

    def read(self, timeout_s: float) -> bytes:
        """Send what is held, then listen until bytes came or the time is over."""
        bits = [bit for byte in self._held for bit in (0, *(byte >> place & 1 for place in range(8)), 1)]
        levels = [bit for bit in bits for _ in range(self._divisor)]
        self._held.clear()
        end = self._pins.cycles + len(levels) + timeout_s * self._clock_hz
        self._levels += self._pins.run(levels)
        while not (data := self._listen()) and self._pins.cycles < end:
            self._levels += self._pins.run([1] * self.CHUNK_CYCLES)
        return data

    def _listen(self) -> bytes:
        """Return the whole bytes on the line; what is no byte at this rate is read as one, as adapters do."""
        data, cycle, levels, clocks = bytearray(), 0, self._levels, self._divisor
        while cycle + 10 * clocks <= len(levels):
            if levels[cycle]:
                cycle += 1
                continue
            middle = cycle + clocks // 2
            data.append(sum(levels[middle + clocks * bit] << bit - 1 for bit in range(1, 9)))
            cycle = middle + 9 * clocks
        del levels[:cycle]
        return bytes(data)

    def now(self) -> float:
        """Return the time of the device."""
        return self._pins.cycles / self._clock_hz

    def close(self) -> None:
        """Note that the port is closed."""
        self.closed = True
