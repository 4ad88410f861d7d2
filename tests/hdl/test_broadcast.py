"""The source of constants in Amaranth's simulator: results, stream rules and cycles, under stalls."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.engines.broadcast import BroadcastConfig
from nnhw.errors import MappingError
from nnhw.hdl.engine import HARDWARE
from nnhw.ir.types import BIPOLAR, IntType
from sim.cases import INT4, INT8, random_values
from tests.hdl.ports import run_ports
from tests.hdl.test_pairwise import words

FRAMES = 3


def source(element: IntType, count: int, lanes: int) -> BroadcastConfig:
    """Return a source of random constants."""
    return BroadcastConfig(random_values(np.random.default_rng(2), element, (count,)), element, lanes)


SOURCES = {
    "logic": source(INT4, 12, 2),
    "block": source(INT8, 150, 2),
    "bipolar": source(BIPOLAR, 9, 3),
    "one_beat": source(INT4, 3, 3),
}


@pytest.mark.parametrize("pattern", ["none", "alternating", "random", "bursts"])
@pytest.mark.parametrize("name", SOURCES)
def test_constants_come_again_for_each_frame(name: str, pattern: str) -> None:
    config = SOURCES[name]
    expected = FRAMES * words(config.golden(), config.element)
    # It never ends: the harness stops some cycles after as many beats as are expected have left.
    component = HARDWARE[BroadcastConfig](config)
    (sink,) = run_ports(component, [], ["o"], [], [expected], ("none", pattern), config.model(), endless=True)[1]
    assert sink.cycles[0] == config.start or pattern != "none"


def test_source_rejects_lanes_that_do_not_divide_its_constants() -> None:
    with pytest.raises(MappingError, match=r"^a source of 5 constants needs lanes that divide them, 2"):
        source(INT4, 5, 2)
