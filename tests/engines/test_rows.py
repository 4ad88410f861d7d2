"""Engines for rows: how often rows follow one another, and how deep the buffer is for that."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.engines.normalize import NormConfig
from nnhw.engines.rows import RowConfig, RowModel
from nnhw.engines.timing import run_pipeline
from nnhw.errors import MappingError
from nnhw.ir.ops import IntegerNorm
from nnhw.ir.types import IntType
from sim import cases

INT8 = IntType(-128, 127)
ROWS = 12


def norm(lanes: int, chunks: int) -> NormConfig:
    """Return a normalization of rows of 8 bits."""
    return NormConfig(INT8, lanes, chunks, ROWS, IntegerNorm(0, 4))


def last_rows(config: RowConfig, words: int) -> np.ndarray:
    """Return the cycles between rows behind the first ones, with a buffer of so many words."""
    model = RowModel(config)
    model.words = words
    _, ends = run_pipeline([model], config.chunks, config.chunks, ROWS, 10_000)
    return np.diff(ends)[4:]


@pytest.mark.parametrize("chunks", [1, 2, 7, 30, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 100, 200])
def test_buffer_has_as_few_words_as_let_no_row_wait(chunks: int) -> None:
    config = norm(1, chunks)
    words = config.buffer.words
    assert set(last_rows(config, words)) == {config.interval}
    assert words < 2 * chunks
    if words > 1:
        assert last_rows(config, words - 1).mean() > config.interval


def test_rows_of_64_take_the_cycles_and_the_buffers_that_the_document_says() -> None:
    norms = [cases.norm(INT8, lanes, 64 // lanes, dsp=True) for lanes in (1, 4)]
    halves = [(cases.powers(INT8, lanes, 64 // lanes), cases.shares(lanes, 64 // lanes, dsp=True)) for lanes in (1, 4)]
    assert [config.interval for config in norms] == [65, 67]
    assert [max(config.interval for config in pair) for pair in halves] == [64, 27]
    assert norms[0].waiting == 63
    assert [config.buffer.words for config in norms] == [127, 31]


def test_engine_for_rows_rejects_a_row_without_beats() -> None:
    with pytest.raises(MappingError, match="needs lanes, chunks and rows of 1 or more, given 2, 0 and 12"):
        norm(2, 0)
