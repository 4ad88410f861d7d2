"""The build folder: artefacts by stage, each whole or absent, and the manifest that lists them with their hashes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nnhw
from nnhw.errors import BuildError, NnhwError
from nnhw.flow.folder.manifest import MANIFEST, read_json, read_manifest
from nnhw.flow.folder.trust import is_signed, refusal, require_key, sign
from nnhw.flow.tools.storage import LOCK, locked, make_folder, reported, reported_in
from nnhw.reading import check_folder

__all__ = ["MANIFEST", "BuildFolder", "file_hash", "read_json", "remove_partial", "write_json"]

FORMAT_VERSION = 1
_PARTIAL = ".partial-"


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hex.

    Raises
    ------
    BuildError: it cannot be read.
    """
    with reported(f"build file '{path}' cannot be read", "run 'nnhw build' again"), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(path: Path, document: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it.

    Equal documents give equal bytes, so that hashes of files tell whether something has changed.
    """
    partial = path.with_name(f"{_PARTIAL}{path.name}")
    try:
        partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


class BuildFolder:
    """The folder of a build, of one model on one board.

    A stage writes into a folder of its own; `commit` moves its files here one by one, each whole, and names them in the
    manifest last. So a stage that the manifest names is complete, whatever interrupted the build before or after.

    Parameters
    ----------
    path: the folder.
    manifest: content of `manifest.json`.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, path: Path, model: str, board: str) -> BuildFolder:
        """Make the folder, or take the one that is there.

        Raises
        ------
        BuildError: the folder holds other files, or another model or board; or it cannot be made.
        """
        make_folder(path)
        fresh = {"format": FORMAT_VERSION, "nnhw": nnhw.__version__, "model": model, "board": board, "stages": {}}
        check_folder(path)
        remove_partial(path)
        if not (path / MANIFEST).is_file():
            # The lock of this very build may lie there: the folder counts as empty.
            if not any(item.name != LOCK for item in path.iterdir()):
                return cls(path, fresh)
            raise BuildError(f"'{path}' holds files, but no {MANIFEST}: it is no build folder; give another with --out")
        manifest = read_manifest(path)
        given = (manifest.get("model"), manifest.get("board"))
        if given != (model, board):
            raise BuildError(
                f"build folder '{path}' holds model '{given[0]}' on board '{given[1]}', not '{model}' on '{board}'; "
                "give another folder with --out, or delete this one"
            )
        # Files of another version are not read; the stages replace them.
        return cls(path, manifest if _is_ours(manifest) else fresh)

    @classmethod
    @contextlib.contextmanager
    def lend(cls, path: Path, model: str, board: str, note: Callable[[str], None]) -> Iterator[BuildFolder]:
        """Lend the folder to one build at a time; a folder that is still empty at the end is removed. See `create`.

        Parameters
        ----------
        note: called with a message when another build has to end first.

        Raises
        ------
        BuildError: see `create`; or the system refuses to write into the folder while it is lent.
        """
        with reported_in(path), locked(path, note):
            yield cls.create(path, model, board)

    @classmethod
    def open(cls, path: Path) -> BuildFolder:
        """Open the folder of a build that has been made.

        Raises
        ------
        BuildError: it is no build folder, or it was made by another version of nnhw.
        """
        with reported(f"build folder '{path}' cannot be read", "give another, or make it with 'nnhw build'"):
            there = (path / MANIFEST).is_file()
        if not there:
            raise BuildError(f"'{path}' is no build folder: it has no {MANIFEST}; make one with 'nnhw build'")
        check_folder(path)
        manifest = read_manifest(path)
        if not _is_ours(manifest):
            raise BuildError(
                f"build folder '{path}' was made by nnhw {manifest.get('nnhw')}, this is nnhw {nnhw.__version__}; "
                "run 'nnhw build' again"
            )
        return cls(path, manifest)

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.manifest["model"])

    @property
    def board(self) -> str:
        """Name of the board."""
        return str(self.manifest["board"])

    def files(self, stage: str) -> dict[str, str | None]:
        """Return {file name: SHA-256 in hex} of a stage, None for logs; empty where it has not run."""
        return dict(self.manifest["stages"].get(stage, {}).get("files", {}))

    def is_intact(self, stage: str) -> bool:
        """Return whether a stage has run and its files have not changed since."""
        return stage in self.manifest["stages"] and all(
            (self.path / name).is_file() and _hash(self.path / name) == digest
            for name, digest in self.files(stage).items()
        )

    def is_current(self, stage: str, key: str) -> bool:
        """Return whether this user's nnhw has run a stage with this key, and its files have not changed since.

        Parameters
        ----------
        key: hash of everything that the stage depends on, see `nnhw.flow.build_stages.stage_key`.
        """
        same = self.manifest["stages"].get(stage, {}).get("key") == key
        return same and self.is_intact(stage) and not self.is_foreign(stage)

    def is_foreign(self, stage: str) -> bool:
        """Return whether somebody else made a stage, or changed it since."""
        entry = self.manifest["stages"].get(stage)
        return entry is not None and not is_signed(stage, entry)

    @contextlib.contextmanager
    def reading(self, *stages: str) -> Iterator[None]:
        """Turn an unexpected exception of a `with` block into BuildError if somebody else made one of the stages."""
        try:
            yield
        except NnhwError:
            raise
        except Exception as error:  # with files of this user's nnhw, it is a mistake of nnhw, whose traceback is needed
            foreign = [stage for stage in stages if self.is_foreign(stage)]
            if not foreign:
                raise
            raise BuildError(
                f"build folder '{self.path}': nothing can be made of its stages {', '.join(foreign)}, which this "
                f"user's nnhw did not make ({error!r}); delete the folder, and build the model yourself"
            ) from error

    def text_to_compile(self, stage: str, name: str, trust: bool = False) -> str:
        """Return the text of a file that is going to be compiled; see `nnhw.flow.folder.trust`.

        Parameters
        ----------
        stage, name: the file, and the stage that made it.
        trust: return it even if another user's nnhw has made it.

        Raises
        ------
        BuildError: the stage has not run, its files have changed since, or somebody else made them.
        """
        self.require(stage)
        if not trust and self.is_foreign(stage):
            raise refusal(self.path, self.model, self.board, stage)
        content = (self.path / name).read_bytes()  # read once: it cannot change between the check and the compiler
        if hashlib.sha256(content).hexdigest() != self.files(stage).get(name):
            raise BuildError(f"build folder '{self.path}' has changed files of stage '{stage}'; run 'nnhw build' again")
        return content.decode()

    def trust(self) -> list[str]:
        """Sign all stages as they are; return the names of those that somebody else had made.

        Raises
        ------
        BuildError: files of a stage have changed since it ran, the folder cannot be written, or no key can be kept.
        """
        require_key()
        foreign = [stage for stage in self.manifest["stages"] if self.is_foreign(stage)]
        for stage in foreign:
            self.require(stage)
            self.manifest["stages"][stage]["signature"] = sign(stage, self.manifest["stages"][stage])
        try:
            self._save()
        except OSError as error:
            raise BuildError(
                f"build folder '{self.path}' cannot be written ({error.strerror}); copy it to a folder of your own"
            ) from None
        return foreign

    def require(self, stage: str) -> None:
        """Raise BuildError unless a stage has run and its files have not changed since."""
        if not self.is_intact(stage):
            has_run = stage in self.manifest["stages"]
            what = f"has changed files of stage '{stage}'" if has_run else f"does not have stage '{stage}'"
            why = "" if has_run else ": its last build failed, or stopped before that stage"
            raise BuildError(f"build folder '{self.path}' {what}{why}; run 'nnhw build' again")

    @contextlib.contextmanager
    def staging(self, stage: str) -> Iterator[Path]:
        """Lend an empty folder for a stage's files; it is removed afterwards."""
        folder = Path(tempfile.mkdtemp(prefix=f"{_PARTIAL}{stage}-", dir=self.path))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def is_same(self, stage: str, staged: Path) -> bool:
        """Return whether the files in `staged` are already here, byte by byte; logs are not compared."""
        return self.is_intact(stage) and self.files(stage) == _hashes(staged)

    def commit(self, stage: str, key: str, staged: Path) -> None:
        """Put a stage's files into place and name them in the manifest.

        Parameters
        ----------
        key: hash of everything that the stage depends on.
        staged: what `staging` lent.
        """
        hashes = _hashes(staged)
        # First of all: interrupted between two renames, the manifest names no mixture of old and new files.
        self.drop(stage)
        for name in hashes:
            # A rename within one file system, as `staging` makes its folders in here: each file is whole or absent.
            os.replace(staged / name, self.path / name)
        entry = {"key": key, "files": hashes}
        self.manifest["stages"][stage] = {**entry, "signature": sign(stage, entry)}
        self._save()

    def drop(self, stage: str) -> None:
        """Take a stage out of the manifest, then remove its files."""
        dropped = self.manifest["stages"].pop(stage, None)
        if dropped is not None:
            self._save()
            # Manifest first: interrupted here, files are left that no stage names, which is harmless.
            for name in dropped["files"]:
                (self.path / name).unlink(missing_ok=True)

    def _save(self) -> None:
        write_json(self.path / MANIFEST, self.manifest)


def _hashes(folder: Path) -> dict[str, str | None]:
    return {path.name: _hash(path) for path in sorted(folder.iterdir())}


def _hash(path: Path) -> str | None:
    """Return the hash of an artefact, None for a log: times and paths in it differ from run to run."""
    return None if path.suffix == ".log" else file_hash(path)


def remove_partial(path: Path) -> None:
    """Remove the files and folders that a killed build has left of an unfinished stage."""
    for left in path.glob(f"{_PARTIAL}*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _is_ours(manifest: dict[str, Any]) -> bool:
    return (manifest.get("format"), manifest.get("nnhw")) == (FORMAT_VERSION, nnhw.__version__)
