"""Elements become bytes: hardware and golden function, under stalls on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.engines.pack import PackConfig
from nnhw.hdl.pack import Packer
from tests.hdl.streams import check, run_stream

FRAMES = 3


@pytest.mark.parametrize("pattern", [("none", "none"), ("random", "bursts")], ids="-".join)
@pytest.mark.parametrize("bits", range(1, 26))
def test_packer_equals_golden(bits: int, pattern: tuple[str, str]) -> None:
    rng = np.random.default_rng(bits)
    for elements in (1, 2, 5, 8):
        config = PackConfig(bits, elements)
        frames = rng.integers(0, 256, (FRAMES, config.i_beats), dtype=np.uint8)
        expected = [byte for frame in frames for byte in config.golden(frame).tolist()]
        assert len(expected) == FRAMES * config.o_beats
        result = run_stream(Packer(config), frames.reshape(-1).tolist(), len(expected), pattern)
        check(result, expected)
        if pattern == ("none", "none"):
            assert result.cycles[-1] <= FRAMES * (max(config.i_beats, config.o_beats) + 1)
