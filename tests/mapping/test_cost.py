"""The cost model: against synthesis, and rules that it must keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from amaranth.back import rtlil
from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from benchmarks.lanes import Synthesized
from nnhw.accelerator import EngineConfig
from nnhw.boards import Board, load_board
from nnhw.engines.broadcast import BroadcastConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.matrix_product import MatrixProductConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pairwise import PairConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.requantize import CommonSteps, DoubleScaler, Thresholds
from nnhw.engines.slice import SliceConfig
from nnhw.engines.state import StateConfig
from nnhw.engines.window import WindowConfig
from nnhw.families import ECP5, FAMILIES, ICE40
from nnhw.families.parts import adder, counter, counter_bits
from nnhw.families.prices import bank_mux_lc, lut_rom_lc
from nnhw.hdl.engine import HARDWARE
from nnhw.hdl.requantizer_table import make_requantizer
from nnhw.ir.types import BIPOLAR, IntType
from nnhw.mapping.common_steps import find_common_steps
from nnhw.mapping.cost import cost
from nnhw.mapping.cost.arithmetic import tree_widths
from nnhw.mapping.cost.constants import rom_parts
from nnhw.mapping.cost.requantizer import requantizer_cost
from sim.cases import norm, powers, shares
from tests.mapping.test_common_steps import ACTIVATIONS, drawn, normal
from tests.synthesized import VARIABLE, measured, taken

BOARD = load_board("icebreaker")
U2, I4, I8 = IntType(0, 3), IntType(-8, 7), IntType(-128, 127)


def matmul(activation: IntType, weight: IntType, pe: int = 2, simd: int = 4, levels: int = 0) -> MatmulConfig:
    rng = np.random.default_rng(1)
    weights = rng.integers(weight.low, weight.high + 1, (8, 32))
    if weight.bipolar:
        weights = 2 * rng.integers(0, 2, (8, 32)) - 1
    thresholds = None
    if levels:
        steps = np.sort(rng.integers(-40, 40, (8, levels)), axis=1)
        thresholds = Thresholds(steps, np.zeros(8, dtype=bool), IntType(0, levels))
    return MatmulConfig(pe, simd, pe, pe, weights, activation, weight, thresholds, vectors=1)


WINDOW = WindowConfig(
    height=9,
    width=10,
    channels=3,
    kernel=(3, 3),
    stride=(1, 1),
    block=(1, 1),
    channel_lanes=1,
    row_lanes=3,
    repeats=2,
    bits=4,
    address_bits=8,
)
ENGINES: dict[str, EngineConfig] = {
    "convert": ConvertConfig(8, 2, 3, 10),
    "concat": ConcatConfig(lanes=2, bits=4, chunks=(3, 2), turns=9),
    "fifo": FifoConfig(depth=64, lanes=2, bits=4, beats=100),
    "fifo large": FifoConfig(depth=300, lanes=5, bits=4, beats=1000, large=True),
    "fifo in logic": FifoConfig(depth=17, lanes=1, bits=4, beats=100),
    "fifo small": FifoConfig(depth=7, lanes=1, bits=4, beats=100),
    "fork": ForkConfig(2, 4, 4, 10),
    "matmul gate": matmul(BIPOLAR, I8),
    "matmul product": matmul(I4, I4, levels=3),
    "matmul select": matmul(U2, BIPOLAR),
    "matmul tables": matmul(IntType(-2, 1), IntType(-2, 1), pe=4, simd=8),
    "matmul tables odd": matmul(IntType(-2, 1), IntType(-2, 1), pe=2, simd=1),
    "matmul ternary": matmul(I4, IntType(-1, 1)),
    "matmul xnor": matmul(BIPOLAR, BIPOLAR, pe=8, simd=8),
    "matrix product": MatrixProductConfig(I8, I8, 1, 4, 1, 2, 20, 1, 4),
    "matrix product of heads": MatrixProductConfig(I4, I4, 4, 2, 1, 4, 20, 1, 4),
    "matrix product shared": MatrixProductConfig(IntType(0, 255), I8, 4, 1, 4, 17, 20, 1, 8),
    "matrix product in DSP": MatrixProductConfig(I8, I8, 2, 4, 1, 2, 20, 1, 4, dsp=True),
    "matrix product of a step": MatrixProductConfig(I4, U2, 2, 4, 1, 1, 20, 2, 4),
    "broadcast": BroadcastConfig(np.random.default_rng(0).integers(-128, 128, 544), I8, 2),
    "broadcast of a beat": BroadcastConfig(np.random.default_rng(0).integers(-128, 128, 4), I8, 4),
    "norm": norm(I8, 1, 64),
    "norm in DSP": norm(I8, 4, 16, dsp=True),
    "norm narrow": norm(I4, 2, 12),
    "norm without a centre": norm(I8, 2, 16, centered=False),
    "pad": PadConfig(8, 9, 2, 2, 4, (1, 1), (1, 1), 0),
    "maximum": PairConfig("maximum", I8, I8, 2, 3, 9),
    "pool": PoolConfig(4, 4, 2, U2, 9),
    "powers": powers(I8, 2, 8, scale=0.03),
    "powers masked": powers(I8, 2, 8, scale=0.03, kept=0.5),
    "product": PairConfig("product", I8, IntType(0, 255), 2, 3, 9),
    "product in DSP": PairConfig("product", I8, IntType(0, 255), 4, 3, 9, dsp=True),
    "product wide in DSP": PairConfig("product", IntType(0, 255), IntType(-32768, 32767), 2, 3, 9, dsp=True),
    "product narrow": PairConfig("product", I4, U2, 4, 3, 9),
    "product signed": PairConfig("product", I4, IntType(-16, 15), 2, 3, 9),
    "shares": shares(2, 8),
    "shares in DSP": shares(4, 16, dsp=True),
    "shares of long rows": shares(1, 197, bits=12),
    "slice": SliceConfig(2, 4, turns=3, period=20, first=3, count=9),
    "state": StateConfig(np.zeros(20, int), IntType(-32768, 32767), 1),
    "state in logic": StateConfig(np.zeros(8, int), I8, 1),
    "state of many steps": StateConfig(np.zeros(20, int), IntType(-32768, 32767), 1, steps=100),
    "state of starts": StateConfig(np.random.default_rng(0).integers(-128, 128, 64), I8, 2),
    "sum": SumConfig((I4, I4), (3, -5), 2, 3, 9, None),
    "window": WINDOW,
    "window large": replace(WINDOW, large=True),
}
ECP5_ENGINES: dict[str, EngineConfig] = {
    **{
        name: ENGINES[name]
        for name in (
            *("maximum", "product", "product in DSP", "product wide in DSP", "product narrow", "product signed"),
            *("state", "state in logic", "state of starts"),
            *("matrix product", "matrix product of heads", "matrix product shared", "matrix product in DSP"),
            *("matrix product of a step", "broadcast", "broadcast of a beat"),
            *("norm", "norm in DSP", "norm narrow", "norm without a centre", "powers", "powers masked"),
            *("shares", "shares in DSP", "shares of long rows"),
            *(
                "fifo",
                "fifo small",
                "fork",
                "pool",
                "matmul product",
                "matmul tables",
                "matmul tables odd",
            ),
            *("matmul ternary", "matmul xnor", "window"),
        )
    },
    "broadcast in logic": BroadcastConfig(np.random.default_rng(0).integers(-128, 128, 80), I8, 2),
    "matmul product deep": matmul(I8, I8, pe=4, simd=8),
    "matmul product in DSP": replace(matmul(I8, I4, pe=4, simd=4), dsp_pe=4),
    "matmul pairs": replace(matmul(I8, I8, pe=4, simd=8), winograd=True),
    "matmul pairs in DSP": replace(matmul(IntType(0, 255), I8, pe=4, simd=8), dsp_pe=4, winograd=True),
    "matmul pairs of both": replace(matmul(IntType(0, 255), I4, pe=4, simd=8), dsp_pe=1, winograd=True),
    "matmul product in logic": replace(matmul(I4, I4, pe=4, simd=8), logic_pe=2),
    "window in LUTs": replace(WINDOW, address_bits=7, in_luts=True),
}
BETWEEN = ("concat", "convert", "fifo in logic", "pad", "slice", "sum")
"""Engines whose LUTs on ECP5 depend on those of their neighbours.

