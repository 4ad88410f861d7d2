"""The parts of stages at branches and loops: forks, FIFOs, states, concatenations, sums."""

from __future__ import annotations

from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.encoding import encode
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.state import StateConfig
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    adder,
    counter,
    counter_bits,
    fifo_control,
    fifo_words,
    fork_control,
    gates,
    luts,
    register,
    registered_sum,
    rom_register,
    state,
    stream_buffer,
)
from nnhw.mapping.cost.constants import rom_parts, varying_columns
from nnhw.mapping.cost.memories import memory_parts
from nnhw.mapping.cost.requantizer import requantizer_parts


def fork_parts(config: ForkConfig) -> Inventory:
    """List one register, and for each output a bit that says whether it has taken the beat."""
    return register(config.lanes * config.bits) + fork_control(config.outputs) + state(config.outputs)


def fifo_parts(config: FifoConfig) -> Inventory:
    """List a memory with two addresses and a fill level; a depth of 1 or 2 takes registers."""
    words, width = config.words, config.width
    if config.depth == 1:
        return register(width) + luts(2) + state(1)
    if config.depth == 2:
        return stream_buffer(width)
    control = fifo_control(words)
    if config.in_block_ram:
        return control + memory_parts(words, width, False)
    stored = state(width * (words + 1))
    return control + stored + (memory_parts(words, width, True) if config.large else fifo_words(words, width))


def state_parts(config: StateConfig) -> Inventory:
    """List a state's memory: a FIFO, counters of beats and steps, and a ROM of the start with a multiplexer."""
    starts = rom_parts(encode(config.start, config.element).reshape(config.chunks, config.lanes), True)
    counted = counter(config.chunks) + luts(config.memory.width + 4) + state(1)
    if config.steps > 1:
        counted += counter(config.steps) + luts(2)
    return fifo_parts(config.memory) + counted + starts


def broadcast_parts(config: BroadcastConfig) -> Inventory:
    """List a source of constants: a memory, its address, and the register behind a block RAM."""
    words = encode(config.values, config.element).reshape(-1, config.lanes)
    read = NOTHING if config.in_logic else rom_register(config.o_beats, varying_columns(words))
    bits = counter_bits(config.o_beats)
    # At its end the address is reset, which takes no LUTs.
    own = adder(bits) + luts((bits + 2) // 3 + 2) + state(bits + config.start)
    return own + read + rom_parts(words, config.in_logic)


def concat_parts(config: ConcatConfig) -> Inventory:
    """List a concatenation: a multiplexer with a register, the input's number, a counter of beats."""
    inputs, beat = len(config.chunks), config.lanes * config.bits
    # One counter serves all inputs, the one with most beats in a turn decides.
    count = counter_bits(max(config.chunks))
    chosen = luts(beat * (inputs + 1) / 2) + state(beat)
    return chosen + luts(2 * count + 3 * inputs + 4) + state(1 + inputs + count)


def sum_parts(config: SumConfig) -> Inventory:
    """List a weighted sum: a tree of shifted terms, the output buffer, the requantizer."""
    raw, lanes, inputs = config.raw.bits, config.lanes, config.inputs
    terms = [(shift, shift + inputs[index].bits + inputs[index].bipolar, sign) for index, shift, sign in config.terms]
    o_bits = raw if config.requantizer is None else config.requantizer.code.bits
    own = lanes * _terms(terms, raw) + stream_buffer(lanes * o_bits)
    own += register(config.tree_levels) + luts(len(inputs))
    return own + requantizer_parts(config.requantizer, config.raw, lanes)


def _terms(terms: list[tuple[int, int, int]], raw: int) -> Inventory:
    """List a tree that adds or subtracts numbers; in some families a bit to subtract takes an inverter.

    Parameters
    ----------
    terms: (lowest bit, width including the zeros below it, sign) of each number.
    raw: bits of the result; higher bits are left out.
    """
    total = NOTHING
    while True:
        results = []
        for index in range(0, len(terms), 2):
            pair = terms[index : index + 2]
            low, width = min(term[0] for term in pair), max(term[1] for term in pair) + len(pair) - 1
            # Of two terms with different signs the negative one is subtracted, so that no sum has to be negated behind
            # it.
            subtracted = pair[1] if len(pair) == 2 and pair[0][2] > pair[1][2] else pair[0]
            mixed = len({term[2] for term in pair}) == 2
            bits = min(width, raw) - min(low, raw)
            total += (registered_sum if len(pair) == 2 or pair[0][2] < 0 else register)(bits)
            total += gates(subtracted[1] - subtracted[0] if mixed else 0)
            results.append((low, width, 1 if mixed else pair[0][2]))
        terms = results
        if len(terms) == 1:
            return total
