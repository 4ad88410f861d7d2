"""Saved programs (.pt2), loaded without running anything that is in the file.

`torch.export.load` unpickles: tensors that are marked as pickled, custom objects, and the sample inputs, for which
it falls back to unrestricted unpickling. It loads compiled libraries, too, and evaluates the text of symbolic
expressions. So the archive is read here first, everything in it that is not plain data is refused, and torch is
given a new archive with the checked parts alone. The sample inputs are left out of that: shapes are in the graph.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

import nnhw.nn  # noqa: F401  # registers the operator nnhw::quantize, which programs refer to
from nnhw.errors import CaptureError, InputError, NnhwError, raise_all
from nnhw.nn.tracing import quiet_torch
from nnhw.reading import open_entry, open_zip, parse_json

_SAVE_AGAIN = "export the model again and save it with torch.export.save of torch 2.9 or newer"
_INPUT_ELEMENTS_MAX = 1 << 28
"""Elements of an example input that is made for a program: 1 GiB of float32."""
_REPEATED_ELEMENTS_MAX = 1 << 20
"""Most elements of all tensors together for which the archive has no bytes, as for an expanded constant."""

_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 9: 4, 10: 8, 11: 16, 12: 1, 13: 2, 28: 2, 34: 4, 35: 8}
"""Numbers of types in an archive --> bytes of an element; of others, which torch may add, at least one is needed."""

_MODEL = "models/model.json"
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_SAMPLES = "data/sample_inputs/model.pt"
_PLAIN = re.compile(
    r"archive_format|archive_version|byteorder|\.data/version|\.data/serialization_id|extra/.*"
    r"|data/weights/weight_\d+|data/constants/tensor_\d+"
)
_REGISTERED_BY = {"quantized_decomposed": "torch.ao.quantization.fx._decomposed"}
"""Namespaces of torch's own operators --> module that registers them, imported only if needed, as it takes 0.3 s."""
_TARGET = re.compile(r"torch\.ops\.\w+\.\w+(\.\w+)?|_operator\.\w+")
# What sympy's srepr gives for sizes that depend on the batch, which torch hands to a Python eval.
_EXPRESSION = re.compile(
    r"(?:Symbol\('[su]\d+'(?:, [a-z_]+=(?:True|False))*\)|Integer\(-?\d{1,19}\)|(?:Mul|Add)\(|[,) ])+"
)
_SPEC_TYPES = {None, "builtins.tuple", "builtins.list", "builtins.dict"}
_METADATA = ("stack_trace", "nn_module_stack")


def load_archive(path: Path) -> ExportedProgram:
    """Load a program that torch.export.save wrote.

    Raises
    ------
    InputError for a file that is no such archive, or that holds more than plain data; nothing in it was run then.
    CaptureError if torch cannot load the checked parts.
    """
    checked, namespaces = _rewritten(path)
    for namespace in namespaces & _REGISTERED_BY.keys():
        importlib.import_module(_REGISTERED_BY[namespace])
    try:
        with quiet_torch():
            return torch.export.load(io.BytesIO(checked))
    except Exception as error:
        raise CaptureError(f"{path} cannot be loaded by torch {torch.__version__}: {error}; {_SAVE_AGAIN}") from error


def random_input(program: ExportedProgram) -> torch.Tensor:
    """Return random numbers of the shape of a program's input; see `random_like`."""
    name = program.graph_signature.user_inputs[0]
    return random_like(next(node.meta["val"] for node in program.graph.nodes if node.name == name))


def random_like(value: torch.Tensor) -> torch.Tensor:
    """Return random numbers in the shape of a traced tensor, always the same: in [0, 1), or 0 to 255 for integers."""
    shape = [size if isinstance(size, int) else 2 for size in value.shape]
    if math.prod(shape) > _INPUT_ELEMENTS_MAX:
        most = f"at most {_INPUT_ELEMENTS_MAX} numbers are accepted"
        raise InputError(f"the program takes inputs of shape {shape}; {most}; export it with a smaller batch")
    generator = torch.Generator().manual_seed(0)
    if value.dtype.is_floating_point:
        return torch.rand(shape, generator=generator).to(value.dtype)
    return torch.randint(0, 256, shape, generator=generator).to(value.dtype)


