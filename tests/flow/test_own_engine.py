"""An engine from outside of nnhw: registered, mapped, simulated; and mistakes in it, each found."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import nnhw
from nnhw.accelerator import Accelerator
from nnhw.engines.own import ENGINES, OwnEngine, register
from nnhw.errors import BuildError, ExactnessError, InputError, IrError, MappingError
from nnhw.flow.models.extensions import VARIABLE, load_extensions
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.frontend import load_source
from nnhw.ir import Op, loads
from nnhw.ir.ops import OPS

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "median_voter.py"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget what a test registers."""
    ops, engines = dict(OPS), dict(ENGINES)
    yield
    for table, before in ((OPS, ops), (ENGINES, engines)):
        table.clear()
        table.update(before)


def example_with(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """Return the path of the example with a few words changed, under the same name."""
    text = EXAMPLE.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = tmp_path / EXAMPLE.name
    path.write_text(text, encoding="utf-8")
    return str(path)


def build(file: str, out: Path, stop_at: str = "map", **options: Any) -> Any:
    return build_file(file, "icebreaker", Options(frames=2, **options), out=out, stop_at=stop_at)


def test_example_equals_its_reference_in_rtl(tmp_path: Path) -> None:
    report = build(str(EXAMPLE), tmp_path / "build", "simulate").report
    assert report["exactness"]["ir_rtl"] == 0
    assert report["exactness"]["layers"]["codes_2"] == 0
    assert report["cycles"]["interval"]["simulated"] == report["cycles"]["interval"]["predicted"]
    assert report["cycles"]["latency"]["simulated"] == report["cycles"]["latency"]["predicted"]
    source = load_source(str(EXAMPLE))
    with nnhw.open(tmp_path / "build", link="model") as device:
        images = torch.randn(5, 3, 16)
        assert (device(images.double()) == nnhw.reference(source.model, source.example_input)(images)).all()


def test_wrong_hardware_is_found_in_rtl(tmp_path: Path) -> None:
    wrong = example_with(tmp_path, ("Mux(a_below_b == a_below_c, c, a)", "Mux(a_below_b == a_below_c, a, c)"))
    with pytest.raises(BuildError, match="differ"):
        build(wrong, tmp_path / "build", "simulate")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (("axis=0)[1]\n\n\n# 3", "axis=0)[0]\n\n\n# 3"), ExactnessError, "changes what quantize 'codes'"),
        (("axis=0)[1]\n\n    def model", "axis=0)[2]\n\n    def model"), InputError, "golden function is not what"),
        (("return self.elements // self.width", "return self.elements"), InputError, "its operator needs"),
        (("return self.elements // self.width", "return self.beats"), InputError, "states no beats and lanes"),
        (("return cls(output.element", "return 1 / 0; cls(output.element"), InputError, "fails in `plan`"),
        (("return operands[0].type", "return dataclasses"), InputError, "fails: NameError"),
        (('name: ClassVar[str] = "median3"', 'name: ClassVar[str] = "maximum"'), InputError, "is one of nnhw's"),
        (
            ('name: ClassVar[str] = "median3"', 'name: ClassVar[str] = "median 3"'),
            InputError,
            "needs a `name` of letters",
        ),
        (('name: ClassVar[str] = "median3"', "name: ClassVar[int] = 3"), InputError, "underscores, given 3"),
        (("    element: IntType\n", "    element: Unknown\n"), InputError, "have a type that is not known"),
    ],
)
def test_mistake_is_found_before_any_hardware(
    tmp_path: Path, change: tuple[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        build(example_with(tmp_path, change), tmp_path / "build")


def test_engine_with_the_name_of_a_class_of_nnhw_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "named.py"
    path.write_text(EXAMPLE.read_text(encoding="utf-8").replace("Median3Engine", "Scaler"), encoding="utf-8")
    with pytest.raises(InputError, match=r"engine 'Scaler' of layer .* has the name of a class of nnhw"):
        build(str(path), tmp_path / "build")


def test_refused_engine_leaves_the_one_before(tmp_path: Path) -> None:
    load_source(example_with(tmp_path))
    before = dict(ENGINES)
    with pytest.raises(InputError, match="have a type that is not known"):
        load_source(example_with(tmp_path, ("    element: IntType\n", "    element: Unknown\n")))
    assert before == ENGINES != {}


def test_lanes_that_the_engine_refuses_are_not_taken(tmp_path: Path) -> None:
    line = "        return cls(output.element, output.elements, lanes)"
    only = f"        if lanes != 2:\n            raise ValueError('two lanes only')\n{line}"
    built = build(example_with(tmp_path, (line, only)), tmp_path / "build")
    (config,) = (stage.config for stage in built.accelerator.stages if isinstance(stage.config, OwnEngine))
    assert config.lanes == 2
    never = only.replace("lanes != 2", "lanes")
    with pytest.raises(MappingError, match="two lanes only"):
        build(example_with(tmp_path, (line, never)), tmp_path / "other")


def test_shared_engine_refuses_by_name(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"\(own\) does not run on a shared engine|engine .* of its own"):
        build(str(EXAMPLE), tmp_path / "build", style="shared")


def test_build_is_read_by_who_knows_its_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "build"
    build(str(EXAMPLE), folder)
    for operator in list(ENGINES):
        OPS.pop(operator.name)
    ENGINES.clear()
    with pytest.raises(BuildError, match="no configuration 'Median3Engine'; if it is an engine of yours, import it"):
        Accelerator.load(folder)
    with pytest.raises(IrError, match=r"unknown operator 'median3'.*--extension MODULE"):
        loads((folder / "lower.ir").read_text(encoding="utf-8"))
    monkeypatch.delenv(VARIABLE, raising=False)
    load_extensions([str(EXAMPLE)])
    assert os.environ.pop(VARIABLE) == str(EXAMPLE)
    assert any(isinstance(stage.config, OwnEngine) for stage in Accelerator.load(folder).stages)


def test_extension_that_fails_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"broken.py' cannot be imported: .*ZeroDivisionError"):
        load_extensions([str(path)])
    other = tmp_path / "other" / "broken.py"  # a file of the same name is another one
    other.parent.mkdir()
    other.write_text("raise KeyError(7)\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot be imported: .*KeyError"):
        load_extensions([str(other)])
    with pytest.raises(InputError, match="no_such_module' cannot be imported: ModuleNotFoundError"):
        load_extensions(["no_such_module"])


class Plain(Op):
    """Not a dataclass of its own."""

    name: ClassVar[str] = "plain"
    arity: ClassVar[int] = 1


def test_register_takes_frozen_dataclasses_alone() -> None:
    with pytest.raises(InputError, match="'Plain' must be a frozen dataclass"):
        register(Plain, OwnEngine)
    with pytest.raises(InputError, match="needs a subclass of Op, given 3"):
        register(3, OwnEngine)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a subclass of OwnEngine"):
        register(next(iter(OPS.values())), int)  # type: ignore[type-var, arg-type]


def test_field_cannot_have_the_name_of_what_every_engine_says() -> None:
    for name in ("cycles", "lanes"):
        problem = (
            f"engine 'Taken' has a field '{name}', and every engine has a property of that name; "
            "give the field another name"
        )
        with pytest.raises(InputError, match=f"^{re.escape(problem)}$"):
            type("Taken", (OwnEngine,), {"__annotations__": {"width": int, name: int}})


def test_operators_of_one_name_are_told_apart() -> None:
    load_source(str(EXAMPLE))
    operator, engine = next(iter(ENGINES.items()))
    other = dataclasses.make_dataclass("Other", [], bases=(operator,), frozen=True)
    with pytest.raises(InputError, match="is registered as 'median3'; take another `name`"):
        register(other, engine)
    same_engine = dataclasses.make_dataclass("Another", [], bases=(operator,), frozen=True)
    same_engine.name = "another"
    with pytest.raises(InputError, match="an engine 'Median3Engine' is registered, of operator 'median3'"):
        register(same_engine, engine)
    load_source(str(EXAMPLE))  # once more: it takes the place of the first
    assert np.array_equal(operator().evaluate(*np.array([[1], [5], [3]])), [3])
