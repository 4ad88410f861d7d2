"""Hardware of the systolic array: cells, the hops between them, their weights, and the drain of their sums."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl.arithmetic import as_number, dot_product, dsp_dot_product, paired_dot_product, wait
from nnhw.hdl.cells import Cells, cells_of
from nnhw.hdl.dsp import DspProducts
from nnhw.hdl.large_device import is_large
from nnhw.hdl.memory import SplitRom, block_ram, logic_rom
from nnhw.hdl.names import BLOCK, KEPT_APART, LOGIC, weights_name
from nnhw.hdl.pair_correction import PairCorrection

SPREAD_BITS = 1024
"""On a large device, an array that adds at least so many products of single bits in a cycle has, for each group of its
cells, registers of what the group has to do; a product of 8 x 8 bits is 64 of them.

Measured on an ECP5-85F with three arrays of 64 x 64: one enable register for the 16,500 loads of an array reached the
last of them after 14.7 ns of wires. On an ECP5-25F with one of 72 x 64 one reaches all in 6 ns, and several cost: what
decides whether the array moves reached them after 8.2 ns. An array of 16 x 8 products of 8 bits has 10,296 loads. In
that one, what decides for all cells whether sums go to the drain was the longest path of a design, 16.9 ns by nextpnr's
estimate before routing.
"""


def is_spread(config: MatmulConfig, platform: object) -> bool:
    """Return whether an array is spread over so much of a device that signals for all of its cells come too late."""
    bits = config.pe * config.simd * config.activation.bits * config.weight.bits
    return is_large(platform) and bits >= SPREAD_BITS


class SystolicArray(wiring.Component):
    """`pe` cells in groups of `hop`. Activations enter at the last group and go one group further in each move.

    A fold is the `steps` beats from which every cell computes one output. The sums of the first group leave first.

    Members
    -------
    ce: In(1), the registers move on in this cycle (a move); with 0 the whole array stands still.
    group_ce: In(groups), copies of `ce` for the cells, weights and sums of each group.
    i_valid, i_last: In(1), there is a beat; it is the last one of its fold.
    i_lanes: in, activations [simd] as bit patterns.
    i_address: in, word of the weights that belong to the beat: fold * steps + step.
    o_valid, o_sums: out, raw sums [drain] in the order of the outputs.

    Timing: the first sums of a fold leave `config.array_latency` moves after its last beat, the others
    in the `pe / drain - 1` moves that follow.
    """

    def __init__(self, config: MatmulConfig) -> None:
        self.config = config
        bits, is_signed = config.raw_bits
        self.raw_shape = signed(bits) if is_signed else unsigned(bits)
        self.depth = config.folds * config.steps
        super().__init__(
            {
                "ce": In(1),
                "group_ce": In(config.groups),
                "i_valid": In(1),
                "i_last": In(1),
                "i_lanes": In(data.ArrayLayout(unsigned(config.activation.bits), config.simd)),
                "i_address": In(range(self.depth)),
                "o_valid": Out(1),
                "o_sums": Out(data.ArrayLayout(self.raw_shape, config.drain)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        # Tap k of the two shift registers is k + 1 moves old. The products of group g lie beside tap
        # `levels + groups - 1 - g`; its sums are complete one tap later, where beats are accumulated.
        levels = config.late + config.tree_levels
        finish = config.groups - 1 + levels + (config.steps > 1)
        stages = finish + 1 + config.crossed_wait
        valids = self._delay(m, "valid", self.i_valid, stages)
        ends = self._delay(m, "end", self.i_valid & self.i_last, stages)
        products: list[Value] = [Signal()] * config.pe
        lanes, address = self.i_lanes.as_value(), self.i_address
        if config.late:
            lanes = self._register(m, "lanes_late", lanes, self.ce)
        # Lanes and weight address hop together, so that each group reads the weights of the beat that it sees.
        for group in reversed(range(config.groups)):
            ce = self.group_ce[group]
            lanes = self._register(m, f"lanes_{group}", lanes, ce)
            here = self._register(m, f"address_{group}", address, ce)
            weights = self._weights(m, group, address, here)
            address = here
            for cell in range(group * config.hop, (group + 1) * config.hop):
                mine = weights[cell - group * config.hop :]
                if cell in config.pairs:
                    products[cell : cell + 2] = self._pair(m, cell, lanes, mine)
                elif cell - 1 not in config.pairs:
                    products[cell] = self._cell(m, cell, lanes, mine[0], cells_of(platform))

        shift, shifts_next = self._shift_window(m, ends[finish])
        # Each of these is what the one behind it takes with the next move.
        pipeline = [self.i_valid, *valids][levels:], [self.i_valid & self.i_last, *ends][levels:]
        sums = self._drain(m, products, pipeline, (shift, shifts_next), platform)
        leaves = ends[finish] | shift
        if config.winograd:
            m.submodules.correction = correction = PairCorrection(config)
            # The products of neighbouring activations are added as those of one more cell of the first group.
            beat = config.late + config.groups - 1 + config.crossed_levels
            m.d.comb += [
                correction.ce.eq(self.ce),
                correction.cells_ce.eq(self.group_ce[0]),
                correction.i_lanes.eq(lanes),
                correction.i_valid.eq(valids[beat]),
                correction.i_last.eq(ends[beat]),
                correction.i_end.eq(ends[beat + (config.steps > 1)]),
                correction.i_leaves.eq(leaves),
                correction.i_sums.eq(sums),
            ]
            leaves, sums = correction.o_leaves, correction.o_sums
        with m.If(self.ce):
            m.d.sync += self.o_valid.eq(leaves)
        m.d.comb += self.o_sums.as_value().eq(sums)
        return m

    def _shift_window(self, m: Module, finish: Value) -> tuple[Signal, Value]:
        """Return a register, high in the `pe / drain - 1` moves in which the drain shifts, and its next value."""
        drains = self.config.drains
        # `left` counts the shifts behind the current one; the first of the `drains` beats leaves without a shift.
        shift, following, left = Signal(), Signal(), Signal(range(max(drains, 2)))
        if drains > 1:
            m.d.comb += following.eq(finish | (shift & (left != 0)))
            with m.If(self.ce):
                m.d.sync += [shift.eq(following), left.eq(Mux(finish, drains - 2, left - 1))]
        return shift, following

    def _delay(self, m: Module, name: str, value: Value, stages: int) -> list[Signal]:
        """Add a shift register of `stages` registers; return its taps: tap k is `value` k + 1 moves ago."""
        taps = [Signal(name=f"{name}_{index}") for index in range(stages)]
        with m.If(self.ce):
            m.d.sync += [tap.eq(before) for tap, before in zip(taps, [value, *taps[:-1]], strict=True)]
        return taps

    def _register(self, m: Module, name: str, value: Value, ce: Value) -> Signal:
        """Return `value` one move later."""
        register = Signal(len(value), name=name, reset_less=True)
        with m.If(ce):
            m.d.sync += register.eq(value)
        return register

    def _own(self, m: Module, group: int, name: str, following: Value, ce: Value) -> Signal:
        """Return a group's own register, beside others of the same value; `following` is its value after a move."""
        register = Signal(name=f"{name}_of_{group}", attrs={KEPT_APART: 1})
        with m.If(ce):
            m.d.sync += register.eq(following)
        return register

    def _weights(self, m: Module, group: int, address: Value, later: Value) -> list[Value]:
        """Add the weight memories of one group; return the word of each cell, all in the same move.

        Parameters
        ----------
        address: word to read.
        later: the same address one move later, for memories that are faster than the slowest.
        """
        config = self.config
        width = config.simd * config.weight.bits
        cells = range(group * config.hop, (group + 1) * config.hop)
        in_logic = [cell for cell in cells if cell >= config.pe - config.logic_pe]
        in_block = [cell for cell in cells if cell < config.pe - config.logic_pe]
        # The last `logic_pe` cells of the array have their weights in logic; the others of a group share block RAM.
        words: dict[int, Value] = {}
        for name, members, split in (
            (BLOCK, in_block, config.tail_words > 0 or config.registered),
            (LOGIC, in_logic, config.split_logic),
        ):
            if not members:
                continue
            init = [
                sum(word << (position * width) for position, word in enumerate(row))
                for row in zip(*(self._cell_words(cell) for cell in members), strict=True)
            ]
            value = self._rom(
                m,
                group,
                name,
                init,
                len(members) * width,
                split,
                # A memory that takes one move, where another takes two, gets its address a move later.
                later if config.late > split else address,
            )
            words |= {cell: value[index * width : (index + 1) * width] for index, cell in enumerate(members)}
        return [words[cell] for cell in cells]

    def _rom(self, m: Module, group: int, kind: str, init: list[int], bits: int, split: bool, address: Value) -> Value:
        """Add a ROM of one group; return its word, one move after its address, or two with `split`.

        Parameters
        ----------
        kind: `BLOCK` or `LOGIC`.
        init, bits: the words, and bits of a word.
        split: the ROM is read in two moves (`SplitRom`, or a block RAM with a register behind it).
        """
        name, in_logic, ce = weights_name(group, kind), kind == LOGIC, self.group_ce[group]
        if split and (in_logic or self.config.tail_words):
            m.submodules[name] = rom = SplitRom(init, bits, self.depth if in_logic else self.config.tail_words)
            m.d.comb += [rom.addr.eq(address), rom.en.eq(ce)]
            return rom.data
        m.submodules[name] = memory = (logic_rom if in_logic else block_ram)(self.depth, bits, init)
        reader = memory.read_port()
        m.d.comb += [reader.addr.eq(address), reader.en.eq(ce)]
        return self._register(m, f"{name}_late", reader.data, ce) if split else reader.data

    def _cell_words(self, cell: int) -> list[int]:
        """Return the weight words of one cell: its outputs cell, cell + pe, ..., each in `steps` beats."""
        config = self.config
        patterns = encode(config.weights[cell :: config.pe], config.weight).reshape(-1, config.simd)
        return pack_words(patterns, config.weight.bits)

    def _cell(self, m: Module, cell: int, lanes: Value, word: Value, cells: Cells) -> Value:
        """Add one cell's dot product; return its raw sum for one beat, `config.tree_levels` moves later."""
        config = self.config
        a_bits, w_bits = config.activation.bits, config.weight.bits
        activations = [lanes[lane * a_bits : (lane + 1) * a_bits] for lane in range(config.simd)]
        weights = [word[lane * w_bits : (lane + 1) * w_bits] for lane in range(config.simd)]
        m.submodules[f"cell_{cell}"] = inner = Module()
        ce = self.group_ce[cell // config.hop]
        in_dsp = cell >= config.pe - config.dsp_pe
        if config.pair_products:
            total = paired_dot_product(inner, config.pair_products, activations, weights, ce, cells, in_dsp)
        else:
            product = dsp_dot_product if in_dsp else dot_product
            total = product(inner, config.arithmetic, activations, weights, ce, cells)
        return self._wait(inner, total, config.dsp_levels if in_dsp else config.logic_levels, ce)

    def _wait(self, m: Module, total: Value, levels: int, ce: Value) -> Value:
        """Return a total that is there after `levels` moves as late as that of the slowest kind of cell."""
        return wait(m, total, levels, self.config.tree_levels, ce)

    def _pair(self, m: Module, cell: int, lane: Value, words: list[Value]) -> list[Value]:
        """Add two cells of one lane whose products share a DSP block; return both raw sums, see `_cell`."""
        config = self.config
        m.submodules[f"pair_{cell}"] = inner = Module()
        a, b = as_number(lane, config.activation), [as_number(word, config.weight) for word in words[:2]]
        inner.submodules.products = products = DspProducts(2, a.shape(), b[0].shape())
        ce = self.group_ce[cell // config.hop]
        inner.d.comb += products.ce.eq(ce)
        for index, weight in enumerate(b):
            inner.d.comb += [products.i_a[index].eq(a), products.i_b[index].eq(weight)]
        levels = config.arithmetic.dsp_levels(1)
        waits = [Module() for _ in b]
        m.submodules += waits
        return [self._wait(wait, products.o[index], levels, ce) for index, wait in enumerate(waits)]

    def _drain(
        self,
        m: Module,
        products: list[Value],
        pipeline: tuple[list[Value], list[Value]],
        shift: tuple[Value, Value],
        platform: object,
    ) -> Value:
        """Add accumulators and the shift register that carries finished sums to the output; return those at its end.

        The first beat of a fold replaces the sum instead of adding to it; the finished sum is copied to the drain
        in the same move. So an accumulator bit and a drain bit are one logic cell each.

        A load of the drain never meets a shift: `MatmulConfig` demands groups - 1 + pe / drain <= steps.

        Parameters
        ----------
        products: sum of one beat for each cell [pe].
        pipeline: valid bits and ends of folds; entry k + 1 belongs to the beat whose products were in the last group
            k moves ago, and takes entry k with the next move.
        shift: the drain moves on by `drain` cells in this move, and in the next one.
        """
        config, (valids, ends), cells = self.config, pipeline, cells_of(platform)
        held = [Signal(self.raw_shape, name=f"drain_{cell}", reset_less=True) for cell in range(config.pe)]
        summed = int(config.steps > 1)
        for group in range(config.groups):
            # How many moves later than the last group this one sees a beat.
            age, ce = config.groups - 1 - group, self.group_ce[group]
            valid, load, drains = valids[age + 1], ends[age + summed + 1], ends[age + summed + 1] | shift[0]
            if is_spread(config, platform):
                following = {"valid": valids[age], "load": ends[age + summed], "drains": ends[age + summed] | shift[1]}
                valid, load, drains = (self._own(m, group, name, value, ce) for name, value in following.items())
            take, more = Signal(name=f"take_{group}"), Signal(name=f"more_{group}")
            m.d.comb += take.eq(ce & valid)
            # Low for the first beat of a fold, which begins a new sum.
            with m.If(take):
                m.d.sync += more.eq(~ends[age + 1])
            for cell in range(group * config.hop, (group + 1) * config.hop):
                total = products[cell]
                if summed:
                    total = Signal(self.raw_shape, name=f"sum_{cell}", reset_less=True)
                    following = cells.accumulate(m, total, more, products[cell])
                    with m.If(take):
                        m.d.sync += total.eq(following)
                follower = held[cell + config.drain] if cell + config.drain < config.pe else held[cell]
                with m.If(ce & drains):
                    m.d.sync += held[cell].eq(Mux(load, total, follower))
        return Cat(*held[: config.drain])
