"""Bounds of the search for a shared engine: which arrays, programs, memory plans and partners are tried.

No value affects the correctness of a result: a larger one makes the search longer, a smaller one may miss a faster
mapping. Unless a source is named, values were chosen on the networks of `benchmarks`: larger ones found nothing better.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArraySearch:
    """Shapes of arrays that are tried for a network.

    lanes, simd, drains: output channels at a time, products of each in a cycle, sums requantized in a cycle.
    word_bits: widths of words of a memory in block RAM.
    large_word_bits: the widest word that large RAMs side by side make.
    most_logic_bits: products whose narrower factor has more bits are made in DSP blocks, if there are any.
    most_narrow_products: products of 2-bit numbers in a cycle, at most: rows of weights are no wider.
    least_share: the smallest array that is tried makes one in so many of the products that the DSP blocks could make.
    most_rows: rows of weights and constants for which an array is made before its program is known.
    most_step_sum_bits: widest sums that are compared with steps: beyond, comparisons take more logic than a product.
    exact: number of arrays, those with the shortest estimates, whose programs are compiled to decide among them.
    slower: a smaller array is preferred if its cycles are at most this multiple of the fewest.
    """

    lanes: tuple[int, ...] = (4, 8, 16, 32, 64)
    simd: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    drains: tuple[int, ...] = (1, 2, 4, 8)
    word_bits: tuple[int, ...] = (32, 64, 128, 256, 512)
    large_word_bits: int = 64
    most_logic_bits: int = 4
    most_narrow_products: int = 512
    least_share: int = 8
    most_rows: int = 2047
    most_step_sum_bits: int = 14
    exact: int = 6
    slower: float = 1.02


@dataclass(frozen=True)
class LineSearch:
    """Exact lines for step functions.

    most_shift: fraction bits that are tried; sums of 20 bits and codes of 8 need about 36.
    further: fraction bits beyond the least that are tried as well: addends then have more room, and end in zeros.
    most_one_sided: a place is taken for zero only if at least one in so many steps of a function lies on either side.
    spare_factor_bits: added to the factors of arrays for 8-bit networks, so that they run most other such networks.
    most_rank_words: words of the memory of ranks that a function takes, at most: the code of a line says which.
    narrow_place_bits: places of so many bits cost no more than narrower ones: words of most block RAMs have 16.
    memory_bit_lc: logic cells that a bit of a step memory is worth: 80 for a block RAM of 4096 bits.
    factor_bit_lc: logic cells of a bit of a requantizer's factor, with sums of 18 bits.
    most_repeats: taps into which one large factor of a sum is split, about.
    """

    most_shift: int = 50
    further: int = 2
    most_one_sided: int = 8
    spare_factor_bits: int = 2
    most_rank_words: int = 256
    narrow_place_bits: int = 16
    memory_bit_lc: float = 80 / 4096
    factor_bit_lc: float = 22
    most_repeats: int = 64


@dataclass(frozen=True)
class MemorySearch:
    """Plans of what lies where in the memory of an array, and which tasks run by bands of rows to fit.

    beam: partial plans that are kept while the plan with the smallest peak is sought.
    narrow_beam: partial plans that are kept to find a bound for that search first.
    bands: numbers of bands of rows that are tried.
    longest: most tasks of a group that runs band by band: each of them computes some rows again for all behind it.
    rounds: most groups of tasks that run band by band.
    plans: most memory plans that are made in a round; each takes a beam search.
    """

    beam: int = 200
    narrow_beam: int = 4
    bands: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 24)
    longest: int = 8
    rounds: int = 3
    plans: int = 60


@dataclass(frozen=True)
class ChainSearch:
    """Several shared engines in a row.

    most_engines: engines in a row, at most.
    most_cuts: places at which a network is cut, at most; those of a deeper one are thinned out evenly.
    growth: factor from an interval at which no engines fit to one at which they do, below which the search ends.
    larger: products of the largest array that is looked at for some layers, as a multiple of the smallest one that is
        fast enough for them.
    beam: ways to run the first layers that are kept for each number of layers: those that take least of the device.
    most_cycles: cycles per product of the network at which the search gives up.
    rounds: times that estimates at one interval are replaced by exact ones.
    most_words: words of a memory in block RAM whose size is not known yet.
    """

    most_engines: int = 4
    most_cuts: int = 20
    growth: float = 1.01
    larger: int = 4
    beam: int = 24
    most_cycles: int = 4
    rounds: int = 30
    most_words: int = 1 << 16


@dataclass(frozen=True)
class NeighbourSearch:
    """Engines of their own in front of a shared engine and behind it.

    roomy_lc: logic cells of a device on which engines in front may be more and wider, and arrays are large.
    grid, steps: intervals for the engines in front are powers of `grid`, so that few mappings are made; `steps` of them
        are tried, beginning at the wanted interval.
    bands: (bands, rows of the first): how the first tasks of the shared engine's program are cut, see `Bands`.
    waits, much_slower: cycles of an engine whose input makes it wait, as a multiple of its own: up to the first the
        program is not made longer to avoid it, beyond the second the engines in front are made faster.
    faster: how much faster than the array the engines in front may be, where it waits for their first rows.
    frames: frames that are simulated until the queue in front of each is as full as in front of the next.
    queue_lc: logic cells of a queue, about.
    least_queue: elements that a queue holds at least, to be worth its block RAM.
    slower_behind: multiples of the shared engine's fewest cycles that are tried as interval of the engines behind.
    pays: engines behind are tried if the shared engine then takes at most this share of its cycles; else they are not
        worth the room that they take from it.
    chain_pays: several shared engines are taken if they need at most this share of the cycles of one.
    most_beat, most_beat_roomy: elements in a beat from layers in front; the second on roomy devices.
    least_shared: share of a network's products that stay on the shared engine where layers stand in front.
    """

    roomy_lc: int = 30_000
    grid: float = 1.2
    steps: int = 4
    bands: tuple[tuple[int, int], ...] = (
        *((1, 4), (1, 8), (2, 5), (2, 8), (4, 5), (6, 2), (6, 3), (6, 4)),
        *((8, 2), (8, 3), (4, 10)),
    )
    waits: float = 1.01
    much_slower: float = 1.1
    faster: tuple[int, ...] = (1, 2, 4)
    frames: int = 3
    queue_lc: int = 60
    least_queue: int = 128
    slower_behind: tuple[int, ...] = (1, 2, 4)
    pays: float = 0.75
    chain_pays: float = 0.95
    most_beat: int = 4
    most_beat_roomy: int = 32
    least_shared: float = 0.67


ARRAYS = ArraySearch()
LINES = LineSearch()
MEMORY = MemorySearch()
CHAINS = ChainSearch()
NEIGHBOURS = NeighbourSearch()
