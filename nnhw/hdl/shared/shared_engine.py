"""Composition of the shared engine."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared import SharedConfig
from nnhw.engines.shared.array import ArrayConfig, Requantizing
from nnhw.engines.shared.cycles import STEP_LATENCY, lane_latency, requantizer_latency, stream_lead
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.shared.address import AddressWalker
from nnhw.hdl.shared.constant_memories import Constants
from nnhw.hdl.shared.descriptor import Descriptor
from nnhw.hdl.shared.drain import Drain
from nnhw.hdl.shared.lanes import Lanes
from nnhw.hdl.shared.loader import Loader
from nnhw.hdl.shared.multiply_add import DspRequantizer
from nnhw.hdl.shared.nest import NestSchedule
from nnhw.hdl.shared.sequencer import Sequencer, delayed, sequenced
from nnhw.hdl.shared.shared_requantizer import SharedRequantizer
from nnhw.hdl.shared.step_memory import StepWriter, step_ports
from nnhw.hdl.shared.step_requantizer import StepRequantizer
from nnhw.hdl.shared.store import Collector, WriteRegister
from nnhw.hdl.shared.transfer import Transfers
from nnhw.hdl.shared.word_memory import WordMemory, WordRam
from nnhw.protocol import ProgramState, Refusal

READ_LATENCY = 2
"""Cycles from a step of the schedule to the read of its word of activations."""
REQUANTIZERS: dict[Requantizing, type[SharedRequantizer | StepRequantizer]] = {
    Requantizing.LOGIC: SharedRequantizer,
    Requantizing.DSP: DspRequantizer,
    Requantizing.STEPS: StepRequantizer,
}


class SharedEngine(wiring.Component):
    """An array that runs the program in its memory, once for each frame.

    Parameters
    ----------
    array: parameters of the hardware.
    preloaded: a program that is in the memory from the start, for simulations; None: there is none.
    can_forget: there is the input `forget`; for all but the first of several shared engines, see `ChainLoader`.

    Members
    -------
    i: stream of beats, taken only while there is a program. o: stream of bytes.
    load: stream of the bytes of a program's image.
    forget: in, strobe: drop the program; only if `can_forget`.
    state, reason, crc, output_bytes: out, see `ProgramSignature`; they survive a reset.
    busy: out, the array multiplies in this cycle. record: out, index of the record that runs.
    input_waits, output_waits: out, in this cycle the record waits for a beat; for room for a byte.
    tap_valid: out, strobe: a granule is stored. tap_payload: out, its bits, the address of its first word, its slice.

    Timing: see `nnhw.engines.shared.cycles`.
    """

    def __init__(self, array: ArrayConfig, preloaded: SharedConfig | None = None, can_forget: bool = False) -> None:
        self.array, self.preloaded, self.can_forget = array, preloaded, can_forget
        tap = array.granule_bits + array.address_bits + max((array.slices - 1).bit_length(), 1)
        beat = data.ArrayLayout(unsigned(array.activation_bits), array.i_lanes)
        super().__init__(
            {
                "i": In(stream.Signature(beat)),
                "o": Out(stream.Signature(8)),
                "load": In(stream.Signature(8)),
                "state": Out(ProgramState),
                "reason": Out(Refusal),
                "crc": Out(32),
                "output_bytes": Out(32),
                "busy": Out(1),
                "record": Out(16),
                "input_waits": Out(1),
                "output_waits": Out(1),
                "tap_valid": Out(1),
                "tap_payload": Out(tap),
                **({"forget": In(1)} if can_forget else {}),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._parts(m)
        self._program(m)
        self._memory(m)
        self._fetch(m)
        self._array(m)
        self._results(m)
        self._streams(m)
        return m

    def _parts(self, m: Module) -> None:
        """Add all parts."""
        array, program = self.array, self.preloaded
        # An image ends with its checksum.
        image = program.image if program else b""
        status = (int.from_bytes(image[-4:], "little"), program.o_beats) if program else None
        m.submodules.loader = self.loader = Loader(array, status, self.can_forget)
        m.submodules.memory = self.memory = WordMemory(
            array.words, array.word_bits, array.slices, program.words if program else ()
        )
        m.submodules.sequencer = self.sequencer = Sequencer(array)
        m.submodules.descriptor = self.descriptor = Descriptor(array)
        m.submodules.walker = self.walker = AddressWalker(array)
        m.submodules.schedule = self.schedule = NestSchedule(array)
        m.submodules.weights = self.weights = WordRam(array.rows, array.products * array.weight_bits, array.word_bits)
        m.submodules.lanes = self.lanes = Lanes(array)
        self.drain, self.transfers = Drain(array), Transfers(array)
        # It has state in the middle of a record, which a program that is dropped then must not leave behind.
        m.submodules.drain = ResetInserter(~self.loader.ready)(self.drain)
        self.unit = REQUANTIZERS[array.requantizing]
        pieces = {name: (low, bits) for name, (low, bits, _) in self.unit.pieces(array).items()}
        m.submodules.constants = self.constants = Constants(array, pieces)
        m.submodules.collector = self.collector = Collector(array)
        m.submodules.register = self.register = WriteRegister(array, array.i_lanes * array.activation_bits)
        m.submodules.transfers = self.transfers
        self.word = Signal(array.word_bits, reset_less=True)
        if array.step_memory is not None:
            self.writer = StepWriter(array)
            m.submodules.step_writer = ResetInserter(~self.loader.ready)(self.writer)
            m.d.comb += [self.writer.take.eq(self.sequencer.take_entry), self.writer.word.eq(self.word)]
        # Activations have a register of their own where words of weights come between them.
        self.codes = Signal(array.word_bits, reset_less=True) if array.weight_stream else self.word
        self.streams = Signal() if array.weight_stream else Const(0)
        self.read, self.tap_read, self.load_word = Signal(), Signal(), Signal()
        self.outstanding, self.is_raw = Signal(), Signal()

    def _program(self, m: Module) -> None:
        """Connect loader, sequencer and descriptor."""
        loader, sequencer, descriptor = self.loader, self.sequencer, self.descriptor
        if self.can_forget:
            m.d.comb += loader.forget.eq(self.forget)
        # A register between the link and the many enables of the word that is put together from bytes.
        m.d.comb += self.load.ready.eq(1)
        m.d.sync += [loader.i.valid.eq(self.load.valid), loader.i.payload.eq(self.load.payload)]
        m.d.comb += [
            *(getattr(self, name).eq(getattr(loader, name)) for name in ("state", "reason", "crc", "output_bytes")),
            self.record.eq(sequencer.record),
            sequencer.enable.eq(loader.ready),
            sequencer.waiting.eq(self.outstanding),
            *(getattr(sequencer, name).eq(getattr(descriptor, name)) for name in sequenced(self.array)),
            descriptor.clear.eq(sequencer.begin),
            descriptor.take.eq(sequencer.take_descriptor),
            descriptor.word.eq(self.word),
            descriptor.written.eq(self.register.write_granule),
            descriptor.stored.eq(self.register.stored),
        ]

    def _memory(self, m: Module) -> None:
        """Connect the memory's port and the addresses."""
        array, walker, register, sequencer = self.array, self.walker, self.register, self.sequencer
        memory, target = self.memory, self.descriptor.target
        m.d.comb += [
            walker.take.eq(sequencer.take_step),
            walker.group.eq(sequencer.major),
            walker.word.eq(self.word),
            walker.not_height.eq(self.descriptor.not_height),
            walker.not_width.eq(self.descriptor.not_width),
            walker.clear.eq(sequencer.clear & ~self.loader.body & ~register.write_word),
            walker.advance.eq(sequencer.advance | self.read | register.write_word),
            memory.addr.eq(Mux(self._at_target(), target, walker.address)),
            memory.write.eq(register.write_word | register.write_granule),
            memory.mask.eq(-1),
            memory.i_data.eq(register.word),
        ]
        if array.slices > 1:
            with m.If(register.write_granule):
                m.d.comb += memory.mask.eq(1 << self.descriptor.target_slice[: (array.slices - 1).bit_length()])
        m.d.sync += self.load_word.eq(self.read if array.weight_stream else self.read | sequencer.read)

    def _at_target(self) -> Value:
        """Return whether the memory is accessed where the descriptor's `target` points."""
        written = self.register.write_granule
        return written | self.streams if self.array.weight_stream else written

    def _fetch(self, m: Module) -> None:
        """Bring words from memory to weights and constants, and shift those that are used code by code."""
        array, sequencer = self.array, self.sequencer
        chunk = array.simd * array.activation_bits
        with m.If(self.load_word):
            m.d.sync += self.codes.eq(self.memory.data)
        with m.Elif(self.lanes.step | self.transfers.shift):
            m.d.sync += self.codes.eq(self.codes >> chunk)
        row: Value = sequencer.row
        if array.weight_stream:
            fetched = Signal()
            m.d.sync += fetched.eq(sequencer.read | self.streams)
            with m.If(fetched):
                m.d.sync += self.word.eq(self.memory.data)
            row = row ^ self.descriptor.streamed  # streamed rows alternate between two places: use the one just filled
        m.d.comb += [
            self.weights.write.eq(sequencer.take_weight),
            self.weights.i_addr.eq(sequencer.row),
            self.weights.i_data.eq(self.word),
            self.weights.addr.eq(row),
            self.constants.take.eq(sequencer.take_constant),
            self.constants.group.eq(sequencer.major),
            self.constants.word.eq(self.word),
        ]

    def _array(self, m: Module) -> None:
        """Connect schedule and lanes."""
        array, schedule, descriptor, lanes = self.array, self.schedule, self.descriptor, self.lanes
        sequencer, step = self.sequencer, self.schedule.step
        for name in schedule.signature.members:
            if name in descriptor.signature.members:
                m.d.comb += getattr(schedule, name).eq(getattr(descriptor, name))
        m.d.comb += [
            schedule.run.eq(sequencer.run),
            schedule.spaced.eq(self.is_raw),
            schedule.held.eq(self.outstanding),
            sequencer.ending.eq(self.transfers.ending),
            sequencer.done.eq(self.transfers.done | schedule.done),
        ]
        m.d.comb += self.walker.entry.eq(Mux(sequencer.run, schedule.entry, sequencer.entry))
        rows = ~descriptor.hold & (schedule.tap | ~descriptor.channelwise)
        if array.weight_stream:
            rows &= ~descriptor.streamed
        flags = Cat(step, schedule.fresh, schedule.position, rows, schedule.tap) & step.replicate(5)
        stages = delayed(m, "stage", flags, STEP_LATENCY)
        weights = stages[STEP_LATENCY - 1 if array.dsp else STEP_LATENCY]
        m.d.comb += [
            # `free` of the write register needs `tap_read` only: when a transfer reads, nothing is left to be stored.
            self.tap_read.eq(stages[2][1]),
            self.read.eq(self.tap_read | self.transfers.read),
            sequencer.row_step.eq(weights[3]),
            sequencer.row_clear.eq(weights[2]),
            lanes.step.eq(stages[-1][0]),
            lanes.position.eq(stages[-1][2] & ~descriptor.partial if array.partial_sums else stages[-1][2]),
            lanes.word.eq(self.codes),
            lanes.border.eq(descriptor.border),
            lanes.channelwise.eq(descriptor.channelwise),
            lanes.source_slice.eq(descriptor.source_slice),
            lanes.weights.eq(self.weights.data),
            self.busy.eq(lanes.step),
        ]
        with m.If(self.load_word):
            m.d.sync += lanes.outside.eq(self.walker.border)
        if array.parts > 1:
            with m.If(lanes.step):
                m.d.sync += lanes.part.eq(Mux(stages[-1][4], 0, lanes.part + 1))
        if array.weight_stream:
            self._stream(m, stages)

    def _stream(self, m: Module, stages: list[Value]) -> None:
        """Read weights while a record runs that streams them: each step is made when the last word of its row is read.

        The memory's port reads a word of weights in each cycle in which it reads no activations.
        """
        array, schedule, descriptor, sequencer = self.array, self.schedule, self.descriptor, self.sequencer
        lead = stream_lead(array)
        reads, word, ended = Signal(), Signal(range(max(array.row_words, 2))), Signal()
        with m.If(~sequencer.run):
            m.d.sync += word.eq(0)
        with m.Elif(reads):
            m.d.sync += word.eq(word + 1)
        whole = word == array.row_words - 1 if array.row_words > 1 else Const(1)
        m.d.comb += [
            reads.eq(schedule.active & descriptor.streamed & ~stages[lead][1]),
            schedule.go.eq(~descriptor.streamed | (reads & whole)),
            self.streams.eq(delayed(m, "reads", reads, READ_LATENCY - lead)[-1]),
            sequencer.streams.eq(self.streams),
            sequencer.streamed.eq(descriptor.streamed),
            descriptor.streams.eq(self.streams),
            descriptor.streamed_all.eq(ended),
        ]
        # After the last read, which may come a cycle after the last step.
        m.d.sync += ended.eq(schedule.done & descriptor.streamed)

    def _results(self, m: Module) -> None:
        """Connect drain, requantizers and the registers in front of the memory."""
        array, drain, descriptor = self.array, self.drain, self.descriptor
        collector, register, constants = self.collector, self.register, self.constants
        busy = delayed(m, "draining", drain.busy, 2 + requantizer_latency(array))
        m.d.comb += [
            drain.finish.eq(self.lanes.finish),
            drain.sums.eq(self.lanes.sums),
            drain.raw.eq(descriptor.raw),
            drain.outputs.eq(descriptor.outputs),
            *(
                getattr(constants, f"at_{name}").eq(self._position(m, name, busy[delay + 1]))
                for name, (_, _, delay) in self.unit.pieces(array).items()
            ),
            collector.valid.eq(busy[-1]),
            collector.store.eq(self._store(m)),
            collector.clear.eq(self.sequencer.begin),
            register.granule.eq(collector.granule),
            register.full.eq(collector.full),
            register.free.eq(~self.tap_read),
            self.tap_valid.eq(register.tap),
            self.tap_payload.eq(Cat(register.content, descriptor.target, descriptor.target_slice)),
        ]
        for unit in range(array.drains):
            self._requantizer(m, unit)
        m.d.sync += self.is_raw.eq(descriptor.raw != 0)
        with m.If(self.schedule.step & self.schedule.position & self.is_raw):
            m.d.sync += self.outstanding.eq(1)
        with m.Elif(drain.sent | ~self.loader.ready):
            m.d.sync += self.outstanding.eq(0)

    def _position(self, m: Module, name: str, busy: Value) -> Signal:
        """Return the drain's position of some cycles ago: a second counter is smaller than delaying the first one."""
        position = Signal.like(self.drain.position, name=f"position_{name}")
        if self.array.drain_cycles > 1:
            with m.If(busy):
                m.d.sync += position.eq(position + 1)
        return position

    def _store(self, m: Module) -> Value:
        """Return whether the codes of a position are stored, valid with the first codes that leave the requantizers.

        It is kept from one `finish` to the next, which are at least `drain_cycles` apart: that saves delays.
        """
        array, drain = self.array, self.drain
        later = 2 + requantizer_latency(array)
        store = delayed(m, "store", self.schedule.store, STEP_LATENCY + lane_latency(array))[-1]
        if array.drain_cycles > 1:
            kept = Signal()
            with m.If(drain.finish):
                m.d.sync += kept.eq(store)
            store, later = kept, max(later - array.drain_cycles, 0)
        return delayed(m, "kept", store, later)[-1]

    def _requantizer(self, m: Module, unit: int) -> None:
        """Add requantizer number `unit`, with its part of the constants and of the sums that leave together."""
        m.submodules[f"requantizer_{unit}"] = requantizer = self.unit(self.array)
        for name in ("shift", "even", "parity", "not_low", "not_high", "not_pivot"):
            if name in requantizer.signature.members:
                m.d.comb += getattr(requantizer, name).eq(getattr(self.descriptor, name))
        for name, (_, bits) in self.constants.pieces.items():
            m.d.comb += getattr(requantizer, name).eq(getattr(self.constants, name)[unit * bits : (unit + 1) * bits])
        if self.array.step_memory is not None:
            for name in step_ports(self.array):
                source = self.descriptor if name in self.descriptor.signature.members else self.writer
                m.d.comb += getattr(requantizer, name).eq(getattr(source, name))
        m.d.comb += [requantizer.sum.eq(self.drain.o_sums[unit]), self.collector.codes[unit].eq(requantizer.code)]

    def _streams(self, m: Module) -> None:
        """Connect input and output."""
        transfers, drain, register, descriptor = self.transfers, self.drain, self.register, self.descriptor
        loading = self.loader.take
        wiring.connect(m, wiring.flipped(self.i), transfers.i)
        m.submodules.buffer = buffer = StreamBuffer(unsigned(8))
        wiring.connect(m, buffer.o, wiring.flipped(self.o))
        m.d.comb += [
            transfers.fill.eq(self.sequencer.fill),
            transfers.emit.eq(self.sequencer.emit),
            transfers.anew.eq(self.sequencer.point),
            *(
                getattr(transfers, name).eq(getattr(descriptor, name))
                for name in ("kind", "pixels", "pixels_single", "elements", "elements_single", "flip")
            ),
            transfers.word.eq(self.codes),
            buffer.i.valid.eq(drain.o.valid | transfers.o.valid),
            buffer.i.payload.eq(Mux(transfers.emit, transfers.o.payload, drain.o.payload)),
            drain.o.ready.eq(buffer.i.ready),
            transfers.o.ready.eq(buffer.i.ready),
            self.input_waits.eq(transfers.i.ready & ~transfers.i.valid),
            self.output_waits.eq(buffer.i.valid & ~buffer.i.ready),
            register.by_bytes.eq(self.loader.body),
            register.clear.eq(self.sequencer.begin & ~self.loader.body),
            register.take.eq(loading | transfers.take),
            register.flush.eq(transfers.flush & ~self.loader.body),
            register.beat.eq(self._beat()),
        ]

    def _beat(self) -> Value:
        """Return the beat for the write register: a byte of a program's body, or input, repeated to the longer one."""
        bits = len(self.transfers.beat)
        longer = max(bits, 8)
        return Mux(
            self.loader.body,
            Cat(*[self.loader.i.payload] * (longer // 8)),
            Cat(*[self.transfers.beat] * (longer // bits)),
        )
