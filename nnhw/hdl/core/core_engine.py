"""The engine of a core: streams of bytes in and out, in the formats of the driver and of `accelerator.json`."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import Accelerator
from nnhw.hdl.engine import ByteEngine, Engine
from nnhw.hdl.pack import Packer
from nnhw.protocol import ProgramState


class CoreEngine(wiring.Component):
    """An accelerator whose frames are those of `InputFormat.pack` and `OutputFormat.unpack`.

    Parameters
    ----------
    accelerator: what to build.
    wide: an input beat has as many bytes as the first engine takes at once, unless elements cross the borders of
        bytes (`InputFormat.unpacking`). False: it has one byte.

    Members
    -------
    i: stream of beats of `i_bytes` bytes, the first in the lowest bits; `i_beats` beats are a frame.
    o: stream of bytes, `o_beats` of them a frame.
    load: with a shared engine only, the stream of the bytes of its programs.
    program_ready, program_refused: Out(1), with a shared engine only: the program is loaded; it was refused.
    """

    def __init__(self, accelerator: Accelerator, wide: bool = True) -> None:
        self.accelerator = accelerator
        self.has_program = bool(accelerator.programs)
        self.i_bytes = accelerator.input_format.beat_bytes if wide and accelerator.input_format.unpacking is None else 1
        self.i_beats = accelerator.input_format.frame_bytes // self.i_bytes
        self.o_beats = accelerator.output_format.frame_bytes
        byte = stream.Signature(unsigned(8))
        members: dict[str, Any] = {"i": In(stream.Signature(unsigned(8 * self.i_bytes))), "o": Out(byte)}
        if self.has_program:
            members |= {"load": In(byte), "program_ready": Out(1), "program_refused": Out(1)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        packing = self.accelerator.output_format.packing
        # A `ByteEngine` makes wider beats of its bytes by itself; with wide beats they go straight to the first engine.
        engine: Any
        if self.i_bytes == 1:
            m.submodules.engine = engine = ByteEngine(self.accelerator)
            wiring.connect(m, engine.o, wiring.flipped(self.o))
        else:
            m.submodules.engine = engine = Engine(self.accelerator)
            if packing is None:
                wiring.connect(m, engine.o, wiring.flipped(self.o))
            else:
                m.submodules.packer = packer = Packer(packing)
                wiring.connect(m, engine.o, packer.i)
                wiring.connect(m, packer.o, wiring.flipped(self.o))
        m.d.comb += [
            Value.cast(engine.i.payload).eq(self.i.payload),
            engine.i.valid.eq(self.i.valid),
            self.i.ready.eq(engine.i.ready),
        ]
        if self.has_program:
            wiring.connect(m, wiring.flipped(self.load), engine.load)
            m.d.comb += [
                self.program_ready.eq(engine.program.state == ProgramState.READY),
                self.program_refused.eq(engine.program.state == ProgramState.REFUSED),
            ]
        return m
