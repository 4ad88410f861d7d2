"""Programs for arrays of all shapes are equal to the interpreter at every layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nnhw.engines.shared import ArrayConfig, Compute
from nnhw.errors import MappingError
from nnhw.mapping.shared import compile_body
from tests.mapping.shared.networks import NETWORKS, perceptron
from tests.mapping.shared.programs import array_of, check_program

ARRAYS = {
    "16x1x8": array_of(16, 1, 8),
    "8x2x8": array_of(8, 2, 8),
    "4x8x8, narrow words": array_of(4, 2, 8, word_bits=16, words=1 << 14),
    "32x2x8, wide words": array_of(32, 2, 8, word_bits=128, drains=2),
    "16x4x4": array_of(16, 4, 4),
    "4x2x4": array_of(4, 2, 4),
    "16x8x2": array_of(16, 8, 2, drains=2),
    "8x2x8, streaming": array_of(8, 2, 8, weight_stream=True),
    "16x4x4, streaming": array_of(16, 4, 4, weight_stream=True),
}
BITS = {
    "plain": 4,
    "depthwise": 4,
    "shallow": 4,
    "residual": 4,
    "pooled": 4,
    "bipolar": 2,
    "grouped": 4,
    "wide": 8,
    "joined": 4,
    "alike": 4,
    "perceptron": 4,
    "zero_point": 8,
    "zero_point_out": 4,
    "bordered": 4,
    "bordered_bipolar": 2,
}


def runs_on(name: str, array: ArrayConfig) -> bool:
    """Return whether an array is wide enough for a network's codes, and not too wide for the parts that it joins."""
    return array.activation_bits >= BITS[name] and not (name == "joined" and array.lanes > 16)


@pytest.mark.parametrize(
    ("name", "array"), [(name, array) for name in NETWORKS for array in ARRAYS if runs_on(name, ARRAYS[array])]
)
def test_program_equals_interpreter_at_every_layer(name: str, array: str) -> None:
    for seed in range(2):
        body = NETWORKS[name](seed)
        check_program(body, compile_body(body, ARRAYS[array]), seed)


def test_weights_that_come_while_they_are_used_need_no_cache() -> None:
    body, small = perceptron(3), array_of(8, 2, 8, rows=32)
    with pytest.raises(MappingError, match=r"layer 'linear2' .* needs 160 rows of weights at once, the cache has 32"):
        compile_body(body, small)
    compiled = compile_body(body, replace(small, weight_stream=True))
    assert all(record.streamed for record in compiled.config.records if isinstance(record, Compute))
    check_program(body, compiled, 3)


@pytest.mark.parametrize(
    ("lanes", "records"), [(8, {"weighted_sum7": 1, "sum_pool2d10": 1, "max_pool2d9": 4}), (64, {})]
)
def test_channels_that_are_alike_share_a_record(lanes: int, records: dict[str, int]) -> None:
    compiled = compile_body(NETWORKS["alike"](0), array_of(lanes, 1, 8))
    counts = Counter(record.layer for record in compiled.config.records if isinstance(record, Compute))
    assert records.items() <= counts.items()
    assert set(counts.values()) <= {1, 4}
