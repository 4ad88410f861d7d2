"""PyTorch's own models are built exactly, or refused in a sentence; none crashes, none is wrong."""

from __future__ import annotations

import pytest

from tests.frontend.cases import BUILT, REFUSED, Case, check, outcome

torch_cases = pytest.importorskip("tests.frontend.torch_cases", reason="needs expecttest", exc_type=ImportError)
doors_table = pytest.importorskip("tests.frontend.doors_table")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("case", torch_cases.cases(), ids=str)
def test_case_is_built_and_equal_or_refused_by_name(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("source", [torch_cases.EXPORT_DB, torch_cases.QUANTIZATION, torch_cases.FX, torch_cases.PT2E])
def test_page_counts_the_cases_as_they_are(source: str) -> None:
    doors_table.check_row(source)


def test_what_is_built_stays_built() -> None:
    kinds = {str(case): outcome(case).kind for case in torch_cases.cases()}
    for name in ("ResNetBase", "ActivationsTestModel", "ModelWithSequentialFusion", "ConvTransposeModel"):
        assert kinds[f"{torch_cases.QUANTIZATION}-{name}"] == BUILT
    assert {kind for name, kind in kinds.items() if name.startswith(torch_cases.FX)} >= {REFUSED}
