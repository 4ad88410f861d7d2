"""Hardware of the requantizers that compare: comparators side by side, or a binary search in memories."""

from __future__ import annotations

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value

from nnhw.engines.encoding import bits_for_range, encode, pack_words
from nnhw.engines.requantize import Thresholds, ThresholdSearch
from nnhw.hdl.memory import block_ram, logic_rom
from nnhw.hdl.requantizer import RequantizerUnit


class ThresholdUnit(RequantizerUnit):
    """Hardware of `Thresholds`: comparators for `drain` sums; a ROM gives the thresholds of the channels in turn.

    Parameters
    ----------
    logic: thresholds are constants in logic; else in block RAM.

    Timing: codes come in the cycle of their sums. The first sum must come one move after a reset or later.
    """

    def __init__(self, thresholds: Thresholds, raw: tuple[int, int], drain: int, logic: bool = True) -> None:
        self.thresholds = thresholds
        self.logic = logic
        self._steps = np.clip(thresholds.steps, raw[0], raw[1] + 1)
        super().__init__(thresholds, raw, drain)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # The word of the first sum is read before the sum comes, right after the reset.
        index, primed, advance = Signal(range(self.depth)), Signal(), Signal()
        m.d.comb += [
            self.o_valid.eq(self.i_valid),
            advance.eq(self.ce & (self.i_valid | ~primed)),  # the ROM is one word ahead of the sums
        ]
        with m.If(advance):
            m.d.sync += [index.eq(Mux(index == self.depth - 1, 0, index + 1)), primed.eq(1)]
        bits = self._lane_bits * self.drain
        make = logic_rom if self.logic else block_ram
        m.submodules.rom = rom = make(self.depth, bits, self._words())
        reader = rom.read_port()
        m.d.comb += [reader.addr.eq(index), reader.en.eq(advance)]
        for lane in range(self.drain):
            word = reader.data[lane * self._lane_bits : (lane + 1) * self._lane_bits]
            self.emit(m, lane, self._index(m, lane, word))
        return m

    @property
    def _any_descending(self) -> bool:
        """Whether some channel descends: then words have a bit that says which do."""
        return bool(self.thresholds.descending.any())

    @property
    def _levels(self) -> int:
        """Thresholds of a channel."""
        return int(self.thresholds.steps.shape[1])

    @property
    def _compare_bits(self) -> int:
        """Bits of a threshold: those of a sum, and one more only where a threshold lies above every sum."""
        low, high = int(self._steps.min()), int(self._steps.max())
        return max(self.raw_shape.width, bits_for_range(min(low, self.raw_range[0]), high)[0])

    @property
    def _lane_bits(self) -> int:
        """Bits of a word of the ROM for one lane."""
        return self._levels * self._compare_bits + self._any_descending

    def _words(self) -> list[int]:
        """Return the ROM: word k holds the thresholds of channels k * drain and on, as `_reached` needs them."""
        bits = self._compare_bits
        top = 1 << (bits - 1) if self.raw_shape.signed else 0
        lanes = pack_words((~self._steps ^ top) & ((1 << bits) - 1), bits)
        if self._any_descending:
            shift = self._levels * self._compare_bits
            lanes = [lane | (int(down) << shift) for lane, down in zip(lanes, self.thresholds.descending, strict=True)]
        drain, bits = self.drain, self._lane_bits
        return [
            sum(lane << (position * bits) for position, lane in enumerate(lanes[start : start + drain]))
            for start in range(0, len(lanes), drain)
        ]

    def _index(self, m: Module, lane: int, word: Value) -> Value:
        """Return the index of one sum: how many thresholds it reaches, or in a descending channel does not reach."""
        total = Signal(range(self._levels + 1), name=f"count_{lane}")
        reached = []
        for level in range(self._levels):
            threshold = word[level * self._compare_bits : (level + 1) * self._compare_bits]
            reached.append(self._reached(self.i_sums[lane], threshold))
        m.d.comb += total.eq(sum(reached[1:], reached[0]))
        if not self._any_descending:
            return total
        down = word[-1]
        return Mux(down, self._levels - total, total) if self._levels > 1 else total ^ down

    def _reached(self, raw: Value, word: Value) -> Value:
        """Return whether a sum is at least a threshold: the carry out of raw + ~threshold + 1.

        The ROM holds the complements of thresholds, so that no LUTs are needed between it and the carry chain. Of
        signed numbers both top bits are inverted, which makes them unsigned numbers in the same order.

        Parameters
        ----------
        word: complement of the threshold, with its top bit inverted once more if sums are signed.
        """
        bits = len(word)
        number = raw.as_signed() if self.raw_shape.signed else raw.as_unsigned()
        wide = Cat(number, *[number[-1] if self.raw_shape.signed else Const(0, 1)] * (bits - len(number)))
        if self.raw_shape.signed:
            wide = Cat(wide[:-1], ~wide[-1])
        # A carry into an adder is one more bit at its lower end.
        return (Cat(Const(1, 1), wide) + Cat(Const(1, 1), word))[bits + 1]


