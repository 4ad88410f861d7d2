"""What engines for rows have in common: the buffer and its control, sums of rows, division, and variable shifts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Shape, ShapeLike, Signal, Value, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.requantize import Requantizer
from nnhw.engines.rows import RowConfig
from nnhw.hdl.arithmetic import as_number
from nnhw.hdl.cells import Cells, cells_of
from nnhw.hdl.delivery import deliver, result_buffer
from nnhw.hdl.memory import block_ram, logic_ram
from nnhw.ir.types import IntType


class RowEngine(wiring.Component):
    """The frame of every engine for rows: the buffer, when words enter and leave it, and the requantizer at the end.

    What an engine computes are its three methods: `collect` in front of the buffer, `solve` beside it, and `apply`
    behind it. In front of the buffer nothing ever stands still; behind it, all registers move together.

    Parameters
    ----------
    config: parameters of the engine.
    raw: type of the results in front of the requantizer.
    requantizer: applied to the results, or None.

    Members
    -------
    i: stream of elements. o: stream of codes, or of raw results without a requantizer.

    Timing: see `nnhw.engines.rows.RowConfig`.
    """

    def __init__(self, config: RowConfig, raw: IntType, requantizer: Requantizer | None) -> None:
        self.row, self.raw, self.requantizer = config, raw, requantizer
        o_lane = number_shape(raw) if requantizer is None else unsigned(requantizer.code.bits)
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(unsigned(config.source.bits), config.lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(o_lane, config.lanes))),
            }
        )

    def elaborate(self, platform: object) -> Module:
        self.m = m = Module()
        self.cells: Cells = cells_of(platform)
        buffer = result_buffer(m, self.o)
        self.ce = buffer.i.ready
        self.step = Signal(range(self.row.waiting + 2))
        """Cycles since the last beat of the row whose constants are solved; `waiting` + 1 when they are solved."""
        take, first, release = Signal(), Signal(), Signal()
        self.read = read = Signal()
        """A word is read."""
        self._control(take, first, read, release)
        constants = self.solve(self.collect(take, first))
        held = [self.kept(f"constant_{index}", value, release) for index, value in enumerate(constants)]
        word = self._buffer(take, read)
        numbers = self._numbers(word)
        valid: Value = read
        results = self.apply(numbers, held)
        for move in range(self.row.latency - 1 - (self.requantizer.latency if self.requantizer else 0)):
            valid = self.moved(f"valid_{move}", valid, reset_less=False)
        deliver(m, buffer, self.requantizer, self.raw, valid, results)
        return m

    @abstractmethod
    def collect(self, take: Value, first: Value) -> Sequence[Value]:
        """Return the numbers that are collected of a row, such as its sum.

        All of them are complete `RowConfig.collect_levels` cycles after the last beat of the row. The next row may
        overwrite them from the cycle behind that on.

        Parameters
        ----------
        take: a beat comes in, that of `incoming`.
        first: it is the first beat of its row.
        """

    @abstractmethod
    def solve(self, collected: Sequence[Value]) -> Sequence[Value]:
        """Return the constants of a row, which hold from step `waiting` + 1 until the first word of the row is read."""

    @abstractmethod
    def apply(self, numbers: Sequence[Value], constants: Sequence[Value]) -> Sequence[Value]:
        """Return the results of all lanes, as many moves after the read of a word as `RowConfig.latency` leaves.

        Parameters
        ----------
        numbers: elements of the word, one move after the read.
        constants: those of its row, in the same move.
        """

    def _control(self, take: Signal, first: Signal, read: Signal, release: Signal) -> None:
        """Drive the strobes of both sides of the buffer, and count the steps from a row's last beat to its constants.

        Constants are solved of one row at a time, and the buffer sees to that: it holds less than two rows. So the last
        beat of the next row waits until the first word of this one is read, when its constants are taken over.

        Parameters
        ----------
        take: a beat comes in.
        first: the next beat that comes in is the first one of a row.
        read: a word is read.
        release: it is the first one of its row.
        """
        m, row = self.m, self.row
        busy, done, room = Signal(), Signal(), Signal(init=1)
        level = Signal(range(row.buffer.words + 1))
        following = Signal.like(level)
        taken, given = self.count("taken", take, row.chunks), self.count("given", read, row.chunks)
        last = self.at("last", taken, take, row.chunks, row.chunks - 1)
        begins = self.at("begins", given, read, row.chunks, 0)
        # Only the first word of a row has to wait until the row's constants are solved: then they are there for all.
        m.d.comb += [
            self.i.ready.eq(room),
            take.eq(self.i.valid & self.i.ready),
            first.eq(self.at("first", taken, take, row.chunks, 0)),
            read.eq(self.ce & (done | ~begins)),
            release.eq(self.ce & done & begins),
            following.eq(level + take - read),
        ]
        m.d.sync += [level.eq(following), room.eq(following != row.buffer.words)]
        with m.If(take & last):
            m.d.sync += [busy.eq(1), self.step.eq(1)]
        with m.Elif(busy & ~done):
            m.d.sync += [self.step.eq(self.step + 1), done.eq(self.step == row.waiting)]
        with m.If(release):
            m.d.sync += [busy.eq(0), done.eq(0)]

    def _buffer(self, take: Value, read: Value) -> Value:
        """Return the word that was read, one move later."""
        memory_config = self.row.buffer
        make = block_ram if memory_config.in_block_ram else logic_ram
        self.m.submodules.memory = memory = make(memory_config.words, memory_config.width)
        writer, reader = memory.write_port(), memory.read_port()
        self.m.d.comb += [
            writer.en.eq(take),
            writer.addr.eq(self.count("write_address", take, memory_config.words)),
            writer.data.eq(self.i.payload.as_value()),
            reader.en.eq(read),
            reader.addr.eq(self.count("read_address", read, memory_config.words)),
        ]
        return reader.data

    def _numbers(self, word: Value) -> list[Value]:
        """Return the numbers of all lanes of a word."""
        bits = self.row.source.bits
        patterns = [word[lane * bits : (lane + 1) * bits] for lane in range(self.row.lanes)]
        return [as_number(pattern, self.row.source) for pattern in patterns]

    def incoming(self) -> list[Value]:
        """Return the numbers of all lanes of the beat that comes in."""
        return self._numbers(self.i.payload.as_value())

    def count(self, name: str, advance: Value, total: int) -> Signal:
        """Return a counter of the cycles with `advance`: 0 to total - 1, then 0 again."""
        count = Signal(range(total), name=name)
        with self.m.If(advance):
            self.m.d.sync += count.eq(Mux(count == total - 1, 0, count + 1))
        return count

    def at(self, name: str, count: Signal, advance: Value, total: int, place: int) -> Signal:
        """Return a register that is high while a counter of `count` stands at a place.

        A register, because a comparison behind the counter would lengthen the paths that begin at it.
        """
        flag = Signal(name=name, init=place == 0)
        with self.m.If(advance):
            self.m.d.sync += flag.eq(count == (place - 1) % total)
        return flag

    def kept(self, name: str, value: Value, take: Value) -> Signal:
        """Return a register that holds a value as it was in the last cycle with `take`."""
        register = Signal(value.shape(), name=name, reset_less=True)
        with self.m.If(take):
            self.m.d.sync += register.eq(value)
        return register

    def moved(self, name: str, value: Value, reset_less: bool = True, shape: ShapeLike | None = None) -> Signal:
        """Return a value one move of the pipeline behind the buffer later; it stands still while the output does."""
        register = Signal(value.shape() if shape is None else shape, name=name, reset_less=reset_less)
        with self.m.If(self.ce):
            self.m.d.sync += register.eq(value)
        return register

    def moved_by(self, name: str, value: Value, moves: int) -> Value:
        """Return a value some moves later."""
        for move in range(moves):
            value = self.moved(f"{name}_{move}", value)
        return value

    def later(self, name: str, value: Value, cycles: int = 1) -> Value:
        """Return a value delayed by some cycles, for the part in front of the buffer, which never stands still."""
        for cycle in range(cycles):
            register = Signal(value.shape(), name=f"{name}_{cycle}")
            self.m.d.sync += register.eq(value)
            value = register
        return value

    def joined(self, name: str, terms: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
        """Return the numbers of all lanes joined to one by a tree of `join`, `tree_levels` cycles later."""
        for level in range(self.row.tree_levels):
            pairs = [terms[index : index + 2] for index in range(0, len(terms), 2)]
            results = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
            terms = [self.later(f"{name}_{level}_{index}", result) for index, result in enumerate(results)]
        return terms[0]

    def summed(self, name: str, terms: Sequence[Value], total: IntType, beat: tuple[Value, Value]) -> Signal:
        """Return the sum of a row: of the terms of all lanes in all of its beats.

        Parameters
        ----------
        terms: one for each lane.
        total: type of the sum.
        beat: two flags: there are terms in this cycle; they are those of the row's first beat.
        """
        valid, first = (
            self.later(f"{name}_beat_{index}", flag, self.row.tree_levels) for index, flag in enumerate(beat)
        )
        term = self.joined(name, terms, lambda a, b: a + b)
        result = Signal(number_shape(total), name=name, reset_less=True)
        with self.m.If(valid):
            self.m.d.sync += result.eq(self.cells.accumulate(self.m, result, ~first, term))
        return result

    def span(self, name: str, first: int, count: int) -> Signal:
        """Return a flag that is high in the steps first to first + count - 1; `first` is 2 or more."""
        flag = Signal(name=name)
        with self.m.If(self.step == first - 1):
            self.m.d.sync += flag.eq(1)
        with self.m.Elif(self.step == first + count - 1):
            self.m.d.sync += flag.eq(0)
        return flag

    def divided(self, dividing: Value, begin: Value, start: int, divisor: Value) -> Value:
        """Return a bit of the quotient (2**n - 1) / divisor in each cycle, the highest bit first.

        As all bits of the dividend are 1, none has to be stored: each step takes in one more.

        Parameters
        ----------
        dividing: a quotient bit is made in this cycle.
        begin: the cycle in front of the first one with a quotient bit.
        start: the highest bits of the dividend, all 1; a number below the divisor.
        """
        # Restoring division: the quotient bit is 1 if the divisor can be subtracted, else the remainder stays.
        remainder = Signal(len(divisor), reset_less=True)
        shifted = Cat(Const(1, 1), remainder)
        rest = Signal(signed(len(divisor) + 2))
        self.m.d.comb += rest.eq(shifted - divisor)
        with self.m.If(begin):
            self.m.d.sync += remainder.eq(start)
        with self.m.Elif(dividing):
            self.m.d.sync += remainder.eq(Mux(rest[-1], shifted, rest))
        return ~rest[-1]

    def rounded(self, products: Sequence[Value], base: int, down: Value, most: int, result: IntType) -> list[Value]:
        """Return products / 2**(base + down + 1) of all lanes, rounded to the nearest integer, and ties up.

        Parameters
        ----------
        down: 0..most, at the same move as the products.
        most: greatest value of `down`.
        result: type of the rounded numbers.

        Timing: a move for each bit of `most`, the highest first, and one for the rounding.
        """
        numbers = [_upper(product, base) for product in products]
        shape = IntType(2 * result.low - 1, 2 * result.high + 1) if result.low < 0 else IntType(0, 2 * result.high + 1)
        for place in reversed(range(most.bit_length())):
            # All later shifts together are by less than 2**place. The result has at most the bits of `shape`, so before
            # these shifts a number has at most that many more: higher bits are copies of the sign, and are left out.
            bits = shape.bits + (1 << place) - 1
            numbers = [
                self._shifted(f"shifted_{place}_{lane}", number, down[place], place, bits)
                for lane, number in enumerate(numbers)
            ]
            down = self.moved(f"down_{place}", down[:place]) if place else down
        return [
            self.moved(f"rounded_{lane}", _upper(number + 1, 1), shape=number_shape(result))
            for lane, number in enumerate(numbers)
        ]

    def _shifted(self, name: str, number: Value, shift: Value, place: int, bits: int) -> Value:
        """Return a number one move later, shifted down by 2**place if `shift` is high; its lowest `bits` bits stay."""
        shape = Shape(min(bits, len(number)), number.shape().signed)
        return self.moved(name, Mux(shift, _upper(number, 1 << place), number), shape=shape)


def number_shape(element: IntType) -> Shape:
    """Return the shape of numbers of a type."""
    return Shape(element.bits + element.bipolar, element.signed)


def _upper(number: Value, places: int) -> Value:
    """Return a number without its lowest bits."""
    upper = number[min(places, len(number) - 1) :]
    return upper.as_signed() if number.shape().signed else upper
