"""Graphs as files: a text, and an .npz file of its arrays beside it. The same graph gives the same bytes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nnhw.errors import InputError
from nnhw.reading import load_npz

from .graph import Graph, all_constants, levels
from .ops import Constant
from .text import dumps, loads

TEXT_BYTES_MAX = 128 << 20
"""Most bytes of a graph's text that are accepted."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all archive entries: the earliest that a zip archive can state."""


def save(graph: Graph, path: Path | str) -> tuple[Path, Path]:
    """Write the text to `path` and the arrays beside it, with the suffix .npz; return both paths."""
    text_path = Path(path)
    arrays_path = text_path.with_suffix(".npz")
    arrays_path.write_bytes(pack_arrays(all_constants(graph)))
    # As bytes, since text files get other line ends on some systems.
    text_path.write_bytes(dumps(graph).encode())
    return text_path, arrays_path


def load(path: Path | str) -> Graph:
    """Return the verified graph of a text file, written by `save` or by hand.

    Each array of a constant may be in the text or in the .npz file beside it.

    Raises: InputError for a missing or damaged file, IrError or ProblemList for a graph that breaks a rule.
    """
    text_path = Path(path)
    arrays_path = text_path.with_suffix(".npz")
    if not text_path.is_file():
        raise InputError(
            f"graph file {text_path} does not exist; a graph is a text file, and an .npz file beside it unless the "
            f"text has all numbers"
        )
    try:
        if (size := text_path.stat().st_size) > TEXT_BYTES_MAX:
            raise ValueError(f"the text has {size} bytes, and {TEXT_BYTES_MAX} are accepted; put numbers into the .npz")
        text = text_path.read_text(encoding="utf-8")
        arrays = load_npz(arrays_path) if arrays_path.is_file() else {}
    except (OSError, ValueError) as error:
        raise InputError(f"graph file {text_path} (or its .npz) is damaged: {error}; build it again") from error
    graph = loads(text, {name: widen_integers(array) for name, array in arrays.items()}, str(text_path))
    bare = [
        prefix + node.name
        for prefix, part in levels(graph)
        for node in part.nodes
        if isinstance(node.op, Constant) and node.name not in part.constants
    ]
    if bare:
        raise InputError(
            f"graph file {text_path}: node '{bare[0]}' has no array; give its numbers in the text, as in (data 1 2), "
            f"or in {arrays_path}: 'nnhw ir MODEL --out {text_path.name}' writes both files"
        )
    # The reader has checked every rule of `verify` already, where it could say the place.
    return graph


def graph_hash(graph: Graph) -> str:
    """Return the SHA-256, in hex, of a graph without its own name and its source locations."""
    # Neither its name nor the version of the text form says anything about what the graph computes.
    nameless = dataclasses.replace(graph, name="")
    digest = hashlib.sha256(dumps(nameless, locations=False, version=False).encode())
    digest.update(pack_arrays(all_constants(graph)))
    return digest.hexdigest()


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return named arrays as the bytes of an .npz archive: not compressed, and without times."""
    # Not compressed, as what zlib makes of the same array may differ from version to version.
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
    """Return an array in the dtype that it had before `pack_arrays`: integers as int64, others as they are."""
    return array.astype(np.int64) if array.dtype.kind == "i" else array