class ThresholdSearchUnit(RequantizerUnit):
    """Hardware of `ThresholdSearch`: a pipeline with a memory and a comparison for each level of the search tree.

    In a descending channel the steps are in reverse order and the comparison is inverted, so that the count of steps
    is the index in either case.

    Timing: codes follow their sums by `search.latency` moves. The longest path is from a block RAM's output, or from a
    register if `search.registered`, through a comparison to a block RAM's address.
    """

    def __init__(self, search: ThresholdSearch, raw: tuple[int, int], drain: int) -> None:
        self.search = search
        super().__init__(search, raw, drain)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        position: Value = self.walk(m)
        raws: list[Value] = [self.i_sums[lane] for lane in range(self.drain)]
        indices: list[Value] = [Const(0, 0)] * self.drain
        for level in range(self.search.levels):
            addresses = [Cat(index, position) for index in indices]
            moves = self.search.level_moves
            # A constant is there at any time; what is read from memory waits for the sum beside it.
            words = [
                word if isinstance(word, Const) else self.delay(m, f"step_{level}_{k}", word, moves - 1)
                for k, word in enumerate(
                    self._read(m, f"level_{level}", self._level_rows(level), self._step_bits, addresses)
                )
            ]
            position = self.delay(m, f"position_{level}", position, moves)
            raws = [self.delay(m, f"raw_{level}_{k}", raw, moves) for k, raw in enumerate(raws)]
            indices = [self.delay(m, f"index_{level}_{k}", index, moves) for k, index in enumerate(indices)]
            # Each comparison gives the next lower bit of the index.
            indices = [
                Cat(self._reached(word, raw), index) for word, raw, index in zip(words, raws, indices, strict=True)
            ]
        position = self.register(m, "position_last", position)
        counts = [self.register(m, f"count_{lane}", index) for lane, index in enumerate(indices)]
        if self.search.table is None:
            for lane, count in enumerate(counts):
                self.emit(m, lane, count)
        else:
            addresses = [Cat(count, position) for count in counts]
            codes = self._read(m, "codes", self._code_rows(), self.code.bits, addresses)
            m.d.comb += [self.o_codes[lane].eq(code) for lane, code in enumerate(codes)]
        return m

    def _reached(self, word: Value, raw: Value) -> Value:
        """Return whether the sum counts the step: at least as high, or below it if the comparison is inverted."""
        bits = self._compare_bits
        step = word[:bits].as_signed() if self.raw_shape.signed else word[:bits]
        return (raw >= step) ^ word[bits] if self._any_descending else raw >= step

    def _read(self, m: Module, name: str, rows: np.ndarray, bits: int, addresses: list[Value]) -> list[Value]:
        """Add a memory for each lane, of bit patterns [outputs, words of a channel]; return the words [lanes]."""
        words = [rows[lane :: self.drain].ravel().tolist() for lane in range(self.drain)]
        return [
            self.memory(m, f"{name}_{lane}", own, bits, addresses[lane], len(own) <= self.search.logic_words)
            for lane, own in enumerate(words)
        ]

    @property
    def _any_descending(self) -> bool:
        """Whether some channel descends: then words have a bit that says which do."""
        return bool(self.search.descending.any())

    @property
    def _compare_bits(self) -> int:
        """Bits of a step; one more than a sum has, where a step lies above every sum."""
        low, high = self.raw_range
        return bits_for_range(low, high + 1 if self._sorted().max() > high else high)[0]

    @property
    def _step_bits(self) -> int:
        """Bits of a word: a step, and, if some channel descends, whether the comparison is inverted."""
        return self._compare_bits + self._any_descending

    def _sorted(self) -> np.ndarray:
        """Return steps [outputs, 2**levels - 1] in the order of the index, filled up with some that never count."""
        search, (low, high) = self.search, self.raw_range
        steps = np.clip(search.steps, low, high + 1)
        steps = np.where(search.descending[:, None], steps[:, ::-1], steps)
        # No sum is above the highest one; and none is below the lowest one, where the comparison is inverted.
        never = np.where(search.descending, low, high + 1)[:, None]
        missing = (1 << search.levels) - 1 - steps.shape[1]
        return np.concatenate([steps, never.repeat(missing, axis=1)], axis=1)

    def _level_rows(self, level: int) -> np.ndarray:
        """Return the words [outputs, 2**level] of one level: its steps, and above each whether to invert."""
        # Level 0 has the middle step, level 1 those in the middle of either side, and so on.
        half = 1 << (self.search.levels - 1 - level)
        steps = self._sorted()[:, half - 1 :: 2 * half] & ((1 << self._compare_bits) - 1)
        return steps | (self.search.descending[:, None].astype(np.int64) << self._compare_bits)

    def _code_rows(self) -> np.ndarray:
        """Return the codes [outputs, 2**levels] of all counts as bit patterns, filled up with zeros."""
        assert self.search.table is not None
        codes = encode(self.search.table, self.code)
        return np.pad(codes, ((0, 0), (0, (1 << self.search.levels) - codes.shape[1])))
