"""A matrix engine on a large device, whose groups know by registers of their own what they have to do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Module

from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl import matmul, systolic_array
from nnhw.ir.types import IntType
from sim.cases import make_frames
from sim.stalls import PATTERNS
from tests.hdl.streams import check, run_stream

RNG = np.random.default_rng(5)
I4, U4 = IntType(-7, 7), IntType(0, 15)


def config(
    pe: int, simd: int, hop: int, drain: int, shape: tuple[int, int], vectors: int = 3, **flags: bool
) -> MatmulConfig:
    """Return an array without requantizer, with drawn weights of `shape`."""
    return MatmulConfig(pe, simd, hop, drain, RNG.integers(-7, 8, shape), U4, I4, None, vectors=vectors, **flags)


CONFIGS = {
    "folds": config(4, 3, 2, 2, (8, 12), registered=True),
    "one beat a fold": config(2, 4, 2, 2, (4, 4)),
    "one group": config(4, 2, 4, 1, (4, 8)),
    "drains one by one": config(6, 2, 2, 1, (6, 18)),
    "many groups": config(4, 2, 1, 1, (8, 16)),
    "pairs of lanes": config(4, 4, 2, 1, (8, 24), winograd=True),
}


LARGE = SimpleNamespace(device="simulated-85F")


class LargeArray(systolic_array.SystolicArray):
    """The array as it is on an 85F, of cells that can be simulated."""

    def elaborate(self, platform: object) -> Module:
        assert systolic_array.is_spread(self.config, LARGE)
        return super().elaborate(LARGE)


class LargeDevice(matmul.MatmulEngine):
    """The engine around it; Amaranth gives the simulator's platform, which is none, to each part."""

    def elaborate(self, platform: object) -> Module:
        return super().elaborate(LARGE)


@pytest.mark.parametrize("sink", PATTERNS)
@pytest.mark.parametrize("name", CONFIGS)
def test_groups_move_together(name: str, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systolic_array, "SPREAD_BITS", 1)
    monkeypatch.setattr(matmul, "SystolicArray", LargeArray)
    array = CONFIGS[name]
    frames = make_frames(array, count=3)
    result = run_stream(LargeDevice(array), frames.inputs, len(frames.outputs), ("none", sink), array.model())
    check(result, frames.outputs)
