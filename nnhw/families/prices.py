"""What parts cost in a family: one row for each kind of part.

The numbers of a family come from its `Logic`, its memories and its DSP block. Numbers that stand here are measured, and
the same for all families of which the fact next to them is true.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from nnhw.families.cost import Cost
from nnhw.families.parts import COUNTED, Either, Inventory, Kind, LogicFact, Part, Remainder, Share, counter_bits

if TYPE_CHECKING:
    from nnhw.families.base import Family

MOST_KNOWN = 1 << 16
"""Parts whose prices are kept: the mapping asks for few, each of them thousands of times."""
MOST_TOGETHER, PART_WORDS, PART_LC = 512, 64, 3.3
"""A ROM in logic with more words than the first number is read in parts of the second number of words, and takes the
last number of logic cells more for each bit and part, to choose among them. Measured on ECP5: 1,280 words of 4 bits."""
LUT_RAM_CHOICE, FEW_BANKS = (0.5, 0.8), 4
"""Logic cells that the multiplexer of a LUT memory takes for each bit and bank, with up to and with more than
`FEW_BANKS` banks (see `LutRam.words`)."""
POOR_CHOICE, POOR_WORDS = 1.6, range(4, 8)
"""Synthesis finds no good multiplexer of so many words of a FIFO in registers, and takes so much more. Measured."""
LEAST_FIFO_CONTROL = 23.0
"""Logic cells of the control of the smallest FIFOs, where flip-flops are counted apart. Measured."""


class PartRow(NamedTuple):
    """How many of a part an engine has, and what they take; printed as `8 x adder 12: 96 LC` or `40 LUTs: 40 LC`.

    Parameters
    ----------
    number: how many of the part. A negative number corrects other rows, for bits that synthesis leaves out. LUTs,
        flip-flops and other parts that are counted as cells are one part with all of their cells.
    part: its kind and sizes.
    share: share of the LUTs of these parts that synthesis leaves, 0 to 1.
    cost: of all of them.
    """

    number: int
    part: Part
    share: float
    cost: Cost

    def __str__(self) -> str:
        left = "" if self.share == 1 else f", {self.share:.0%} of its LUTs"
        times = "" if self.part.kind in COUNTED else f"{self.number:,} x "
        return f"{times}{self.part}{left}: {self.cost}"


class Prices:
    """The prices of a family.

    Parameters
    ----------
    family: whose prices these are.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        logic = family.logic
        self._facts = {LogicFact.PACKS: logic.flip_flop_packs, LogicFact.WIDE_LUTS: logic.wide_luts > 1}
        self._shares = {Share.CONSTANT_CHAIN: logic.constant_chain, Share.CONSTANT_LUT: logic.constant_lut}
        self.part: Callable[[Part], Cost] = lru_cache(MOST_KNOWN)(self._price)

    def of(self, inventory: Inventory) -> Cost:
        """Return the price of a list of parts."""
        known = inventory.known
        if known is not None and known[0] is self:
            return known[1]
        lc = ff = 0.0
        ebr = dsp = spram = 0
        for count, item in inventory.items:
            # Classes are compared, not asked for with isinstance: this loop is the innermost one of every search.
            if item.__class__ is Part:
                one = self.part(item)  # type: ignore[arg-type]
            elif item.__class__ is Inventory:
                one = self.of(item)  # type: ignore[arg-type]
            else:
                one = self._other(item)  # type: ignore[arg-type]
            lc += count * one.lc
            ff += count * one.ff
            # Most parts have none of these.
            if one.ebr or one.dsp or one.spram:
                ebr, dsp, spram = ebr + count * one.ebr, dsp + count * one.dsp, spram + count * one.spram
        found = Cost(lc, ebr, dsp, spram, ff)
        # A search asks for the same lists again and again, mostly for one family.
        inventory.known = self, found
        return found

    def rows(self, inventory: Inventory) -> list[PartRow]:
        """Return what a list is made of, equal parts together, those that take most logic first."""
        counts, sizes = Counter[tuple[Part, float]](), dict[tuple[Kind, float], float]()
        for count, part, share in self._leaves(inventory, 1, 1.0):
            # So many LUTs in ten parts are as good as in one, and a list is read more easily.
            if part.kind in COUNTED:
                sizes[part.kind, share] = sizes.get((part.kind, share), 0) + count * part.sizes[0]
            else:
                counts[part, share] += count
        counts.update({(Part(kind, (size,)), share): 1 for (kind, share), size in sizes.items() if size})
        rows = []
        for (part, share), count in counts.items():
            one = self.part(part)
            total = count * Cost(share * one.lc, one.ebr, one.dsp, one.spram, one.ff)
            # Parts that cost nothing in this family, such as gates in carry chains, would only lengthen the list.
            if total != Cost():
                rows.append(PartRow(count, part, share, total))
        return sorted(rows, key=lambda row: (-row.cost.lc, -row.cost.ff, row.part))

    def _other(self, item: Either | Remainder) -> Cost:
        """Return the price of a choice or a remainder."""
        if isinstance(item, Either):
            return self.of(self._chosen(item))
        whole = self.of(item.whole)
        return Cost(self._share(item) * whole.lc, whole.ebr, whole.dsp, whole.spram, whole.ff)

    def _chosen(self, item: Either) -> Inventory:
        return item.then if self._facts[item.fact] else item.otherwise

    def _share(self, item: Remainder) -> float:
        return self._shares[item.share] if isinstance(item.share, Share) else item.share

    def _leaves(self, inventory: Inventory, times: int, share: float) -> Iterator[tuple[int, Part, float]]:
        """Yield (count, part, share of its LUTs that remains) for all parts of a list."""
        for count, item in inventory.items:
            if isinstance(item, Part):
                yield times * count, item, share
            elif isinstance(item, Inventory):
                yield from self._leaves(item, times * count, share)
            elif isinstance(item, Either):
                yield from self._leaves(self._chosen(item), times * count, share)
            else:
                yield from self._leaves(item.whole, times * count, share * self._share(item))

    def _price(self, part: Part) -> Cost:
        return PRICES[part.kind](self.family, *part.sizes)


