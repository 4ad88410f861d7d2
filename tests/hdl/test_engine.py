"""Whole accelerators in Amaranth's simulator: outputs equal the IR, cycles equal the prediction."""

from __future__ import annotations

import pytest

from nnhw import ir
from nnhw.engines.timing import run_pipeline
from nnhw.hdl.engine import ByteEngine, Engine
from nnhw.ir import Graph, IntType
from nnhw.mapping.schedule import FRAMES
from tests.hdl.streams import check, run_stream
from tests.sim.networks import (
    INT4,
    NETWORKS,
    ROOMY,
    SMALL,
    UINT2,
    Chain,
    accelerator_of,
    random_body,
    random_codes,
)


def run(body: Graph, pattern: tuple[str, str]) -> None:
    """Run random frames through the accelerator of a body; check outputs, and cycles where nothing stalls."""
    accelerator = accelerator_of(body, SMALL)
    codes = random_codes(body, FRAMES)
    (values,) = ir.run(body, codes)
    expected = accelerator.output_format.pack_beats(values).reshape(-1).tolist()
    rows = accelerator.input_format.pack_beats(codes)
    i_beats = [int.from_bytes(row.tobytes(), "little") for row in rows]
    result = run_stream(Engine(accelerator), i_beats, len(expected), pattern)
    check(result, expected)
    if pattern == ("none", "none"):
        o_bytes = accelerator.output_format.frame_beats
        last = result.cycles[o_bytes - 1 :: o_bytes]
        models = [stage.config.model() for stage in accelerator.stages]
        predicted = run_pipeline(models, accelerator.input_format.frame_beats, o_bytes, FRAMES, limit_cycles=50_000)
        assert (result.first, last) == predicted
        assert last[0] - result.first + 1 == accelerator.schedule.latency_cycles
        assert [cycle - result.first for cycle in last] == accelerator.schedule.ends(FRAMES)


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "random"), ("none", "rare")], ids="-".join)
@pytest.mark.parametrize("name", NETWORKS)
def test_engine_equals_ir_and_prediction(name: str, pattern: tuple[str, str]) -> None:
    run(NETWORKS[name](), pattern)


@pytest.mark.parametrize(("inputs", "dtype", "outputs"), [(49, UINT2, 7), (21, IntType(-4, 3), 3), (13, INT4, 4)])
@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "bursts")], ids="-".join)
def test_byte_engine_equals_ir_where_elements_fill_no_bytes(
    inputs: int, dtype: IntType, outputs: int, pattern: tuple[str, str]
) -> None:
    body = Chain("net", (inputs,), dtype).linear(outputs, INT4).linear(3, INT4, None).body()
    accelerator = accelerator_of(body, ROOMY)
    assert accelerator.input_format.lanes
    assert accelerator.input_format.frame_bytes == -(-inputs * dtype.bits // 8)
    codes = random_codes(body, FRAMES)
    (values,) = ir.run(body, codes)
    expected = accelerator.output_format.pack(values).reshape(-1).tolist()
    i_bytes = accelerator.input_format.pack(codes).reshape(-1).tolist()
    check(run_stream(ByteEngine(accelerator), i_bytes, len(expected), pattern), expected)


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "bursts")], ids="-".join)
@pytest.mark.parametrize("code", [UINT2, None], ids=["codes", "sums"])
def test_byte_engine_equals_ir_where_results_are_packed(code: IntType | None, pattern: tuple[str, str]) -> None:
    body = Chain("net", (4,), UINT2).linear(11, INT4, code).body()
    accelerator = accelerator_of(body, ROOMY)
    form = accelerator.output_format
    assert form.packed
    codes = random_codes(body, FRAMES)
    (values,) = ir.run(body, codes)
    i_bytes = accelerator.input_format.pack(codes).reshape(-1).tolist()
    expected = form.pack(values).reshape(-1).tolist()
    assert len(expected) == FRAMES * -(-11 * form.element.bits // 8)
    check(run_stream(ByteEngine(accelerator), i_bytes, len(expected), pattern), expected)


@pytest.mark.parametrize("seed", [0, 1, 2, 5, 6, 7, 56])
def test_engine_equals_ir_for_random_networks(seed: int) -> None:
    body = random_body(seed)
    for pattern in (("none", "none"), ("random", "bursts")):
        run(body, pattern)
