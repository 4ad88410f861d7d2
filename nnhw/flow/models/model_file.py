"""A model in a file, whose program is run only where it may give another model than it has given."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from nnhw.flow.models.calibrate import Calibration, quantize_source
from nnhw.flow.models.watching import Watched, is_state, surroundings, watched
from nnhw.flow.tools.cache import Cache, cache_key
from nnhw.flow.tools.progress import Progress
from nnhw.model_files import model_name, split_name

if TYPE_CHECKING:
    from nnhw.frontend import Source

_STATES = "states.json"
Files = Mapping[str, str | None]
"""Hashes of the files of the stage `capture`, by name."""


class ModelFile:
    """A model in a file, and what is known of its last capture.

    After a capture, the cache keeps what the program in the file has read and looked for, with hashes, under a key that
    holds what else it may be told (arguments, environment, versions) and the files that the capture gave. Where all of
    this is the same and a build has these files, another capture would give them once more.

    Parameters
    ----------
    file: FILE or FILE:NAME, as `nnhw.frontend.load_source` takes it.
    calibration: data with which a float model is quantized; None: the model has quantizers.
    """

    def __init__(self, file: str, calibration: Calibration | None = None) -> None:
        self.file = file
        self.calibration = calibration
        self._seen: Watched | None = None

    @property
    def name(self) -> str:
        """Name of the model, without reading the file."""
        return model_name(self.file)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the file's program while a `with` block runs it; of several blocks, all that it asked for is kept."""
        # Before it is watched: what the import of torch reads is told by its version.
        import nnhw.frontend  # noqa: F401

        _ = self._given  # as it is before the program may change it
        path = os.path.abspath(split_name(self.file)[0])
        self._seen = self._seen or Watched(os.path.dirname(path))
        self._seen.paths.add(path)
        with watched(self._seen):
            yield

    def load(self, progress: Progress) -> Source:
        """Run the file, and quantize its model; see `nnhw.frontend.load_source` and `quantize_source`."""
        from nnhw.frontend import load_source

        with progress.stage("load"), self.watched():
            source = load_source(self.file)
        if self.calibration is None:
            return source
        with progress.stage("quantize"), self.watched():
            return quantize_source(source, self.calibration, progress)

    def is_captured(self, files: Files, key: str) -> bool:
        """Return whether another capture would give the files that a build has.

        Parameters
        ----------
        key: hash of what the stage depends on besides the model.
        """
        kept = Cache.default().find(self._key(files, key))
        if kept is None:
            return False
        known: dict[str, str] = json.loads((kept / _STATES).read_text(encoding="utf-8"))
        return all(is_state(path, state) for path, state in known.items())

    def keep(self, files: Files, key: str) -> None:
        """Keep what the file's program has read, for `is_captured`; nothing where it was not run."""
        cache, states = Cache.default(), None if self._seen is None else self._seen.states()
        if states is None:
            return
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / _STATES).write_text(json.dumps(states), encoding="utf-8")
            cache.drop(self._key(files, key))
            cache.store(self._key(files, key), Path(name), [_STATES])

    def _key(self, files: Files, key: str) -> str:
        return cache_key(kind="capture", key=key, files=json.dumps(files, sort_keys=True), given=self._given)

    @cached_property
    def _given(self) -> str:
        return json.dumps([os.path.abspath(self.file), repr(self.calibration), surroundings()])
