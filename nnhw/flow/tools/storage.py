"""Folders and files: refusals of the operating system as error messages, and locks of build folders."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from nnhw.errors import BuildError, InputError

LOCK = ".lock"
"""File in a build folder that the building process holds locked; it exists only as long as the build runs."""
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
"""Errors of the disk itself, whichever file is written; many of them do not name a file."""


@contextlib.contextmanager
def reported(what: str, remedy: str) -> Iterator[None]:
    """Turn an OSError into a BuildError with the message "<what>: <reason of the system>; <remedy>"."""
    try:
        yield
    except OSError as error:
        raise BuildError(f"{what}: {reason(error)}; {remedy}") from error


@contextlib.contextmanager
def reported_in(folder: Path) -> Iterator[None]:
    """Turn an OSError about a build folder into a BuildError.

    Errors about files elsewhere are not changed, as the user's model may raise them, except errors of the disk itself.
    """
    try:
        yield
    except OSError as error:
        named = [Path(name).absolute() for name in (error.filename, error.filename2) if isinstance(name, str | Path)]
        if error.errno not in _DISK and not any(path.is_relative_to(folder.absolute()) for path in named):
            raise
        raise BuildError(
            f"build folder '{folder}' cannot be written: {reason(error)}; make room, or correct what stands in the "
            "way, and build again; or give another folder with --out"
        ) from error


@contextlib.contextmanager
def system_errors() -> Iterator[None]:
    """Turn any OSError of a command into a BuildError, except BrokenPipeError: whoever reads the output has left."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BuildError(
            f"the system refused to read or write a file: {reason(error)}; see whether it is there, may be used, and "
            "the disk has room"
        ) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it.

    Raises
    ------
    InputError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise InputError(f"'{path}' cannot be written: {reason(error)}; choose another path, or make room") from error


def reason(error: OSError) -> str:
    """Return the system's reason in an OSError, and the file that it names."""
    said = error.strerror or str(error)
    return f"{said} ('{error.filename}')" if error.filename is not None else said


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, unless they exist.

    Raises
    ------
    BuildError: a file is in the way, or it cannot be made.
    """
    with reported(f"build folder '{folder}' cannot be made", "give another with --out"):
        check_folder_place(folder)
        folder.mkdir(parents=True, exist_ok=True)


def check_folder_place(folder: Path) -> None:
    """Check that files can be written into a folder, or that it can be made; nothing is made yet.

    Raises
    ------
    BuildError: a file is in the way, or it may not be written.
    """
    # What is nearest to the folder decides; the folders behind it do not exist yet.
    path = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    if not path.is_dir():
        raise BuildError(f"'{path}' is a file, but a folder is needed there; give another with --out")
    if not os.access(path, os.W_OK | os.X_OK):
        raise BuildError(f"folder '{path}' cannot be written: it is protected; give another with --out")


def check_file_place(path: Path) -> None:
    """Check that a file can be written where a user wants it; nothing is made yet.

    Raises
    ------
    InputError: its folder does not exist or may not be written, or something else has its name.
    """
    folder = path.parent
    if path.exists() and not path.is_file():  # a device would be replaced by the file
        raise InputError(f"'{path}' cannot be written: it exists and is not a file; give another path")
    if not folder.is_dir():
        raise InputError(f"'{path}' cannot be written: there is no folder '{folder}'; make it, or give another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"'{path}' cannot be written: folder '{folder}' is protected; give another path")


@contextlib.contextmanager
def locked(folder: Path, note: Callable[[str], None]) -> Iterator[None]:
    """Make a folder and keep other builds out of it; a folder that is empty at the end is removed.

    Parameters
    ----------
    note: called with a message when another build has to end first.

    Raises
    ------
    BuildError: the folder cannot be made, or files in it cannot be locked.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK)
    noted = False
    while not lock.is_locked:
        make_folder(folder)
        try:
            # The first attempt does not wait, so that the message comes before the wait.
            lock.acquire(blocking=noted)
        except Timeout:
            note(f"another build into '{folder}' is under way: this one begins when that one has ended")
            noted = True
        except FileNotFoundError:
            # The other build has left nothing and removed the folder, after it was made above: make it again.
            if folder.exists():
                raise
    try:
        yield
    finally:
        # Removed before it is released: afterwards another build may hold it.
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
        with contextlib.suppress(OSError):
            # Succeeds only if the build has left nothing in the folder.
            folder.rmdir()
        lock.release()
