"""The sequencer of a shared engine: fetches records one after the other, and starts their work."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig
from nnhw.engines.shared.cycles import tail_cycles
from nnhw.engines.shared.records import RecordKind, descriptor_words, step_words
from nnhw.hdl.shared.address import ENTRIES, NEXT, ONE, START
from nnhw.hdl.shared.descriptor import field_shapes


class Phase(enum.IntEnum):
    """What the word is that has been fetched: the number of its bit in a one-hot register."""

    DESCRIPTOR = 0
    CONSTANTS = 1
    WEIGHTS = 2
    NOTHING = 3


class Sequencer(wiring.Component):
    """Fetch a record, run it, seek the next one.

    Members
    -------
    enable: in, there is a program; without, the engine stays at its beginning.
    kind, channelwise, raw, rows, last: in, fields of the descriptor; and `partial`, where the array has it.
    done: in, strobe, behind the record's last cycle of work. ending: in, of a transfer, in the cycle before.
    waiting: in, raw results have not left.
    streamed: in, field of the descriptor. streams: in, a word of weights is read while the record runs. Both only where
        that may be.
    fill, emit, run: out, such a record runs; `begin`: out, strobe, a record begins. point: out, it runs right behind.
    read: out, fetch a word. entry, clear, advance: out, for the address.
    take_descriptor, take_step, take_constant, take_weight: out, one bit for each word of such a thing: it has come.
    take_entry: out, strobe, a word of an entry of the step memory has come; only where the array has one.
    major: out, the entry of steps, or the lane. row: out, of weights.
    row_step, row_clear: in, while the record runs: go on to the next row of weights, or back to the first.
    record: out, index of the record in the program.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        shapes = field_shapes(array)
        self._majors = max(-(-descriptor_words(array) // step_words(array)), array.lanes)
        strobes_in = ["enable", "ending", "done", "waiting", "row_step", "row_clear"]
        if array.weight_stream:
            strobes_in += ["streamed", "streams"]
        strobes_out = ("fill", "emit", "run", "begin", "point", "read", "clear", "advance")
        super().__init__(
            {name: In(1) for name in strobes_in}
            | {name: Out(1) for name in strobes_out}
            | {name: In(shapes[name]) for name in sequenced(array)}
            | {
                "entry": Out(range(ENTRIES)),
                "take_descriptor": Out(descriptor_words(array)),
                "take_step": Out(step_words(array)),
                "take_constant": Out(array.constant_words),
                "take_weight": Out(array.row_words),
                **({} if array.step_memory is None else {"take_entry": Out(1)}),
                "major": Out(range(self._majors)),
                "row": Out(range(array.rows)),
                "record": Out(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # One-hot: begin, fetch the record's words, set the address to where its work begins, work, wait until results
        # are written, set the address to the next record. `point` and `seek` take two cycles each.
        boot, fetch, point, work, tail, seek = states = Signal(6, init=1)
        second, fetched = Signal(), Signal()
        left, over = Signal(range(tail_cycles(self.array))), Signal()
        m.d.comb += [
            self.read.eq(fetch),
            self.begin.eq(seek | boot),
            self.point.eq(point),
            self.clear.eq(boot | ((point | seek) & ~second)),
            self.advance.eq(fetch | second),
            self.entry.eq(Mux((point | seek) & ~second, Mux(point, START, NEXT), ONE)),
        ]
        is_compute = self.kind == RecordKind.COMPUTE
        done, follows = self.done, self.record + 1
        if self.array.step_memory is not None:
            # What loads the step memory is no record of a frame, and has nothing to do behind its words.
            done, follows = done | self._loads(), self.record + ~self._loads()
        with m.If(boot):
            m.d.sync += [fetch.eq(1), boot.eq(0), self.record.eq(0)]
        with m.If(fetch & fetched):
            m.d.sync += [fetch.eq(0), point.eq(1)]
        with m.If(point | seek):
            m.d.sync += second.eq(~second)
        with m.If(point & second):
            m.d.sync += [point.eq(0), work.eq(1), self.run.eq(is_compute)]
            m.d.sync += [self.fill.eq(self.kind == RecordKind.FILL), self.emit.eq(self.kind == RecordKind.EMIT)]
        with m.If(self.ending):
            m.d.sync += [self.fill.eq(0), self.emit.eq(0)]
        with m.If(work & done):
            m.d.sync += [work.eq(0), tail.eq(is_compute), seek.eq(~is_compute), self.run.eq(0)]
        with m.If(work):
            m.d.sync += left.eq(tail_cycles(self.array) - 3)  # `done` comes one cycle late, and so does `over`
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        m.d.sync += over.eq((left == 0) & ~work)
        with m.If(tail & over & ~self.waiting):
            m.d.sync += [tail.eq(0), seek.eq(1)]
        with m.If(seek & second):
            m.d.sync += [seek.eq(0), fetch.eq(1), self.record.eq(Mux(self.last, 0, follows))]
        # Last, so that it wins over all above: while a program is loaded, its words must not be run.
        with m.If(~self.enable):
            m.d.sync += [states.eq(1), second.eq(0), self.fill.eq(0), self.emit.eq(0), self.run.eq(0)]
        self._arrivals(m, fetched, point & second)
        return m

    def _loads(self) -> Value:
        """Return whether the record loads the step memory."""
        return self.kind == RecordKind.LOAD

    def _arrivals(self, m: Module, fetched: Signal, starts: Value) -> None:
        """Tell for each fetched word, two cycles after its read, what it is, and drive the strobes that take it.

        Parameters
        ----------
        fetched: driven: all words that are needed before the record's work have come.
        starts: strobe: the work begins in the next cycle.
        """
        array = self.array
        phase, coming, came = Signal(len(Phase), init=1 << Phase.DESCRIPTOR), Signal(), Signal()
        most = max(step_words(array), array.constant_words, array.row_words)
        word, end, last = Signal(range(max(most, 2))), Signal(), Signal()
        m.d.sync += [coming.eq(self.read | self.streams if array.weight_stream else self.read), came.eq(coming)]
        valid = came
        self._strobes(m, phase, word, valid, end)

        descriptor_end = self.take_descriptor[-1]
        lanes_end = self.major == array.lanes // array.constant_lanes - 1
        constants_end = valid & phase[Phase.CONSTANTS] & end & lanes_end
        filled = valid & phase[Phase.WEIGHTS] & end
        weights: int | Value = 1 << Phase.WEIGHTS
        if array.weight_stream:
            weights = Mux(self.streamed, 1 << Phase.NOTHING, weights)
        m.d.comb += fetched.eq(phase[Phase.NOTHING])
        with m.If(self.begin):
            m.d.sync += [phase.eq(1 << Phase.DESCRIPTOR), self.major.eq(0), word.eq(0)]
        with m.Elif(valid):
            m.d.sync += word.eq(Mux(end, 0, word + 1))
            with m.If(end):
                m.d.sync += self.major.eq(self.major + 1)
            with m.If(descriptor_end):
                m.d.sync += [word.eq(0), self.major.eq(0), phase.eq(1 << Phase.NOTHING)]
                with m.If(self.kind == RecordKind.COMPUTE):
                    constants = (self.raw == 0) & ~self.partial if array.partial_sums else self.raw == 0
                    m.d.sync += phase.eq(Mux(constants, 1 << Phase.CONSTANTS, weights))
                if array.step_memory is not None:
                    with m.If(self._loads()):
                        m.d.sync += phase.eq(1 << Phase.WEIGHTS)
            with m.Elif(constants_end):
                m.d.sync += phase.eq(weights)
            with m.If(filled & last):
                m.d.sync += phase.eq(1 << Phase.NOTHING)
        if array.weight_stream:
            with m.If(starts & self.streamed):
                m.d.sync += [phase.eq(1 << Phase.WEIGHTS), word.eq(0)]
        m.d.comb += last.eq(self._row(m, self.begin | (fetched & self.read), filled, ~phase[Phase.WEIGHTS]))

    def _strobes(self, m: Module, phase: Signal, word: Signal, valid: Value, end: Signal) -> None:
        """Drive the strobes of words that come, and `end`: it is the last word of its entry, constants or row.

        Each word for the step memory counts as a row.

        Parameters
        ----------
        word: number of the word in its entry, constants or row.
        """
        array, each = self.array, step_words(self.array)
        phases = {
            Phase.DESCRIPTOR: each,
            Phase.CONSTANTS: array.constant_words,
            Phase.WEIGHTS: array.row_words,
        }
        takes = (self.take_step, self.take_constant, self.take_weight)
        for (this, count), take in zip(phases.items(), takes, strict=True):
            here = phase[this]
            if this is Phase.DESCRIPTOR and descriptor_words(array) > each * ONE:
                here &= self.major < ONE
            last_word = Const(count - 1, len(word))
            if this is Phase.WEIGHTS:
                last_word = Mux(self.channelwise, array.channelwise_words - 1, last_word)
                if array.step_memory is not None:
                    last_word = Mux(self._loads(), 0, last_word)
                    m.d.comb += self.take_entry.eq(valid & here & self._loads())
                    here &= ~self._loads()
            for index in range(count):
                m.d.comb += take[index].eq(valid & here & (word == index))
            with m.If(phase[this]):
                m.d.comb += end.eq(word == last_word)
        # A one-hot register: the many enables of a descriptor's fields leave no time for a decoder.
        turn = Signal(descriptor_words(array))
        with m.If(self.begin):
            m.d.sync += turn.eq(1)
        with m.Elif(valid):
            m.d.sync += turn.eq(turn << 1)
        m.d.comb += self.take_descriptor.eq(turn & valid.replicate(len(turn)))

    def _row(self, m: Module, anew: Value, filled: Value, before: Value) -> Signal | Value:
        """Drive `row`, while rows are fetched and while they are used; return whether it is the last one.

        Streamed rows, which are used as they come, alternate between rows 0 and 1.
        """
        last = Signal()
        with m.If(before):
            m.d.sync += last.eq(self.rows.all())
        with m.Elif(filled):
            m.d.sync += last.eq(self.row == self.rows)
        ends: Value = last
        if self.array.weight_stream:
            anew, ends = anew | (self.streamed & filled & self.row[0]), last & ~self.streamed
        with m.If(anew | self.row_clear):
            m.d.sync += self.row.eq(0)
        with m.Elif(filled | self.row_step):
            m.d.sync += self.row.eq(self.row + 1)
        return ends


def sequenced(array: ArrayConfig) -> tuple[str, ...]:
    """Return the fields of the descriptor that the sequencer reads."""
    return ("kind", "channelwise", "raw", "rows", "last", *(("partial",) if array.partial_sums else ()))


def delayed(m: Module, name: str, flags: Value, cycles: int) -> list[Value]:
    """Return the flags as they are now, as they were one cycle ago, and so on up to `cycles` ago."""
    taps = [flags]
    for index in range(cycles):
        later = Signal(len(flags), name=f"{name}_{index + 1}")
        m.d.sync += later.eq(taps[-1])
        taps.append(later)
    return taps
