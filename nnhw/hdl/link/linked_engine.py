"""A device: an engine behind the command processor of a link, between two streams of bytes."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import DomainRenamer, Module, ResetInserter, Signal, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.large_device import is_large
from nnhw.hdl.link.flash import FlashLoader
from nnhw.hdl.link.processor import Link
from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.protocol import DeviceIdentity, ProgramState

ENGINE_DOMAIN = "engine"
"""Clock domain of the engine on a board: the clock of `sync`, without a reset.

The link resets the engine by `ResetInserter`; a second reset would cost a gate in front of each register's enable.
"""


HOPS = 2
"""Buffers between link and engine in each direction on a large device, and registers more for the engine's reset.

The link stands beside the engine's first array, and the last one may be at the other end of the device: from register
to register a clock cycle suffices for that way, and not for a handshake with logic at both of its ends. An engine that
runs programs has none of them: a program must not overtake the input in front of it, and waits for the reset.
"""
FLASH_OUTPUTS = ("cs", "clk", "copi", "loading")
"""Ports of a device towards the flash; `loading` says that the others are to be driven, where somebody shares them."""


def flash_pins(flash_offset: int | None) -> dict[str, Any]:
    """Return the ports of a device that reads its program from flash; none without an offset. See `FlashReader`."""
    outputs = dict.fromkeys(FLASH_OUTPUTS, Out(1))
    return {} if flash_offset is None else {**outputs, "cipo": In(1)}


class LinkedEngine(wiring.Component):
    """Link and engine at one clock.

    Parameters
    ----------
    engine: component with byte streams `i` and `o`: input frames and output frames, back to back. One that runs
        programs also has a stream of bytes `load`, and the members of `ProgramSignature`, as ports of its own or in a
        port `program`.
    identity: what the device says about itself.
    array_id: identifies the array for which programs must be made; exactly for an engine that runs programs.
    flash_offset: byte address in flash from which such an engine reads a program when it starts; None: it reads none.
    fastest_hz: fastest clock that the same layout is to serve; counters of time have bits for it. 0: the clock of
        `identity`. Devices that differ only in their clock, none faster than this, differ only in lookup tables.

    Members
    -------
    i, o: streams of bytes from and to the host.
    overrun: In(1), strobe: a byte from the host was lost in front of `i`.
    cs, clk, copi: Out(1), cipo: In(1), only with a `flash_offset`: pins of the flash, see `FlashReader`.
    loading: Out(1), only with a `flash_offset`: the flash is being read.
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
        # Registers in front of what the reset has to reach; the link waits long enough. They are set at the start, too.
        reset = reset_engine
        hops = HOPS if is_large(platform) and self.array_id is None else 0
        for index in range(1 + hops):
            stage = Signal(name=f"reset_{index}", init=1)
            m.d.sync += stage.eq(reset)
            reset = stage
        engine = ResetInserter(reset)(self.engine)
        m.submodules.engine = engine if platform is None else DomainRenamer(ENGINE_DOMAIN)(engine)
        wiring.connect(m, wiring.flipped(self.i), link.i)
        wiring.connect(m, link.o, wiring.flipped(self.o))
        _connect_by_hops(m, "input", link.o_engine, self.engine.i, reset, hops)
        _connect_by_hops(m, "output", self.engine.o, link.i_engine, reset, hops)
        m.d.comb += link.overrun.eq(self.overrun)
        return m

    def connect_flash(self, m: Module, outer: Any) -> None:
        """Connect the flash's ports of this device, if it has them, to the ports of the same names of `outer`."""
        if self.flash_offset is not None:
            m.d.comb += [getattr(outer, name).eq(getattr(self, name)) for name in FLASH_OUTPUTS]
            m.d.comb += self.cipo.eq(outer.cipo)  # type: ignore[attr-defined]

    def _connect_program(self, m: Module, link: Link) -> Value:
        """Connect link, and flash if there is one, to the engine's program ports; return the engine's reset."""
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
            *(getattr(self, name).eq(getattr(flash, name)) for name in FLASH_OUTPUTS),
        ]
        return link.reset_engine | flash.reset_engine


def _connect_by_hops(m: Module, name: str, source: Any, target: Any, reset: Value, hops: int) -> None:
    """Connect two streams through buffers, which lose what they hold when the engine is reset."""
    for index in range(hops):
        hop = StreamBuffer(source.payload.shape())
        m.submodules[f"{name}_hop_{index}"] = ResetInserter(reset)(hop)
        wiring.connect(m, source, hop.i)
        source = hop.o
    wiring.connect(m, source, target)