def _rewritten(path: Path) -> tuple[bytes, set[str]]:
    """Return (an archive with only the parts that were checked, the namespaces of its operators)."""
    try:
        with open_zip(path) as archive:
            # Without the folder that all of them are in.
            entries = {info.filename.partition("/")[2]: open_entry(archive, info).read() for info in archive.infolist()}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not a .pt2 archive: {error}; {_SAVE_AGAIN}") from error
    _check_names(entries, path)
    # In this order: names say which parts there are, then tables of tensors are read, then the graph, whose texts torch
    # would interpret.
    raise_all(list(_pickled(entries, path)))
    _check_sizes(entries, path)
    model = _checked_model(_json(entries, _MODEL, path), path)
    entries[_MODEL] = json.dumps(model).encode()
    # Sample inputs are a pickle, and nothing needs them.
    entries[_SAMPLES] = b""
    buffer = io.BytesIO()
    # Written anew: torch must not find anything that was not checked, such as a second entry of the same name.
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            if not name.startswith("extra/"):
                archive.writestr(f"model/{name}", content)
    targets = [value.split(".") for key, value in _pairs(model) if key == "target"]
    return buffer.getvalue(), {parts[2] for parts in targets if len(parts) > 2}


def _check_names(entries: dict[str, bytes], path: Path) -> None:
    if any(name.startswith("data/aotinductor") for name in entries):
        raise InputError(f"{path} holds compiled code, which is not run; {_SAVE_AGAIN}")
    if _MODEL not in entries or entries.get("archive_format") != b"pt2":
        raise InputError(f"{path} is not a .pt2 archive of one model named 'model'; {_SAVE_AGAIN}")
    known = {_MODEL, _WEIGHTS, _CONSTANTS, _SAMPLES}
    unknown = [name for name in entries if name not in known and not _PLAIN.fullmatch(name)]
    if unknown:
        raise InputError(
            f"{path} holds {len(unknown)} parts that are not plain data ({', '.join(unknown[:3])}), which could run "
            f"code when loaded; make weights and constants plain tensors, and {_SAVE_AGAIN}"
        )


def _pickled(entries: dict[str, bytes], path: Path) -> Iterator[NnhwError]:
    for config, kind in ((_WEIGHTS, "weight"), (_CONSTANTS, "constant")):
        table = _json(entries, config, path).get("config") if config in entries else {}
        if not isinstance(table, dict):
            raise InputError(f"{path} has no table of its {kind}s; {_SAVE_AGAIN}")
        for name, entry in table.items():
            part = entry.get("path_name") if isinstance(entry, dict) else None
            folder = config.rpartition("/")[0]
            if part is None or entry.get("use_pickle") is not False or f"{folder}/{part}" not in entries:
                yield InputError(
                    f"{path} holds {kind} '{name}' as a pickle or custom object, which could run code when loaded; "
                    f"make it a plain, contiguous tensor, and {_SAVE_AGAIN}"
                )


