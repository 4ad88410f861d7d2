"""How progress is shown: a line per stage, and bars where the number of steps is known."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars


class Progress(Protocol):
    """The interface through which long actions report their progress."""

    def stage(self, name: str, last_s: float | None = None) -> contextlib.AbstractContextManager[None]:
        """Return a context manager around an action; at its end the seconds that it took are shown.

        Parameters
        ----------
        last_s: seconds that it took when it last ran, which a live display shows meanwhile; None: not known.
        """

    def note(self, text: str) -> None:
        """Show a line that stays on the screen."""

    def advance(self, done: int, total: int, what: str = "") -> None:
        """Show how many of `total` steps of the innermost action are done, and in words what goes on."""


class _Notes(logging.Handler):
    """Shows what a part logs as notes: all warnings, and of others one in `period_s` seconds at most, none twice."""

    def __init__(self, progress: Progress, period_s: float) -> None:
        super().__init__(logging.INFO)
        self._progress, self._period_s = progress, period_s
        self._last = time.monotonic()
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        now, text = time.monotonic(), record.getMessage()
        if record.levelno < logging.WARNING and (now - self._last < self._period_s or text in self._shown):
            return
        self._last = now
        self._shown.add(text)
        self._progress.note(text)


@contextlib.contextmanager
def noted(part: str, progress: Progress, period_s: float = 2.0) -> Iterator[None]:
    """Show what a part of nnhw logs while it works as notes, for parts that know no progress; not all that is quick.

    Parameters
    ----------
    part: name of its logger.
    period_s: least seconds between two notes, and in front of the first.
    """
    logger, handler = logging.getLogger(part), _Notes(progress, period_s)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class SilentProgress:
    """A progress that shows nothing."""

    def stage(self, name: str, last_s: float | None = None) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def note(self, text: str) -> None:
        pass

    def advance(self, done: int, total: int, what: str = "") -> None:
        pass


class PlainProgress:
    """Lines for a log: no cursor movements, one line for an action, none for an advance.

    The line of an action begins when the action does. Its seconds end that line, or are on a line of their own where
    something else was said meanwhile.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self.stream = stream or sys.stderr
        self._is_open = False
        """Whether the last line is that of an action, without an end yet."""

    @contextlib.contextmanager
    def stage(self, name: str, last_s: float | None = None) -> Iterator[None]:
        start = time.monotonic()
        self._print(f"{name} ...", end="")
        self._is_open = True
        try:
            yield
            seconds = f"{time.monotonic() - start:.1f} s"
            if self._is_open:
                print(f" {seconds}", end="", file=self.stream)
            else:
                self._print(f"{name}: {seconds}")
        finally:
            self._end_line()

    def note(self, text: str) -> None:
        self._print(text)

    def advance(self, done: int, total: int, what: str = "") -> None:
        pass

    def _print(self, text: str, end: str = "\n") -> None:
        self._end_line()
        print(text, end=end, file=self.stream, flush=True)

    def _end_line(self) -> None:
        if self._is_open:
            self._is_open = False
            print(file=self.stream, flush=True)


class RichProgress:
    """A live display: a spinner with the seconds for each running action, and a bar where a count is known.

    Beside it stands how long it may still take: what the count tells, or the seconds that it took last time.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: Bars | None = None
        self._tasks: list[int] = []
        self._names: dict[int, str] = {}

    @contextlib.contextmanager
    def stage(self, name: str, last_s: float | None = None) -> Iterator[None]:
        start = time.monotonic()
        with self._display() as bars:
            task = bars.add_task(name, total=None, left="" if last_s is None else f"{last_s:.0f} s last time")
            self._tasks.append(task)
            self._names[task] = name
            try:
                yield
                self.console.print(f"[green]✓[/] {name} [dim]{time.monotonic() - start:.1f} s[/]", highlight=False)
            finally:
                self._tasks.remove(task)
                bars.remove_task(task)

    def note(self, text: str) -> None:
        self.console.print(f"  {text}", style="dim", markup=False, highlight=False)

    def advance(self, done: int, total: int, what: str = "") -> None:
        if self._bars is not None and self._tasks:
            name = self._names[self._tasks[-1]]
            task = self._bars.tasks[[task.id for task in self._bars.tasks].index(self._tasks[-1])]  # type: ignore[arg-type]
            left = f", {(task.elapsed or 0) * (total - done) / done:.0f} s left" if 0 < done < total else ""
            shown = f"{name}: {what}" if what else name
            self._bars.update(task.id, completed=done, total=total, left=f"{done} of {total}{left}", description=shown)

    @contextlib.contextmanager
    def _display(self) -> Iterator[Bars]:
        """Yield the live display, which lasts as long as the outermost action."""
        if self._bars is not None:
            yield self._bars
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            *(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()),
            TextColumn("{task.fields[left]}", style="dim"),
        )
        with Progress(*columns, console=self.console, transient=True) as bars:
            self._bars = bars
            try:
                yield bars
            finally:
                self._bars = None


class NamedProgress:
    """The progress of work beside other work: each line says of which stage it is, and no bar is moved.

    A stage is shown at its end alone, as others are under way when it begins.

    Parameters
    ----------
    inner: shows the lines.
    """

    def __init__(self, inner: Progress) -> None:
        self.inner = inner
        self._name = ""

    @contextlib.contextmanager
    def stage(self, name: str, last_s: float | None = None) -> Iterator[None]:
        start, outer, self._name = time.monotonic(), self._name, name
        try:
            yield
        finally:
            self._name = outer
        self.inner.note(f"{name}: {time.monotonic() - start:.1f} s")

    def note(self, text: str) -> None:
        self.inner.note(f"{self._name}: {text}" if self._name else text)

    def advance(self, done: int, total: int, what: str = "") -> None:
        pass


def shown_progress(wanted: Progress | bool) -> Progress:
    """Return the progress to which a call of the Python interface reports.

    Parameters
    ----------
    wanted: a progress of the caller; True: bars in a terminal and in a notebook, nothing elsewhere; False: nothing.
    """
    if not isinstance(wanted, bool):
        return wanted
    if wanted:
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal or console.is_jupyter:
            return RichProgress(console)
    return SilentProgress()


def make_progress(console: Console) -> Progress:
    """Return a live display on a terminal, plain lines elsewhere."""
    return RichProgress(console) if console.is_terminal else PlainProgress(console.file)
