"""ONNX's own node tests of the operators that the door knows, with all but the first input as constants."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, numpy_helper
from torch import nn

from nnhw.errors import NnhwError
from nnhw.frontend.onnx import load
from nnhw.frontend.onnx.module import OnnxModel
from nnhw.frontend.onnx.opening import TABLE
from nnhw.frontend.onnx.parsing import array_of
from tests.frontend.cases import BUILT, REFUSED, WRONG, Outcome

INTEGERS = ("qlinearconv", "qlinearmatmul", "convinteger", "matmulinteger")
_OTHERWISE = {"batchnormalization": "batch_normalization"}
"""Operators whose tests are in a module of another name."""


def collected(*names: str) -> list[Any]:
    """Return the test cases of modules of `onnx.backend.test.case.node`, which are made when these are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node

        for name in names:
            _imported(node, name)
    operators = {name.replace("_", "") for name in names}
    return [case for case in node._NodeTestCases if _operator(case).lower() in operators]


def _imported(package: ModuleType, name: str) -> None:
    importlib.import_module(f"{package.__name__}.{name}")


def _operator(case: Any) -> str:
    """Return the operator of a case; nothing for one whose operator is written as several."""
    nodes = case.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else ""


def claimed() -> list[Any]:
    """Return the cases of all operators that the door knows, in the default domain."""
    from onnx.backend.test.case import node

    have = {module.name for module in pkgutil.iter_modules(node.__path__)}
    operators = {op.lower() for domain, op in TABLE if not domain} - {"constant"}
    names = sorted({_OTHERWISE.get(name, name) for name in operators})
    return collected(*(name for name in names if name in have))


def bound(case: Any) -> tuple[ModelProto, np.ndarray, np.ndarray]:
    """Return a model whose first input alone is one, with that input and the result that is expected."""
    inputs, outputs = case.data_sets[0]
    made = ModelProto()
    made.CopyFrom(case.model)
    names = [value.name for value in made.graph.input]
    for name, array in list(zip(names, inputs, strict=False))[1:]:
        made.graph.initializer.append(_tensor(array, name))
    del made.graph.input[1:]
    return made, _array(inputs[0]), _array(outputs[0])


def _tensor(array: Any, name: str) -> TensorProto:
    made = TensorProto()
    made.CopyFrom(array if isinstance(array, TensorProto) else numpy_helper.from_array(np.asarray(array), name))
    made.name = name
    return made


def _array(given: Any) -> np.ndarray:
    return array_of(given, "the case") if isinstance(given, TensorProto) else np.asarray(given)


def opened(made: ModelProto) -> nn.Module:
    """Return the module of a model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "node.onnx"
        path.write_bytes(made.SerializeToString())
        return load(path)[0]


@functools.cache
def outcome(name: str) -> Outcome:
    """Return what becomes of a case: the module's result is compared with what is expected, as ONNX does it."""
    case = next(case for case in claimed() if case.name == name)
    try:
        made, x, expected = bound(case)
        module = opened(made)
    except NnhwError as error:
        return Outcome(REFUSED, str(error))
    except (TypeError, ValueError) as error:  # sequences and optional values, which are no arrays
        return Outcome(REFUSED, f"the case has inputs that are no tensors; {error}")
    with torch.no_grad():
        result = module(torch.from_numpy(x.copy())).numpy()
    # The module's result has the batch as first axis, where that of the file has none.
    result = result[0] if isinstance(module, OnnxModel) and module.file.bare else result
    if expected.dtype.kind in "iu":
        equal = np.array_equal(result, expected)
    else:
        equal = result.shape == expected.shape and np.allclose(result, expected, rtol=1e-3, atol=1e-7, equal_nan=True)
    return Outcome(BUILT) if equal else Outcome(WRONG, f"{name}: another result")
