"""Models from elsewhere as cases: what becomes of each of them, and how many are built.

`outcomes.json` says what becomes of each case, and pages count what it says. So a page is checked without any case, and
a case without the others. `python -m tests.frontend.doors_table` runs all, and writes the file and the pages' tables.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn
from torch.export import ExportedProgram

from nnhw.errors import ExactnessError, NnhwError
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.frontend.probes import probes
from nnhw.ir import run
from nnhw.passes import lower

BUILT, REFUSED, WRONG, FAILS = "built", "refused by name", "wrong", "fails without nnhw"
KINDS = (BUILT, REFUSED, WRONG, FAILS)
OUTCOMES = Path(__file__).with_name("outcomes.json")
ENOUGH = 512
"""Numbers in an image of which all probes are compared; of larger images, accordingly fewer."""


@dataclass(frozen=True)
class Case:
    """A model that is to be built, or refused by name.

    Parameters
    ----------
    source: where it is from, or a part of that.
    make: returns the model and an example input. An NnhwError is a refusal; what its framework cannot make raises
        anything else.
    """

    source: str
    name: str
    make: Callable[[], tuple[nn.Module | ExportedProgram, Any]]

    def __str__(self) -> str:
        return f"{self.source}-{self.name}"


@dataclass(frozen=True)
class Outcome:
    """What becomes of a case.

    Parameters
    ----------
    kind: one of `KINDS`.
    message: of what is not built.
    """

    kind: str
    message: str = ""


@functools.cache
def outcome(case: Case) -> Outcome:
    """Capture a case, compare its framework's own answers with its graph, and that with the integers behind lowering.

    Any error of nnhw that is no message to the user is raised.
    """
    try:
        model, example = case.make()
    except NnhwError as error:
        return Outcome(REFUSED, str(error))
    except Exception as error:
        return Outcome(FAILS, str(error))
    try:
        return _built(model, example)
    except ExactnessError as error:
        return Outcome(WRONG, str(error))
    except NnhwError as error:
        return Outcome(REFUSED, str(error))


def _built(model: nn.Module | ExportedProgram, example: Tensor) -> Outcome:
    captured = capture_quantizers(model, example)
    images = probes(captured.graph, example.numpy())
    images = images[:: max(1, images[0].size // ENOUGH)]
    own_answers(model, captured, images)
    integers = lower(captured.graph)
    equal = np.array_equal(run(integers, images)[0], run(captured.graph, images)[0], equal_nan=True)
    return Outcome(BUILT) if equal else Outcome(WRONG, "the integers are other ones than the graph's")


@functools.cache
def expected() -> dict[str, dict[str, str]]:
    """Return the kind of outcome that each case has: {source: {name: kind}}."""
    found: dict[str, dict[str, str]] = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    return found


def check(case: Case) -> None:
    """Check that a case is built or refused as it was, and refused in a sentence that says what to do."""
    found = outcome(case)
    assert found.kind != WRONG, found.message
    if found.kind == REFUSED:
        assert "; " in found.message, found.message
        assert "this is a mistake of nnhw" not in found.message, found.message
    assert found.kind == expected()[case.source][case.name], "run: python -m tests.frontend.doors_table"


def check_names(cases: Iterable[Case]) -> None:
    """Check that the cases of some sources are those whose outcomes are written down."""
    names: dict[str, set[str]] = {}
    for case in cases:
        names.setdefault(case.source, set()).add(case.name)
    known = {source: set(expected().get(source, {})) for source in names}
    assert known == names, "run: python -m tests.frontend.doors_table"


def rows(cases: Iterable[Case], long: Collection[str] = ()) -> list[Any]:
    """Return cases as parameters of a test; those that are named in `long` get this mark."""
    made = [pytest.param(case, id=str(case), marks=[pytest.mark.long] * (str(case) in long)) for case in cases]
    assert set(long) <= {row.id for row in made}, sorted(set(long) - {row.id for row in made})
    return made


def row(title: str, sources: Iterable[str]) -> str:
    """Return the row of a table: how many cases some sources have, and of each of `KINDS`."""
    counts = Counter(kind for source in sources for kind in expected()[source].values())
    return f"| {title} | {sum(counts.values())} | {' | '.join(str(counts[kind]) for kind in KINDS)} |"
