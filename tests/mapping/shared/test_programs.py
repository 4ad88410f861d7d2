"""Programs for arrays of all shapes are equal to the interpreter at every layer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nnhw.engines.shared import ArrayConfig, Compute, StepMemory
from nnhw.errors import MappingError
from nnhw.mapping.shared import compile_body
from tests.mapping.shared.networks import CURVED, NETWORKS, perceptron
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
    "upsampled": 4,
    "shuffled": 4,
}

APART = ("upsampled", "shuffled")
"""Networks with maps that several tasks make."""


def runs_on(name: str, array: ArrayConfig) -> bool:
    """Return whether an array is wide enough for a network's codes, and not too wide for the parts that it joins."""
    return array.activation_bits >= BITS[name] and not (name in ("joined", *APART) and array.lanes > 16)


@pytest.mark.parametrize(
    ("name", "array"), [(name, array) for name in NETWORKS for array in ARRAYS if runs_on(name, ARRAYS[array])]
)
def test_program_equals_interpreter_at_every_layer(name: str, array: str) -> None:
    for seed in range(2):
        body = NETWORKS[name](seed)
        check_program(body, compile_body(body, replace(ARRAYS[array], row_steps=name in APART)), seed)


@pytest.mark.parametrize(
    ("name", "array"),
    [("curved", array) for array in ("16x1x8", "32x2x8, wide words", "4x8x8, narrow words", "8x2x8, streaming")]
    + [("curved_narrow", array) for array in ("16x4x4", "4x2x4", "8x2x8")],
)
def test_program_with_common_steps_equals_interpreter_at_every_layer(name: str, array: str) -> None:
    for seed in range(2):
        body = CURVED[name](seed)
        wide = replace(ARRAYS[array], step_memory=StepMemory(512, 1024, 20), words=1 << 14)
        compiled = compile_body(body, wide)
        through = [one.function for one in compiled.config.records if isinstance(one, Compute) and not one.raw]
        assert set(through) >= {0, 1, 2}
        assert len(compiled.config.functions) == 3
        check_program(body, compiled, seed)


def test_functions_that_are_no_lines_need_a_step_memory_that_holds_them() -> None:
    body, array = CURVED["curved"](0), array_of(16, 1, 8)
    with pytest.raises(MappingError, match=r"layer 'conv2d2' .* the array has no memory of steps; use an array with"):
        compile_body(body, array)
    with pytest.raises(MappingError, match=r"through \d+ words of ranks and places of \d+ bits, the array has 256"):
        compile_body(body, replace(array, step_memory=StepMemory(512, 1024, 2)))
    with pytest.raises(MappingError, match=r"take \d+ words of ranks and \d+ places of \d+ bits .* has 512, 64 and 20"):
        compile_body(body, replace(array, step_memory=StepMemory(512, 64, 20)))


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
