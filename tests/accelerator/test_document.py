"""Configurations in a file are of the types that their classes say, whoever wrote the file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, get_type_hints

import numpy as np
import pytest

from nnhw.accelerator import Accelerator, InputFormat, OutputFormat
from nnhw.accelerator.document import dump, load
from nnhw.accelerator.stages import BUILT_IN, Stage
from nnhw.accelerator.streams import Stream
from nnhw.engines.fork import ForkConfig
from nnhw.engines.shared.array import Requantizing
from nnhw.engines.timing import Schedule
from nnhw.errors import BuildError
from nnhw.ir.types import BIPOLAR, IntType


class Part(Protocol):
    """What has a size."""

    size: int


@dataclass(frozen=True)
class Small:
    size: int = 1


@dataclass(frozen=True)
class Other:
    text: str = "x"


@dataclass(frozen=True)
class Whole:
    count: int
    share: float
    flag: bool
    name: str
    pairs: tuple[tuple[int, int], ...]
    kind: Literal["a", "b"]
    word: Requantizing
    part: Part
    array: np.ndarray | None


TYPES: dict[str, type] = {kind.__name__: kind for kind in (Small, Other, Whole)}
GOOD = Whole(3, 0.5, True, "n", ((1, 2), (3, 4)), "a", Requantizing.DSP, Small(), np.arange(3))


def as_file() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays: dict[str, np.ndarray] = {}
    return json.loads(json.dumps(dump(GOOD, arrays))), arrays


def test_load_is_the_inverse_of_dump() -> None:
    document, arrays = as_file()
    loaded = load(document, arrays, TYPES)
    assert (loaded.array == GOOD.array).all()
    assert {**vars(loaded), "array": None} == {**vars(GOOD), "array": None}
    assert isinstance(loaded.word, Requantizing)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("count", True, "field 'count' of Whole cannot be True"),
        ("count", 1.0, "field 'count' of Whole cannot be 1.0"),
        ("count", "1; $system(1)", "field 'count' of Whole cannot be 1; $system(1)"),
        ("share", 1, "field 'share' of Whole cannot be 1"),
        ("flag", 1, "field 'flag' of Whole cannot be 1"),
        ("name", None, "field 'name' of Whole cannot be None"),
        ("name", "a\x1b[2J", "field 'name' of Whole cannot be a\x1b[2J"),
        ("pairs", [[1, 2], [3]], "field 'pairs' of Whole cannot be ((1, 2), (3,))"),
        ("pairs", 1, "field 'pairs' of Whole cannot be 1"),
        ("kind", "c", "field 'kind' of Whole cannot be c"),
        ("word", "none", "'none' is not a valid Requantizing"),
        ("part", {"type": "Other", "text": "x"}, "field 'part' of Whole cannot be Other(text='x')"),
        ("part", {"type": "os.system"}, "there is no configuration 'os.system'"),
        ("part", {"type": []}, "there is no configuration []"),
        ("part", {"type": "Small"}, "Small has the fields size, given "),
        ("array", {"array": "other"}, "there is no array 'other'"),
        ("array", {}, "there is no array None"),
        ("more", 1, "Whole has the fields count, share, "),
    ],
)
def test_load_rejects_what_is_not_of_the_type_of_its_field(field: str, value: Any, message: str) -> None:
    document, arrays = as_file()
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        load({**document, field: value}, arrays, TYPES)


def accelerator(**changes: Any) -> Accelerator:
    parts = {
        "name": "n",
        "model_hash": "0" * 64,
        "board": "b",
        "stages": fork(),
        "input_format": InputFormat((8,), BIPOLAR, 8),
        "output_format": OutputFormat((8,), IntType(0, 3), 1, 1, np.zeros(8, np.int64)),
        "schedule": Schedule(5, 4),
    }
    return Accelerator(**{**parts, **changes})


def fork(source: int = -1) -> tuple[Stage, ...]:
    return (Stage("a", "a", "a", ForkConfig(2, 1, 1, 8), ((source, 0),), Stream(1, 8, BIPOLAR)),)


OFFSETS = np.zeros(8, np.int64)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_hash": "../x"}, "'../x' is no hash"),
        ({"stages": fork(source=0)}, "reads output 0 of"),
        ({"schedule": Schedule(5, 0)}, "its schedule has no cycles"),
        ({"input_format": InputFormat((), BIPOLAR, 8)}, "no input has shape ()"),
        ({"input_format": InputFormat((1 << 20, 1 << 20), BIPOLAR, 8)}, "no input has shape (1048576, 1048576)"),
        ({"input_format": InputFormat((8,), BIPOLAR, 3)}, "8 elements do not come 3 in a byte"),
        ({"input_format": InputFormat((8,), IntType(0, 15), 8)}, "8 elements do not come 8 in a byte"),
        ({"input_format": InputFormat((8,), BIPOLAR, 8, 2)}, "1 bytes do not come 2 at once"),
        ({"output_format": OutputFormat((-8,), BIPOLAR, 1, 1, OFFSETS)}, "no output has shape (-8,)"),
        ({"output_format": OutputFormat((8,), BIPOLAR, 1, 1, OFFSETS, (4,))}, "1 bytes do not hold"),
        ({"output_format": OutputFormat((8,), IntType(0, 999), 1, 1, OFFSETS)}, "1 bytes do not hold"),
        ({"output_format": OutputFormat((8,), BIPOLAR, 1, 0, OFFSETS)}, "8 offsets and multiplier 0 do not fit"),
        ({"output_format": OutputFormat((8,), BIPOLAR, 1, 1, OFFSETS[:3])}, "3 offsets and multiplier 1 do not fit"),
        ({"output_format": OutputFormat((8,), BIPOLAR, 1, 1, OFFSETS + 0.5)}, "no vector of integers"),
    ],
)
def test_accelerator_rejects_files_whose_parts_do_not_fit(tmp_path: Any, changes: dict[str, Any], message: str) -> None:
    accelerator().save(tmp_path)
    assert Accelerator.load(tmp_path).device_bytes == (1, 8)
    accelerator(**changes).save(tmp_path)
    with pytest.raises(BuildError) as error:
        Accelerator.load(tmp_path)
    assert message in str(error.value)
    assert str(error.value).startswith(f"'{tmp_path / 'accelerator.json'}' describes no accelerator (ValueError(")


@pytest.mark.parametrize("kind", BUILT_IN)
def test_types_of_the_parameters_of_each_engine_are_known_when_a_document_is_read(kind: type) -> None:
    assert set(get_type_hints(kind)) == {field.name for field in fields(kind)}
