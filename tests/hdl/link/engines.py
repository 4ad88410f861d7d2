"""Small engines to put behind the link, and what they answer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.driver.image import ProgramImage
from nnhw.hdl.link.crc import Crc32
from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.protocol import PROGRAM_HEADER, PROGRAM_MAGIC, ProgramState, Refusal

STATUS_SHAPES = {"state": 2, "reason": 3, "crc": 32, "output_bytes": 32}


class SumEngine(wiring.Component):
    """Sums each image and answers with bytes that depend on the sum and on the place; pauses at random.

    Parameters
    ----------
    input_bytes, output_bytes: per image.
    pause: cycles in eight in which it does nothing, 0 to 7.
    byte_cycles: cycles from one byte that it takes to the next, at least.
    """

    def __init__(self, input_bytes: int, output_bytes: int, pause: int = 3, byte_cycles: int = 1) -> None:
        self.input_bytes, self.output_bytes, self._pause = input_bytes, output_bytes, pause
        self._byte_cycles = byte_cycles
        super().__init__({"i": In(stream.Signature(unsigned(8))), "o": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        noise = Signal(16, init=0xACE1)
        total, place = Signal(8), Signal(range(max(self.input_bytes, self.output_bytes)))
        giving = Signal()
        awake, resting = Signal(), Signal(range(self._byte_cycles + 1))
        with m.If(resting != 0):
            m.d.sync += resting.eq(resting - 1)
        m.d.sync += noise.eq((noise >> 1) ^ (noise[0].replicate(16) & 0xB400))
        m.d.comb += [
            awake.eq((noise[:3] >= self._pause) & (resting == 0)),
            self.i.ready.eq(~giving & awake),
            self.o.payload.eq(total + place * 3),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [total.eq(total + self.i.payload), place.eq(place + 1), resting.eq(self._byte_cycles - 1)]
            with m.If(place == self.input_bytes - 1):
                m.d.sync += [giving.eq(1), place.eq(0), self.o.valid.eq(1)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += place.eq(place + 1)
            with m.If(place == self.output_bytes - 1):
                m.d.sync += [giving.eq(0), place.eq(0), total.eq(0), self.o.valid.eq(0)]
        return m

    def expected(self, image: bytes) -> bytes:
        """Return the output of one image."""
        return bytes((sum(image) + 3 * place) & 0xFF for place in range(self.output_bytes))


class HangingEngine(wiring.Component):
    """Takes nothing and gives nothing."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(unsigned(8))), "o": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.d.sync += Signal().eq(1)
        return m


class ProgramEngine(wiring.Component):
    """Runs programs of 4 to `MEMORY_BYTES` bytes, which say what a `SumEngine` has as parameters, and an addend.

    Body: input bytes of an image u8 | output bytes of an image u16 | addend u8 | anything.

    Members
    -------
    i, o: images and outputs. load: stream of bytes of a program. program: its state.
    """

    ARRAY_ID = 0xC0FFEE21
    MEMORY_BYTES = 1024

    def __init__(self, array_id: int = ARRAY_ID) -> None:
        self._array_id = array_id
        byte = stream.Signature(unsigned(8))
        super().__init__({"i": In(byte), "o": Out(byte), "load": In(byte), "program": Out(ProgramSignature())})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        self._load(m)
        runs = self.program.state == ProgramState.READY
        total, place, giving = Signal(8), Signal(16), Signal()
        m.d.comb += [
            self.i.ready.eq(~giving & runs),
            self.o.valid.eq(giving),
            self.o.payload.eq(total + place * 3 + self._body[24:]),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [total.eq(total + self.i.payload), place.eq(place + 1)]
            with m.If(place == self._body[:8] - 1):
                m.d.sync += [giving.eq(1), place.eq(0)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += place.eq(place + 1)
            with m.If(place == self._body[8:24] - 1):
                m.d.sync += [giving.eq(0), place.eq(0), total.eq(0)]
        return m

    def _load(self, m: Module) -> None:
        """Check header and checksum. A program that is not whole is lost by a reset."""
        status = {name: Signal(shape, reset_less=True) for name, shape in STATUS_SHAPES.items()}
        self._body = Signal(32, reset_less=True)
        loading = Signal()
        m.d.comb += [getattr(self.program, name).eq(signal) for name, signal in status.items()]
        m.d.comb += self.program.state.eq(Mux(loading, ProgramState.LOADING, status["state"]))
        count, last, ended = Signal(17), Signal(32), Signal()
        now = Signal(32)
        m.submodules.crc = crc = Crc32()
        m.d.comb += [
            self.load.ready.eq(1),
            now.eq(Cat(last[8:], self.load.payload)),
            crc.data.eq(self.load.payload),
            crc.enable.eq(self.load.valid),
        ]
        wrong = Signal(Refusal)
        refuse = {
            4: (now != int.from_bytes(PROGRAM_MAGIC, "little"), Refusal.NO_IMAGE),
            8: (now != self._array_id, Refusal.OTHER_ARRAY),
            12: ((now < 4) | (now > self.MEMORY_BYTES), Refusal.LENGTH),
        }
        body_bytes = Signal(16)
        checking = Signal()
        m.d.sync += checking.eq(0)
        with m.If(self.load.valid & ~ended):
            m.d.sync += [count.eq(count + 1), last.eq(now)]
            with m.If(count == 0):
                m.d.sync += [status["state"].eq(ProgramState.EMPTY), loading.eq(1)]
            for place, (is_wrong, why) in refuse.items():
                with m.If((count == place - 1) & is_wrong & (wrong == Refusal.NONE)):
                    m.d.sync += wrong.eq(why)
            with m.If((count == 15) & (wrong != Refusal.NONE)):
                m.d.sync += [status["state"].eq(ProgramState.REFUSED), status["reason"].eq(wrong)]
                m.d.sync += [ended.eq(1), loading.eq(0)]
            with m.If(count == 11):
                m.d.sync += body_bytes.eq(now)
            with m.If(count == 15):
                m.d.sync += status["output_bytes"].eq(now)
            with m.If(count == 19):
                m.d.sync += self._body.eq(now)
            with m.If((count > 19) & (count == 19 + body_bytes)):
                m.d.sync += [ended.eq(1), checking.eq(1), status["crc"].eq(now)]
        with m.If(checking):
            m.d.sync += loading.eq(0)
            m.d.sync += status["state"].eq(Mux(crc.match, ProgramState.READY, ProgramState.REFUSED))
            m.d.sync += status["reason"].eq(Mux(crc.match, Refusal.NONE, Refusal.CHECKSUM))

    @staticmethod
    def image(
        input_bytes: int, output_bytes: int, addend: int = 0, rest: bytes = b"", array_id: int = ARRAY_ID
    ) -> ProgramImage:
        """Return a program."""
        body = bytes([input_bytes, *output_bytes.to_bytes(2, "little"), addend]) + rest
        return ProgramImage.pack(array_id, body, output_bytes)

    @staticmethod
    def expected(image: ProgramImage, data: bytes) -> bytes:
        """Return what a program answers for one image."""
        addend = image.data[PROGRAM_HEADER.size + 3]
        return bytes((sum(data) + 3 * place + addend) & 0xFF for place in range(image.output_bytes))
