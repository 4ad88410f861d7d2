"""Parts of which engines are made, and lists of them.

An engine lists its parts without a look at the family (`nnhw/mapping/cost/`), and each family prices every kind of part
(`nnhw.families.prices`):

    register(16) + 4 * (adder(8) + state(8)) --> 16 + 4 * 8 logic cells on the iCE40
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from nnhw.families.cost import Cost

MOST_KNOWN = 1 << 14
"""Lists of a single part that are kept: the mapping asks for few, each of them thousands of times."""
SHARED_COLUMNS_WORDS = 16
"""A ROM in logic with at most so many words is a LUT for each bit, in each family; equal ones are shared."""


def counter_bits(count: int) -> int:
    """Return the bits of a counter from 0 to `count` - 1."""
    return (count - 1).bit_length()


class Kind(StrEnum):
    """Kinds of parts; the functions of this module that make them say what their sizes are."""

    LUTS = "LUTs"
    STATE = "flip-flops behind LUTs"
    REGISTER = "flip-flops without LUTs"
    GATES = "gates in front of adders"
    CHOICE = "choices in front of adders"
    INVERTERS = "inverters of what is subtracted"
    ADDER = "adder"
    CHAIN = "carry chain"
    SUM = "adder and register"
    ACCUMULATOR = "accumulator"
    TREE_ADDER = "adder of a tree"
    COUNTER = "counter"
    COUNTING = "logic of a counter"
    COMPARISON = "comparison"
    CONSTANT_COMPARISON = "comparison with a constant"
    LIMIT = "comparison with a limit"
    CLAMP = "comparisons of a clamp"
    BUFFER = "stream buffer"
    MULTIPLEXER = "multiplexer"
    ROM = "ROM in block RAM"
    LOGIC_ROM = "ROM in logic"
    ROM_OUTPUT = "output register of a ROM"
    ROM_REGISTER = "register behind a ROM"
    MEMORY = "memory in block RAM"
    LANE_MEMORY = "memories of lanes"
    LARGE_RAM = "large RAM"
    LUT_RAM = "memory in LUTs"
    BLOCK_RAMS = "block RAMs"
    DSP_BLOCKS = "DSP blocks"
    DSP_PRODUCTS = "products in DSP blocks"
    WIDE_PRODUCT = "product of wide numbers"
    FIFO_CONTROL = "control of a FIFO"
    FIFO_WORDS = "words of a FIFO in registers"
    FORK = "control of a fork"


COUNTED = (Kind.LUTS, Kind.STATE, Kind.REGISTER, Kind.GATES, Kind.CHOICE, Kind.BLOCK_RAMS, Kind.DSP_BLOCKS)
"""Kinds whose size is a number of cells: parts of such a kind are as good as one part of all their sizes."""


class LogicFact(StrEnum):
    """Facts of a family on which it depends of which parts an engine is made; see `where`."""

    PACKS = "flip-flops share logic cells only with the LUTs that drive them"
    WIDE_LUTS = "LUTs are joined to wider ones"


class Share(StrEnum):
    """Shares of the logic of products that remain if their weights are constants: fields of `Logic`."""

    CONSTANT_CHAIN = "constant_chain"
    CONSTANT_LUT = "constant_lut"


class Part(NamedTuple):
    """A part: its kind, and its sizes, in the order of the parameters of the function that makes it."""

    kind: Kind
    sizes: tuple[float, ...]

    def __str__(self) -> str:
        sizes = " x ".join(f"{size:g}" for size in self.sizes)
        return f"{sizes} {self.kind}" if self.kind in COUNTED else f"{self.kind} {sizes}"


@dataclass(frozen=True, eq=False, slots=True)
class Either:
    """Two lists, of which a family takes the first if a fact is true of it; see `where`."""

    fact: LogicFact
    then: Inventory
    otherwise: Inventory


@dataclass(frozen=True, eq=False, slots=True)
class Remainder:
    """A list of parts of which synthesis leaves a share of the LUTs, and all else; see `Inventory.reduced`."""

    share: float | Share
    whole: Inventory


class Inventory:
    """A list of parts, each with a count; lists can be parts of lists.

    Lists are added with `+`, and repeated with `count * list`. A negative count takes away what another list has more
    than there is: bits that nothing reads, and that synthesis leaves out.

    Parameters
    ----------
    items: pairs (count, part or list).
    """

    __slots__ = ("items", "known")

    def __init__(self, items: tuple[tuple[int, Part | Inventory | Either | Remainder], ...] = ()) -> None:
        self.items = items
        # The prices of the family that asked last, and what it came to: lists of cells are priced again and again.
        self.known: tuple[object, Cost] | None = None

    def __add__(self, other: Inventory) -> Inventory:
        # Concatenated, not merged: equal parts are only counted together where somebody looks at them.
        return Inventory(self.items + other.items)

    def __rmul__(self, count: int) -> Inventory:
        items = self.items
        if not (count and items):
            return NOTHING
        # The counts of a list of one item are multiplied: such lists are common, and nested ones cost time.
        return Inventory(((count * items[0][0], items[0][1]),) if len(items) == 1 else ((count, self),))

    def reduced(self, share: float | Share) -> Inventory:
        """Return a list of which synthesis leaves only a share of the LUTs, such as of products with constants.

        Parameters
        ----------
        share: 0 to 1, or one that the family knows.
        """
        return Inventory(((1, Remainder(share, self)),))

    def __repr__(self) -> str:
        return f"Inventory({self.items!r})"


NOTHING = Inventory()


def listed(parts: Iterable[Inventory]) -> Inventory:
    """Return all lists as one."""
    return Inventory(tuple(item for part in parts for item in part.items))


def where(fact: LogicFact, then: Inventory, otherwise: Inventory) -> Inventory:
    """Return the first list for families of which a fact is true, the second one for others."""
    return Inventory(((1, Either(fact, then, otherwise)),))


@lru_cache(MOST_KNOWN)
def _part(kind: Kind, *sizes: float) -> Inventory:
    return Inventory(((1, Part(kind, sizes)),))


def luts(count: float) -> Inventory:
    """List LUTs; flip-flops behind them are listed apart, see `state`."""
    return _part(Kind.LUTS, count)


def state(bits: float) -> Inventory:
    """List flip-flops behind LUTs, without these LUTs."""
    return _part(Kind.STATE, bits)


def register(bits: int) -> Inventory:
    """List flip-flops that no LUT drives."""
    return _part(Kind.REGISTER, bits)


def gates(bits: float) -> Inventory:
    """List gates or inverters in front of carry chains, and registers of which `state` has the flip-flops.

    They take LUTs of their own where a carry cell has one LUT4 a bit; elsewhere they are in the chain.
    """
    return _part(Kind.GATES, bits)


def choice(bits: int) -> Inventory:
    """List two-way choices in front of an adder: in its cells where a carry cell has a LUT4 a bit, else LUTs."""
    return _part(Kind.CHOICE, bits)


def inverters(bits: int) -> Inventory:
    """List inverters of a number that is subtracted, with a difference of one bit more; see `gates`."""
    return _part(Kind.INVERTERS, bits)


def adder(bits: int) -> Inventory:
    """List an adder as synthesis makes it; a register behind it takes no further logic cells, see `state`."""
    return _part(Kind.ADDER, bits)


def chain(bits: int) -> Inventory:
    """List an adder in a carry chain, without a register."""
    return _part(Kind.CHAIN, bits)


def registered_sum(bits: int) -> Inventory:
    """List an adder with the register behind it."""
    return _part(Kind.SUM, bits)


def accumulator(bits: int) -> Inventory:
    """List a sum that numbers are added to, with its register; what begins a new sum is in the cells of its chain."""
    return _part(Kind.ACCUMULATOR, bits)


def tree_adder(bits: int) -> Inventory:
    """List an adder of a tree, without a register: a carry chain where that takes fewer cells."""
    return _part(Kind.TREE_ADDER, bits)


def counter(count: int) -> Inventory:
    """List a counter modulo `count`: a carry chain, and the comparison with its end."""
    return _part(Kind.COUNTER, count)


def counting(count: int) -> Inventory:
    """List a counter modulo `count` without its flip-flops, which are listed elsewhere."""
    return _part(Kind.COUNTING, count)


def comparison(bits: int) -> Inventory:
    """List a comparison of two numbers of `bits` bits: a carry chain and its end, or a LUT."""
    return _part(Kind.COMPARISON, bits)


def constant_comparison(bits: int) -> Inventory:
    """List a comparison of a number of `bits` bits with a constant; in some families narrow ones are LUTs."""
    return _part(Kind.CONSTANT_COMPARISON, bits)


def limit(value: int, bits: int) -> Inventory:
    """List the comparison of a counter of `bits` bits with the constant `value`."""
    return _part(Kind.LIMIT, value, bits)


def clamp(bits: int) -> Inventory:
    """List the comparisons of a number of `bits` bits with both ends of a range."""
    return _part(Kind.CLAMP, bits)


def stream_buffer(bits: int) -> Inventory:
    """List a `StreamBuffer`: two beats of `bits` bits, and its handshake."""
    return _part(Kind.BUFFER, bits)


def multiplexer(bits: int, places: int) -> Inventory:
    """List the choice of one of `places` words of `bits` bits."""
    return _part(Kind.MULTIPLEXER, bits, places)


def rom(depth: int, columns: int) -> Inventory:
    """List a ROM in block RAM of `depth` words, with a multiplexer of its banks.

    Parameters
    ----------
    columns: bits of a word that are not the same in all words.
    """
    return _part(Kind.ROM, depth, columns)


def logic_rom(depth: int, columns: int, distinct: int) -> Inventory:
    """List a ROM in LUTs, with a register behind it.

    Parameters
    ----------
    depth, columns: see `rom`.
    distinct: columns with different contents, if there are at most `SHARED_COLUMNS_WORDS` words; else `columns`.
    """
    return _part(Kind.LOGIC_ROM, depth, columns, distinct)


def rom_output(depth: int, bits: int) -> Inventory:
    """List the output register of a ROM in slow block RAM: none where it is the block RAM's own.

    It is outside where there is a multiplexer of several block RAMs.
    """
    return _part(Kind.ROM_OUTPUT, depth, bits)


def rom_register(depth: int, bits: int) -> Inventory:
    """List a register behind a ROM, which in families with slow block RAM may be the block RAM's own."""
    return _part(Kind.ROM_REGISTER, depth, bits)


