"""Composition: the stages of an accelerator, connected, between its input and its output stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from amaranth.hdl import C, Cat, Module, Value, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.accelerator import INPUT, Accelerator, Boundary, EngineConfig, Stream, StreamBoundary
from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.engines.normalize import NormConfig
from nnhw.engines.own import OwnEngine
from nnhw.engines.pad import PadConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.shared.cycles import load_cycles
from nnhw.engines.slice import SliceConfig
from nnhw.engines.softmax import PowersConfig, SharesConfig
from nnhw.engines.state import StateConfig
from nnhw.engines.window import WindowConfig
from nnhw.hdl.broadcast import ConstantSource
from nnhw.hdl.channelwise import ChannelwiseEngine
from nnhw.hdl.convert import Converter
from nnhw.hdl.fifo import Fifo
from nnhw.hdl.fork import Fork
from nnhw.hdl.join import Concatenation, JoinEngine
from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.hdl.matmul import MatmulEngine
from nnhw.hdl.matrix_product import MatrixProductEngine
from nnhw.hdl.normalize import NormEngine
from nnhw.hdl.pack import Packer
from nnhw.hdl.pad import PadEngine
from nnhw.hdl.pairwise import PairwiseEngine
from nnhw.hdl.pool import MaxPoolEngine
from nnhw.hdl.shared import SharedEngine
from nnhw.hdl.shared.chain_loader import ChainLoader
from nnhw.hdl.shared.counters import RecordCounters
from nnhw.hdl.slice import Slicing
from nnhw.hdl.softmax import PowersEngine, SharesEngine
from nnhw.hdl.state import StateMemory
from nnhw.hdl.unpack import Unpacker
from nnhw.hdl.window import SlidingWindow
from nnhw.ir.types import IntType

# Own engines and shared engines have no row: see `_hardware`.
HARDWARE: dict[type, Callable[[Any], wiring.Component]] = {
    BroadcastConfig: ConstantSource,
    ChannelwiseConfig: ChannelwiseEngine,
    ConcatConfig: Concatenation,
    ConvertConfig: Converter,
    FifoConfig: Fifo,
    ForkConfig: Fork,
    MatmulConfig: MatmulEngine,
    MatrixProductConfig: MatrixProductEngine,
    NormConfig: NormEngine,
    PadConfig: PadEngine,
    PairConfig: PairwiseEngine,
    PowersConfig: PowersEngine,
    SharesConfig: SharesEngine,
    SliceConfig: Slicing,
    StateConfig: StateMemory,
    PoolConfig: MaxPoolEngine,
    SumConfig: JoinEngine,
    WindowConfig: SlidingWindow,
}


PROGRAM_PORTS = {"load": In(stream.Signature(unsigned(8))), "program": Out(ProgramSignature())}
"""Further ports of an engine that runs a program: `load` brings it, `program` says what has become of it."""


class Engine(wiring.Component):
    """All stages of an accelerator and the streams between them.

    Parameters
    ----------
    accelerator: what to build.
    taps: add outputs that show every value of the IR as it passes, for verification.
    preloaded: shared engines have their programs from the start, which only simulators can do; then there is no `load`.

    Members
    -------
    i: stream of beats of `input_format`, the first bytes or elements in the lowest bits; frames back to back.
    o: stream of bytes, `output_format.frame_beats` of them a frame.
    load: with shared engines, the stream of the bytes of their programs. program: the state of these.
    tap_<k>_valid, tap_<k>_payload: with `taps`, for boundary k of `accelerator.boundaries`: a beat passes in this
        cycle, and its bits. The numbers that follow are for the `RecordCounters` of each shared engine.
    """

    def __init__(self, accelerator: Accelerator, taps: bool = False, preloaded: bool = False) -> None:
        self.accelerator = accelerator
        self.taps = taps
        self.stages: list[wiring.Component] = []
        # Of several shared engines, those behind the first forget their programs when the first is loaded anew.
        for stage in accelerator.stages:
            self.stages.append(_hardware(stage.config, preloaded, any(map(_is_shared, self.stages)) and not preloaded))
        self.shared = [stage for stage in self.stages if isinstance(stage, SharedEngine)]
        members: dict[str, Any] = {
            "i": In(stream.Signature(unsigned(8 * accelerator.input_format.beat_bytes))),
            "o": Out(stream.Signature(unsigned(8))),
        }
        if self.shared and not preloaded:
            members |= PROGRAM_PORTS
        if taps:
            for number, boundary in enumerate(accelerator.boundaries):
                members[f"tap_{number}_valid"] = Out(1)
                members[f"tap_{number}_payload"] = Out(boundary.bits)
            for number, _ in enumerate(self.shared, len(accelerator.boundaries)):
                members |= {f"tap_{number}_valid": Out(1), f"tap_{number}_payload": Out(RecordCounters.BITS)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for stage, hardware in zip(self.accelerator.stages, self.stages, strict=True):
            # Names of stages come from the model's layers; those of modules must be valid in Verilog.
            m.submodules[re.sub(r"\W", "_", stage.name)] = hardware
            for port, source in enumerate(stage.sources):
                self._connect(m, source, _port(hardware, "i", port))
        self._connect(m, (len(self.stages) - 1, 0), self.o)
        if hasattr(self, "load"):
            self._load(m)
        if self.taps:
            for number, boundary in enumerate(self.accelerator.boundaries):
                valid, payload = self._seen(boundary)
                m.d.comb += [
                    getattr(self, f"tap_{number}_valid").eq(valid),
                    getattr(self, f"tap_{number}_payload").eq(payload),
                ]
            self._count(m)
        return m

    def _load(self, m: Module) -> None:
        """Connect the stream of programs: to the shared engine, or to a chain that parts it among several."""
        if len(self.shared) == 1:
            (engine,) = self.shared
            wiring.connect(m, wiring.flipped(self.load), engine.load)
            connect_program(m, engine, self.program)
        else:
            m.submodules.chain = chain = ChainLoader(self.shared)
            wiring.connect(m, wiring.flipped(self.load), chain.load)
            connect_program(m, chain.program, self.program)

    def _count(self, m: Module) -> None:
        """Show what each record of the programs takes."""
        ways = zip(self.shared, self.accelerator.programs, strict=True)
        for number, (engine, program) in enumerate(ways, len(self.accelerator.boundaries)):
            counters = RecordCounters(load_cycles(program))
            m.submodules["counters" if len(self.shared) == 1 else f"counters_{number}"] = counters
            m.d.comb += [
                counters.record.eq(engine.record),
                *(getattr(counters, name).eq(getattr(engine, name)) for name in counters.COUNTED),
                getattr(self, f"tap_{number}_valid").eq(counters.valid),
                getattr(self, f"tap_{number}_payload").eq(counters.payload),
            ]

    def _seen(self, boundary: Boundary) -> tuple[Value, Value]:
        """Return whether a beat passes a boundary in this cycle, and its bits.

        In a shared engine it is a granule of codes, written to the engine's memory by the boundary's record, and the
        lowest bits of its address.
        """
        if isinstance(boundary, StreamBoundary):
            o = self._output((boundary.stage, 0))
            return o.valid & o.ready, o.payload.as_value()
        engine: Any = self.stages[boundary.stage]
        codes, address = sum(boundary.widths[:-1]), boundary.widths[-1]
        granule, behind = engine.tap_payload[: boundary.array.granule_bits], boundary.array.granule_bits
        shown = Cat(granule[:codes], engine.tap_payload[behind : behind + address])
        return engine.tap_valid & (engine.record == boundary.number), shown

    def _output(self, source: tuple[int, int]) -> Any:
        """Return the stream of an output port of a stage, or that which enters the accelerator."""
        index, port = source
        return self.i if source == INPUT else _port(self.stages[index], "o", port)

    def _connect(self, m: Module, source: tuple[int, int], sink: Any) -> None:
        """Connect a stage's output to a stream; where the sink's elements are wider, they get the same values.

        Parameters
        ----------
        source: (stage, output port), or `INPUT`.
        sink: input stream of a stage, or the output stream of the accelerator.
        """
        stream, target = self._output(source), Value.cast(sink.payload)
        payload = Value.cast(stream.payload)
        numbers = any(sink is engine.i for engine in self.shared)
        if source == INPUT:
            form = self.accelerator.input_format
            used = form.per_byte * form.element.bits
            # Unpacked beats have their elements side by side; else each byte holds some, and unused bits above them.
            if form.lanes:
                payload = payload[: form.lanes * form.element.bits]
            else:
                payload = Cat(*(payload[8 * byte : 8 * byte + used] for byte in range(form.beat_bytes)))
            payload = _widened(payload, form.stream, len(target), numbers)
        else:
            output = self.accelerator.stages[source[0]].output
            if _is_shared(self.stages[source[0]]) and sink is not self.o:
                payload = _code(payload, output.element)
            payload = _widened(payload, output, len(target), numbers)
        m.d.comb += [target.eq(payload), sink.valid.eq(stream.valid), stream.ready.eq(sink.ready)]


class ByteEngine(wiring.Component):
    """An `Engine` whose input is a stream of bytes, as a link gives it, and whose output is packed for the link.

    Parameters
    ----------
    accelerator: what to build.
    packs: results are packed for the link; else they come as they leave the last engine, `OutputFormat.frame_beats`.

    Members
    -------
    i, o: streams of bytes, frames back to back.
    load, program: with shared engines, see `Engine`.
    """

    def __init__(self, accelerator: Accelerator, packs: bool = True) -> None:
        self.accelerator = accelerator
        self.packs = packs
        byte = stream.Signature(unsigned(8))
        ports = PROGRAM_PORTS if accelerator.programs else {}
        super().__init__({"i": In(byte), "o": Out(byte), **ports})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = engine = Engine(self.accelerator)
        form = self.accelerator.input_format
        source: Any = self.i
        if form.unpacking:
            m.submodules.bytes = unpacker = Unpacker(form.unpacking)
            m.d.comb += [unpacker.i.payload.eq(self.i.payload), unpacker.i.valid.eq(self.i.valid)]
            m.d.comb += self.i.ready.eq(unpacker.i.ready)
            source = unpacker.o
        elif form.beat_bytes > 1:
            m.submodules.bytes = wide = Converter(ConvertConfig(1, form.beat_bytes, 8, form.frame_bytes))
            m.d.comb += [wide.i.payload.eq(self.i.payload), wide.i.valid.eq(self.i.valid)]
            m.d.comb += self.i.ready.eq(wide.i.ready)
            source = wide.o
        m.d.comb += [
            engine.i.payload.eq(Value.cast(source.payload)),
            engine.i.valid.eq(source.valid),
            source.ready.eq(engine.i.ready),
        ]
        if self.packs and (packing := self.accelerator.output_format.packing) is not None:
            m.submodules.packer = packer = Packer(packing)
            wiring.connect(m, engine.o, packer.i)
            wiring.connect(m, packer.o, wiring.flipped(self.o))
        else:
            wiring.connect(m, engine.o, wiring.flipped(self.o))
        if engine.shared:
            wiring.connect(m, wiring.flipped(self.load), engine.load)
            connect_program(m, engine.program, self.program)
        return m


def connect_program(m: Module, inner: Any, outer: Any) -> None:
    """Connect the state of a program from `inner` to `outer`; both have the members of a `ProgramSignature`."""
    for name in ProgramSignature().members:
        m.d.comb += getattr(outer, name).eq(getattr(inner, name))


def _is_shared(hardware: wiring.Component) -> bool:
    return isinstance(hardware, SharedEngine)


def _hardware(config: EngineConfig, preloaded: bool, can_forget: bool) -> wiring.Component:
    """Return the hardware of an engine; for the parameters see those of `SharedEngine`, which alone has them."""
    if (program := config.program) is not None:
        return SharedEngine(program.array, program if preloaded else None, can_forget)
    if isinstance(config, OwnEngine):
        hardware: wiring.Component = config.hardware()
        return hardware
    return HARDWARE[type(config)](config)


def _widened(payload: Value, stream: Stream, bits: int, numbers: bool = False) -> Value:
    """Return a beat whose elements are extended, each to its share of `bits`: signed ones by their sign, others by 0.

    Parameters
    ----------
    bits: bits of the whole beat at the sink.
    numbers: a bipolar element, one bit, becomes the number -1 or +1, as a shared engine takes it; else it stays a bit.
    """
    wide, narrow = bits // stream.lanes, stream.element.bits
    if wide <= narrow:
        return payload
    elements = [payload[lane * narrow : (lane + 1) * narrow] for lane in range(stream.lanes)]
    # -1 is all ones, +1 is the lowest bit alone: that bit is always set, the others are the inverted element.
    if stream.element.bipolar and numbers:
        return Cat(*(Cat(C(1, 1), (~element).replicate(wide - 1)) for element in elements))
    if stream.element.signed and not stream.element.bipolar:
        return Cat(*(Cat(element, element[-1].replicate(wide - narrow)) for element in elements))
    return Cat(*(Cat(element, C(0, wide - narrow)) for element in elements))


def _code(number: Value, element: IntType) -> Value:
    """Return the bit pattern of a code, as other engines take it, from the number that a shared engine sends.

    The number is a byte, in two's complement; a bipolar code is one bit, 1 for +1.
    """
    return ~number[-1] if element.bipolar else number[: element.bits]


def _port(hardware: wiring.Component, name: str, port: int) -> Any:
    """Return a stream of an engine by its name and number: `i`, or `i0`, `i1`, .. where there are several."""
    return getattr(hardware, name) if hasattr(hardware, name) else getattr(hardware, f"{name}{port}")
