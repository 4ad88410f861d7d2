"""Running tools: logs, failures, order, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nnhw.errors import ToolError
from nnhw.flow.tools import processes
from nnhw.flow.tools.processes import ToolFailure, ToolRun, error_lines, run, run_each


def python(code: str, folder: Path, log: str = "tool.log") -> ToolRun:
    return ToolRun("python", (sys.executable, "-c", code), folder, log)


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().split()[2] != "Z" if Path("/proc").exists() else True
    except (ProcessLookupError, FileNotFoundError):
        return False


def has_ended(number: int) -> bool:
    """Return whether a process that was killed, and is no child of this one, ends soon."""
    for _ in range(500):
        if not is_running(number):
            return True
        time.sleep(0.01)
    return False


def wait_for(path: Path) -> str:
    for _ in range(1000):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def test_run_keeps_the_log_and_the_folder(tmp_path: Path) -> None:
    run(python("import os, sys; print(os.getcwd()); print('two', file=sys.stderr)", tmp_path))
    assert sorted((tmp_path / "tool.log").read_text().split()) == sorted([str(tmp_path.resolve()), "two"])


def test_run_gives_no_standard_input(tmp_path: Path) -> None:
    run(python("import sys; assert sys.stdin.read() == ''", tmp_path))


def test_run_rejects_failure_with_the_tools_own_lines(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure) as caught:
        run(python("print('fine'); print('ERROR: no such cell'); print('bye'); raise SystemExit(3)", tmp_path))
    assert str(caught.value) == "python failed with exit status 3:\n  ERROR: no such cell"


def test_run_rejects_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        run(ToolRun("yosys 0.70", ("/nowhere/yosys", "x"), tmp_path, "tool.log"))
    assert str(caught.value) == (
        "yosys 0.70 cannot be started: '/nowhere/yosys': No such file or directory; run 'nnhw doctor'"
    )


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("a\nERROR: x\nb\n", ("ERROR: x",)),
        ("\n".join(map(str, range(20))), tuple(map(str, range(12, 20)))),
        ("", ("(it printed nothing)",)),
    ],
)
def test_error_lines_are_the_telling_ones(log: str, expected: tuple[str, ...]) -> None:
    assert error_lines(log) == expected


def test_run_each_runs_all_and_no_more_at_once(tmp_path: Path) -> None:
    code = (
        "import pathlib, time; p = pathlib.Path('{0}.on'); p.touch(); time.sleep(0.2); "
        "print(len(list(pathlib.Path().glob('*.on')))); p.unlink()"
    )
    commands = [python(code.format(index), tmp_path, f"{index}.log") for index in range(5)]
    finished = list(run_each(commands, 2))
    assert sorted(command.log for command in finished) == [f"{index}.log" for index in range(5)]
    assert max(int((tmp_path / f"{index}.log").read_text()) for index in range(5)) == 2


SLEEP = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"


def test_run_each_ends_the_others_when_one_fails(tmp_path: Path) -> None:
    fail = "import pathlib, time\nwhile not pathlib.Path('pid').exists(): time.sleep(0.01)\nraise SystemExit(1)"
    with pytest.raises(ToolFailure):
        list(run_each([python(SLEEP, tmp_path, "a.log"), python(fail, tmp_path, "b.log")], 2))
    assert not is_running(int(wait_for(tmp_path / "pid")))


def test_run_each_ends_the_others_when_the_caller_leaves(tmp_path: Path) -> None:
    done = "import pathlib, time\nwhile not pathlib.Path('pid').exists(): time.sleep(0.01)"
    commands = run_each([python(SLEEP, tmp_path, "a.log"), python(done, tmp_path, "b.log")], 2)
    assert next(commands).log == "b.log"
    commands.close()  # type: ignore[attr-defined]
    assert not is_running(int(wait_for(tmp_path / "pid")))


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT to one process")
def test_run_ends_the_tool_on_ctrl_c(tmp_path: Path) -> None:
    code = (
        # A suite that runs in the background of a shell is started with interrupts ignored.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "import sys, pathlib; from nnhw.flow.tools.processes import ToolRun, run; "
        f"run(ToolRun('t', (sys.executable, '-c', {SLEEP!r}), pathlib.Path({str(tmp_path)!r}), 'tool.log'))"
    )
    root = Path(__file__).parents[2]
    outer = subprocess.Popen([sys.executable, "-c", code], cwd=root, stderr=subprocess.PIPE, text=True)
    inner = int(wait_for(tmp_path / "pid"))
    outer.send_signal(signal.SIGINT)
    _, errors = outer.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert not is_running(inner)


def test_run_ends_a_tool_that_starts_as_ctrl_c_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(command: ToolRun) -> subprocess.Popen[bytes]:
        started.append(real(command))
        signal.raise_signal(signal.SIGINT)
        return started[0]

    real = processes._start
    monkeypatch.setattr(processes, "_start", start)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(python(SLEEP, tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].returncode == -signal.SIGTERM


def test_run_each_kills_what_does_not_go_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GRACE_S", 0.05)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
    done = "import pathlib, time\nwhile not pathlib.Path('pid').exists(): time.sleep(0.01)"
    commands = run_each([python(deaf, tmp_path, "a.log"), python(done, tmp_path, "b.log")], 2)
    assert next(commands).log == "b.log"
    commands.close()  # type: ignore[attr-defined]
    assert not is_running(int(wait_for(tmp_path / "pid")))


CHILD = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
WITH_CHILD = (
    f"import pathlib, subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {CHILD!r}])\n"
    "while not pathlib.Path('pid').exists(): time.sleep(0.01)\n"
)


@pytest.mark.skipif(os.name == "nt", reason="ends the tool alone there")
def test_run_each_kills_what_an_ended_tool_has_started(tmp_path: Path) -> None:
    done = "import pathlib, time\nwhile not pathlib.Path('pid').exists(): time.sleep(0.01)"
    waits = f"{WITH_CHILD}time.sleep(60)"
    commands = run_each([python(waits, tmp_path, "a.log"), python(done, tmp_path, "b.log")], 2)
    assert next(commands).log == "b.log"
    commands.close()  # type: ignore[attr-defined]
    assert has_ended(int(wait_for(tmp_path / "pid")))


@pytest.mark.skipif(os.name == "nt", reason="ends the tool alone there")
@pytest.mark.parametrize("status", [0, 1])
def test_run_kills_what_a_tool_leaves_running(tmp_path: Path, status: int) -> None:
    with pytest.raises(ToolFailure) if status else contextlib.nullcontext():
        run(python(f"{WITH_CHILD}raise SystemExit({status})", tmp_path))
    assert has_ended(int(wait_for(tmp_path / "pid")))


def test_run_ends_a_tool_that_goes_in_circles(tmp_path: Path) -> None:
    script = "import time\nwhile True:\n    print('round', flush=True)\n    time.sleep(0.01)"
    command = ToolRun(
        "tool", (sys.executable, "-c", script), tmp_path, "log", is_stuck=lambda log, _: log.count("round") > 5
    )
    assert list(run_each([command], 1)) == [command]


@pytest.mark.parametrize(
    ("script", "is_stuck"),
    [
        ("import time; time.sleep(600)", lambda _, share: share < 0.5),
        ("for _ in iter(int, 1): pass", lambda _, share: share > 0.05),
    ],
    ids=["sleeps", "works"],
)
def test_run_tells_the_share_of_a_core_that_a_tool_has(
    tmp_path: Path, script: str, is_stuck: Callable[[str, float], bool]
) -> None:
    command = ToolRun("tool", (sys.executable, "-c", script), tmp_path, "log", is_stuck=is_stuck)
    assert list(run_each([command], 1)) == [command]


def test_run_takes_a_failure_that_a_command_expects_for_an_end(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "print('ERROR: no place'); raise SystemExit(1)")
    command = ToolRun("tool", argv, tmp_path, "log", is_stuck=lambda log, _: "no place" in log)
    assert list(run_each([command], 1)) == [command]
    with pytest.raises(ToolFailure, match="no place"):
        run(dataclasses.replace(command, is_stuck=lambda log, _: "other" in log))
