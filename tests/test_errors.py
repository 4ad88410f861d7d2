"""The words under which a person is told an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nnhw import errors
from nnhw.errors import (
    BoardError,
    BuildError,
    CaptureError,
    DoesNotFitError,
    InputError,
    LinkError,
    LoweringError,
    MappingError,
    MappingProblems,
    ModelFileError,
    NnhwError,
    ProblemList,
    StuckError,
    TimingError,
    ToolError,
    heading,
)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        *((kind("x"), "Input") for kind in (InputError, BoardError, ModelFileError)),
        *((kind("x"), "Not supported") for kind in (CaptureError, LoweringError, MappingError)),
        (DoesNotFitError("x"), "Does not fit"),
        (MappingProblems([DoesNotFitError("a"), MappingError("b")]), "Error"),
        *((kind("x"), "Error") for kind in (BuildError, LinkError, StuckError, TimingError, ToolError, NnhwError)),
        (ProblemList([CaptureError("a"), CaptureError("b")]), "Not supported"),
        (ProblemList([InputError("a"), InputError("b")]), "Input"),
        (ProblemList([InputError("a"), CaptureError("b")]), "Error"),
        (MappingProblems([MappingError("a"), MappingError("b")]), "Not supported"),
    ],
)
def test_heading_is_a_plain_word(error: NnhwError, word: str) -> None:
    assert heading(error) == word


def test_heading_is_no_class_name() -> None:
    def kinds(kind: type[NnhwError]) -> Iterator[type[NnhwError]]:
        yield kind
        for below in kind.__subclasses__():
            yield from kinds(below)

    plain = [kind for kind in kinds(NnhwError) if kind.__module__ == errors.__name__]
    words = {heading(kind([NnhwError("x")]) if issubclass(kind, ProblemList) else kind("x")) for kind in plain}
    assert words == {"Input", "Does not fit", "Not supported", "Error"}
