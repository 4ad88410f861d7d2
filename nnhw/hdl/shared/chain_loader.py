"""Loads programs into several shared engines: their images come one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.hdl.shared.shared_engine import SharedEngine
from nnhw.protocol import ProgramState

VERDICT_CYCLES = 4
"""Cycles from a byte until the state of the engine that took it is known."""


class ChainLoader(wiring.Component):
    """Gives each engine its image, and shows the state of all as that of one program.

    When the first engine gets a byte, the others drop their programs: so either all programs are of one load, or there
    is none.

    Parameters
    ----------
    engines: in stream order; all but the first have the input `forget`, see `Loader`. They are submodules of another
        component, not of this one.

    Members
    -------
    load: stream of the bytes of all images.
    program: out, see `nnhw.protocol.ProgramStatus`; the waits are those of the first engine.

    Timing: a byte in every fifth cycle.
    """

    def __init__(self, engines: Sequence[SharedEngine]) -> None:
        self.engines = engines
        super().__init__({"load": In(stream.Signature(8)), "program": Out(ProgramSignature())})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        engines, first = self.engines, self.engines[0]
        current, begun, hold = Signal(range(len(engines))), Signal(), Signal(VERDICT_CYCLES)
        is_ready = Cat(engine.state == ProgramState.READY for engine in engines)
        passed = Signal()
        m.d.comb += [
            # The current engine has its whole image: the next byte belongs to the engine behind it.
            passed.eq(begun & ~hold.any() & is_ready.bit_select(current, 1) & (current != len(engines) - 1)),
            self.load.ready.eq(~hold.any() & ~passed),
        ]
        m.d.sync += hold.eq(hold >> 1)
        with m.If(self.load.valid & self.load.ready):
            m.d.sync += [hold.eq(~0), begun.eq(1)]
        with m.Elif(passed):
            m.d.sync += [current.eq(current + 1), begun.eq(0)]
        for number, engine in enumerate(engines):
            taken = self.load.valid & self.load.ready & (current == number)
            m.d.comb += [engine.load.payload.eq(self.load.payload), engine.load.valid.eq(taken)]
        # The first engine drops its own program with that byte; the others would still have those of the load before.
        for engine in engines[1:]:
            m.d.comb += engine.forget.eq(first.load.valid)
        self._tell(m, current, is_ready)
        return m

    def _tell(self, m: Module, current: Signal, is_ready: Value) -> None:
        """Drive `program` from the states of all engines."""
        engines, first = self.engines, self.engines[0]
        refused = Cat(engine.state == ProgramState.REFUSED for engine in engines)
        loading = Cat(engine.state == ProgramState.LOADING for engine in engines)
        # Of several that are refused, the reason of the first one is told.
        reason: Value = C(0, 3)
        for engine in reversed(engines):
            reason = Mux(engine.state == ProgramState.REFUSED, engine.reason, reason)
        crc: Value = C(0, 32)
        # Rotated, because the CRCs of equal programs would cancel each other.
        for place, engine in enumerate(engines):
            crc = crc ^ engine.crc.rotate_left(place)
        state = Mux(
            refused.any(),
            ProgramState.REFUSED,
            Mux(
                is_ready.all(),
                ProgramState.READY,
                Mux(loading.any() | (current != 0), ProgramState.LOADING, ProgramState.EMPTY),
            ),
        )
        m.d.comb += [
            self.program.state.eq(state),
            self.program.reason.eq(reason),
            self.program.crc.eq(crc),
            self.program.output_bytes.eq(engines[-1].output_bytes),
            self.program.input_waits.eq(first.input_waits),
            self.program.output_waits.eq(first.output_waits),
        ]
