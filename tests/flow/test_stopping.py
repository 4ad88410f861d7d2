"""SIGTERM and SIGHUP end a command as Ctrl-C does: no tool is left running, and nothing is half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nnhw.flow.tools.stopping import Stopped, not_interrupted, stop_on_signals
from tests.flow.test_processes import SLEEP, is_running, wait_for

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

COMMAND = """
import pathlib, signal, sys
from nnhw import cli
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.tools.processes import ToolRun, run

signal.signal(signal.SIGHUP, signal.SIG_IGN if "nohup" in sys.argv else signal.SIG_DFL)

@cli.app.command()
def wait() -> None:
    with BuildFolder.lend(pathlib.Path("b"), "net", "board", print) as folder, folder.staging("build") as staged:
        (staged / "half").touch()
        run(ToolRun("t", (sys.executable, "-c", {sleep!r}), pathlib.Path(), "tool.log"))

sys.argv[1:] = ["wait"]
cli.main()
"""


def start(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a command that waits for a tool; return it, and the tool's process."""
    code = COMMAND.format(sleep=SLEEP)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *arguments]
    outer = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    return outer, int(wait_for(folder / "pid"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_command_ends_its_tools_on_a_signal_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    outer, tool = start(tmp_path)
    assert (tmp_path / "b").is_dir()
    outer.send_signal(number)
    _, errors = outer.communicate(timeout=60)
    assert errors == "interrupted; what was finished before is kept, nothing is half-written\n"
    assert outer.returncode == 128 + number
    assert not is_running(tool)
    assert not (tmp_path / "b").exists()


def test_command_under_nohup_goes_on_when_the_terminal_is_gone(tmp_path: Path) -> None:
    outer, tool = start(tmp_path, "nohup")
    outer.send_signal(signal.SIGHUP)
    assert outer.poll() is None
    assert is_running(tool)
    outer.send_signal(signal.SIGTERM)
    outer.communicate(timeout=60)
    assert outer.returncode == 128 + signal.SIGTERM  # and not SIGHUP, which came first
    assert not is_running(tool)


@pytest.fixture
def handlers() -> object:
    """Give the signals back what they had."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_not_interrupted_keeps_a_signal_back_until_its_end(number: signal.Signals) -> None:
    stop_on_signals()
    done: list[str] = []

    def work() -> None:
        with not_interrupted():
            signal.raise_signal(number)
            done.append("all of the block")
        done.append("and what follows")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert done == ["all of the block"]
    assert isinstance(caught.value, Stopped) == (number != signal.SIGINT)


@pytest.mark.usefixtures("handlers")
def test_second_signal_does_not_interrupt_the_tidying_up() -> None:
    stop_on_signals()
    done: list[str] = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGHUP)
            done.append("tidied up")

    with pytest.raises(Stopped):
        work()
    assert done == ["tidied up"]
