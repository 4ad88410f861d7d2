"""The cost of stages at branches and loops: forks, FIFOs, states, concatenations, sums."""

from __future__ import annotations

from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.encoding import encode
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.state import StateConfig
from nnhw.families import Cost, Family
from nnhw.families.logic import Logic, counter_bits
from nnhw.mapping.cost.constants import Rom, varying_columns
from nnhw.mapping.cost.memories import memory_cost
from nnhw.mapping.cost.requantizer import requantizer_cost


def fork_cost(config: ForkConfig, family: Family) -> Cost:
    """Return the cost of a fork: one register, and for each output a bit that says whether it has taken the beat."""
    logic = family.logic
    own = 2 * config.outputs if logic.flip_flop_packs else 2 * config.outputs**2 - 2
    return logic.register(config.lanes * config.bits) + logic.luts(own) + logic.state(config.outputs)


def fifo_cost(config: FifoConfig, family: Family) -> Cost:
    """Return the cost of a FIFO: a memory with two addresses and a fill level; a depth of 1 or 2 takes registers."""
    words, width, logic = config.words, config.width, family.logic
    if config.depth == 1:
        return logic.register(width) + logic.luts(2) + logic.state(1)
    if config.depth == 2:
        return logic.buffer(width)
    control = _fifo_control(words, logic)
    if config.in_block_ram:
        return control + memory_cost(words, width, False, family)
    stored = logic.state(width * (words + 1))
    if config.large:
        return control + stored + memory_cost(words, width, True, family)
    if logic.flip_flop_packs:
        return control + stored + logic.luts(words * (2 * width + 1) - width)
    chosen = (words - 1) * width + words
    # Measured: synthesis finds no good multiplexer of 4 to 7 words.
    return control + stored + logic.luts(1.6 * chosen if 4 <= words < 8 else chosen)


def state_cost(config: StateConfig, family: Family) -> Cost:
    """Return the cost of a state's memory: a FIFO, a counter of beats, and a ROM of the start with a multiplexer."""
    logic, width = family.logic, config.memory.width
    starts = Rom(encode(config.start, config.element).reshape(config.chunks, config.lanes), logic=True)
    counted = logic.counter(config.chunks) + logic.luts(width + 4) + logic.state(1)
    return fifo_cost(config.memory, family) + counted + starts.cost(family)


def _fifo_control(words: int, logic: Logic) -> Cost:
    """Return the cost of a FIFO's control: two addresses, the fill level, and three flags."""
    level, addresses = counter_bits(words + 1), 2 * logic.counter(words)
    if logic.flip_flop_packs:
        return addresses + logic.luts(3 * level + 9)
    lc = max(23.0, addresses.lc + logic.adder(level).lc + 2 * level + 3)
    return Cost(lc, ff=addresses.ff) + logic.state(level + 3)


def broadcast_cost(config: BroadcastConfig, family: Family) -> Cost:
    """Return the cost of a source of constants: a memory, its address, and the register behind a block RAM."""
    logic, words = family.logic, encode(config.values, config.element).reshape(-1, config.lanes)
    columns = varying_columns(words)
    in_ram = family.block_ram.slow and family.rom_banks(config.o_beats, columns) == 1  # it has a register of its own
    register = Cost() if config.in_logic or in_ram else logic.register(columns)
    bits = counter_bits(config.o_beats)
    # At its end the address is reset, which takes no LUTs.
    own = logic.adder(bits) + logic.luts((bits + 2) // 3 + 2) + logic.state(bits + config.start)
    return own + register + Rom(words, config.in_logic).cost(family)


def concat_cost(config: ConcatConfig, family: Family) -> Cost:
    """Return the cost of a concatenation: a multiplexer with a register, the input's number, a counter of beats."""
    inputs, beat, logic = len(config.chunks), config.lanes * config.bits, family.logic
    count = counter_bits(max(config.chunks))
    chosen = logic.luts(beat * (inputs + 1) / 2) + logic.state(beat)
    return chosen + logic.luts(2 * count + 3 * inputs + 4) + logic.state(1 + inputs + count)


def sum_cost(config: SumConfig, family: Family) -> Cost:
    """Return the cost of a weighted sum: a tree of shifted terms, the output buffer, the requantizer."""
    raw, lanes, logic = config.raw.bits, config.lanes, family.logic
    inputs = config.inputs
    terms = [(shift, shift + inputs[index].bits + inputs[index].bipolar, sign) for index, shift, sign in config.terms]
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    own = lanes * _terms(terms, raw, logic) + logic.buffer(lanes * o_bits)
    own += logic.register(config.tree_levels) + logic.luts(len(config.inputs))
    return own + requantizer_cost(config.requantizer, config.raw, lanes, True, family)


def _terms(terms: list[tuple[int, int, int]], raw: int, logic: Logic) -> Cost:
    """Return the cost of a tree that adds or subtracts numbers; in some families a bit to subtract takes an inverter.

    Parameters
    ----------
    terms: (lowest bit, width including the zeros below it, sign) of each number.
    raw: bits of the result; higher bits are left out.
    """
    total = Cost()
    while True:
        results = []
        for index in range(0, len(terms), 2):
            pair = terms[index : index + 2]
            low, width = min(term[0] for term in pair), max(term[1] for term in pair) + len(pair) - 1
            subtracted = pair[1] if len(pair) == 2 and pair[0][2] > pair[1][2] else pair[0]
            mixed = len({term[2] for term in pair}) == 2
            bits = min(width, raw) - min(low, raw)
            total += (logic.sum if len(pair) == 2 or pair[0][2] < 0 else logic.register)(bits)
            total += logic.through(subtracted[1] - subtracted[0] if mixed else 0)
            results.append((low, width, 1 if mixed else pair[0][2]))
        terms = results
        if len(terms) == 1:
            return total
