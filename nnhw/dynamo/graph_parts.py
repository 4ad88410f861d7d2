"""Parts that are built, kept and opened: one for each hash of code and weights, for all batches and threads.

Each part has a build folder of its own. A folder that is complete, and was made by this user's nnhw, is opened as it
is, also by other processes.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

import nnhw
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.driver import Device
from nnhw.errors import BuildError, InputError, LinkError, NnhwError
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.pipeline import run_build
from nnhw.flow.running.finished import open as open_build
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.progress import Progress, SilentProgress
from nnhw.flow.tools.sources import code_hash
from nnhw.flow.tools.storage import LOCK, locked, reported_in

from .compile_options import CompileOptions
from .extraction import NAME, Extracted
from .notes import note

_KEPT = "parts"
_SHOWN = 16  # hexadecimal digits of a key in the name of a folder
_TRIED = "lower"  # the last stage of a trial: a model that passes it has an integer form
_SEPARATE = ("lower", "map", "elaborate", "build")

# Held while a part is built, so that no two threads build the same one.
_LOCK = threading.RLock()
_RUNNERS: dict[tuple[str, str, int | None, str], Runner] = {}


class Runner:
    """Computes a part that is built, for batches of any size. The device is opened at the first call.

    Parameters
    ----------
    key: see `key_of`.
    folder: of its build.
    origin: 'built' or 'found on disk'.
    """

    def __init__(self, key: str, folder: Path, origin: str, options: CompileOptions) -> None:
        self.key, self.folder, self.origin = key, folder, origin
        self._link, self._baud, self._on_board = options.link, options.baud, options.has_board
        self._note = _noter(options)
        self._device: Device | None = None
        self._lock = threading.Lock()

    def __call__(self, x: Tensor) -> Tensor:
        """[N, *input shape] --> [N, *output shape] in float64, exactly as `nnhw.reference` computes it.

        Raises
        ------
        LinkError: the device cannot be opened, or failed, or was opened by the process that this one was forked from;
            the next call opens it anew.
        """
        device = self._opened()
        try:
            # In float64, so that the result is rounded once, to its own dtype, which need not be that of the input.
            given = x.detach().cpu()
            result: Tensor = device(given.double() if given.is_floating_point() else given)
        except LinkError:
            self.close()
            raise
        return result

    def _opened(self) -> Device:
        with self._lock:
            if self._device is None:
                self._device = self._open()
            return self._device

    def _open(self) -> Device:
        if self._on_board:
            for other in [*_RUNNERS.values()]:  # a port has one user, and a board runs one part
                if other is not self and other._link == self._link:
                    other.close()
        try:
            return open_build(self.folder, self._link, baud=self._baud, notice=self._note)
        except LinkError as error:
            raise LinkError(f"{error} (the build folder is '{self.folder}')") from error

    def close(self) -> None:
        """Free the device; the next call opens it anew."""
        with self._lock:
            device, self._device = self._device, None
        if device is not None:
            device.close()

    def accelerator(self) -> Accelerator:
        """Return the mapped network, from the build folder."""
        return Accelerator.load(self.folder)


def close() -> None:
    """Free all devices that compiled models have opened, such as serial ports; they are opened again when needed."""
    with _LOCK:
        for runner in _RUNNERS.values():
            runner.close()


atexit.register(close)


def key_of(part: Extracted, options: CompileOptions) -> str:
    """Return the hash of all that a build depends on: graph, weights, options, board, versions of nnhw and torch."""
    build = options.build_options()
    said = {name: getattr(build, name) for name in ("clock_hz", "target_fps", "style", "fast_for")}
    # Seeds count for placing alone, which links without a board do not reach.
    said["seeds"] = build.seeds if options.has_board else None
    return cache_key(
        graph=part.text,
        board=json.dumps(dataclasses.asdict(load_board(options.board)), sort_keys=True),
        options=json.dumps(said, sort_keys=True),
        nnhw=[nnhw.__version__, code_hash(), torch.__version__],
    )


def runner_of(part: Extracted, options: CompileOptions) -> tuple[Runner, str]:
    """Return the runner of a part, and its origin: 'open already', 'found on disk' or 'built'.

    Raises
    ------
    NnhwError: it cannot be built; see `nnhw.build`. Stages that are finished are kept for the next attempt.
    """
    key = key_of(part, options)
    with _LOCK:
        folder = folder_of(key, options)
        # A runner keeps one link open, at one rate.
        name = (key, options.link, options.baud, str(folder))
        if name in _RUNNERS:
            return _RUNNERS[name], "open already"
        origin = "found on disk"
        if not _is_whole(folder, options.last_stage):
            origin = "built"
            _check_port(options)
            _empty_if_damaged(folder, options)
            _build(part, folder, options, options.last_stage)
        _RUNNERS[name] = Runner(key, folder, origin, options)
        return _RUNNERS[name], origin


def _empty_if_damaged(folder: Path, options: CompileOptions) -> None:
    """Empty a folder that no build can go on in, such as one whose manifest a crash has damaged: it is made anew.

    Under the folder's lock, as a build of another process that has just begun has no manifest either.
    """
    if not folder.exists():
        return
    with reported_in(folder), locked(folder, _noter(options)):
        try:
            BuildFolder.create(folder, NAME, load_board(options.board).name)
        except BuildError:
            for item in folder.iterdir():
                if item.is_dir() and not item.is_symlink():
                    shutil.rmtree(item)
                elif item.name != LOCK:
                    item.unlink()


def try_part(part: Extracted, options: CompileOptions) -> None:
    """Check whether a part has an integer form; nothing of it is kept.

    Raises
    ------
    NnhwError: it has none.
    """
    with tempfile.TemporaryDirectory(prefix="nnhw-") as scratch:
        _build(part, Path(scratch) / NAME, options, _TRIED)


def _build(part: Extracted, folder: Path, options: CompileOptions, last: str) -> None:
    """Build a part into its folder up to a stage; a part that has no integer form leaves no folder."""
    try:
        run_build(
            part.source,
            NAME,
            options.board if isinstance(options.board, str) else str(options.board),
            options.build_options(),
            out=folder,
            stop_at=last,
            progress=options.progress or SilentProgress(),
        )
    except NnhwError:
        # Up to map a failure lies in the model, and would come again; later stages may go on from what is there.
        if not _is_whole(folder, "map"):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    # A folder that the user named is the user's to clean.
    if options.builds is None:
        _prune(folder)


def _check_port(options: CompileOptions) -> None:
    """Check that the serial port can be opened, before a build that takes minutes. Raises: LinkError."""
    if options.has_board and not any(runner._device and runner._link == options.link for runner in _RUNNERS.values()):
        from nnhw.driver.links.serial import SerialLink, find_port

        port = find_port() if options.link == "auto" else options.link
        SerialLink(port, options.baud or load_board(options.board).host_link.speed).close()


def folder_of(key: str, options: CompileOptions) -> Path:
    """Return the folder of a part's build.

    Raises
    ------
    InputError: the cache that `NNHW_CACHE` names cannot be written.
    """
    if options.builds is not None:
        return Path(options.builds).absolute() / f"{NAME}-{load_board(options.board).name}-{key[:_SHOWN]}"
    kept = Cache.default().folder
    root = _of_process() if kept is None else kept / _KEPT
    return root / key[:2] / key


@cache
def _of_process() -> Path:
    """Return a folder that is removed when the process ends, for use without a cache."""
    scratch = tempfile.TemporaryDirectory(prefix="nnhw-parts-")
    atexit.register(scratch.cleanup)
    return Path(scratch.name)


def _prune(folder: Path) -> None:
    """Remove the parts used longest ago, until those that are kept fit the limit of the cache."""
    Cache(folder.parents[1]).prune()


def _is_whole(folder: Path, last: str) -> bool:
    """Return whether a folder holds a complete build up to the stage `last`, made by this user's nnhw."""
    try:
        opened = BuildFolder.open(folder)
    except (BuildError, InputError):
        return False
    # Of stages that were made elsewhere, contents are unknown: only this user's own are run without asking.
    needed = _SEPARATE[: _SEPARATE.index(last) + 1]
    return all(opened.is_intact(stage) and not opened.is_foreign(stage) for stage in needed)


def _noter(options: CompileOptions) -> Callable[[str], None]:
    progress: Progress | None = options.progress
    return note if progress is None else progress.note
