"""An accelerator as registers on a Wishbone bus, as WISHBONE B4 (OpenCores, 2010) has classic standard cycles."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from amaranth.hdl import C, Cat, ClockDomain, ClockSignal, Module, ResetInserter, ResetSignal, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import Accelerator
from nnhw.hdl.core.core_engine import CoreEngine

WORD_BYTES = 4
"""Bytes of a register."""
RESULT_BYTES = 16
"""Bytes of results that the core holds until they are read; then the engine waits."""


class Register(IntEnum):
    """Addresses of the registers, in words of 32 bits: a byte address is four times as large."""

    STATUS = 0
    INPUT = 1
    RESULT = 2
    CONTROL = 3
    INPUT_BYTES = 4
    RESULT_BYTES = 5
    DEVICE = 6
    LOAD = 7


class StatusBit(IntEnum):
    """Bits of STATUS."""

    ROOM = 0  # INPUT takes a word
    RESULT = 1  # RESULT has a byte
    LOST = 2  # since the reset, a word was written to INPUT or LOAD without room, and is lost
    LOAD_ROOM = 3  # LOAD takes a word
    PROGRAM_READY = 4
    PROGRAM_REFUSED = 5


class Control(IntEnum):
    """Bits of CONTROL."""

    RESET = 0  # written as 1: the core is emptied, programs included; reads as 0
    INTERRUPT = 1  # `irq` follows StatusBit.RESULT


class WishboneCore(wiring.Component):
    """An accelerator behind eight registers of 32 bits.

    A write to INPUT brings one to four bytes of a frame, the first in the lowest bits: as many as `sel_i` has ones
    from the lowest on. Write it only while STATUS has ROOM. A read of RESULT takes one byte of a result, if there is
    one: it is in bits 0 to 7, and bit 8 says that there was one. No access ever waits: each one is acknowledged in the
    next clock cycle.

    Parameters
    ----------
    accelerator: what to build.

    Members
    -------
    clk_i, rst_i: In(1). The reset is synchronous, active high.
    cyc_i, stb_i, we_i: In(1). adr_i: In(3), of words, see `Register`. sel_i: In(4). dat_i: In(32).
    dat_o: Out(32). ack_o: Out(1), a register.
    irq: Out(1), a result is there, if CONTROL says so.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.engine = CoreEngine(accelerator, wide=False)
        super().__init__(
            {
                **{name: In(1) for name in ("clk_i", "rst_i", "cyc_i", "stb_i", "we_i")},
                "adr_i": In(3),
                "sel_i": In(WORD_BYTES),
                "dat_i": In(8 * WORD_BYTES),
                "dat_o": Out(8 * WORD_BYTES),
                "ack_o": Out(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.domains.sync = ClockDomain()
        m.d.comb += [ClockSignal().eq(self.clk_i), ResetSignal().eq(self.rst_i)]
        empties = Signal()  # a register: the reset of the whole engine is far from the bus
        engine = self.engine
        m.submodules.engine = ResetInserter(empties)(engine)
        words, results = WordBytes(), SyncFIFOBuffered(width=8, depth=RESULT_BYTES)
        m.submodules.words, m.submodules.results = ResetInserter(empties)(words), ResetInserter(empties)(results)
        m.d.comb += [
            engine.i.payload.eq(words.o.payload),
            engine.i.valid.eq(words.o.valid),
            words.o.ready.eq(engine.i.ready),
            results.w_data.eq(engine.o.payload),
            results.w_en.eq(engine.o.valid),
            engine.o.ready.eq(results.w_rdy),
        ]
        # A bus master keeps its strobe until it has seen `ack_o`: without it here, an access would take place twice.
        asked = self.cyc_i & self.stb_i & ~self.ack_o
        writes, reads = asked & self.we_i, asked & ~self.we_i
        m.d.sync += [self.ack_o.eq(asked), empties.eq(0)]
        m.d.comb += [words.word.eq(self.dat_i), words.sel.eq(self.sel_i)]
        m.d.comb += words.put.eq(writes & (self.adr_i == Register.INPUT))
        m.d.comb += results.r_en.eq(reads & (self.adr_i == Register.RESULT))
        lost, interrupts = Signal(), Signal()
        m.d.comb += self.irq.eq(interrupts & results.r_rdy)
        m.d.sync += lost.eq(lost | (words.put & ~words.room))
        status: dict[StatusBit, Any] = {
            StatusBit.ROOM: words.room,
            StatusBit.RESULT: results.r_rdy,
            StatusBit.LOST: lost,
        }
        if engine.has_program:
            m.submodules.load = load = ResetInserter(empties)(WordBytes())
            m.d.comb += [load.word.eq(self.dat_i), load.sel.eq(self.sel_i)]
            m.d.comb += load.put.eq(writes & (self.adr_i == Register.LOAD))
            wiring.connect(m, load.o, engine.load)
            m.d.sync += lost.eq(lost | (words.put & ~words.room) | (load.put & ~load.room))
            status |= {
                StatusBit.LOAD_ROOM: load.room,
                StatusBit.PROGRAM_READY: engine.program_ready,
                StatusBit.PROGRAM_REFUSED: engine.program_refused,
            }
        # Without its lowest byte selected, a write to CONTROL brings none of its bits.
        with m.If(writes & (self.adr_i == Register.CONTROL) & self.sel_i[0]):
            m.d.sync += [empties.eq(self.dat_i[Control.RESET]), interrupts.eq(self.dat_i[Control.INTERRUPT])]
            with m.If(self.dat_i[Control.RESET]):
                m.d.sync += lost.eq(0)
        form = engine.accelerator
        shown: dict[Register, Any] = {
            Register.STATUS: Cat(status.get(bit, C(0, 1)) for bit in StatusBit),
            Register.RESULT: Cat(results.r_data & results.r_rdy.replicate(8), results.r_rdy),
            Register.CONTROL: Cat(C(0, 1), interrupts),
            Register.INPUT_BYTES: form.input_format.frame_bytes,
            Register.RESULT_BYTES: form.output_format.frame_bytes,
            Register.DEVICE: int(form.device_hash[: 2 * WORD_BYTES], 16),
        }
        with m.Switch(self.adr_i):
            for register, value in shown.items():
                with m.Case(register):
                    m.d.sync += self.dat_o.eq(value)
            with m.Default():
                m.d.sync += self.dat_o.eq(0)
        return m


class WordBytes(wiring.Component):
    """Words of up to four bytes --> a stream of bytes.

    Members
    -------
    put: In(1), strobe: take `word`; without `room` it is lost.
    word: In(32). sel: In(4): as many bytes of the word come in as it has ones from the lowest on.
    room: Out(1), a word can come in: all bytes of the one before have left.
    o: stream of bytes, the lowest one first.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "word": In(8 * WORD_BYTES),
                "sel": In(WORD_BYTES),
                "put": In(1),
                "room": Out(1),
                "o": Out(stream.Signature(unsigned(8))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word, held = Signal(8 * WORD_BYTES), Signal(WORD_BYTES)
        m.d.comb += [self.o.payload.eq(word[:8]), self.o.valid.eq(held[0]), self.room.eq(~held[0])]
        with m.If(self.put & self.room):
            # Ones from the lowest on: a one behind a zero brings nothing.
            ones = [self.sel[: count + 1].all() for count in range(WORD_BYTES)]
            m.d.sync += [word.eq(self.word), held.eq(Cat(*ones))]
        with m.Elif(self.o.valid & self.o.ready):
            m.d.sync += [word.eq(word >> 8), held.eq(held >> 1)]
        return m
