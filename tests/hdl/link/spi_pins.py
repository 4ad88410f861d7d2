"""A device at its SPI pins in Amaranth's simulator, which a driver moves on by transfers of bytes."""

from __future__ import annotations

import random
from typing import Any

from amaranth.hdl import Cat

from nnhw.hdl.link.spi import SpiDevice
from sim.simulator import Simulator

CYCLE_S = 1e-6


class SpiPins:
    """The wires between a microcontroller and a device.

    Parameters
    ----------
    device: an `SpiDevice`; another one may be put in its place at any time, as when the FPGA is programmed again.
    bit_cycles: clock cycles of a bit.
    fault_rate: share of transfers in which a bit either way is turned, or that are cut off.

    Members
    -------
    faults: that were injected.
    """

    def __init__(self, device: SpiDevice, bit_cycles: int = 6, fault_rate: float = 0.0) -> None:
        self._bit_cycles, self.fault_rate, self.faults = bit_cycles, fault_rate, 0
        self._random = random.Random(7)
        self.replace(device)

    def replace(self, device: SpiDevice) -> None:
        """Start a device."""
        self._device, self._levels, self._seen = device, list[int](), list[int]()
        self._time = 0
        self.irq = 0
        self._simulator = Simulator(device)
        self._simulator.add_clock(CYCLE_S)
        self._simulator.add_testbench(self._bench)
        self._run([1] * 20)

    async def _bench(self, ctx: Any) -> None:
        pins = Cat(self._device.spi_cs, self._device.spi_sck, self._device.spi_copi)
        while True:
            if self._levels:
                ctx.set(pins, self._levels.pop(0))
                self._seen.append(ctx.get(self._device.spi_cipo))
                self.irq = ctx.get(self._device.spi_irq)
            await ctx.tick()

    def _run(self, levels: list[int]) -> list[int]:
        """Drive `cs`, `sck` and `copi`, the lowest bit first; return `cipo` of each cycle, as it is before it."""
        self._levels, self._seen = list(levels), []
        self._time += len(levels)
        self._simulator.run_until(CYCLE_S * self._time)
        assert len(self._seen) == len(levels)
        return self._seen

    def rest(self, cycles: int) -> None:
        """Leave the device alone, not selected."""
        self._run([1] * cycles)

    def transfer(self, data: bytes) -> bytes:
        """Exchange bytes, with faults."""
        if self._random.random() >= self.fault_rate:
            return self.exchange(data)
        self.faults += 1
        place, bit, kind = self._random.randrange(len(data)), 1 << self._random.randrange(8), self._random.randrange(3)
        turned = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        if kind == 0:
            return self.exchange(turned)
        if kind == 1:
            return self.exchange(data[:place], cut_bits=self._random.randrange(1, 8)) + bytes(len(data) - place)
        answer = bytearray(self.exchange(data))
        answer[place] ^= bit
        return bytes(answer)

    def exchange(self, data: bytes, cut_bits: int = 0) -> bytes:
        """Select the device, exchange bytes, bits of one more, and let go."""
        low = self._bit_cycles // 2
        high = self._bit_cycles - low
        bits = [byte >> place & 1 for byte in data for place in range(7, -1, -1)] + [1] * cut_bits
        levels = [0] * 6
        for bit in bits:
            levels += [bit << 2] * low + [bit << 2 | 2] * high
        seen = self._run([*levels, *[0] * low, *[1] * 6])
        # The controller samples at the rising edge: what is there as it comes.
        sampled = [seen[6 + self._bit_cycles * number + low] for number in range(8 * len(data))]
        return bytes(
            sum(bit << 7 - place for place, bit in enumerate(sampled[start : start + 8]))
            for start in range(0, len(sampled), 8)
        )
