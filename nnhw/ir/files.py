"""Graphs as files: the text, and the arrays beside it. The same graph gives the same bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nnhw.errors import InputError, NnhwError
from nnhw.reading import load_npz

from .graph import Graph
from .text import dumps, loads
from .verify import verify

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the least time that a zip archive can state


def save(graph: Graph, path: Path | str) -> tuple[Path, Path]:
    """Write the text to `path` and the arrays beside it, with the suffix .npz; return both paths."""
    text_path = Path(path)
    arrays_path = text_path.with_suffix(".npz")
    arrays_path.write_bytes(pack_arrays(graph.constants))
    text_path.write_bytes(dumps(graph).encode())
    return text_path, arrays_path


def load(path: Path | str) -> Graph:
    """Return the graph that `save` wrote, verified.

    Raises: InputError for a missing or damaged file, IrError for a graph that breaks a rule.
    """
    text_path = Path(path)
    arrays_path = text_path.with_suffix(".npz")
    for file in (text_path, arrays_path):
        if not file.is_file():
            raise InputError(f"graph file {file} does not exist; a graph is a text file and an .npz file beside it")
    try:
        text = text_path.read_text(encoding="utf-8")
        arrays = load_npz(arrays_path)
    except (OSError, ValueError) as error:
        raise InputError(f"graph file {text_path} (or its .npz) is damaged: {error}; build it again") from error
    try:
        return verify(loads(text, {name: widen_integers(array) for name, array in arrays.items()}))
    except NnhwError:
        raise
    except Exception as error:  # a text that somebody changed may make any operator's type rule fail in any way
        raise InputError(f"graph file {text_path} (or its .npz) is damaged: {error!r}; build it again") from error


def graph_hash(graph: Graph) -> str:
    """Return the SHA-256, in hex, of what the graph computes: not of its own name, nor of source locations."""
    nameless = dataclasses.replace(graph, name="")
    digest = hashlib.sha256(dumps(nameless, locations=False).encode())
    digest.update(pack_arrays(graph.constants))
    return digest.hexdigest()


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return named arrays as the bytes of an .npz archive: stored, not compressed, without times."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in sorted(arrays.items()):
            entry = io.BytesIO()
            np.lib.format.write_array(entry, _narrowed(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _EPOCH), entry.getvalue())
    return buffer.getvalue()


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Return an array in little-endian order, integers in the narrowest dtype that holds them."""
    if array.dtype == np.int64:
        for dtype in ("<i1", "<i2", "<i4"):
            limits = np.iinfo(dtype)
            if array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max):
                return array.astype(dtype)
    return array.astype(array.dtype.newbyteorder("<"))


def widen_integers(array: np.ndarray) -> np.ndarray:
    """Return an array as it was before it was stored: integers as int64."""
    return array.astype(np.int64) if array.dtype.kind == "i" else array