def _luts(family: Family, count: float) -> Cost:
    return Cost(lc=count)


def _state(family: Family, bits: int) -> Cost:
    return Cost(ff=0 if family.logic.flip_flop_packs else bits)


def _register(family: Family, bits: int) -> Cost:
    return Cost(lc=bits) if family.logic.flip_flop_packs else Cost(ff=bits)


def _gates(family: Family, bits: float) -> Cost:
    return Cost(lc=bits if family.logic.flip_flop_packs else 0.0)


def _choice(family: Family, bits: int) -> Cost:
    return Cost(lc=0.0 if family.logic.flip_flop_packs else bits)


def _inverters(family: Family, bits: int) -> Cost:
    # Narrow sums that are made of gates need no inverters.
    return _gates(family, bits) if bits + 1 > family.logic.gate_adder_bits else Cost()


def _adder(family: Family, bits: int) -> Cost:
    return Cost(lc=family.logic.adder_lc(bits))


def _chain(family: Family, bits: int) -> Cost:
    return Cost(lc=family.logic.chain_lc(bits))


def _sum(family: Family, bits: int) -> Cost:
    return _adder(family, bits) + _state(family, bits)


def _accumulator(family: Family, bits: int) -> Cost:
    # Even a narrow one is a chain where flip-flops are counted apart: the choice leaves no LUT for the adder.
    logic = family.logic
    return Cost(lc=(logic.adder_lc if logic.flip_flop_packs else logic.chain_lc)(bits)) + _state(family, bits)


def _tree_adder(family: Family, bits: int) -> Cost:
    return Cost(lc=min(family.logic.adder_lc(bits), family.logic.chain_lc(bits)))


