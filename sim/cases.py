"""Engine configurations that every simulator runs: a row is a name and how to make it.

The rows cross sizes (1, odd, non-square, larger), number formats, and the variants of each engine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.encoding import encode, pack_words
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.matmul import MatmulConfig, Thresholds
from nnhw.engines.normalize import NormConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.rows import RowConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.softmax import PowersConfig, SharesConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax
from nnhw.ir.types import BIPOLAR, BIT, IntType

CaseConfig = (
    ChannelwiseConfig
    | ConvertConfig
    | FifoConfig
    | MatmulConfig
    | PadConfig
    | PoolConfig
    | RowConfig
    | SliceConfig
    | WindowConfig
)

INT4, UINT4, UINT3, INT8, INT2 = IntType(-8, 7), IntType(0, 15), IntType(0, 7), IntType(-128, 127), IntType(-2, 1)
UINT8 = IntType(0, 255)
TERNARY, UINT2, POWER = IntType(-1, 1), IntType(0, 3), IntType(0, 65535)


@dataclass(frozen=True)
class Frames:
    """Frames for one engine, and what has to come out.

    Parameters
    ----------
    inputs, outputs: one word a beat, element 0 in the lowest bits.
    i_bits, o_bits: width of a word.
    o_beats: output beats of one frame.
    """

    inputs: list[int]
    outputs: list[int]
    i_bits: int
    o_bits: int
    o_beats: int


def random_values(rng: np.random.Generator, dtype: IntType, shape: tuple[int, ...]) -> np.ndarray:
    """Return random int64 values of a type; a bipolar one has no zero."""
    if dtype.bipolar:
        return 2 * rng.integers(0, 2, shape) - 1
    return rng.integers(dtype.low, dtype.high + 1, shape)


def matmul(
    outputs: int,
    inputs: int,
    pe: int,
    simd: int,
    formats: tuple[IntType, IntType] = (BIPOLAR, BIPOLAR),
    code: IntType | None = None,
    hop: int = 1,
    drain: int = 1,
    vectors: int = 1,
    descending: str = "mixed",
    **options: Any,
) -> MatmulConfig:
    """Return a matmul engine with seeded random weights, and thresholds where random sums lie.

    Parameters
    ----------
    formats: (activation, weight).
    code: of the thresholds; None: raw sums leave.
    descending: 'none', 'all' or 'mixed' over the outputs.
    """
    rng = np.random.default_rng(outputs * 1009 + inputs)
    activation, weight = formats
    weights = random_values(rng, weight, (outputs, inputs))
    placed = ("logic_pe", "dsp_pe", "tail_words", "registered", "paired", "winograd")
    cells = {name: value for name, value in options.items() if name in placed}
    base = MatmulConfig(pe, simd, hop, drain, weights, activation, weight, None, vectors=vectors, **cells)
    if code is None:
        return base
    levels = 1 if code.bipolar else code.high - code.low
    samples = base.results(random_values(rng, activation, (64, inputs)))
    steps = np.sort(np.stack([rng.choice(samples[:, output], levels) for output in range(outputs)]), axis=1)
    low, high = base.arithmetic.raw_range(weights)
    if outputs > 2:
        steps[0, :] = high + 1  # never reached
        steps[-1, :] = low  # always reached
    falls = {"none": np.zeros(outputs, bool), "all": np.ones(outputs, bool), "mixed": np.arange(outputs) % 2 == 1}
    thresholds = Thresholds(steps, falls[descending], code)
    return MatmulConfig(pe, simd, hop, drain, weights, activation, weight, thresholds, vectors=vectors, **options)


def window(
    size: tuple[int, int, int],
    kernel: tuple[int, int],
    lanes: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    block: tuple[int, int] = (1, 1),
    repeats: int = 1,
    bits: int = 1,
    address_bits: int = 1,
    **options: Any,
) -> WindowConfig:
    """Return a window over a (height, width, channels) map with (channel, row) lanes; the memory is the smallest that
    serves."""
    height, width, channels = size
    for trial in range(address_bits, 20):
        with suppress(MappingError):
            return WindowConfig(height, width, channels, kernel, stride, block, *lanes, repeats, bits, trial, **options)
    raise ValueError(f"no memory of fewer than 2**20 words holds the rows of {size}")


def channelwise(
    op: str,
    taps: int,
    chunks: int,
    lanes: int,
    activation: IntType = UINT4,
    windows: int = 3,
    row_lanes: int = 1,
    weight: IntType | None = None,
    code: IntType | None = None,
    logic_weights: bool = False,
    dsp: bool = False,
) -> ChannelwiseConfig:
    """Return a channelwise engine with seeded random weights, and thresholds where random results lie."""
    channels = chunks * lanes
    rng = np.random.default_rng(taps * 1009 + channels)
    weights = None if weight is None else random_values(rng, weight, (channels, taps))
    base = ChannelwiseConfig(
        taps, chunks, lanes, op, activation, windows, row_lanes, weights, weight, None, logic_weights, dsp
    )
    if code is None:
        return base
    samples = replace(base, windows=64)
    results = samples.golden(random_values(rng, activation, (samples.i_beats, samples.i_lanes))).reshape(64, channels)
    levels = 1 if code.bipolar else code.high - code.low
    steps = np.sort(np.stack([rng.choice(results[:, channel], levels) for channel in range(channels)]), axis=1)
    return replace(base, requantizer=Thresholds(steps, np.arange(channels) % 2 == 1, code))


def norm(
    source: IntType,
    lanes: int,
    chunks: int,
    rows: int = 5,
    epsilon: int = 9,
    fraction_bits: int = 10,
    centered: bool = True,
    code: IntType | None = None,
    dsp: bool = False,
) -> NormConfig:
    """Return a normalization of rows, with thresholds where random results lie."""
    op = IntegerNorm(0, epsilon, fraction_bits, centered)
    base = NormConfig(source, lanes, chunks, rows, op, None, dsp)
    if code is None:
        return base
    samples = replace(base, rows=64).golden(random_values(np.random.default_rng(chunks), source, (64, base.length)))
    steps = np.stack(
        [np.quantile(column, np.linspace(0.1, 0.9, code.high - code.low)) for column in samples.reshape(64, -1).T]
    )
    falls = np.arange(base.length) % 2 == 1
    return replace(base, requantizer=Thresholds(steps.astype(np.int64), falls, code))


def powers(
    source: IntType, lanes: int, chunks: int, rows: int = 5, scale: float = 0.2, kept: float = 1.0
) -> PowersConfig:
    """Return the powers of rows, of which a random share is kept."""
    table = np.round(65535 * np.exp(-scale * np.arange(source.high - source.low + 1))).astype(np.int64)
    table = table[: np.argmin(table) + 1]
    keep = np.random.default_rng(chunks).random((rows, lanes * chunks)) < kept
    keep[:, 0] |= ~keep.any(axis=1)
    return PowersConfig(source, lanes, chunks, rows, table, None if kept == 1 else keep)


def shares(
    lanes: int,
    chunks: int,
    rows: int = 5,
    bits: int = 8,
    high: int = 255,
    code: IntType | None = None,
    dsp: bool = False,
) -> SharesConfig:
    """Return the shares of powers that are drawn as 2**15 and more."""
    base = SharesConfig(POWER, lanes, chunks, rows, IntegerSoftmax(0, bits, high), None, dsp)
    if code is None:
        return base
    steps = np.sort(np.random.default_rng(chunks).integers(0, high // 2, (base.length, code.high - code.low)), axis=1)
    return replace(base, requantizer=Thresholds(steps, np.arange(base.length) % 2 == 1, code))


MATMULS: dict[str, Callable[[], MatmulConfig]] = {
    "matmul_single": lambda: matmul(1, 1, 1, 1, vectors=1),
    "matmul_single_threshold": lambda: matmul(1, 3, 1, 1, code=BIPOLAR, descending="all"),
    "matmul_odd": lambda: matmul(5, 27, 5, 3, code=BIPOLAR, vectors=3),
    "matmul_folded": lambda: matmul(8, 32, 4, 4, code=BIPOLAR, hop=2, drain=2, vectors=2),
    "matmul_wide_drain": lambda: matmul(12, 16, 4, 4, code=BIPOLAR, hop=4, drain=4, vectors=2),
    "matmul_full_hop": lambda: matmul(8, 64, 8, 8, code=BIPOLAR, hop=8, drain=1),
    "matmul_one_step": lambda: matmul(6, 8, 3, 8, hop=3, drain=3, code=BIPOLAR, vectors=5),
    "matmul_raw": lambda: matmul(10, 72, 5, 8),
    "matmul_large": lambda: matmul(32, 256, 16, 16, code=BIPOLAR, hop=4, drain=2, vectors=2),
    "matmul_logic_some": lambda: matmul(8, 32, 4, 4, code=BIPOLAR, hop=2, logic_pe=3),
    "matmul_logic_all": lambda: matmul(8, 32, 4, 4, code=BIPOLAR, logic_pe=4, vectors=2),
    "matmul_logic_split": lambda: matmul(8, 105, 4, 3, code=BIPOLAR, hop=2, logic_pe=3, vectors=2),
    "matmul_logic_split_all": lambda: matmul(4, 160, 2, 1, formats=(INT4, INT4), logic_pe=2),
    "matmul_tail": lambda: matmul(8, 72, 4, 4, code=BIPOLAR, hop=2, tail_words=4),
    "matmul_registered": lambda: matmul(8, 32, 4, 4, formats=(INT2, INT2), code=UINT2, hop=2, registered=True),
    "matmul_registered_split": lambda: matmul(8, 105, 4, 3, formats=(INT4, INT4), hop=2, logic_pe=3, registered=True),
    "matmul_registered_some": lambda: matmul(8, 32, 4, 4, formats=(INT4, INT4), logic_pe=1, registered=True),
    "matmul_tail_and_logic": lambda: matmul(8, 72, 4, 4, formats=(UINT4, INT4), hop=2, tail_words=5, logic_pe=1),
    "matmul_threshold_ram": lambda: matmul(8, 32, 4, 4, code=BIPOLAR, logic_thresholds=0),
    "matmul_ascending": lambda: matmul(6, 24, 3, 3, code=BIPOLAR, descending="none"),
    "matmul_bit_code": lambda: matmul(6, 24, 3, 3, code=BIT, descending="mixed"),
    "matmul_code_2": lambda: matmul(6, 24, 3, 3, code=UINT2, vectors=2),
    "matmul_code_2_ascending": lambda: matmul(6, 24, 3, 3, code=UINT2, descending="none"),
    "matmul_code_int2": lambda: matmul(6, 24, 3, 3, code=INT2, formats=(INT4, TERNARY)),
    "matmul_code_ternary": lambda: matmul(6, 24, 3, 3, code=TERNARY, formats=(TERNARY, TERNARY)),
    "matmul_select_unsigned": lambda: matmul(6, 15, 3, 3, formats=(UINT4, BIPOLAR), code=BIPOLAR, vectors=2),
    "matmul_select_signed": lambda: matmul(6, 15, 3, 3, formats=(INT4, BIPOLAR), code=BIPOLAR, vectors=2),
    "matmul_select_raw": lambda: matmul(6, 15, 3, 3, formats=(UINT2, BIPOLAR)),
    "matmul_select_ternary": lambda: matmul(6, 15, 3, 3, formats=(TERNARY, BIPOLAR)),
    "matmul_int4": lambda: matmul(4, 12, 2, 3, formats=(INT4, INT4), code=UINT2, vectors=2),
    "matmul_int4_raw": lambda: matmul(4, 12, 2, 3, formats=(INT4, INT4)),
    "matmul_int8_uint3": lambda: matmul(4, 12, 2, 2, formats=(UINT3, INT8), vectors=2),
    "matmul_bipolar_ternary": lambda: matmul(4, 12, 2, 2, formats=(BIPOLAR, TERNARY), code=BIPOLAR),
    "matmul_bipolar_int4": lambda: matmul(4, 12, 2, 2, formats=(BIPOLAR, INT4)),
    "matmul_unsigned": lambda: matmul(4, 12, 2, 2, formats=(UINT4, UINT3), code=UINT2),
    "matmul_odd_range": lambda: matmul(4, 12, 2, 2, formats=(IntType(-5, 2), IntType(-1, 6))),
    "matmul_int8": lambda: matmul(6, 32, 3, 8, formats=(INT8, INT8), hop=3, drain=3, vectors=2),
    "matmul_bit_int8": lambda: matmul(4, 12, 2, 3, formats=(BIT, INT8)),
    "matmul_ternary_wide": lambda: matmul(4, 20, 2, 5, formats=(UINT8, TERNARY), code=UINT2),
    "matmul_dsp": lambda: matmul(6, 15, 3, 3, formats=(UINT8, INT8), dsp_pe=3, vectors=2),
    "matmul_dsp_single_lane": lambda: matmul(4, 8, 2, 1, formats=(INT8, INT8), dsp_pe=2, code=UINT2),
    "matmul_dsp_mixed": lambda: matmul(8, 24, 4, 3, formats=(INT8, INT8), hop=2, dsp_pe=1, code=UINT2, vectors=2),
    "matmul_dsp_mixed_groups": lambda: matmul(8, 32, 4, 4, formats=(UINT3, INT4), dsp_pe=3, logic_pe=1),
    "matmul_dsp_pairs": lambda: matmul(8, 15, 4, 1, formats=(UINT3, INT4), hop=4, dsp_pe=3, paired=True, code=UINT2),
    "matmul_winograd": lambda: matmul(8, 32, 4, 4, (UINT8, INT8), hop=2, vectors=2, winograd=True, code=UINT2),
    "matmul_winograd_dsp": lambda: matmul(8, 32, 4, 4, (UINT8, INT8), hop=2, vectors=2, dsp_pe=4, winograd=True),
    "matmul_winograd_two_lanes": lambda: matmul(4, 12, 2, 2, (INT8, INT8), dsp_pe=2, winograd=True, vectors=2),
    "matmul_winograd_mixed": lambda: matmul(6, 40, 3, 8, (INT4, INT8), hop=3, drain=3, dsp_pe=1, winograd=True),
    "matmul_winograd_once": lambda: matmul(3, 8, 3, 8, (INT8, INT4), hop=3, drain=3, winograd=True, vectors=4),
    "matmul_winograd_odd": lambda: matmul(6, 24, 2, 6, (IntType(-5, 9), IntType(-9, 6)), winograd=True, vectors=3),
    "matmul_winograd_registered": lambda: matmul(
        8, 64, 4, 4, (UINT8, INT8), dsp_pe=2, logic_pe=1, registered=True, winograd=True, vectors=2
    ),
    "matmul_dsp_slower": lambda: matmul(4, 12, 2, 3, formats=(BIT, INT8), dsp_pe=1),
}

WINDOWS: dict[str, Callable[[], WindowConfig]] = {
    "window_vector": lambda: window((1, 1, 16), (1, 1), (4, 1), repeats=3),
    "window_single": lambda: window((1, 1, 1), (1, 1), (1, 1), bits=4),
    "window_vector_large": lambda: window((1, 1, 784), (1, 1), (16, 1), repeats=4, address_bits=7),
    "window_1x1": lambda: window((3, 5, 4), (1, 1), (2, 1), repeats=2, bits=2),
    "window_3x3": lambda: window((5, 7, 2), (3, 3), (2, 1), repeats=2),
    "window_3x3_rows": lambda: window((5, 7, 2), (3, 3), (1, 3), repeats=2),
    "window_3x3_rows_odd": lambda: window((7, 6, 3), (3, 3), (3, 3), bits=3, repeats=1),
    "window_2x3": lambda: window((4, 6, 1), (2, 3), (1, 2), bits=4),
    "window_stride": lambda: window((7, 9, 2), (3, 3), (1, 1), stride=(2, 2)),
    "window_stride_uneven": lambda: window((8, 9, 2), (3, 3), (2, 3), stride=(2, 1)),
    "window_stride_gap": lambda: window((7, 8, 2), (1, 1), (2, 1), stride=(3, 2)),
    "window_whole": lambda: window((3, 3, 4), (3, 3), (2, 3), repeats=2),
    "window_block": lambda: window((6, 6, 2), (3, 3), (2, 1), block=(2, 2), repeats=2),
    "window_block_odd": lambda: window((7, 9, 2), (3, 3), (2, 3), block=(2, 2), repeats=2),
    "window_block_odd_rows_1": lambda: window((7, 7, 4), (3, 3), (1, 1), block=(2, 2)),
    "window_block_uneven": lambda: window((8, 7, 2), (2, 2), (1, 2), block=(3, 1), bits=2),
    "window_block_stride": lambda: window((12, 11, 1), (3, 3), (1, 3), stride=(2, 2), block=(2, 2)),
    "window_dilation": lambda: window((7, 8, 2), (3, 3), (1, 1), dilation=(2, 2)),
    "window_dilation_rows": lambda: window((9, 8, 2), (3, 3), (1, 3), dilation=(2, 1), repeats=2),
    "window_dilation_block": lambda: window((11, 9, 2), (2, 3), (2, 2), stride=(2, 1), block=(2, 2), dilation=(3, 2)),
    "window_dilation_column": lambda: window((5, 7, 4), (3, 1), (2, 1), dilation=(1, 3)),
    "window_stride_large": lambda: window((11, 12, 2), (2, 2), (1, 2), stride=(5, 4)),
    "window_groups": lambda: window((5, 5, 6), (3, 3), (1, 1), groups=2, repeats=3),
    "window_groups_rows": lambda: window((6, 5, 8), (3, 2), (2, 3), groups=2, dilation=(1, 2), bits=2),
    "window_groups_all": lambda: window((4, 4, 3), (2, 2), (1, 2), groups=3, block=(1, 3), stride=(2, 1)),
    "window_upsample": lambda: window((3, 4, 4), (1, 1), (2, 1), upsample=(2, 2), bits=3),
    "window_upsample_rows": lambda: window((3, 2, 2), (1, 1), (2, 1), upsample=(3, 1)),
    "window_upsample_columns": lambda: window((2, 3, 3), (1, 1), (1, 1), upsample=(1, 3), repeats=2),
    "window_walks": lambda: window((1, 5, 4), (1, 5), (2, 1), walks=3, bits=3),
    "window_walks_groups": lambda: window((3, 4, 4), (1, 4), (2, 1), groups=2, walks=3, repeats=2),
    "window_walks_columns": lambda: window((2, 6, 2), (1, 2), (1, 1), stride=(1, 2), groups=2, walks=2),
    "window_roomy": lambda: window((5, 5, 4), (3, 3), (4, 3), address_bits=6, repeats=3),
    "window_in_luts": lambda: replace(window((5, 7, 2), (3, 3), (1, 3), repeats=2), in_luts=True),
}

LARGE_RAM_WINDOWS: dict[str, Callable[[], WindowConfig]] = {
    "window_large_ram": lambda: replace(WINDOWS["window_3x3"](), large=True),
    "window_large_ram_vector": lambda: replace(WINDOWS["window_vector"](), large=True),
    "window_large_ram_rows": lambda: replace(WINDOWS["window_3x3_rows_odd"](), large=True),
    "window_large_ram_gap": lambda: replace(WINDOWS["window_stride_gap"](), large=True),
    "window_large_ram_upsample": lambda: replace(WINDOWS["window_upsample"](), large=True),
    "window_large_ram_roomy": lambda: replace(WINDOWS["window_roomy"](), large=True),
}

POOLS: dict[str, Callable[[], PoolConfig]] = {
    "pool_single": lambda: PoolConfig(taps=2, chunks=1, lanes=1, element=BIPOLAR, windows=3),
    "pool_one_tap": lambda: PoolConfig(taps=1, chunks=2, lanes=2, element=BIPOLAR, windows=3),
    "pool_binary": lambda: PoolConfig(taps=4, chunks=4, lanes=2, element=BIPOLAR, windows=5),
    "pool_odd": lambda: PoolConfig(taps=9, chunks=3, lanes=1, element=BIT, windows=2),
    "pool_unsigned": lambda: PoolConfig(taps=4, chunks=2, lanes=3, element=UINT4, windows=4),
    "pool_signed": lambda: PoolConfig(taps=4, chunks=3, lanes=2, element=INT4, windows=4),
    "pool_ternary": lambda: PoolConfig(taps=3, chunks=1, lanes=2, element=TERNARY, windows=4),
}

CHANNELWISE: dict[str, Callable[[], ChannelwiseConfig]] = {
    "channelwise_single": lambda: channelwise("sum", 1, 1, 1),
    "channelwise_sum": lambda: channelwise("sum", 4, 3, 2),
    "channelwise_sum_code": lambda: channelwise("sum", 4, 3, 2, INT4, code=UINT2),
    "channelwise_sum_bipolar": lambda: channelwise("sum", 9, 2, 3, BIPOLAR),
    "channelwise_sum_global": lambda: channelwise("sum", 49, 1, 2, INT8, windows=1),
    "channelwise_sum_memory": lambda: channelwise("sum", 5, 20, 2, UINT4, code=BIPOLAR),
    "channelwise_sum_memory_4": lambda: channelwise("sum", 3, 4, 8, IntType(0, 16383)),
    "channelwise_sum_rows": lambda: channelwise("sum", 9, 2, 2, INT4, row_lanes=3),
    "channelwise_sum_one_step": lambda: channelwise("sum", 5, 2, 2, INT4, row_lanes=5, code=UINT2),
    "channelwise_dot": lambda: channelwise("dot", 9, 2, 2, UINT4, weight=INT4, code=UINT2),
    "channelwise_dot_raw": lambda: channelwise("dot", 9, 3, 1, INT4, weight=INT8, logic_weights=True),
    "channelwise_dot_rows": lambda: channelwise("dot", 9, 3, 2, INT4, weight=INT4, row_lanes=3, code=BIPOLAR),
    "channelwise_dot_one_step": lambda: channelwise("dot", 3, 3, 2, INT4, weight=INT4, row_lanes=3),
    "channelwise_dot_single": lambda: channelwise("dot", 1, 1, 1, INT4, weight=INT4),
    "channelwise_dot_memory": lambda: channelwise("dot", 9, 16, 1, INT8, weight=INT8, windows=2),
    "channelwise_dot_select": lambda: channelwise("dot", 9, 2, 2, INT4, weight=BIPOLAR, code=UINT2),
    "channelwise_dot_binary": lambda: channelwise("dot", 9, 2, 4, BIPOLAR, weight=BIPOLAR, row_lanes=3, code=BIPOLAR),
    "channelwise_dot_dsp": lambda: channelwise("dot", 9, 3, 1, INT8, weight=INT8, dsp=True),
    "channelwise_dot_dsp_rows": lambda: channelwise(
        "dot", 9, 2, 2, UINT4, weight=INT8, row_lanes=3, code=UINT2, dsp=True
    ),
    "channelwise_max": lambda: channelwise("max", 9, 3, 2, INT4),
    "channelwise_max_rows": lambda: channelwise("max", 9, 2, 2, UINT4, row_lanes=3, code=UINT2),
    "channelwise_max_bipolar": lambda: channelwise("max", 4, 2, 3, BIPOLAR),
    "channelwise_max_bipolar_code": lambda: channelwise("max", 4, 2, 3, BIPOLAR, row_lanes=2, code=BIPOLAR),
    "channelwise_max_memory": lambda: channelwise("max", 3, 32, 2, INT4),
}

PADS: dict[str, Callable[[], PadConfig]] = {
    "pad_none": lambda: PadConfig(2, 3, 2, 1, 3, (0, 0), (0, 0), 0),
    "pad_single": lambda: PadConfig(1, 1, 1, 1, 1, (1, 1), (1, 1), 1),
    "pad_ones": lambda: PadConfig(3, 4, 2, 2, 2, (1, 1), (1, 1), 2),
    "pad_uneven": lambda: PadConfig(4, 3, 1, 3, 4, (0, 2), (3, 1), 9),
    "pad_before": lambda: PadConfig(2, 2, 3, 1, 2, (2, 0), (0, 0), 1),
    "pad_columns": lambda: PadConfig(1, 5, 2, 1, 2, (0, 2), (0, 1), 0),
    "pad_after": lambda: PadConfig(3, 1, 1, 2, 2, (0, 0), (2, 2), 3),
    "pad_bipolar": lambda: PadConfig(3, 3, 2, 2, 2, (1, 1), (1, 1), 0, bipolar=True),
}

SLICES: dict[str, Callable[[], SliceConfig]] = {
    "slice_all": lambda: SliceConfig(2, 3, turns=2, period=4, first=0, count=4),
    "slice_first": lambda: SliceConfig(1, 4, turns=3, period=5, first=0, count=2),
    "slice_middle": lambda: SliceConfig(2, 2, turns=4, period=4, first=1, count=2),
    "slice_last": lambda: SliceConfig(3, 1, turns=1, period=9, first=8, count=1),
}

FIFOS: dict[str, Callable[[], FifoConfig]] = {
    "fifo_1": lambda: FifoConfig(1, 2, 3, beats=12),
    "fifo_2": lambda: FifoConfig(2, 2, 3, beats=12),
    "fifo_3": lambda: FifoConfig(3, 1, 4, beats=12),
    "fifo_4": lambda: FifoConfig(4, 2, 2, beats=20),
    "fifo_10": lambda: FifoConfig(10, 1, 1, beats=31),
    "fifo_block_ram": lambda: FifoConfig(17, 4, 4, beats=50),
    "fifo_block_ram_wide": lambda: FifoConfig(12, 9, 4, beats=40),
    "fifo_large": lambda: FifoConfig(4, 2, 3, beats=20, large=True),
    "fifo_large_wide": lambda: FifoConfig(10, 5, 4, beats=31, large=True),
}

CONVERTS: dict[str, Callable[[], ConvertConfig]] = {
    "convert_same": lambda: ConvertConfig(3, 3, 2, beats=5),
    "convert_widen_2": lambda: ConvertConfig(1, 2, 1, beats=6),
    "convert_widen_3": lambda: ConvertConfig(2, 6, 3, beats=9),
    "convert_widen_8": lambda: ConvertConfig(1, 8, 1, beats=32),
    "convert_narrow_2": lambda: ConvertConfig(2, 1, 1, beats=6),
    "convert_narrow_3": lambda: ConvertConfig(6, 2, 3, beats=5),
    "convert_narrow_8": lambda: ConvertConfig(8, 1, 1, beats=5),
}

SOFTMAXES: dict[str, Callable[[], RowConfig]] = {
    "powers": lambda: powers(INT4, 2, 4),
    "powers_in_block_ram": lambda: powers(INT8, 1, 17, scale=0.03),
    "powers_clamped": lambda: powers(INT8, 3, 4, scale=0.5),
    "powers_of_one": lambda: powers(UINT2, 1, 1),
    "powers_of_bits": lambda: powers(BIPOLAR, 4, 2),
    "powers_masked": lambda: powers(INT4, 2, 3, kept=0.5),
    "powers_masked_wide": lambda: powers(INT8, 6, 1, rows=40, kept=0.3, scale=0.02),
    "shares": lambda: shares(2, 4),
    "shares_of_one": lambda: shares(1, 1, bits=15, high=1 << 15),
    "shares_long": lambda: shares(1, 90, rows=3, bits=12),
    "shares_wide": lambda: shares(5, 3, bits=1, high=2),
    "shares_dsp": lambda: shares(3, 7, dsp=True),
    "shares_requantized": lambda: shares(2, 3, code=INT2),
}

NORMS: dict[str, Callable[[], RowConfig]] = {
    "norm_plain": lambda: norm(INT4, 2, 4),
    "norm_serial": lambda: norm(INT8, 1, 16),
    "norm_long": lambda: norm(UINT4, 1, 96, rows=3),
    "norm_wide": lambda: norm(INT8, 12, 1, rows=6),
    "norm_odd": lambda: norm(IntType(-3, 2), 1, 7, epsilon=0),
    "norm_of_two": lambda: norm(UINT2, 2, 1, epsilon=0, fraction_bits=15),
    "norm_of_one": lambda: norm(INT4, 1, 1),
    "norm_of_bits": lambda: norm(BIPOLAR, 5, 4, epsilon=0, fraction_bits=4),
    "norm_of_many_bits": lambda: norm(IntType(-32768, 32767), 1, 23, epsilon=1 << 38),
    "norm_requantized": lambda: norm(INT4, 2, 6, code=UINT2),
    "norm_dsp": lambda: norm(INT8, 4, 4, dsp=True, code=UINT2),
    "norm_dsp_for_squares": lambda: norm(IntType(0, 255), 2, 200, rows=2, dsp=True),
    "norm_rms": lambda: norm(INT4, 2, 4, centered=False),
    "norm_rms_odd": lambda: norm(INT8, 1, 7, centered=False, epsilon=0, fraction_bits=1),
    "norm_rms_unsigned": lambda: norm(UINT4, 3, 5, centered=False, dsp=True),
}

CASES: dict[str, Callable[[], CaseConfig]] = {
    **MATMULS,
    **WINDOWS,
    **LARGE_RAM_WINDOWS,
    **POOLS,
    **CHANNELWISE,
    **PADS,
    **SLICES,
    **FIFOS,
    **CONVERTS,
    **NORMS,
    **SOFTMAXES,
}


def make_frames(config: CaseConfig, count: int, seed: int = 1) -> Frames:
    """Return `count` seeded random frames for an engine and their golden results."""
    rng = np.random.default_rng(seed)
    i_type, o_type = _types(config)
    pairs = [_frame(config, i_type, rng) for _ in range(count)]
    (i_lanes, o_lanes), o_beats = (pairs[0][0].shape[1], pairs[0][1].shape[1]), len(pairs[0][1])
    inputs = [word for beats, _ in pairs for word in pack_words(encode(beats, i_type), i_type.bits)]
    outputs = [word for _, beats in pairs for word in pack_words(encode(beats, o_type), o_type.bits)]
    return Frames(inputs, outputs, i_lanes * i_type.bits, o_lanes * o_type.bits, o_beats)


def _types(config: CaseConfig) -> tuple[IntType, IntType]:
    """Return the element types of an engine's input and output."""
    if isinstance(config, MatmulConfig):
        raw = IntType(*config.arithmetic.raw_range(config.weights))
        return config.activation, raw if config.thresholds is None else config.thresholds.code
    if isinstance(config, PoolConfig):
        return config.element, config.element
    if isinstance(config, ChannelwiseConfig):
        return config.activation, config.element
    if isinstance(config, RowConfig):
        return config.source, config.element
    unsigned = IntType(0, (1 << config.bits) - 1)
    return IntType(0, (1 << config.i_bits) - 1) if isinstance(config, PadConfig) else unsigned, unsigned


def _frame(config: CaseConfig, dtype: IntType, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the input beats and the golden output beats of one random frame, int64 [beats, lanes]."""
    if isinstance(config, MatmulConfig):
        vectors = random_values(rng, dtype, (config.vectors, config.weights.shape[1]))
        beats = vectors.reshape(config.vectors, 1, config.steps, config.simd).repeat(config.folds, axis=1)
        beats = beats.reshape(-1, config.simd)
    elif isinstance(config, WindowConfig):
        beats = random_values(rng, dtype, (config.i_beats, config.channel_lanes))
    else:
        lanes = (
            config.lanes
            if isinstance(config, FifoConfig | PadConfig | PoolConfig | RowConfig | SliceConfig)
            else config.i_lanes
        )
        beats = random_values(rng, dtype, (config.i_beats, lanes))
        if isinstance(config, SharesConfig):  # the greatest power of a row is half of what there is, or more
            beats[:: config.chunks, 0] |= 1 << 15
    return beats, config.golden(beats)