def memory(depth: int, bits: int, parts: int = 1) -> Inventory:
    """List a memory in block RAM that is written and read; `parts` of a word are written separately."""
    # The common memory in one part has a key of its own in the caches, the same as without the parameter.
    return _part(Kind.MEMORY, depth, bits, *([parts] if parts > 1 else []))


def lane_memory(depth: int, low: int, high: int, word_bits: int, lanes: int) -> Inventory:
    """List the memories of bits low..high - 1 of rows that are written word by word, for a number of lanes.

    Small ones are in LUTs if possible.

    Parameters
    ----------
    word_bits: bits that are written together.
    lanes: lanes that all have such rows.
    """
    return _part(Kind.LANE_MEMORY, depth, low, high, word_bits, lanes)


def large_ram(depth: int, bits: int) -> Inventory:
    """List a memory in large RAM, without what shares its only port."""
    return _part(Kind.LARGE_RAM, depth, bits)


def lut_ram(depth: int, bits: int) -> Inventory:
    """List a memory in writable LUTs."""
    return _part(Kind.LUT_RAM, depth, bits)


def block_rams(count: int) -> Inventory:
    """List block RAMs whose number is known without their contents."""
    return _part(Kind.BLOCK_RAMS, count)


def dsp_blocks(count: int) -> Inventory:
    """List whole DSP blocks."""
    return _part(Kind.DSP_BLOCKS, count)


def dsp_products(count: int) -> Inventory:
    """List products of narrow factors that are made in DSP blocks, as many in a block as the family can make."""
    return _part(Kind.DSP_PRODUCTS, count)


def wide_product(left: int, right: int, unsigned: bool) -> Inventory:
    """List the product of two factors of `left` and `right` bits, in a DSP block if synthesis takes one for it.

    Parameters
    ----------
    unsigned: a sign bit is always 0, so that synthesis leaves it out.
    """
    return _part(Kind.WIDE_PRODUCT, left, right, unsigned)


def fifo_control(words: int) -> Inventory:
    """List the control of a FIFO of `words` words: two addresses, the fill level, and three flags."""
    return _part(Kind.FIFO_CONTROL, words)


def fifo_words(words: int, bits: int) -> Inventory:
    """List the logic of the words of a FIFO in registers, whose flip-flops are listed apart."""
    return _part(Kind.FIFO_WORDS, words, bits)


def fork_control(outputs: int) -> Inventory:
    """List the logic that knows which outputs of a fork have taken a beat."""
    return _part(Kind.FORK, outputs)