def _counter(family: Family, count: int) -> Cost:
    bits, logic = counter_bits(count), family.logic
    if bits == 0:
        return Cost(lc=0.0)
    if logic.flip_flop_packs:
        # A carry chain, and the comparison with the end, three bits a LUT.
        return Cost(lc=bits + (bits + 2) // 3 + (bits > 2))
    if bits <= len(logic.small_adders):
        return Cost(lc=bits + 1.0, ff=bits)
    # A counter to a power of two begins again by itself; any other has to be set back, by a LUT a bit.
    return Cost(lc=logic.adder_lc(bits) + 2.0 + (bits - 1 if count & (count - 1) else 0), ff=bits)


def _counting(family: Family, count: int) -> Cost:
    return Cost(lc=_counter(family, count).lc)


def _comparison(family: Family, bits: int) -> Cost:
    # Two numbers of two bits are the four inputs of a LUT.
    if bits <= 2:
        return Cost(lc=1.0)
    if family.logic.flip_flop_packs:
        return Cost(lc=bits * family.logic.compared_lc + 1)
    return Cost(lc=family.logic.adder_lc(bits) - 2 * (bits <= 4))


def _constant_comparison(family: Family, bits: int) -> Cost:
    logic = family.logic
    if not logic.flip_flop_packs and bits <= len(logic.small_adders):
        return Cost(lc=1.0)
    return _comparison(family, bits)


def _limit(family: Family, limit: int, bits: int) -> Cost:
    # A power of two, or 2**bits less one, looks at a few of the bits only, which takes a LUT; others take a chain.
    lowest = limit & -limit
    if limit == 0:
        return Cost()
    return Cost(lc=1 if bits <= 4 or lowest == limit or limit + lowest == 1 << bits else bits + 3)


def _clamp(family: Family, bits: int) -> Cost:
    return Cost(lc=bits * family.logic.clamped_lc)


def _buffer(family: Family, bits: int) -> Cost:
    if family.logic.flip_flop_packs:
        # Two registers for each bit, and the choice between them in the LUT of one of the two.
        return Cost(lc=2 * bits + 4)
    return Cost(lc=bits + 4.0, ff=2 * bits + 2)


def _multiplexer(family: Family, bits: int, places: int) -> Cost:
    # Inputs of a LUT, of which each one that is joined to another leaves one less.
    inputs = 4 if family.logic.wide_luts == 1 else 6
    return Cost(lc=bits * -(-(places + counter_bits(places) - 1) // (inputs - 1)) if places > 1 else 0)


def _rom(family: Family, depth: int, columns: int) -> Cost:
    return Cost(columns * bank_mux_lc(depth, columns, family), family.block_rams(depth, columns, rom=True))


def bank_mux_lc(depth: int, bits: int, family: Family) -> float:
    """Return the logic cells, for each bit, of the multiplexer among the block RAMs (banks) of a deep ROM.

    Measured on ECP5: 2 for 3 banks, 3 for 5, 11 for 9; on iCE40: 2 for 3, 3 for 5, 5 for 7, 8 for 9.
    """
    banks = family.rom_banks(depth, bits)
    if family.logic.wide_luts < 2:
        return banks - 1.0 if banks < 4 else 1.2 * banks - 3
    return max(0, min(banks - 1, 3)) if banks <= family.logic.wide_luts else 1.2 * banks


def _logic_rom(family: Family, depth: int, columns: int, distinct: int) -> Cost:
    if depth <= family.logic.rom_words:
        # A ROM of so few words is one LUT for each bit, and bits with equal contents share their LUT.
        return Cost(distinct) + _state(family, distinct)
    return Cost(columns * lut_rom_lc(depth, family)) + _state(family, columns)


def lut_rom_lc(depth: int, family: Family) -> float:
    """Return the LUTs of one bit of a ROM of `depth` words.

    A multiplexer that takes a LUT has a free input, in which the last words fit if they are few.
    """
    full, rest = divmod(depth, family.logic.rom_words)
    small = full > 0 and 0 < rest <= family.logic.rom_rest_words
    tables = full + (rest > 0 and not small)
    if tables <= family.logic.wide_luts:
        return (1 << (tables - 1).bit_length()) + small * family.logic.mux_lc
    apart = depth // PART_WORDS if depth > MOST_TOGETHER else 0
    return tables + (tables - 1 + small) * family.logic.mux_lc + apart * PART_LC


def _rom_output(family: Family, depth: int, bits: int) -> Cost:
    return _state(family, bits) if family.rom_banks(depth, bits) > 1 else Cost()


def _rom_register(family: Family, depth: int, bits: int) -> Cost:
    inside = family.block_ram.slow and family.rom_banks(depth, bits) == 1
    return Cost() if inside else _register(family, bits)


def _memory(family: Family, depth: int, bits: int, parts: int = 1) -> Cost:
    return Cost(ebr=family.block_rams(depth, bits, parts=parts))


def _lane_memory(family: Family, depth: int, low: int, high: int, word_bits: int, lanes: int) -> Cost:
    if depth == 1:
        return lanes * _gates(family, high - low)
    if depth <= family.lut_ram.words:
        return Cost(lc=lanes * -(-(high - low) // 4) * family.lut_ram.lc)
    # If single bits can be written, the memories of all lanes are one.
    side, apart = (lanes, 1) if family.block_ram.write_mask_bits == 1 else (1, lanes)
    # Each word that is written fills a memory of its own, as far as the range reaches into it.
    edges = sorted({low, high, *range(0, high, word_bits)} - set(range(low)))
    pieces = itertools.pairwise(edges)
    return Cost(ebr=apart * sum(family.block_rams(depth, side * (end - start)) for start, end in pieces))


def _large_ram(family: Family, depth: int, bits: int) -> Cost:
    return Cost(spram=family.large_rams(depth, bits) or 0)


def _lut_ram(family: Family, depth: int, bits: int) -> Cost:
    """Return the price of a memory in writable LUTs.

    Measured without other engines, for 32 to 128 words of 4 to 32 bits: in addition to the memories, 2 LUTs a bit for
    32 words, 3 for 64, 6.7 for 128; half of that if an engine behind it absorbs the multiplexer.
    """
    banks = -(-depth // family.lut_ram.words)
    chosen = LUT_RAM_CHOICE[banks > FEW_BANKS] * bits * banks + banks if banks > 1 else 0
    return Cost(lc=banks * -(-bits // 4) * family.lut_ram.lc + chosen)


def _block_rams(family: Family, count: int) -> Cost:
    return Cost(ebr=count)


def _dsp_blocks(family: Family, count: int) -> Cost:
    return Cost(dsp=count)


def _dsp_products(family: Family, count: int) -> Cost:
    return Cost(dsp=-(-count // family.dsp.products))


def _wide_product(family: Family, left: int, right: int, unsigned: bool) -> Cost:
    # yosys makes a narrow product from LUTs, with about a LUT for each pair of bits.
    in_block = left + right - unsigned >= family.dsp.least_bits
    return Cost(dsp=1) if in_block else Cost(lc=left * right)


def _fifo_control(family: Family, words: int) -> Cost:
    # The level counts from empty to full, a state more than there are words.
    level, addresses = counter_bits(words + 1), 2 * _counter(family, words)
    if family.logic.flip_flop_packs:
        return addresses + Cost(lc=3 * level + 9)
    lc = max(LEAST_FIFO_CONTROL, addresses.lc + family.logic.adder_lc(level) + level - 1)
    return Cost(lc, ff=addresses.ff + level + 3)


def _fifo_words(family: Family, words: int, bits: int) -> Cost:
    if family.logic.flip_flop_packs:
        # For each word an enable; for each bit of it a register and a two-way choice, of which there is one less than
        # words.
        return Cost(lc=words * (2 * bits + 1) - bits)
    chosen = (words - 1) * bits + words
    return Cost(lc=POOR_CHOICE * chosen if words in POOR_WORDS else chosen)


def _fork(family: Family, outputs: int) -> Cost:
    return Cost(lc=2 * outputs if family.logic.flip_flop_packs else 2 * outputs**2 - 2)


PRICES: Mapping[Kind, Callable[..., Cost]] = {
    Kind.LUTS: _luts,
    Kind.STATE: _state,
    Kind.REGISTER: _register,
    Kind.GATES: _gates,
    Kind.CHOICE: _choice,
    Kind.INVERTERS: _inverters,
    Kind.ADDER: _adder,
    Kind.CHAIN: _chain,
    Kind.SUM: _sum,
    Kind.ACCUMULATOR: _accumulator,
    Kind.TREE_ADDER: _tree_adder,
    Kind.COUNTER: _counter,
    Kind.COUNTING: _counting,
    Kind.COMPARISON: _comparison,
    Kind.CONSTANT_COMPARISON: _constant_comparison,
    Kind.LIMIT: _limit,
    Kind.CLAMP: _clamp,
    Kind.BUFFER: _buffer,
    Kind.MULTIPLEXER: _multiplexer,
    Kind.ROM: _rom,
    Kind.LOGIC_ROM: _logic_rom,
    Kind.ROM_OUTPUT: _rom_output,
    Kind.ROM_REGISTER: _rom_register,
    Kind.MEMORY: _memory,
    Kind.LANE_MEMORY: _lane_memory,
    Kind.LARGE_RAM: _large_ram,
    Kind.LUT_RAM: _lut_ram,
    Kind.BLOCK_RAMS: _block_rams,
    Kind.DSP_BLOCKS: _dsp_blocks,
    Kind.DSP_PRODUCTS: _dsp_products,
    Kind.WIDE_PRODUCT: _wide_product,
    Kind.FIFO_CONTROL: _fifo_control,
    Kind.FIFO_WORDS: _fifo_words,
    Kind.FORK: _fork,
}
"""Price of each kind of part: a function of the family and the part's sizes."""
