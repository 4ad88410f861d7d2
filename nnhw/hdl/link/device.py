"""A device: an engine behind the link, with byte streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import DomainRenamer, Module, ResetInserter, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.flash import FlashLoader
from nnhw.hdl.link.processor import Link
from nnhw.hdl.link.program import ProgramSignature
from nnhw.protocol import DeviceIdentity, ProgramState

ENGINE_DOMAIN = "engine"
"""Of the engine on a board: the clock of `sync`, without its reset: a second one would take a gate for each enable."""


def flash_pins(flash_offset: int | None) -> dict[str, Any]:
    """Return the ports of a device for its flash."""
    return {} if flash_offset is None else {"cs": Out(1), "clk": Out(1), "copi": Out(1), "cipo": In(1)}


class LinkedEngine(wiring.Component):
    """Link and engine in one clock domain.

    Parameters
    ----------
    engine: component with byte streams `i` and `o`, images in and outputs out, back to back. One that runs programs has
        a stream of bytes `load` too, and the ports of `ProgramSignature`, its own or as `program`.
    identity: what the device says about itself.
    array_id: of the array that programs must be made for; needed by an engine that runs them.
    flash_offset: where in flash such an engine looks for a program when it starts; None: nowhere.
    fastest_hz: clock for which what counts time has room; 0: that of the identity. Devices for slower clocks are the
        same but for lookup tables.

    Members
    -------
    i, o: streams of bytes from and to the host.
    overrun: In(1), strobe, a byte from the host was lost before `i`.
    cs, clk, copi: Out(1), cipo: In(1), with a `flash_offset`: pins of the flash, see `FlashReader`.
    """

    def __init__(
        self,
        engine: wiring.Component,
        identity: DeviceIdentity,
        array_id: int | None = None,
        flash_offset: int | None = None,
        fastest_hz: int = 0,
    ) -> None:
        self.engine = engine
        self.identity = identity
        self.array_id = array_id
        self.flash_offset = flash_offset
        self.fastest_hz = max(fastest_hz, identity.clock_hz)
        loadable = hasattr(engine, "load")
        assert loadable == (array_id is not None), "a program is for an array, and an array is for programs"
        assert loadable or flash_offset is None
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "o": Out(stream.Signature(unsigned(8))),
                "overrun": In(1),
                **flash_pins(flash_offset),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.link = link = Link(self.identity, self.array_id)
        reset_engine = link.reset_engine if self.array_id is None else self._connect_program(m, link)
        # A register in front of what the reset has to reach; the link waits long enough. It is set at the start, too.
        reset = Signal(init=1)
        m.d.sync += reset.eq(reset_engine)
        engine = ResetInserter(reset)(self.engine)
        m.submodules.engine = engine if platform is None else DomainRenamer(ENGINE_DOMAIN)(engine)
        wiring.connect(m, wiring.flipped(self.i), link.i)
        wiring.connect(m, link.o, wiring.flipped(self.o))
        wiring.connect(m, link.o_engine, self.engine.i)
        wiring.connect(m, self.engine.o, link.i_engine)
        m.d.comb += link.overrun.eq(self.overrun)
        return m

    def connect_flash(self, m: Module, outer: Any) -> None:
        """Connect the pins of the flash to those of the component around this device, where it has them."""
        if self.flash_offset is not None:
            m.d.comb += [getattr(outer, name).eq(getattr(self, name)) for name in ("cs", "clk", "copi")]
            m.d.comb += self.cipo.eq(outer.cipo)  # type: ignore[attr-defined]

    def _connect_program(self, m: Module, link: Link) -> Value:
        """Connect what loads programs; return the engine's reset."""
        load, program = self.engine.load, getattr(self.engine, "program", self.engine)  # type: ignore[attr-defined]
        m.d.comb += [getattr(link.program, name).eq(getattr(program, name)) for name in ProgramSignature().members]
        if self.flash_offset is None:
            wiring.connect(m, link.o_load, load)
            return link.reset_engine
        m.submodules.flash = flash = FlashLoader(self.flash_offset, self.identity.clock_hz, self.fastest_hz)
        wiring.connect(m, link.o_load, flash.i)
        wiring.connect(m, flash.o, load)
        state = link.program.state
        m.d.comb += [
            flash.reset.eq(link.reset_engine),
            flash.decided.eq((state == ProgramState.READY) | (state == ProgramState.REFUSED)),
            flash.cipo.eq(self.cipo),
            *(getattr(self, name).eq(getattr(flash, name)) for name in ("cs", "clk", "copi")),
        ]
        return link.reset_engine | flash.reset_engine
