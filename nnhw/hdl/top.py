"""The top of a design: a board's pins, the clock that its PLL makes, the reset, and a device at the serial port."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amaranth.build import Platform
from amaranth.hdl import ClockDomain, ClockSignal, Const, DomainRenamer, Instance, Module, ResetSignal, Signal
from amaranth.lib import cdc, io, wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import Board
from nnhw.errors import BoardError
from nnhw.hdl.pll import PllSettings

_SETTLE_S = 15e-6


@dataclass(frozen=True)
class TopDesign:
    """What synthesis and place and route take: RTLIL of the module `top`, constraints of its pins and input clock."""

    rtlil: str
    pcf: str


class StartReset(wiring.Component):
    """Holds a reset until a clock has been good for a while.

    Parameters
    ----------
    cycles: of the clock, at least.

    Members
    -------
    lock: In(1), not synchronous: the clock is good.
    reset: Out(1), a register.

    Timing: the reset ends `cycles` to `2 * cycles` cycles after `lock`, and begins again 4 cycles after `lock` is lost.
    """

    def __init__(self, cycles: int) -> None:
        # A power of two, so that the end is one bit and not a comparison.
        self.cycles_log2 = max(1, (cycles - 1).bit_length())
        super().__init__({"lock": In(1), "reset": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        locked, waited = Signal(), Signal(self.cycles_log2 + 1)
        m.submodules.synchronizer = cdc.FFSynchronizer(self.lock, locked)
        with m.If(~locked):
            m.d.sync += waited.eq(0)
        with m.Elif(~waited[-1]):
            m.d.sync += waited.eq(waited + 1)
        m.d.sync += self.reset.eq(~waited[-1])
        return m


class ClockGenerator(wiring.Component):
    """PLL and reset, which drive the `sync` domain.

    nextpnr derives the clock's constraint from the input clock's and the PLL's parameters.

    Timing: the reset ends 15 to 30 microseconds after the PLL has locked. Block RAM of the iCE40 reads as zeros in the
    first 3 microseconds after configuration.
    Source: Project IceStorm, issue 76; the margin of 5 is that of Amaranth's iCE40 platform (`create_missing_domain`).
    """

    def __init__(self, board: Board, settings: PllSettings) -> None:
        self.board = board
        self.settings = settings
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock, lock = Signal(name="pll_clock"), Signal(name="pll_lock")
        pin = platform.request(self.board.input_clock.resource, dir="-")
        self._pll(m, pin, clock, lock)

        # The same clock, for the register that makes the reset.
        m.domains.start = ClockDomain(reset_less=True, local=True)
        m.submodules.start = start = DomainRenamer("start")(StartReset(math.ceil(_SETTLE_S * self.settings.output_hz)))
        m.d.comb += [
            ClockSignal("sync").eq(clock),
            ClockSignal("start").eq(clock),
            start.lock.eq(lock),
            ResetSignal("sync").eq(start.reset),
        ]
        return m

    def _pll(self, m: Module, pin: io.PortLike, clock: Signal, lock: Signal) -> None:
        """Add the PLL: at its own pad, or behind an input buffer."""
        settings = self.settings
        if self.board.input_clock.pll == "pad":
            kind, source = "SB_PLL40_PAD", {"i_PACKAGEPIN": pin.io}
        else:
            reference = Signal(name="pll_reference")
            # A plain input buffer: the pin's attribute GLOBAL would ask for a clock net, which the PLL cannot take.
            m.submodules.input = Instance(
                "SB_IO", p_PIN_TYPE=Const(0b000001, 6), io_PACKAGE_PIN=pin.io, o_D_IN_0=reference
            )
            kind, source = "SB_PLL40_CORE", {"i_REFERENCECLK": reference}
        m.submodules.pll = Instance(
            kind,
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=Const(settings.divr, 4),
            p_DIVF=Const(settings.divf, 7),
            p_DIVQ=Const(settings.divq, 3),
            p_FILTER_RANGE=Const(settings.filter_range, 3),
            i_RESETB=Const(1, 1),
            i_BYPASS=Const(0, 1),
            o_PLLOUTGLOBAL=clock,
            o_LOCK=lock,
            **source,
        )


class Top(wiring.Component):
    """A device on a board.

    Parameters
    ----------
    device: component with ports `rx` and `tx`.
    settings: of the PLL that makes the device's clock.
    """

    def __init__(self, device: wiring.Component, board: Board, settings: PllSettings) -> None:
        self.device = device
        self.board = board
        self.settings = settings
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.sync = ClockDomain()
        m.submodules.clock = ClockGenerator(self.board, self.settings)
        m.submodules.device = device = self.device
        name = self.board.uart.resource
        # All pins unbuffered: those of a flow control that nothing uses then stay out of the design.
        uart = platform.request(name, dir={pin.name: "-" for pin in platform.lookup(name).ios})
        m.submodules.rx = rx = io.Buffer("i", uart.rx)
        m.submodules.tx = tx = io.Buffer("o", uart.tx)
        m.d.comb += [device.rx.eq(rx.i), tx.o.eq(device.tx)]
        return m


def make_top(make_device: Callable[[int], wiring.Component], board: Board, settings: PllSettings) -> TopDesign:
    """Return the design of a device on a board, the same text for the same input.

    Parameters
    ----------
    make_device: returns a new device with ports `rx` and `tx` for a clock in hertz.

    Raises
    ------
    BoardError: amaranth-boards does not know the board.
    """
    platform = load_platform(board)
    plan = platform.prepare(Top(make_device(settings.output_hz), board, settings), name="top", emit_src=False)
    return TopDesign(rtlil=plan.files["top.il"], pcf=plan.files["top.pcf"])


def load_platform(board: Board) -> Platform:
    """Return a new amaranth-boards platform of a board.

    Raises
    ------
    BoardError: the module, the class, or a resource in it does not exist.
    """
    module, _, name = board.platform.partition(":")
    try:
        platform = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise BoardError(
            f"board '{board.name}' needs '{board.platform}' of amaranth-boards, which cannot be loaded: {error}; "
            "install a newer amaranth-boards, or correct the field 'platform' of the board file"
        ) from None
    for field, resource in (("input_clock", board.input_clock.resource), ("uart", board.uart.resource)):
        try:
            platform.lookup(resource)
        except Exception as error:
            raise BoardError(f"board '{board.name}': field '{field}.resource': {error}") from None
    return platform
