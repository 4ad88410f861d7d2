"""What a family must provide: every table with a row for each family has all of them, and nobody else knows names."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import nnhw
from nnhw.boards import list_boards
from nnhw.driver.openfpgaloader import BITSTREAMS
from nnhw.engines.arithmetic import DSP_OPERAND_BITS
from nnhw.engines.large_ram import LARGE_BITS, LARGE_WORDS
from nnhw.families import FAMILIES, Family
from nnhw.flow.implementation.rewriting import REWRITES
from nnhw.flow.tools.toolchain import TOOLS
from nnhw.hdl.cells import CELLS, cells_of
from nnhw.hdl.cells.base import Cells

PACKAGE = Path(nnhw.__file__).parent
EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))

HOMES = ("families/", "hdl/cells/")
"""Where a family may be called by its name, apart from the rows of tables."""


@pytest.mark.parametrize("rows", [CELLS, REWRITES], ids=["CELLS", "REWRITES"])
def test_table_has_a_row_for_every_family(rows: Mapping[str, Any]) -> None:
    assert rows.keys() == FAMILIES.keys()


def test_families_have_names_files_and_platforms_of_their_own() -> None:
    assert all(name == family.name for name, family in FAMILIES.items())
    assert len({family.platform for family in FAMILIES.values()}) == len(FAMILIES)
    assert BITSTREAMS == tuple(family.tools.bitstream for family in FAMILIES.values())
    assert {board.family for board in list_boards()} == FAMILIES.keys()


@EVERY
def test_family_has_its_two_modules(family: Family) -> None:
    for folder in HOMES:
        assert (PACKAGE / folder / f"{family.name}.py").is_file()


@EVERY
def test_family_is_found_by_the_platforms_of_its_boards(family: Family) -> None:
    class Platform:
        device = f"{family.platform.upper()}-some"

    assert cells_of(Platform()) is CELLS[family.name]
    assert CELLS[family.name].family is family


@EVERY
def test_family_has_cells_for_a_clock_and_for_its_large_rams(family: Family) -> None:
    own = type(CELLS[family.name])
    assert own.pll is not Cells.pll
    assert (own.large_rams is Cells.large_rams) == (family.large_ram is None)


@EVERY
def test_family_suffices_for_what_engines_are_planned_with(family: Family) -> None:
    assert family.dsp.factor_bits >= DSP_OPERAND_BITS
    if family.large_ram is not None:
        assert (family.large_ram.words, family.large_ram.bits) == (LARGE_WORDS, LARGE_BITS)


@EVERY
def test_family_has_tools_that_can_be_found_and_models_that_are_there(family: Family) -> None:
    assert all(name in TOOLS for name in family.tools.names)
    own = family.models.own
    assert own is None or (PACKAGE / "flow" / "verification" / own).is_file()


def names_compared(tree: ast.Module) -> list[int]:
    """Return the lines that compare something with the name of a family."""

    def names(value: ast.expr) -> bool:
        return isinstance(value, ast.Constant) and value.value in FAMILIES

    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    return [node.lineno for node in compared if any(names(value) for value in (node.left, *node.comparators))]


def test_nobody_outside_of_families_compares_their_names() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    found = {
        name: lines
        for name, path in files.items()
        if not name.startswith(HOMES) and (lines := names_compared(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_comparison_with_a_name_is_found() -> None:
    assert names_compared(ast.parse('a = 1\nif family.name == "ecp5":\n    pass\n')) == [2]
