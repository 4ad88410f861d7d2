"""How far the door for Brevitas goes, as its page says: `python -m tests.frontend.brevitas_table` writes that part."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnhw.errors import ExactnessError, NnhwError
from nnhw.frontend.agreement import own_answers
from nnhw.frontend.capture import capture_quantizers
from nnhw.frontend.probes import probes
from nnhw.ir import run
from nnhw.passes import lower
from tests.frontend.brevitas_cases import Case, bnn_pynq, cases

__all__ = ["Case", "bnn_pynq", "cases", "outcome", "page", "section"]

PAGE = Path(__file__).parents[2] / "docs" / "brevitas.md"
BUILT, REFUSED, WRONG, FAILS = "built", "refused by name", "wrong", "fails in Brevitas itself"
_BEGIN, _END = "<!-- made by tests/frontend/brevitas_table.py -->\n", "<!-- to here -->\n"


@dataclass(frozen=True)
class Outcome:
    """What becomes of a case.

    Parameters
    ----------
    kind: BUILT, REFUSED, WRONG or FAILS.
    message: of the refusal.
    """

    kind: str
    message: str = ""


@functools.cache
def outcome(case: Case) -> Outcome:
    """Capture a case, compare Brevitas's own answers with its graph, and that with the integers it is lowered to."""
    try:
        model, example = case.model()
    except Exception as error:
        return Outcome(FAILS, str(error))
    try:
        captured = capture_quantizers(model, example)
        images = probes(captured.graph, example.numpy())
        own_answers(model, captured, images)
        integers = lower(captured.graph)
    except ExactnessError as error:
        return Outcome(WRONG, str(error))
    except NnhwError as error:
        return Outcome(REFUSED, str(error))
    equal = np.array_equal(run(integers, images)[0], run(captured.graph, images)[0])
    return Outcome(BUILT) if equal else Outcome(WRONG, "the integers are other ones than the graph's")


def section() -> str:
    """Return the part of the page that counts the cases, and names those that are not built."""
    sources = list(dict.fromkeys(case.source for case in cases()))
    counts = Counter((case.source, outcome(case).kind) for case in cases())
    lines = [f"| | cases | {BUILT} | {REFUSED} | {WRONG} | {FAILS} |", "|---|---|---|---|---|---|"]
    for source in sources:
        numbers = [counts[source, kind] for kind in (BUILT, REFUSED, WRONG, FAILS)]
        lines.append(f"| {source} | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    for kind in (REFUSED, FAILS):
        lines += ["", f"{kind[0].upper()}{kind[1:]}:", ""]
        for source in sources:
            names = [case.name for case in cases() if case.source == source and outcome(case).kind == kind]
            lines += [f"- {source}: {'; '.join(names)}"] if names else []
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Return the page with the part as it is now."""
    before, _, rest = text.partition(_BEGIN)
    return before + _BEGIN + "\n" + section() + "\n" + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
