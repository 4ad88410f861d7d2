"""A matrix engine on a large device, whose groups move by enables of their own."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Module

from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl import matmul
from nnhw.ir.types import IntType
from sim.cases import make_frames
from sim.stalls import PATTERNS
from tests.hdl.streams import check, run_stream

WEIGHTS = np.random.default_rng(5).integers(-7, 8, (8, 12))
CONFIG = MatmulConfig(4, 3, 2, 2, WEIGHTS, IntType(0, 15), IntType(-7, 7), None, vectors=3, registered=True)


class LargeDevice(matmul.MatmulEngine):
    """The engine as it is on an 85F, of cells that can be simulated."""

    def elaborate(self, platform: object) -> Module:
        return super().elaborate(SimpleNamespace(device="simulated-85F"))


@pytest.mark.parametrize("sink", PATTERNS)
def test_groups_move_together(sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "SPREAD_BITS", 1)
    frames = make_frames(CONFIG, count=3)
    result = run_stream(LargeDevice(CONFIG), frames.inputs, len(frames.outputs), ("none", sink), CONFIG.model())
    check(result, frames.outputs)
