"""Each requantizer's hardware against its golden function: every sum that can occur, with gaps and stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Value

from nnhw.engines.encoding import bits_for_range, encode, pack_words
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.requantize import CommonSteps, DoubleScaler, Requantizer, Scaler, Table, Thresholds, ThresholdSearch
from nnhw.errors import MappingError
from nnhw.hdl.matmul import MatmulEngine
from nnhw.hdl.requantizer_table import make_requantizer
from nnhw.ir.types import BIPOLAR, BIT, IntType
from sim.cases import make_frames
from sim.simulator import Simulator
from tests.hdl.streams import check, run_stream

INT8, UINT8, UINT4, INT4, ODD = IntType(-128, 127), IntType(0, 255), IntType(0, 15), IntType(-8, 7), IntType(-3, 1)


def steps_of(outputs: int, levels: int, raw: IntType, seed: int = 1) -> np.ndarray:
    """Return sorted random steps; those of the first channel are never reached, those of the last always."""
    rng = np.random.default_rng(seed)
    steps = np.sort(rng.integers(raw.low, raw.high + 2, (outputs, levels)), axis=1)
    if outputs > 2:
        steps[0], steps[-1] = raw.high + 1, raw.low
    return steps


def falls(outputs: int, which: str) -> np.ndarray:
    """Return which channels descend."""
    return {"none": np.zeros(outputs, bool), "all": np.ones(outputs, bool), "mixed": np.arange(outputs) % 2 == 1}[which]


def thresholds(outputs: int, code: IntType, raw: IntType, which: str = "mixed") -> Thresholds:
    levels = 1 if code.bipolar else code.high - code.low
    return Thresholds(steps_of(outputs, levels, raw), falls(outputs, which), code)


def search(
    outputs: int, levels: int, code: IntType, raw: IntType, which: str = "mixed", table: bool = False, words: int = 64
) -> ThresholdSearch:
    rng = np.random.default_rng(5)
    codes = rng.integers(code.low, code.high + 1, (outputs, levels + 1)) if table else None
    return ThresholdSearch(
        steps_of(outputs, levels, raw), falls(outputs, "none" if table else which), code, raw, codes, words
    )


def scaler(
    outputs: int, code: IntType, raw: IntType, bits: int = 9, segments: int = 1, same: bool = False, **flags: bool
) -> Scaler:
    """Return a scaler whose codes cover their range about twice over the raw range, of either direction."""
    rng = np.random.default_rng(bits)
    span = 1 if code.bipolar else code.high - code.low
    multiplier = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (outputs, segments))
    multiplier[:, 0] = (1 << (bits - 1)) - 1
    if same:
        multiplier[:] = multiplier[0, 0]
    reach = (raw.high - raw.low) * (1 << (bits - 1))
    shift = max(0, (reach // (2 * span + 1)).bit_length() - 1)
    addend = rng.integers(-reach // 2, reach // 2 + 1, (outputs, segments)) - (raw.low << (bits - 2))
    return Scaler(multiplier, addend, shift, code, raw, steps_of(outputs, segments - 1, raw), **flags)


def addition(outputs: int, code: IntType, raw: IntType, shift: int, even: bool = False) -> Scaler:
    """Return a scaler whose channels all multiply by 1 and add one number."""
    ones = np.ones((outputs, 1), dtype=np.int64)
    addend = (1 << (shift - 1)) - (code.low << shift)
    return Scaler(ones, addend * ones, shift, code, raw, np.empty((outputs, 0), dtype=np.int64), even=even)


def double(outputs: int, code: IntType, raw: IntType, exponents: tuple[int, ...], **flags: bool) -> DoubleScaler:
    rng = np.random.default_rng(outputs)
    exponent = np.array([exponents[k % len(exponents)] for k in range(outputs)])
    bias = rng.integers(raw.low, raw.high + 1, outputs)
    multiplier = rng.integers(1 << 30, 1 << 31, outputs)
    return replace(DoubleScaler.of(multiplier, exponent, bias, 3, code, raw), **flags)


def table(outputs: int, code: IntType, raw: IntType, shared: bool, logic: bool = False) -> Table:
    rng = np.random.default_rng(7)
    shape = (1 if shared else outputs, raw.high - raw.low + 1)
    codes = 2 * rng.integers(0, 2, shape) - 1 if code.bipolar else rng.integers(code.low, code.high + 1, shape)
    return Table(codes, code, raw, outputs, logic)


def common(
    outputs: int,
    code: IntType,
    raw: IntType,
    bits: int = 9,
    drop: int = 3,
    cells_log2: int = 3,
    turns: str = "",
    **flags: Any,
) -> CommonSteps:
    """Return common steps at random places, within and beyond which the numbers of raw sums of either direction lie.

    Parameters
    ----------
    turns: codes that do not count up: 'valley', 'peak', or 'jumps', which are no line on either side of a turn.
    """
    rng = np.random.default_rng(bits)
    count, reach = code.high - code.low, (raw.high - raw.low) << (bits - 1) >> drop
    cell_bits = max(1, (reach // (4 * count)).bit_length() - 1)
    multiplier = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (outputs, 1))
    multiplier[0] = (1 << (bits - 1)) - 1
    cells = (1 << cells_log2) + np.sort(rng.choice(3 * count, count, replace=False))
    steps = (cells << cell_bits) + rng.integers(0, 1 << cell_bits, count)
    centre = (raw.high + raw.low) // 2
    addend = (int(steps.mean()) << drop) - multiplier * centre + rng.integers(-5, 5, (outputs, 1))
    codes = np.arange(code.low, code.high + 1)
    away = np.abs(codes - code.low - count // 3)
    codes = {"": codes, "valley": code.low + away, "peak": code.high - away, "jumps": code.low + away // 2 * 3}[turns]
    return CommonSteps(multiplier, addend, drop, steps, codes, cell_bits, cells_log2, code, raw, **flags)


SIGNED, UNSIGNED, SMALL = IntType(-50, 70), IntType(0, 100), IntType(0, 1)

CASES: dict[str, Callable[[], Requantizer]] = {
    "thresholds": lambda: thresholds(6, UINT4, SIGNED),
    "thresholds_bipolar": lambda: thresholds(6, BIPOLAR, UNSIGNED),
    "search": lambda: search(6, 15, UINT4, SIGNED),
    "search_single": lambda: search(1, 1, BIT, SIGNED, "none"),
    "search_bipolar": lambda: search(6, 1, BIPOLAR, UNSIGNED),
    "search_descending": lambda: search(6, 15, INT4, UNSIGNED, "all"),
    "search_odd": lambda: search(6, 4, ODD, SIGNED),
    "search_int8_ram": lambda: search(6, 255, INT8, SIGNED, words=0),
    "search_int8_some": lambda: search(6, 255, INT8, IntType(0, 300), "none"),
    "search_table": lambda: search(6, 20, INT4, SIGNED, table=True),
    "search_table_ram": lambda: search(6, 7, ODD, UNSIGNED, table=True, words=0),
    "search_registered": lambda: replace(search(6, 100, INT8, SIGNED, words=16), registered=True),
    "search_registered_table": lambda: replace(search(6, 20, INT4, SIGNED, table=True), registered=True),
    "scaler": lambda: scaler(6, UINT8, SIGNED),
    "scaler_int8": lambda: scaler(6, INT8, UNSIGNED, 14),
    "scaler_ram": lambda: scaler(6, INT8, SIGNED, 14, logic=False),
    "scaler_same": lambda: scaler(6, INT8, SIGNED, 12, same=True),
    "scaler_adds": lambda: addition(6, INT8, SIGNED, 2, even=True),
    "scaler_adds_unsigned": lambda: addition(6, UINT4, UNSIGNED, 3),
    "scaler_one": lambda: scaler(1, INT4, SIGNED, 5),
    "scaler_narrow": lambda: scaler(6, UINT4, SIGNED, 2),
    "scaler_bipolar": lambda: scaler(6, BIPOLAR, SIGNED),
    "scaler_odd": lambda: scaler(6, ODD, SIGNED),
    "scaler_bit_sums": lambda: scaler(6, BIT, SMALL, 3),
    "scaler_wide": lambda: scaler(6, UINT8, IntType(-40, 30), 30),
    "scaler_two_segments": lambda: scaler(6, INT8, SIGNED, 9, 2),
    "scaler_three_segments": lambda: scaler(6, UINT8, UNSIGNED, 9, 3, logic=False),
    "scaler_bounds": lambda: replace(scaler(6, INT8, SIGNED), floor=100, ceiling=180),
    "scaler_even": lambda: replace(scaler(6, INT8, SIGNED, 3), shift=2, even=True),
    "scaler_odd_ties": lambda: replace(scaler(6, INT8, SIGNED, 3), shift=2, even=True, parity=1),
    "scaler_even_all": lambda: replace(scaler(6, UINT8, SIGNED, 3), shift=0, even=True),
    "scaler_dsp": lambda: scaler(6, INT8, SIGNED, 12, dsp=True),
    "scaler_dsp_unsigned": lambda: scaler(6, INT8, UNSIGNED, 12, dsp=True),
    "scaler_dsp_wide": lambda: scaler(6, INT8, SIGNED, 33, dsp=True),
    "scaler_dsp_segments": lambda: scaler(6, INT8, SIGNED, 17, 2, dsp=True),
    "scaler_fused": lambda: scaler(6, INT8, SIGNED, 16, dsp=True, fused=True),
    "scaler_fused_magnitudes": lambda: scaler(6, INT8, SIGNED, 17, dsp=True, fused=True, logic=False),
    "scaler_fused_segments": lambda: scaler(6, INT8, SIGNED, 17, 2, dsp=True, fused=True),
    "double": lambda: double(6, INT8, SIGNED, (-1, 0, 2, -3)),
    "double_same": lambda: double(6, INT8, UNSIGNED, (-2,), logic=False),
    "double_clamped": lambda: double(6, IntType(-70, 90), SIGNED, (0, -4)),
    "double_dsp": lambda: double(6, INT8, SIGNED, (-1, 0, 1), dsp=True),
    "common": lambda: common(6, INT8, SIGNED),
    "common_uint8": lambda: common(6, UINT8, UNSIGNED, 12, cells_log2=2),
    "common_few": lambda: common(6, UINT4, SIGNED, 8, 5, cells_log2=1),
    "common_odd": lambda: common(6, ODD, SIGNED, 4, 2),
    "common_ram": lambda: common(6, INT8, SIGNED, 14, 6, logic=False, logic_words=0),
    "common_valley": lambda: common(6, INT8, SIGNED, turns="valley"),
    "common_valley_registered": lambda: common(6, INT4, SIGNED, 11, turns="valley", registered=True),
    "common_peak": lambda: common(6, INT4, SIGNED, turns="peak"),
    "common_jumps_ram": lambda: common(6, INT4, SIGNED, turns="jumps", logic_words=0),
    "common_registered": lambda: common(6, INT8, SIGNED, 11, turns="jumps", registered=True),
    "common_dsp": lambda: common(6, INT8, SIGNED, 12, dsp=True),
    "common_fused": lambda: common(6, INT8, SIGNED, 16, 8, dsp=True, fused=True),
    "common_wide": lambda: common(6, INT8, SIGNED, 30, 21),
    "table": lambda: table(6, INT8, SIGNED, shared=True),
    "table_channels": lambda: table(6, UINT4, UNSIGNED, shared=False),
    "table_logic": lambda: table(6, INT4, IntType(-9, 20), shared=False, logic=True),
    "table_high": lambda: table(6, BIPOLAR, IntType(40, 60), shared=False),
}


def drain_all(config: Requantizer, raw: np.ndarray, drain: int) -> tuple[list[int], list[int], set[int]]:
    """Send raw sums [n, outputs], with gaps and stops; return (codes seen, codes expected) as words, and the latencies.

    One move passes before the first sum: in it comparators fetch their first step.
    """
    domain = getattr(config, "raw", IntType(int(raw.min()), int(raw.max())))
    unit = make_requantizer(config, (domain.low, domain.high), drain)
    bits = bits_for_range(domain.low, domain.high)[0]
    sums = pack_words((raw & ((1 << bits) - 1)).reshape(-1, drain), bits)
    seen: list[int] = []
    entered: list[int] = []
    latencies: set[int] = set()

    async def bench(ctx: Any) -> None:
        sent = moved = cycle = 0
        while len(seen) < len(sums) and cycle < 10 * len(sums) + 200:
            cycle += 1
            moves, offers = cycle % 3 != 0, sent < len(sums) and cycle % 5 != 0 and cycle > 1
            ctx.set(unit.ce, moves)
            ctx.set(unit.i_valid, offers)
            ctx.set(Value.cast(unit.i_sums), sums[sent] if offers else (1 << (bits * drain)) - 1)
            if moves and offers:
                entered.append(moved)
                sent += 1
            if moves and ctx.get(unit.o_valid):
                latencies.add(moved - entered[len(seen)])
                seen.append(int(ctx.get(Value.cast(unit.o_codes).as_unsigned())))
            moved += moves
            await ctx.tick()

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    golden = encode(config.golden(raw), config.code)
    return seen, pack_words(golden.reshape(-1, drain), config.code.bits), latencies


@pytest.mark.parametrize(
    ("name", "drain"),
    [(name, drain) for name, make in CASES.items() for drain in (1, 3) if make().outputs % drain == 0],
)
def test_requantizer_equals_golden_for_every_sum(name: str, drain: int) -> None:
    config = CASES[name]()
    domain = getattr(config, "raw", SIGNED if name == "thresholds" else UNSIGNED)
    raw = np.arange(domain.low, domain.high + 1)[:, None].repeat(config.outputs, axis=1)
    seen, expected, latencies = drain_all(config, raw, drain)
    assert seen == expected
    assert len(np.unique(config.golden(raw))) > min(8, config.code.high - config.code.low) // 2
    assert latencies == {config.latency}


def test_requantizer_rejects_lanes_that_do_not_divide() -> None:
    with pytest.raises(MappingError) as caught:
        make_requantizer(scaler(6, UINT8, SIGNED), (-50, 70), 4)
    assert str(caught.value) == "requantizer: drain 4 must divide outputs 6"


def test_requantizer_rejects_sums_out_of_its_range() -> None:
    with pytest.raises(MappingError) as caught:
        make_requantizer(scaler(6, UINT8, SIGNED), (-51, 70), 1)
    assert str(caught.value) == "requantizer for raw sums int -50..70 was given sums -51..70"


MATMUL = MatmulConfig(4, 3, 2, 2, np.ones((8, 12), dtype=np.int64), UINT4, INT4, None, vectors=3)


@pytest.mark.parametrize("pattern", [("none", "none"), ("none", "alternating"), ("random", "random")], ids="-".join)
@pytest.mark.parametrize("kind", ["search", "scaler", "scaler_segments", "double", "table"])
def test_matmul_engine_with_any_requantizer_keeps_its_cycle_model(kind: str, pattern: tuple[str, str]) -> None:
    weights = np.random.default_rng(3).integers(-8, 8, (8, 12))
    raw = IntType(*MATMUL.arithmetic.raw_range(weights))
    requantizer: Requantizer = {
        "search": lambda: search(8, 15, UINT4, raw),
        "scaler": lambda: scaler(8, INT8, raw),
        "scaler_segments": lambda: scaler(8, INT8, raw, segments=2, dsp=True),
        "double": lambda: double(8, INT8, raw, (-2, -3)),
        "table": lambda: table(8, INT4, raw, shared=False),
    }[kind]()
    config = replace(MATMUL, weights=weights, thresholds=requantizer)
    frames = make_frames(config, count=3)
    result = run_stream(MatmulEngine(config), frames.inputs, len(frames.outputs), pattern, config.model())
    check(result, frames.outputs)
