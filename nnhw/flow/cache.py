"""Results of slow tools, kept by the hash of everything that they depend on.

`NNHW_CACHE` names the folder; `off` switches it off. Without it, it is where the system keeps such things.
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

VARIABLE = "NNHW_CACHE"
_INDEX = "index.json"
_LIMIT_BYTES = 1 << 30


def cache_key(**parts: str | bytes | int | Sequence[str]) -> str:
    """Return a key: the hash of the parts, with their names."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        digest.update(f"{name}:{len(data)}:".encode() + data)
    return digest.hexdigest()


class Cache:
    """A folder of entries; an entry is a few files under a key, whole or absent.

    Parameters
    ----------
    folder: where; None: nothing is kept and nothing is found.
    limit_bytes: beyond which the entries that were used least recently go.
    """

    def __init__(self, folder: Path | None, limit_bytes: int = _LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    @classmethod
    def default(cls) -> Cache:
        """Return the cache of this user."""
        import platformdirs

        named = os.environ.get(VARIABLE, "")
        if named == "off":
            return cls(None)
        return cls(Path(named).absolute() if named else Path(platformdirs.user_cache_dir("nnhw", appauthor=False)))

    def fetch(self, key: str, into: Path) -> bool:
        """Copy the files of an entry into a folder; return whether there was one. A damaged entry is removed."""
        if self.folder is None or not (entry := self._entry(key)).is_dir():
            return False
        try:
            index = json.loads((entry / _INDEX).read_text(encoding="utf-8"))
            contents = {name: (entry / name).read_bytes() for name in index}
            intact = all(_hash(contents[name]) == index[name] for name in index)
        except (OSError, ValueError, AttributeError, TypeError):
            intact = False
        if not intact:
            shutil.rmtree(entry, ignore_errors=True)
            return False
        for name, content in contents.items():
            (into / name).write_bytes(content)
        with contextlib.suppress(OSError):
            os.utime(entry)
        return True

    def store(self, key: str, folder: Path, names: Sequence[str]) -> None:
        """Keep files of a folder as an entry. A cache that cannot be written (full, read-only) is no error."""
        if self.folder is None:
            return
        with contextlib.suppress(OSError):
            entry = self._entry(key)
            entry.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".partial-", dir=self.folder) as scratch:
                staged = Path(scratch) / "entry"
                staged.mkdir()
                index = {name: _hash((folder / name).read_bytes()) for name in names}
                for name in names:
                    shutil.copyfile(folder / name, staged / name)
                (staged / _INDEX).write_text(json.dumps(index), encoding="utf-8")
                # Fails where another process has stored the same in the meantime: then that one stays.
                os.rename(staged, entry)
            self._prune()

    def _entry(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / key

    def _prune(self) -> None:
        """Remove the entries that were used least recently until the rest is within the limit."""
        assert self.folder is not None
        entries = sorted(self.folder.glob("??/*"), key=lambda entry: entry.stat().st_mtime, reverse=True)
        total = 0
        for entry in entries:
            total += sum(file.stat().st_size for file in entry.iterdir())
            if total > self.limit_bytes:
                shutil.rmtree(entry, ignore_errors=True)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
