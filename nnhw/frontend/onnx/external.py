"""Weights in other files than the model's own: they are read if these lie in the model's folder."""

from __future__ import annotations

import math
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from onnx import TensorProto, helper

from nnhw.errors import InputError

_MOVE = "keep weights in a plain file in the folder of the model, or in the model itself"


def load_external(tensors: Sequence[TensorProto], path: Path) -> None:
    """Put the bytes of external tensors into the tensors themselves.

    Parameters
    ----------
    tensors: those without external data stay as they are.
    path: the file of the model.

    Raises
    ------
    InputError: a tensor's file is not a plain one in the folder of the model or below, or lacks bytes.
    """
    files: dict[str, Path] = {}
    for tensor in tensors:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in files:
            files[location] = _checked(location, tensor, path)
        # The tensor becomes one with its bytes inside, so that nothing behind this function knows of files, and what is
        # handed to ONNX Runtime is whole.
        tensor.raw_data = _bytes(files[location], entries, tensor, path)
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT


def _checked(location: str, tensor: TensorProto, path: Path) -> Path:
    """Return the file at a location, which must lie in the model's folder. Symbolic links may lead out: refused."""
    where = f"{path}: the numbers of tensor '{tensor.name}' are said to be in '{location}'"
    parts = PurePosixPath(location).parts
    outside = (
        not location
        or "\0" in location
        or PurePosixPath(location).is_absolute()
        # Locations are checked by the rules of both systems: a file may be written on one and read on the other.
        or PureWindowsPath(location).is_absolute()
        or PureWindowsPath(location).drive
        or ".." in (*parts, *PureWindowsPath(location).parts)
    )
    if outside:
        raise InputError(f"{where}, which is not in the folder of the model; {_MOVE}")
    file = path.parent
    for part in parts:
        file = file / part
        if file.is_symlink():
            raise InputError(f"{where}, where '{file.name}' is a symbolic link, which is not followed; {_MOVE}")
    if not file.exists():
        raise InputError(f"{where}, but there is no such file beside the model; {_MOVE}")
    if not stat.S_ISREG(file.stat().st_mode):
        raise InputError(f"{where}, which is no plain file; {_MOVE}")
    return file


def _bytes(file: Path, entries: dict[str, str], tensor: TensorProto, path: Path) -> bytes:
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or -1)
    except ValueError:
        offset, length = -1, -1
    size = file.stat().st_size
    expected = _size(tensor, path)
    length = expected if length < 0 else length
    if offset < 0 or length != expected or offset + length > size:
        raise InputError(
            f"{path}: tensor '{tensor.name}' needs {expected} bytes for its shape {list(tensor.dims)}, but "
            f"'{file.name}' has {size} bytes, of which it is said to have {length} from {offset} on; "
            f"export the model again"
        )
    with file.open("rb") as data:
        data.seek(offset)
        return data.read(length)


def _size(tensor: TensorProto, path: Path) -> int:
    """Return the number of bytes of a tensor; two integers of 4 bits share one, and four of 2 bits."""
    try:
        item = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: tensor '{tensor.name}' is of an unknown type; export the model again") from error
    count = math.prod(tensor.dims)
    # NumPy's stand-ins for these types have a byte for each number; files are packed.
    shared = {"INT4": 2, "UINT4": 2, "INT2": 4, "UINT2": 4}.get(TensorProto.DataType.Name(tensor.data_type), 1)
    return -(-count // shared) * item
