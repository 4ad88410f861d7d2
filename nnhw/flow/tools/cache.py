"""Results of slow tools, kept by the hash of everything that they depend on.

The environment variable `NNHW_CACHE` names the folder, or switches the cache off with the value `off`. The default is
the user's cache folder of the operating system.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from nnhw.errors import InputError
from nnhw.flow.tools.storage import reason

VARIABLE = "NNHW_CACHE"
_INDEX = "index.json"
_LIMIT_BYTES = 1 << 30


def cache_key(**parts: str | bytes | int | Sequence[str]) -> str:
    """Return the key of an entry: the hash of all parts and their names."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        # With its length in front, no value can pass for the end of one and the beginning of the next.
        digest.update(f"{name}:{len(data)}:".encode() + data)
    return digest.hexdigest()


class Cache:
    """A folder of entries; an entry is a few files under a key, whole or absent.

    Parameters
    ----------
    folder: where; None: nothing is kept and nothing is found.
    limit_bytes: size of all entries beyond which those are removed that were used least recently.
    """

    def __init__(self, folder: Path | None, limit_bytes: int = _LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    @classmethod
    def default(cls) -> Cache:
        """Return the cache of this user; one that is off where the default folder cannot be written.

        Raises
        ------
        InputError: the folder that `NNHW_CACHE` names cannot be written.
        """
        import platformdirs

        named = os.environ.get(VARIABLE, "")
        if named == "off":
            return cls(None)
        folder = Path(named).absolute() if named else Path(platformdirs.user_cache_dir("nnhw", appauthor=False))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Trying is the only sure test of whether a folder can be written, on every system.
            with tempfile.TemporaryFile(dir=folder):
                return cls(folder)
        except OSError as error:
            if not named:
                return cls(None)
            raise InputError(
                f"{VARIABLE} is '{named}', which is no folder that can be written: {reason(error)}; name another "
                f"folder, set it to 'off' to keep nothing, or unset it to use the system's place for caches"
            ) from None

    def fetch(self, key: str, into: Path) -> bool:
        """Copy the files of an entry into a folder; return whether there was one. A damaged entry is removed."""
        contents = self._read(key)
        for name, content in (contents or {}).items():
            (into / name).write_bytes(content)
        return contents is not None

    def find(self, key: str) -> Path | None:
        """Return the folder of an entry, for files that are used where they are, or None; see `fetch`."""
        return None if self._read(key) is None else self._entry(key)

    def drop(self, key: str) -> None:
        """Remove an entry, if there is one, for another to be kept in its place."""
        if self.folder is not None:
            shutil.rmtree(self._entry(key), ignore_errors=True)

    def _read(self, key: str) -> dict[str, bytes] | None:
        """Return the files of an entry, or None where there is none. A damaged entry is removed."""
        if self.folder is None or not (entry := self._entry(key)).is_dir():
            return None
        try:
            index = json.loads((entry / _INDEX).read_text(encoding="utf-8"))
            contents = {name: (entry / name).read_bytes() for name in index}
            # Of the bytes that were read, which are those that `fetch` writes: a file may change in between.
            intact = all(_hash(contents[name]) == index[name] for name in index)
        except (OSError, ValueError, AttributeError, TypeError):
            intact = False
        if not intact:
            shutil.rmtree(entry, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            # The time of an entry is that of its last use, by which `prune` sorts.
            os.utime(entry)
        return contents

    def store(self, key: str, folder: Path, names: Sequence[str]) -> None:
        """Keep files of a folder as an entry. A cache that cannot be written (full, read-only) is no error."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.keep(key, folder, names)

    def keep(self, key: str, folder: Path, names: Sequence[str]) -> Path:
        """Keep files of a folder as an entry, in a cache that is not off; return the entry's folder.

        Raises
        ------
        OSError: the cache cannot be written.
        """
        entry = self._entry(key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=self.folder) as scratch:
            staged = Path(scratch) / "entry"
            staged.mkdir()
            for name in names:
                shutil.copy(folder / name, staged / name)
            index = {name: _hash((folder / name).read_bytes()) for name in names}
            (staged / _INDEX).write_text(json.dumps(index), encoding="utf-8")
            try:
                # A rename of the whole folder: other processes see all files of the entry or none.
                os.rename(staged, entry)
            except OSError:
                if not entry.is_dir():  # else another process has stored the same in the meantime: that one stays
                    raise
        self.prune()
        return entry

    def _entry(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / key

    def prune(self) -> None:
        """Remove the entries that were used least recently until the rest is within the limit; errors are ignored."""
        with contextlib.suppress(OSError):  # another process may be removing the same
            self._prune()

    def _prune(self) -> None:
        assert self.folder is not None
        entries = sorted(self.folder.glob("??/*"), key=lambda entry: entry.stat().st_mtime, reverse=True)
        total = 0
        for entry in entries:
            total += sum(file.stat().st_size for file in entry.iterdir())
            if total > self.limit_bytes:
                shutil.rmtree(entry, ignore_errors=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
