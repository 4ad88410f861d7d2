"""What a user may say about a compilation."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nnhw.boards import load_board
from nnhw.errors import InputError
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import Progress

from .graph_partition import GraphPartition

STAGE_OF_LINK = {"model": "map", "sim": "elaborate"}
"""Link --> the last stage of a build that it needs; a board needs its bitstream."""
_FULL_BUILD = "build"
_FRAMES = 8  # that the RTL simulation checks before a bitstream is made


@dataclass(frozen=True)
class CompileOptions:
    """Options of a compilation by the backend 'nnhw'.

    Parameters
    ----------
    board: name of a board, an alias, or the path of a board file.
    style, fast_for: see `nnhw.build`.
    link: `model` (the exact integer reference in Python), `sim` (the virtual board), `auto` (the only board that is
        plugged in) or the name of a serial port.
    builds: folder where builds are kept; None: the user's cache.
    fallback: whether PyTorch runs a part that does not fit the board; otherwise that is an error.
    max_parts: most parts that the accelerator gets, the largest first. None: no limit with `model` and `sim`; one with
        a board, which runs one at a time.
    clock_mhz, target_fps, seeds: see `nnhw.build`.
    baud: bits/s of a serial port; None: the fastest that was built and at which the device answers.
    show: print the partition as a table on standard error.
    on_partition: called with each partition that is made.
    progress: reports the stages of builds; None: nothing is reported.
    """

    board: str = "icebreaker"
    style: str = "auto"
    fast_for: str = "link"
    link: str = "model"
    builds: Path | str | None = None
    fallback: bool = False
    max_parts: int | None = None
    clock_mhz: float | None = None
    target_fps: float | None = None
    seeds: int = 5
    baud: int | None = None
    show: bool = False
    on_partition: Callable[[GraphPartition], object] | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        for name, kinds, needed in _KINDS:
            value = getattr(self, name)
            # True and False are whole numbers for Python, but not for these options.
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise InputError(f"option '{name}' of the backend 'nnhw' needs {needed}, given {value!r}")
        if self.max_parts is not None and self.max_parts < 1:
            raise InputError(f"option 'max_parts' of the backend 'nnhw' needs 1 or more, given {self.max_parts}")
        if not self.link:
            raise InputError("option 'link' of the backend 'nnhw' needs model, sim, auto or a serial port, given ''")
        if self.builds is not None and Path(self.builds).exists() and not Path(self.builds).is_dir():
            raise InputError(f"option 'builds' of the backend 'nnhw' needs a folder, but '{self.builds}' is a file")
        # Both raise here, when `Backend(..)` is written, and not at the first call of the model.
        load_board(self.board)
        self.build_options()

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> CompileOptions:
        """Return the options of `torch.compile(.., options=given)`.

        Raises
        ------
        InputError: an option does not exist, or has a wrong value. BoardError: the board is not known.
        """
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise InputError(f"options of the backend 'nnhw' are a dict, got {type(given).__name__}")
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                # str: keys of the user's dict may be anything.
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean '{near[0]}'? There are" if near else "there are"
                raise InputError(f"the backend 'nnhw' has no option '{name}'; {hint} {', '.join(known)}")
        return cls(**given)

    @property
    def has_board(self) -> bool:
        """Whether the link leads to a real board."""
        return self.link not in STAGE_OF_LINK

    @property
    def last_stage(self) -> str:
        """The last stage of the build that the link needs."""
        return STAGE_OF_LINK.get(self.link, _FULL_BUILD)

    @property
    def parts(self) -> int | None:
        """Most parts that the accelerator gets; None: any number."""
        return 1 if self.max_parts is None and self.has_board else self.max_parts

    def build_options(self) -> Options:
        """Return the options of `nnhw.build` for the parts.

        Raises: InputError for a value that they cannot have.
        """
        return Options(
            clock_hz=self.clock_mhz * 1e6 if self.clock_mhz else None,
            target_fps=self.target_fps,
            seeds=self.seeds,
            frames=_FRAMES if self.has_board else 0,
            style=self.style,
            fast_for=self.fast_for,
        )


_KINDS: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("board", (str, Path), "the name of a board or the path of a board file"),
    ("style", (str,), "auto, streaming or shared"),
    ("fast_for", (str,), "link or engine"),
    ("link", (str,), "model, sim, auto or the name of a serial port"),
    ("builds", (str, Path, type(None)), "the path of a folder"),
    ("fallback", (bool,), "True or False"),
    ("max_parts", (int, type(None)), "a whole number"),
    ("clock_mhz", (int, float, type(None)), "a number of MHz"),
    ("target_fps", (int, float, type(None)), "a number of frames per second"),
    ("seeds", (int,), "a whole number"),
    ("baud", (int, type(None)), "a whole number"),
    ("show", (bool,), "True or False"),
)
