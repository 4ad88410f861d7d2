"""Cycle models that pass many cycles at once are then where they would be after as many single steps."""

from __future__ import annotations

import copy
import functools
import random
from collections import Counter
from typing import Any

import pytest

from nnhw.engines.broadcast import BroadcastModel
from nnhw.engines.fifo import FifoModel
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, JoinedPipelineModel
from sim.cases import CASES

HOLDS = 80
"""Times that the handshakes of a model change."""


@functools.cache
def models() -> dict[str, list[Any]]:
    """Return models of all engines of the benches, and of others, by their class."""
    found: dict[str, list[Any]] = {
        "FifoModel": [FifoModel(None)],
        "ForkModel": [ForkConfig(2, 2, 4, 8).model(), ForkConfig(3, 1, 1, 5).model()],
        "JoinedPipelineModel": [JoinedPipelineModel(2, 4), JoinedPipelineModel(3, 6, 9, 8, 4)],
        "ConcatModel": [ConcatConfig(1, (2, 6), 4, 4).model(), ConcatConfig(1, (5, 3, 7), 4, 2, constants=1).model()],
        "BroadcastModel": [BroadcastModel(7, 9)],
    }
    for case in CASES.values():
        model = case().model()
        found.setdefault(type(model).__name__, []).append(model)
    return found


KINDS = (
    "Broadcast",
    "Concat",
    "Fifo",
    "Fork",
    "JoinedPipeline",
    "Pad",
    "Pipeline",
    "Pool",
    "Register",
    "Row",
    "Slice",
    "Window",
)
INPUTS = {"BroadcastModel": 0}
"""Inputs of the models that do not tell them, and have not one."""


def state_of(model: Any) -> tuple[Any, ...]:
    """Return what a model is, what it shows, and what it has counted."""
    counted = [getattr(model, name, None) for name in ("high_water", "was_full")]
    return (model.state(), getattr(model, "o_valids", None) or model.o_valid, *counted)


def pass_cycles(model: Any, rng: random.Random) -> Counter[int]:
    """Drive a model with handshakes that stay for a while; return how many cycles were passed at once, how often."""
    several, passed = hasattr(model, "o_valids"), Counter[int]()
    inputs = getattr(model, "inputs", INPUTS.get(type(model).__name__, 1))
    for _ in range(HOLDS):
        share = rng.random()
        i_valids = [rng.random() < share for _ in range(inputs)]
        o_readies = [rng.random() < 0.7 for _ in range(len(model.o_valids) if several else 1)]
        given: Any = (i_valids, o_readies) if several else (i_valids[0], o_readies[0])

        def ready(one: Any, given: Any = given, several: bool = several) -> Any:
            return one.ready(given[1], given[0]) if several else one.ready(given[1])

        for _ in range(rng.randrange(1, 9)):
            cycles = min(model.steady(*given), rng.randrange(1, 20))
            if cycles <= 0:
                model.step(*given)
                continue
            plain, answer, shown = copy.deepcopy(model), ready(model), state_of(model)[1]
            for _ in range(cycles):
                assert ready(plain) == answer
                assert plain.step(*given)
                assert state_of(plain)[1] == shown
            model.skip(*given, cycles)
            assert state_of(model) == state_of(plain)
            passed[cycles] += 1
    return passed


@pytest.mark.parametrize("kind", KINDS)
def test_skipped_cycles_are_as_many_single_ones(kind: str) -> None:
    rng, passed = random.Random(kind), Counter[int]()
    for model in models()[f"{kind}Model"]:
        passed += pass_cycles(model, rng)
    assert sum(passed.values()) > 30
    assert max(passed) > 2
