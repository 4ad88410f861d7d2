"""Reading files that anybody may have written: sizes that they claim are checked before memory is allocated.

Functions raise `ValueError` with what is wrong, or `OSError`; the caller adds the name of the file, and what to do.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import stat
import struct
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from nnhw.errors import BuildError

PACKED_BYTES_MAX = 64 << 20
"""Bytes that all compressed entries of an archive together may unpack to."""
INTEGER_MAX = 1 << 63
"""Integers of a JSON file must have a smaller magnitude."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DEPTH_MAX = 100
_TOO_DEEP = f"it is nested too deeply: {_DEPTH_MAX} levels are accepted"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_NAME_LENGTH_MAX = 200


def is_plain_name(name: object) -> bool:
    """Return whether a value is a file name that cannot lead out of its folder or be taken for an option.

    That is a text of at most 200 letters, digits, `_`, `.` and `-`, which does not begin with `.` or `-`.
    """
    return isinstance(name, str) and len(name) <= _NAME_LENGTH_MAX and bool(_PLAIN_NAME.fullmatch(name))


def check_folder(folder: Path) -> None:
    """Raise BuildError where a folder holds anything but plain files and folders: links may lead out of it."""
    try:
        # Kinds are asked for without following links: a link to a file would look like a file.
        with os.scandir(folder) as entries:
            kinds = {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}
    except OSError as error:
        raise BuildError(
            f"build folder '{folder}' cannot be read: {error.strerror}; give a folder of a build"
        ) from None
    for name, mode in kinds.items():
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            what = "a link, which may lead out of it" if stat.S_ISLNK(mode) else "neither a file nor a folder"
            raise BuildError(
                f"build folder '{folder}' holds '{name}', which is {what}; a build has plain files only: "
                "put the file itself in its place, or delete it"
            )


def parse_json(text: str | bytes) -> Any:
    """Return the document of a JSON text; NaN, Infinity, and numbers beyond float64 or 64 bits are refused."""
    try:
        return _shallow(json.loads(text, parse_constant=_no_number, parse_int=_integer, parse_float=_finite))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _shallow(table)
    return table


def load_npy(path: Path) -> np.ndarray:
    """Return the array of a .npy file; its header may claim no more than the file has."""
    with path.open("rb") as stream:
        if stream.read(2) == b"PK":
            raise ValueError("it is an archive of several arrays, not one")
        stream.seek(0)
        return _read_array(stream, os.fstat(stream.fileno()).st_size)


def npy_header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the array of a .npy file, whose numbers are not read."""
    with path.open("rb") as stream:
        shape, _, dtype = _checked_header(stream, os.fstat(stream.fileno()).st_size)
    return shape, dtype


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name; sizes are checked before anything is unpacked."""
    with open_zip(path) as archive:
        arrays = {}
        for info in archive.infolist():
            with open_entry(archive, info) as stream:
                arrays[info.filename.removesuffix(".npy")] = _read_array(stream, info.file_size)
        return arrays


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive whose entries claim no more than it has, or little enough where they are compressed.

    Whatever is wrong with it, also while it is read in the `with` statement, becomes a ValueError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_zip(archive.infolist(), path.stat().st_size)
            yield archive
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, struct.error, zlib.error) as error:
        raise ValueError(str(error) or "it is cut") from None


def open_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    """Return the content of an entry of an archive that `open_zip` has opened; it has as many bytes as it claims."""
    # A stored entry has the bytes of the file, and no more.
    if info.compress_type == zipfile.ZIP_STORED:
        return archive.open(info)
    # zipfile cuts an entry off at its claim, but unpacks it first. So it is asked for one byte more, which an entry has
    # only if its claim is false. Its checksum may be that of the claimed bytes: it is compared after their number.
    longer = copy(info)
    longer.file_size += 1
    longer.CRC = None  # type: ignore[assignment]  # zipfile compares none then
    with archive.open(longer) as stream:
        content = stream.read(longer.file_size)
    if len(content) != info.file_size:
        raise ValueError(
            f"its entry '{info.filename}' claims {info.file_size} bytes, but unpacks to a different number"
        )
    if zlib.crc32(content) != info.CRC:
        raise ValueError(f"its entry '{info.filename}' is damaged: its checksum does not match")
    return io.BytesIO(content)