def _check_sizes(entries: dict[str, bytes], path: Path) -> None:
    """Raise InputError where tensors have fewer bytes than they need, or claim many more elements than there are bytes.

    torch takes zeros for a tensor without bytes, and allocates what an expanded one claims.
    """
    claimed, problems = 0, list[NnhwError]()
    for config, kind in ((_WEIGHTS, "weight"), (_CONSTANTS, "constant")):
        table = _json(entries, config, path)["config"] if config in entries else {}
        for name, entry in table.items():
            content = entries[f"{config.rpartition('/')[0]}/{entry['path_name']}"]
            sizes, strides, start = (
                [size for key, size in _pairs(_pick(entry, "tensor_meta", part)) if key == "as_int"]
                for part in ("sizes", "strides", "storage_offset")
            )
            if not all(type(size) is int and size >= 0 for size in (*sizes, *strides, *start)):
                raise InputError(f"{path}: the sizes of a tensor are damaged; {_SAVE_AGAIN}")
            # Elements and bytes are compared, for an element has at least one byte.
            claimed += max(0, math.prod(sizes) - len(content))
            if problem := _lack(sizes, strides, start, _pick(entry, "tensor_meta", "dtype"), len(content)):
                problems.append(InputError(f"{path} has {problem} of {kind} '{name}'; {_SAVE_AGAIN}"))
    if claimed > _REPEATED_ELEMENTS_MAX:
        raise InputError(f"{path} holds tensors that claim {claimed} elements more than it has bytes; {_SAVE_AGAIN}")
    raise_all(problems)


def _lack(sizes: list[int], strides: list[int], start: list[int], dtype: Any, given: int) -> str:
    """Return what is wrong with the bytes of a tensor; empty if there are enough of them.

    Parameters
    ----------
    start: the offset of its first element, as a list of one.
    dtype: number of its type in the archive.
    given: bytes that are there.
    """
    if len(sizes) != len(strides) or len(start) != 1 or type(dtype) is not int:
        return "a damaged description"
    if 0 in sizes:
        return ""
    last = start[0] + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    needed = (last + 1) * _ITEM_BYTES.get(dtype, 1)
    return "" if given >= needed else f"{given} of the {needed} bytes"


def _pick(table: Any, *keys: str) -> Any:
    """Return the value behind nested keys; None where there is none."""
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _json(entries: dict[str, bytes], name: str, path: Path) -> dict[str, Any]:
    try:
        content = parse_json(entries[name])
    except ValueError as error:
        raise InputError(f"{path}: {name} is damaged: {error}; {_SAVE_AGAIN}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: {name} is damaged; {_SAVE_AGAIN}")
    return content


def _checked_model(model: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the graph's description, without unneeded parts, after every text that torch interprets was checked."""
    # Guards are Python code, which torch would run.
    model["guards_code"] = []
    for key, value in _pairs(model):
        for rule_key, holds, what in _RULES:
            if key == rule_key and not holds(value):
                raise InputError(f"{path} {what}, got {value!r}; {_SAVE_AGAIN}")
        if key == "metadata" and isinstance(value, dict):
            for name in [name for name in value if name not in _METADATA]:
                del value[name]
    return model


def _pairs(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield all keys and values of nested dictionaries."""
    if isinstance(node, dict):
        for key, value in list(node.items()):
            yield key, value
            yield from _pairs(value)
    elif isinstance(node, list):
        for item in node:
            yield from _pairs(item)


def _is_plain_spec(spec: Any) -> bool:
    """Return whether a tree of arguments has only tuples, lists and dicts; other types may import modules."""
    try:
        parsed = parse_json(spec)
    except (TypeError, ValueError):
        return False
    return all(value in _SPEC_TYPES for key, value in _pairs(parsed) if key == "type")


_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("expr_str", lambda text: isinstance(text, str) and bool(_EXPRESSION.fullmatch(text)), "needs plain sizes"),
    ("target", lambda text: isinstance(text, str) and bool(_TARGET.fullmatch(text)), "needs operators of torch"),
    ("in_spec", _is_plain_spec, "needs tensors and plain tuples as inputs"),
    ("out_spec", _is_plain_spec, "needs tensors and plain tuples as outputs"),
    ("custom_obj_values", lambda table: not table, "must not hold custom objects"),
    ("custom_obj", lambda table: not table, "must not hold custom objects"),
    ("treespec_namedtuple_fields", lambda table: not table, "needs plain tuples as inputs and outputs"),
)
