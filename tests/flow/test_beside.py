"""Work beside other work: who ends whom, with which exception, and how many tools run at a time."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from nnhw.errors import BuildError
from nnhw.flow.tools.beside import Beside, current_turn
from nnhw.flow.tools.processes import ToolRun, run, run_each

LONG = "import time; time.sleep(60)"


def python(folder: Path, name: str, code: str = "") -> ToolRun:
    return ToolRun("python", (sys.executable, "-c", code), folder, f"{name}.log")


def test_beside_runs_both_and_waits(tmp_path: Path) -> None:
    done: list[str] = []

    def work() -> None:
        run(python(tmp_path, "work"))
        done.append("work")

    with Beside(work, 2) as beside:
        assert not done
        run(python(tmp_path, "block"))
        beside.finish()
        assert done == ["work"]
    assert current_turn() is None


def test_beside_runs_the_work_where_the_block_has_no_tools() -> None:
    done: list[str] = []
    with Beside(lambda: done.append("work"), 2) as beside:
        beside.finish()
    assert done == ["work"]


def test_beside_failed_work_ends_the_tools_of_the_block(tmp_path: Path) -> None:
    def work() -> None:
        raise BuildError("the RTL differs from the IR")

    with pytest.raises(BuildError, match="the RTL differs from the IR"), Beside(work, 2):
        run(python(tmp_path, "block", LONG))


def test_beside_left_block_ends_the_tools_of_the_work(tmp_path: Path) -> None:
    """Ctrl-C is raised in the block, as the main thread alone has it; no thread is left behind."""
    started = threading.Event()

    def work() -> None:
        for _ in run_each([python(tmp_path, "first"), python(tmp_path, "work", LONG)], 1):
            started.set()
        pytest.fail("the tool came to its end")

    def block() -> None:
        with Beside(work, 2):
            run(python(tmp_path, "block"))
            assert started.wait(30)
            raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        block()
    assert threading.active_count() == before


@pytest.mark.parametrize(("jobs", "shares"), [(2, (1, 1)), (4, (2, 2)), (5, (3, 2))])
def test_beside_divides_the_tools_and_gives_all_to_the_one_that_is_left(
    tmp_path: Path, jobs: int, shares: tuple[int, int]
) -> None:
    found: list[int] = []

    def at_once() -> int:
        turn = current_turn()
        assert turn is not None
        return turn.at_once()

    go = threading.Event()

    def work() -> None:
        found.append(at_once())
        assert go.wait(30)

    with Beside(work, jobs) as beside:
        run(python(tmp_path, "block"))
        found.append(at_once())
        go.set()
        beside.finish()
        assert at_once() == jobs
    assert sorted(found, reverse=True) == list(shares)