def _check_zip(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raise ValueError unless the entries fit into the archive, each for itself and all together."""
    names = [info.filename for info in entries]
    if len(set(names)) != len(names):
        raise ValueError("it holds two files of the same name")
    kinds = {info.compress_type for info in entries}
    if kinds - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError("it is compressed in another way than 'deflate': save it without compression")
    stored = [info for info in entries if info.compress_type == zipfile.ZIP_STORED]
    wrong = [info for info in stored if info.file_size != info.compress_size]
    # Entries that overlap would let a small file unpack to any size.
    if wrong or sum(info.compress_size for info in entries) > size:
        claimed = sum(max(info.file_size, info.compress_size) for info in entries)
        raise ValueError(f"its entries claim {claimed} bytes, but the file has {size}")
    unpacked = sum(info.file_size for info in entries) - sum(info.file_size for info in stored)
    if unpacked > PACKED_BYTES_MAX:
        raise ValueError(
            f"its compressed entries unpack to {unpacked} bytes; at most {PACKED_BYTES_MAX} are accepted: "
            "save it without compression"
        )


def _read_array(stream: IO[bytes], size: int) -> np.ndarray:
    """Return the array of a stream in .npy format.

    Parameters
    ----------
    size: bytes of the whole stream.
    """
    shape, by_columns, dtype = _checked_header(stream, size)
    # Read into memory of the size that was checked; np.load would believe the header.
    needed = math.prod(shape) * dtype.itemsize
    data = bytearray(needed)
    if stream.readinto(data) != needed or stream.read(1):  # type: ignore[attr-defined]  # all streams here have it
        raise ValueError(f"its header claims {needed} bytes of numbers, but there are others; it is cut or damaged")
    array = np.frombuffer(data, dtype)
    return array.reshape(shape[::-1]).T if by_columns else array.reshape(shape)


def _checked_header(stream: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the array is stored by columns, and dtype, of what `size` bytes can hold."""
    try:
        shape, by_columns, dtype = _read_header(stream)
    except ValueError:
        raise
    except Exception as error:  # NumPy reads the header as a literal of Python, which fails in many ways
        raise ValueError(f"its header is damaged ({type(error).__name__})") from None
    # Objects are pickles, which run code when they are loaded.
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: it holds Python objects, not numbers")
    needed, left = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if min(shape, default=1) < 0 or not dtype.itemsize or needed > left:
        raise ValueError(
            f"its header claims {dtype} of shape {list(shape)}, {needed} bytes, but only {left} follow; it is cut or "
            "damaged"
        )
    return shape, by_columns, dtype


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the array is stored by columns, and dtype.

    Format 3.0 of .npy is refused: it is for names of fields that are not ASCII, which arrays of numbers do not have.
    """
    # NumPy's own readers of each version, as `read_array` would allocate before sizes are checked.
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in readers:
        raise ValueError(f"it is of format {version[0]}.{version[1]}, but arrays of numbers are of 1.0 or 2.0")
    shape, by_columns, dtype = readers[version](stream)
    return shape, by_columns, dtype


def _shallow(document: Any) -> Any:
    """Return a document; raise ValueError if it is nested so deeply that recursive code could overflow the stack.

    Texts in it may be shown in a terminal, so characters that control one are refused, too.
    """
    level = [document]
    for _ in range(_DEPTH_MAX):
        if any(isinstance(node, str) and _CONTROL.search(node) for node in level):
            raise ValueError("it holds characters that control a terminal")
        level = [item for node in level if isinstance(node, dict | list) for item in _items(node)]
        if not level:
            return document
    raise ValueError(_TOO_DEEP)


def _items(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return chain.from_iterable(node.items()) if isinstance(node, dict) else node


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) >= INTEGER_MAX:
        raise ValueError(f"the number {text[:24]}.. is beyond 64 bits")
    return number


def _finite(text: str) -> float:
    number = float(text)
    # Python makes infinity of 1e999, which parse_constant does not see.
    if math.isinf(number):
        raise ValueError(f"the number {text[:24]} is beyond float64")
    return number
