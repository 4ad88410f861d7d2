"""The parts of products of pairs of lanes, see `nnhw.engines.inner_product`, and whether they take less logic."""

from __future__ import annotations

from nnhw.engines.inner_product import InnerProduct
from nnhw.engines.matmul import LOGIC_ROM_WORDS, MatmulConfig
from nnhw.families import Family
from nnhw.families.parts import (
    NOTHING,
    Inventory,
    accumulator,
    counter,
    counter_bits,
    dsp_blocks,
    logic_rom,
    luts,
    register,
    registered_sum,
    state,
    tree_adder,
)
from nnhw.mapping.cost.arithmetic import dsp_sums, lane_products
from nnhw.mapping.cost.constants import rom_parts

LEAST_CELLS = 3
"""Cells of an array from which on what is made once for all of them can be less than what each of them saves."""


def pays(config: MatmulConfig, family: Family) -> bool:
    """Return whether an array takes less logic with products of pairs of lanes, its products being in logic.

    Parameters
    ----------
    config: the array, with a product for each lane.
    """
    # Constant weights are folded into the products. A DSP block that makes two narrow products serves as many lanes
    # without.
    depth, correcting = config.folds * config.steps, config.folds * config.drains
    if family.dsp.products > 1 or depth == 1 or config.pe < LEAST_CELLS or correcting > LOGIC_ROM_WORDS:
        return False
    if not InnerProduct.serves(config.arithmetic, config.simd):
        return False
    pairs, raw = InnerProduct(config.arithmetic), config.raw.bits
    plain = config.pe * lane_products(pairs.lanes, config.simd, raw)
    paired = config.pe * cell_products(pairs, config.simd, raw, dsp=False)
    paired += _crossed(pairs, config.simd, raw) + _corrected(config.drain, correcting, raw)
    columns = config.drain * raw
    # As if no two columns of the constants were the same.
    paired += logic_rom(correcting, columns, columns) if correcting > 1 else NOTHING
    return family.price(paired).lc < family.price(plain).lc


def cell_products(pairs: InnerProduct, simd: int, raw: int, dsp: bool) -> Inventory:
    """List one cell's pairs, their products, and the tree that adds these.

    Parameters
    ----------
    simd: number of lanes. raw: see `lane_products`.
    dsp: products are made in DSP blocks.
    """
    bits = pairs.factors.activation.bits
    sums = simd * (tree_adder(bits) + state(bits))
    if dsp:
        return sums + dsp_sums(pairs.factors, simd // 2, raw) + dsp_blocks(simd // 2)
    return sums + lane_products(pairs.factors, simd // 2, raw)


def correction_parts(config: MatmulConfig) -> Inventory:
    """List what takes from the sums of an array what they have too much; nothing where each lane has its product."""
    pairs = config.pair_products
    if pairs is None:
        return NOTHING
    raw, beats = config.raw.bits, config.folds * config.drains
    waits = config.crossed_levels - pairs.crossed_levels(config.simd)
    found = _crossed(pairs, config.simd, raw) + _corrected(config.drain, beats, raw) + register(raw * waits)
    found += register(config.crossed_wait * (config.drain * raw + 3))
    words = pairs.constants(config.weights).reshape(beats, config.drain) & ((1 << raw) - 1)
    found += rom_parts(words, logic=True)
    return found + (accumulator(raw) + luts(1) + state(1) if config.steps > 1 else NOTHING)


def _crossed(pairs: InnerProduct, simd: int, raw: int) -> Inventory:
    """List the products of neighbouring activations, their sum, and the register that holds it for a fold."""
    return lane_products(pairs.crossed, simd // 2, raw) + register(raw)


def _corrected(drain: int, beats: int, raw: int) -> Inventory:
    """List the subtraction from constants, the addition to sums, and the counter of the sums that leave."""
    count = counter(beats) + luts(counter_bits(beats)) if beats > 1 else NOTHING
    return 2 * drain * registered_sum(raw) + count + state(1) + luts(2)
