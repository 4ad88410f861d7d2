"""A board in Amaranth's simulator on which an FTDI chip, a flash and a device share pins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.driver.links.ftdi import FtdiLink
from nnhw.hdl.link.ftdi import FtdiDevice
from sim.ft2232h import CIPO, COPI, CRESET, DONE, PS, SCK, SELECT, Ft2232h
from sim.simulator import Simulator
from sim.usb_bus import UsbBus, UsbChip
from tests.hdl.link.chips import SharedFlash

CLOCK_HZ = 48_000_000


class Board(wiring.Component):
    """Wires with a pull-up each, that the chip, the device and the flash drive.

    Members
    -------
    levels, outputs: of the chip at the flash's select, clock and data. configured: the FPGA has its bitstream.
    cipo: level of the flash's output wire. clash: two drive one wire.
    selected, clk, copi, flash_cipo, flash_drives: see `SharedFlash`.
    """

    def __init__(self, device: FtdiDevice) -> None:
        self._device = device
        ins = {"levels": In(3), "outputs": In(3), "configured": In(1, init=1), "flash_cipo": In(1)}
        outs = dict.fromkeys(("cipo", "clash", "selected", "clk", "copi"), Out(1))
        super().__init__({**ins, "flash_drives": In(1), **outs})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.device = device = self._device
        loads = device.device.flash_offset is not None
        loading = device.loading & self.configured if loads else 0  # type: ignore[attr-defined]
        told = (~device.cs, device.clk, device.copi) if loads else (1, 1, 1)  # type: ignore[attr-defined]
        wires = Signal(3)
        m.d.comb += [
            wire.eq(Mux(driven, level, Mux(loading, own, 1)))
            for wire, driven, level, own in zip(wires, self.outputs, self.levels, told, strict=True)
        ]
        # A flash that is not selected drives nothing, whatever it was saying.
        flash_drives = self.flash_drives & self.selected
        listens = device.ftdi_listens & self.configured
        m.d.comb += [
            *(self.selected.eq(~wires[0]), self.clk.eq(wires[1]), self.copi.eq(wires[2])),
            *(device.ftdi_cs.eq(wires[0]), device.ftdi_sck.eq(wires[1]), device.ftdi_copi.eq(wires[2])),
            self.cipo.eq(Mux(flash_drives, self.flash_cipo, Mux(listens, device.ftdi_cipo, 1))),
            self.clash.eq((flash_drives & listens) | (loading & self.outputs.any())),
        ]
        if loads:
            m.d.comb += device.cipo.eq(self.cipo)  # type: ignore[attr-defined]
        return m


class FtdiPins:
    """The pins of an FTDI chip on such a board: see `sim.ft2232h.Pins`.

    Members
    -------
    clashes: times at which two drove one wire.
    configured: level of CDONE; the FPGA drives nothing while it is 0.
    stray: whether a byte suffers a bit too many or too few. strays: that were injected.
    longest_rest_ps: longer pauses are cut to this, as a device at rest stays so, and simulating it takes long.
    """

    def __init__(self, device: FtdiDevice, flash: SharedFlash, clock_hz: int = CLOCK_HZ) -> None:
        self.clashes = 0
        self.configured = True
        self.longest_rest_ps = 2_000_000
        self.stray: Callable[[], bool] = lambda: False
        self.strays = 0
        self._clock_hz, self._flash = clock_hz, flash
        self._steps: list[tuple[int, int, int, bool]] = []
        self._seen: list[int] = []
        self._levels = self._outputs = 0
        self.replace(device)

    def replace(self, device: FtdiDevice) -> None:
        """Start a device, as when another bitstream is loaded."""
        self._board = Board(device)
        self._simulator = Simulator(self._board)
        self._simulator.add_clock(1 / self._clock_hz)
        self._simulator.add_testbench(self._bench)
        self._simulator.add_testbench(self._flash.at(self._board), background=True)
        self._simulator.add_testbench(self._watch, background=True)

    async def _watch(self, ctx: Any) -> None:
        async for _ in ctx.posedge(self._board.clash):
            self.clashes += 1

    async def _bench(self, ctx: Any) -> None:
        board = self._board
        while True:
            while self._steps:
                levels, outputs, time_ps, samples = self._steps.pop(0)
                if samples:
                    self._seen.append(ctx.get(board.cipo))
                # All at once: what changes twice at one time breaks the flash's trigger.
                together = Cat(board.levels, board.outputs, board.configured)
                ctx.set(together, levels | outputs << 3 | self.configured << 6)
                await ctx.delay(time_ps / PS)
            wires = (board.selected, board.clk, board.copi, board.cipo)
            self._wire_levels = tuple(ctx.get(wire) for wire in wires)
            self._idle = True
            await ctx.delay(1e-9)

    def _run(self, steps: list[tuple[int, int, bool]]) -> None:
        """Drive levels, for so many picoseconds each; see the output wire in front of those that say so."""
        self._steps = [(levels, self._outputs, max(1000, time_ps), samples) for levels, time_ps, samples in steps]
        self._idle = False
        while not self._idle:
            self._simulator.advance()

    def drive(self, levels: int, outputs: int) -> None:
        """See `sim.ft2232h.Pins`, as the others."""
        assert not outputs & ~(SELECT | SCK | COPI), "pins that are not the chip's to drive, CRESET among them"
        self._outputs = _packed(outputs)
        self._levels = _packed(levels)
        self._run([(self._levels, 0, False)])

    def sample(self) -> int:
        selected, clk, copi, cipo = self._wires()
        levels = [(SELECT, not selected), (SCK, clk), (COPI, copi), (CIPO, cipo), (DONE, self.configured)]
        return CRESET | sum(pin for pin, level in levels if level)

    def _wires(self) -> tuple[int, ...]:
        self._run([(self._levels, 0, False)])
        return self._wire_levels

    def shift(self, data: bytes, bit_ps: int) -> bytes:
        low, high = bit_ps // 2, bit_ps - bit_ps // 2
        self._seen.clear()
        select, steps = self._levels & 1, []
        for byte in data:
            bits = [(select | (byte >> place & 1) << 2, True) for place in range(7, -1, -1)]
            if self.stray():
                # The chip samples eight bits, whatever becomes of an edge of its clock on the way.
                self.strays += 1
                bits = [*bits, (select, False)] if self.strays % 2 else [(bits[0][0], None), *bits[1:]]
            for bit, samples in bits:
                steps += [(bit, low, False), (bit | (0 if samples is None else 2), high, samples is not False)]
        self._run([*steps, (select, 0, False)])
        self._levels = select
        return bytes(
            sum(bit << 7 - place for place, bit in enumerate(self._seen[start : start + 8]))
            for start in range(0, 8 * len(data), 8)
        )

    def rest(self, time_ps: int) -> None:
        self._run([(self._levels, min(time_ps, self.longest_rest_ps), False)])


def _packed(mask: int) -> int:
    """Return the bits of select, clock and data, the lowest first."""
    return sum(bool(mask & pin) << place for place, pin in enumerate((SELECT, SCK, COPI)))


def link_at(pins: FtdiPins, hz: float = 30e6) -> tuple[FtdiLink, Ft2232h, UsbChip]:
    """Open the driver's link to the only chip of a USB bus, which is at these pins."""
    chip = Ft2232h(pins)
    usb = UsbChip(chip)
    return FtdiLink("ftdi", hz, UsbBus([usb]), lambda: chip.now_ps / PS), chip, usb