Synthesis makes the choice among the words of a FIFO in logic faster and larger where no path is longer than it: of the
one here, 147 logic cells alone, 112 beside a longer path.
"""


class Alone(wiring.Component):
    """An engine as the top of a design; the streams that it gives are asked for by registers."""

    def __init__(self, config: EngineConfig) -> None:
        self.engine = HARDWARE[type(config)](config)
        self.outputs = sum(name.startswith("o") for name in self.engine.signature.members)
        super().__init__(self.engine.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.engine = self.engine
        for name in self.signature.members:
            outer, inner = getattr(self, name), getattr(self.engine, name)
            source, sink = (inner, outer) if name.startswith("o") else (outer, inner)
            m.d.comb += [Value.cast(sink.payload).eq(Value.cast(source.payload)), sink.valid.eq(source.valid)]
            if name.startswith("o"):
                m.d.sync += source.ready.eq(sink.ready)
            else:
                m.d.comb += source.ready.eq(sink.ready)
        return m


@pytest.mark.parametrize("name", ENGINES)
def test_cost_is_what_synthesis_and_packing_give(name: str, tmp_path: Path) -> None:
    component, estimated = Alone(ENGINES[name]), cost(ENGINES[name])
    text = rtlil.convert(component, name="top", platform=Synthesized("iCE40UP5K"), emit_src=False)
    used = taken(text, BOARD, estimated.ebr, tmp_path)
    assert (used["dsp"], used["spram"]) == (estimated.dsp, estimated.spram)
    assert estimated.lc == pytest.approx(used["lc"] - component.outputs, rel=0.12, abs=8)


@pytest.mark.parametrize("name", [*ECP5_ENGINES, *BETWEEN])
def test_cost_is_what_synthesis_gives_on_ecp5(name: str, tmp_path: Path) -> None:
    config = ECP5_ENGINES.get(name, ENGINES.get(name))
    assert config is not None
    component, estimated = Alone(config), cost(config, ECP5)
    text = rtlil.convert(component, name="top", platform=Synthesized("LFE5U-25F"), emit_src=False)
    used = taken(text, load_board("ulx3s_25f"), estimated.ebr, tmp_path)
    if name not in BETWEEN:
        assert estimated.lc == pytest.approx(used["lc"], rel=0.12, abs=4)
    assert estimated.ff == pytest.approx(used["ff"] - component.outputs, rel=0.05, abs=6)


def double_scaler(outputs: int, in_dsp: bool, logic: bool) -> DoubleScaler:
    rng = np.random.default_rng(outputs)
    multiplier, exponent = rng.integers(1 << 30, 1 << 31, outputs), rng.integers(-8, -4, outputs)
    bias, raw = rng.integers(-500, 500, outputs), IntType(-20000, 20000)
    return replace(DoubleScaler.of(multiplier, exponent, bias, 3, I8, raw), dsp=in_dsp, logic=logic)


@pytest.mark.parametrize(("in_dsp", "logic"), [(True, True), (True, False), (False, True)])
def test_requantizer_cost_of_double_rounding_is_what_synthesis_and_packing_give(
    in_dsp: bool, logic: bool, tmp_path: Path
) -> None:
    scaler = double_scaler(16, in_dsp, logic)
    estimated = requantizer_cost(scaler, scaler.raw, 1)
    unit = make_requantizer(scaler, (scaler.raw.low, scaler.raw.high), 1)
    text = rtlil.convert(unit, name="top", platform=Synthesized("iCE40UP5K"), emit_src=False)
    used = taken(text, BOARD, estimated.ebr, tmp_path, in_dsp)
    assert used["dsp"] == estimated.dsp
    assert estimated.lc == pytest.approx(used["lc"], rel=0.1)


def common_steps(name: str, **flags: bool) -> CommonSteps:
    code = ACTIVATIONS[name][0]
    function = normal(drawn(name, 16), code)
    common = find_common_steps(function.steps, function.codes, code, function.raw)
    assert common is not None
    return replace(common, **flags)


COMMON = [("tanh", False, True), ("tanh", True, False), ("gelu", False, False), ("softplus", True, True)]


@pytest.mark.parametrize(("name", "in_dsp", "logic"), COMMON)
def test_requantizer_cost_of_common_steps_is_what_synthesis_and_packing_give(
    name: str, in_dsp: bool, logic: bool, tmp_path: Path
) -> None:
    common = common_steps(name, dsp=in_dsp, logic=logic)
    estimated = requantizer_cost(common, common.raw, 1)
    unit = make_requantizer(common, (common.raw.low, common.raw.high), 1)
    text = rtlil.convert(unit, name="top", platform=Synthesized("iCE40UP5K"), emit_src=False)
    used = taken(text, BOARD, estimated.ebr, tmp_path, in_dsp)
    assert (used["ebr"], used["dsp"]) == (estimated.ebr, estimated.dsp)
    assert estimated.lc == pytest.approx(used["lc"], rel=0.1)


@pytest.mark.parametrize(("name", "in_dsp", "logic"), COMMON)
def test_requantizer_cost_of_common_steps_is_what_synthesis_gives_on_ecp5(
    name: str, in_dsp: bool, logic: bool, tmp_path: Path
) -> None:
    common = common_steps(name, dsp=in_dsp, logic=logic, registered=True)
    estimated = requantizer_cost(common, common.raw, 1, family=ECP5)
    unit = make_requantizer(common, (common.raw.low, common.raw.high), 1)
    text = rtlil.convert(unit, name="top", platform=Synthesized("LFE5U-25F"), emit_src=False)
    used = taken(text, load_board("ulx3s_25f"), estimated.ebr, tmp_path, in_dsp)
    assert (used["ebr"], used["dsp"]) == (estimated.ebr, estimated.dsp)
    assert estimated.lc == pytest.approx(used["lc"], rel=0.1)
    assert estimated.ff == pytest.approx(used["ff"], rel=0.08)


@pytest.mark.parametrize("board", [BOARD, load_board("ulx3s_25f")], ids=lambda board: board.family)
def test_what_is_remembered_is_what_the_tools_give(board: Board, tmp_path: Path) -> None:
    config = ENGINES["concat"]
    platform = Synthesized("iCE40UP5K" if board == BOARD else "LFE5U-25F")
    text = rtlil.convert(Alone(config), name="top", platform=platform, emit_src=False)
    planned = cost(config, FAMILIES[board.family]).ebr
    (tmp_path / "other").mkdir()
    assert taken(text, board, planned, tmp_path) == measured(text, board, planned, tmp_path / "other")


def test_a_design_that_is_not_remembered_is_synthesized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tools(rtlil: str, *rest: object) -> dict[str, int]:
        asked.append(rtlil)
        return {"lc": 1}

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("tests.synthesized.measured", tools)
    assert taken("changed", BOARD, 0, tmp_path) == {"lc": 1}
    assert asked == ["changed"]


@pytest.mark.parametrize(("bits", "cells"), [(2, 2), (3, 6), (5, 6), (8, 10), (16, 18)])
def test_adder_lc_on_ecp5_has_a_bit_more_that_brings_the_carry(bits: int, cells: int) -> None:
    assert ECP5.price(adder(bits)).lc == cells
    assert ICE40.price(adder(bits)).lc == bits


@pytest.mark.parametrize(("depth", "luts"), [(16, 1.0), (17, 1.1), (32, 2.0), (40, 3.9), (100, 8.0), (144, 11.1)])
def test_lut_rom_lc_on_ecp5_is_what_was_measured(depth: int, luts: float) -> None:
    assert lut_rom_lc(depth, ECP5) == pytest.approx(luts, rel=0.2)


@pytest.mark.parametrize(("words", "luts"), [(512, 0.0), (768, 2.0), (1280, 3.0), (1792, 5.0), (2304, 8.0)])
def test_bank_mux_lc_on_ice40_is_what_was_measured(words: int, luts: float) -> None:
    assert bank_mux_lc(words, 16, ICE40) == pytest.approx(luts, abs=0.5)


def test_counter_lc_grows_with_its_count() -> None:
    assert ICE40.price(counter(1)).lc == 0
    grown = [ICE40.price(counter(count)).lc for count in (2, 4, 16, 256)]
    assert grown == sorted(grown)
    assert all(ICE40.price(counter(count)).lc >= counter_bits(count) for count in range(1, 300))


def test_tree_widths_carry_one_more_bit_a_level() -> None:
    assert tree_widths([4]) == []
    assert tree_widths([4, 4, 4]) == [[5, 4], [6]]


def test_rom_leaves_out_bits_that_never_change() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2, (256, 16)) << 3
    assert ICE40.price(rom_parts(words, False)).ebr == 1
    assert ICE40.price(rom_parts(words | 5, False)).ebr == 1
    assert ECP5.price(rom_parts(words, False)).ebr == 1
    assert ICE40.price(rom_parts(np.full((256, 16), 9), False)).ebr == 0
    assert ICE40.price(rom_parts(words[:1], False)) == ICE40.price(rom_parts(words[:1], True))


def test_rom_of_few_words_shares_equal_columns() -> None:
    words = np.array([[0, 1, 1], [1, 0, 1]])
    assert ICE40.price(rom_parts(words.repeat(10, axis=1), True)).lc == 2


def test_cost_of_matmul_in_logic_has_no_block_ram() -> None:
    config = matmul(I4, I4)
    in_logic = replace(config, logic_pe=config.pe)
    assert cost(config).ebr > cost(in_logic).ebr == 0
    assert cost(in_logic).lc > cost(config).lc
