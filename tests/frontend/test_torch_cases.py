"""PyTorch's own models are built exactly, or refused in a sentence; none crashes, none is wrong."""

from __future__ import annotations

import pytest

from tests.frontend.cases import BUILT, REFUSED, Case, check, check_names, expected, rows

torch_cases = pytest.importorskip("tests.frontend.torch_cases", reason="needs expecttest", exc_type=ImportError)
doors_table = pytest.importorskip("tests.frontend.doors_table")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("case", rows(torch_cases.cases(), torch_cases.long()))
def test_case_is_built_and_equal_or_refused_by_name(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("source", [torch_cases.EXPORT_DB, torch_cases.QUANTIZATION, torch_cases.FX, torch_cases.PT2E])
def test_page_counts_the_cases_as_they_are(source: str) -> None:
    doors_table.check_row(source)


def test_outcomes_are_of_these_cases() -> None:
    check_names(torch_cases.cases())
    kinds = expected()[torch_cases.QUANTIZATION]
    for name in ("ResNetBase", "ActivationsTestModel", "ModelWithSequentialFusion", "ConvTransposeModel"):
        assert kinds[name] == BUILT
    assert REFUSED in expected()[torch_cases.FX].values()
