"""Running tools as processes: without a shell, with a log, several at a time; none outlives nnhw."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from nnhw.errors import ToolError
from nnhw.flow.tools.beside import current_turn
from nnhw.flow.tools.stopping import not_interrupted

_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_POLL_S = 0.02
_GRACE_S = 2.0
_SHOWN_LINES = 8
_LOG_END_BYTES = 8192


@dataclass(frozen=True)
class ToolRun:
    """One run of a tool, not started yet.

    Parameters
    ----------
    title: of the tool, for messages.
    argv: program and arguments. Files in `folder` are named relative to it: YoWASP's tools have a `/tmp` of their own.
    folder: working directory of the tool.
    log: name of the file in `folder` that takes what the tool prints.
    environment: variables in addition to those of this process.
    is_stuck: called every now and then with the end of the log and the share of a core that the tool has had (0 to 1);
        when it returns True, the tool is ended, and counts as one that succeeded. It is called once more when the tool
        has failed.
    """

    title: str
    argv: tuple[str, ...]
    folder: Path
    log: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    is_stuck: Callable[[str, float], bool] | None = None


class ToolFailure(ToolError):
    """A tool that ran and failed.

    Parameters
    ----------
    command: the run.
    lines: the lines of its log that say why.
    """

    def __init__(self, command: ToolRun, status: int) -> None:
        self.command = command
        self.lines = error_lines((command.folder / command.log).read_text(encoding="utf-8", errors="replace"))
        super().__init__("\n  ".join([f"{command.title} failed with exit status {status}:", *self.lines]))


def run(command: ToolRun) -> None:
    """Run a tool to its end.

    Raises
    ------
    ToolError: it cannot be started.
    ToolFailure: its exit status is not 0.
    """
    for _ in run_each([command], 1):
        pass


def run_each(commands: Iterable[ToolRun], at_once: int) -> Iterator[ToolRun]:
    """Run tools, `at_once` at a time; yield each when it has succeeded.

    Leaving the loop early, an error or Ctrl-C ends the ones that are still running, and so does SIGTERM in the commands
    (`nnhw.flow.tools.stopping`). Ctrl-C arrives in the main thread alone; tools of another thread are ended by it
    through `nnhw.flow.tools.beside`, whose share of the processes holds here, too.

    Raises
    ------
    ToolError: one cannot be started.
    ToolFailure: one failed.
    """
    waiting, running = deque(commands), dict[subprocess.Popen[bytes], ToolRun]()
    turn = current_turn()
    try:
        while waiting or running:
            while waiting and len(running) < (min(at_once, turn.at_once()) if turn else at_once):
                command = waiting.popleft()
                # Ctrl-C between the start of a process and its entry here would leave it running.
                with not_interrupted():
                    running[_start(command)] = command
            if turn:
                turn.check()
            stuck = {
                process
                for process, command in running.items()
                if process.poll() is None and _is_stuck(command, process)
            }
            _stop(stuck)
            ended = [process for process in running if process.poll() is not None]
            for process in ended:
                _signal(process, _KILL)  # what the tool started, and has left running
            for process in ended:
                # Out of `running` before it is yielded: it has ended, so nothing is to be stopped if the caller
                # leaves the loop.
                command = running.pop(process)
                # A tool may end by itself with what its rule calls stuck, such as nextpnr when cells find no place.
                if process.returncode and process not in stuck and not _is_stuck(command, process):
                    raise ToolFailure(command, process.returncode)
                yield command
            if not ended:
                time.sleep(_POLL_S)
    finally:
        _stop(running)


def _is_stuck(command: ToolRun, process: subprocess.Popen[bytes]) -> bool:
    """Return whether a command's own rule `is_stuck` says that its tool makes no progress any more."""
    if command.is_stuck is None:
        return False
    with (command.folder / command.log).open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - _LOG_END_BYTES))
        return command.is_stuck(log.read().decode("utf-8", "replace"), _core_share(process))


def _core_share(process: subprocess.Popen[bytes]) -> float:
    """Return the share of a core that a process has had since it started, 0 to 1; 1 if it has ended."""
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid)
        times = started.cpu_times()
        return min(1.0, (times.user + times.system) / max(_POLL_S, time.time() - started.create_time()))
    return 1.0


def error_lines(log: str) -> tuple[str, ...]:
    """Return the lines of a log that say what went wrong: those with ERROR, else the last ones."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    marked = [line for line in lines if "ERROR" in line]
    return tuple(marked[:_SHOWN_LINES] or lines[-_SHOWN_LINES:] or ["(it printed nothing)"])


def _start(command: ToolRun) -> subprocess.Popen[bytes]:
    """Start a tool in a process group of its own: Ctrl-C then reaches nnhw alone, which ends the group."""
    with (command.folder / command.log).open("wb") as log:
        try:
            return subprocess.Popen(
                command.argv,
                cwd=command.folder,
                env=os.environ | dict(command.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=os.name != "nt",
            )
        except OSError as error:
            raise ToolError(
                f"{command.title} cannot be started: '{command.argv[0]}': {error.strerror}; run 'nnhw doctor'"
            ) from None


def _stop(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """End processes that nnhw started, and theirs; those that have not ended after _GRACE_S seconds are killed."""
    # Not those that have ended before: long after its end, a process's number may be that of somebody else's.
    running = [process for process in processes if process.poll() is None]
    for process in running:
        _signal(process, signal.SIGTERM)
    end = time.monotonic() + _GRACE_S
    try:
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, end - time.monotonic()))
    finally:
        for process in running:
            # In `finally`, so that a second Ctrl-C during the wait leaves no process behind. Also where the tool itself
            # has ended: those that it started may not have.
            _signal(process, _KILL)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a tool and all that it started, whether or not it has ended itself; on Windows end the tool."""
    # macOS refuses signals to a group of which all have ended.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":
            process.terminate()
        else:
            os.killpg(process.pid, number)
