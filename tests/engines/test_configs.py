"""Engine parameters: what is refused, and how values become bits."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.accelerator.stages import BUILT_IN
from nnhw.engines.contract import EngineConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.encoding import bits_for_range, decode, encode, pack_words, unpack_words
from nnhw.engines.loop_nest import LoopNest
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pack import PackConfig
from nnhw.engines.shared import SharedConfig
from nnhw.engines.unpack import UnpackConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.hdl.engine import HARDWARE
from nnhw.ir import BIPOLAR, IntType
from nnhw.mapping.cost.engines import PARTS


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[IntType, np.ndarray]:
    """Return a type and values of it."""
    if draw(st.booleans()):
        return BIPOLAR, np.array(draw(st.lists(st.sampled_from([-1, 1]), min_size=1, max_size=40)))
    low = draw(st.integers(-300, 300))
    high = draw(st.integers(low, low + 600))
    return IntType(low, high), np.array(draw(st.lists(st.integers(low, high), min_size=1, max_size=40)))


@given(typed_values())
def test_encoding_round_trips(given_values: tuple[IntType, np.ndarray]) -> None:
    dtype, values = given_values
    patterns = encode(values, dtype)
    assert ((patterns >= 0) & (patterns < 1 << dtype.bits)).all()
    assert (decode(patterns, dtype) == values).all()


@given(st.integers(1, 12), st.integers(1, 9), st.data())
def test_words_round_trip(bits: int, lanes: int, data: st.DataObject) -> None:
    rows = data.draw(
        st.lists(st.lists(st.integers(0, 2**bits - 1), min_size=lanes, max_size=lanes), min_size=1, max_size=6)
    )
    assert (unpack_words(pack_words(np.array(rows), bits), lanes, bits) == np.array(rows)).all()


@given(st.integers(-5000, 5000), st.integers(0, 5000))
def test_range_takes_the_fewest_bits(low: int, more: int) -> None:
    high = low + more
    bits, signed = bits_for_range(low, high)
    least = -(1 << (bits - 1)) if signed else 0
    assert least <= low
    assert high <= least + (1 << bits) - 1
    assert bits == 1 or (low < least // 2 if signed else False) or high > (least + (1 << bits) - 1) // 2


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), min_size=1, max_size=4))
def test_jumps_lead_through_all_addresses(loops: list[tuple[int, int]]) -> None:
    nest = LoopNest(tuple(count for count, _ in loops), tuple(stride for _, stride in loops), 8)
    address, walked, counters = 0, [], [0] * len(loops)
    for _ in range(nest.length):
        walked.append(address)
        level = 0
        while level < len(loops) and counters[level] == nest.counts[level] - 1:
            counters[level] = 0
            level += 1
        if level < len(loops):
            counters[level] += 1
        address = (address + nest.jumps()[level]) % 256
    assert walked == nest.addresses()
    assert address == 0


def matmul(**changes: Any) -> MatmulConfig:
    parameters: dict[str, Any] = {"pe": 4, "simd": 4, "hop": 2, "drain": 1} | changes
    return MatmulConfig(
        weights=np.ones((8, 32), dtype=np.int64),
        activation=BIPOLAR,
        weight=BIPOLAR,
        thresholds=None,
        vectors=1,
        **parameters,
    )


def test_matmul_rejects_what_does_not_divide() -> None:
    with pytest.raises(MappingError) as caught:
        matmul(pe=3, simd=5)
    assert str(caught.value) == (
        "matmul engine: pe 3 must divide outputs 8; simd 5 must divide inputs 32; hop 2 must divide pe 3"
    )


@pytest.mark.parametrize(
    ("steps", "changes", "late"),
    [
        (64, {}, 0),
        (64, {"logic_pe": 1}, 0),  # as many words as logic gives in a cycle
        (65, {}, 0),
        (65, {"logic_pe": 1}, 1),
        (65, {"tail_words": 1}, 1),
    ],
)
def test_matmul_waits_for_weights_that_are_read_in_two_cycles(steps: int, changes: dict[str, int], late: int) -> None:
    config = MatmulConfig(2, 1, 2, 1, np.ones((2, steps), dtype=np.int64), BIPOLAR, BIPOLAR, None, 1, **changes)
    assert config.late == late
    assert config.array_latency == late + 4  # hop, lanes, accumulator, drain


def test_matmul_rejects_a_drain_that_is_too_slow() -> None:
    with pytest.raises(MappingError) as caught:
        matmul(pe=8, simd=8, hop=1)
    assert str(caught.value) == (
        "matmul engine: draining takes 7 + 8 cycles but a fold has only 4; use a larger drain or hop"
    )


def test_convert_rejects_lanes_that_do_not_divide() -> None:
    with pytest.raises(MappingError) as caught:
        ConvertConfig(3, 2, 1, 6)
    assert str(caught.value) == "width converter needs lanes that divide each other, given 3 and 2"


def test_window_rejects_a_line_buffer_that_is_too_small() -> None:
    with pytest.raises(MappingError) as caught:
        WindowConfig(8, 8, 2, (3, 3), (1, 1), (2, 2), 1, 1, 1, 4, 5)
    assert str(caught.value) == "window needs a line buffer of 4 rows of 16 words, given 32 words"


def test_every_engine_has_a_row_in_every_table() -> None:
    def below(kind: type) -> set[type]:
        own = {kind} if kind.__module__.startswith("nnhw.engines") and not inspect.isabstract(kind) else set()
        return own.union(*map(below, kind.__subclasses__()))

    engines = below(EngineConfig)
    assert engines == set(BUILT_IN)
    # The hardware of a shared engine is made of its array, and so are its parts.
    assert engines - {SharedConfig} == HARDWARE.keys()
    assert engines - {SharedConfig} == PARTS.keys() - {PackConfig, UnpackConfig}


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_types_of_all_parameters_are_known_where_an_accelerator_is_loaded(kind: type[EngineConfig]) -> None:
    hints = get_type_hints(kind)
    assert {field.name for field in dataclasses.fields(kind)} <= set(hints)  # type: ignore[arg-type]
