"""PyTorch's own models as cases: the programs of torch.export's ExportDB, and the test models of its quantization."""

from __future__ import annotations

import functools
import inspect
import io
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._export.db.examples import all_examples
from torch.ao.quantization import HistogramObserver, get_default_qconfig, get_default_qconfig_mapping
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx
from torch.testing._internal import common_quantization

import nnhw
from tests.frontend.cases import BUILT, REFUSED, Case, expected
from tests.frontend.pt2e_models import CASES, exported

EXPORT_DB, QUANTIZATION = "ExportDB", "PyTorch's quantization tests"
FX, PT2E = "the same, converted by FX", "PT2E"
_SHAPES = (
    *((4, size) for size in (5, 2, 4, 10, 3, 8, 1, 20)),
    *((4, channels, size, size) for channels in (3, 1, 2) for size in (8, 10, 32, 5)),
    (4, 20, 10),
)
_BACKEND = "fbgemm"


def _quantized(model: Any, given: Any) -> tuple[nn.Module, Any]:
    """Return a float model with nnhw's quantizers, and the example."""
    return nnhw.quantize(model, [given]), given


def _export_db() -> Iterator[Case]:
    """Yield each example as a module and as a program, with the first of its arguments as data."""
    for name, example in all_examples().items():
        given = example.example_args[0]
        yield Case(EXPORT_DB, name, functools.partial(_quantized, example.model, given))

        def program(example: Any = example, given: Any = given) -> tuple[nn.Module, Any]:
            program = torch.export.export(
                example.model, example.example_args, example.example_kwargs, dynamic_shapes=example.dynamic_shapes
            )
            return _quantized(program, given)

        yield Case(EXPORT_DB, f"{name}, exported", program)


def _classes() -> Iterator[type[nn.Module]]:
    for _, value in inspect.getmembers(common_quantization, inspect.isclass):
        if issubclass(value, nn.Module) and value.__module__ == common_quantization.__name__:
            yield value


def _made(kind: type[nn.Module]) -> nn.Module:
    """Return a model; some take a backend, or the kind of a recurrent layer."""
    torch.manual_seed(1)
    wanted = list(inspect.signature(kind).parameters)
    known = {
        "qengine": _BACKEND,
        "mod_type": "LSTMCell" if "Cell" in kind.__name__ else "LSTM",
        "qconfig": get_default_qconfig(_BACKEND),
        **{"num_embeddings": 10, "embedding_dim": 4},
        **{"dense_dim": 4, "dense_out": 4, "top_out_in": 4, "top_out_out": 2},
    }
    return kind(**{name: known[name] for name in wanted if name in known}).eval()


def _example(model: nn.Module) -> Any:
    """Return an example input: the one that the model has, or the first of some shapes that goes through it."""
    if hasattr(model, "get_example_inputs"):
        return model.get_example_inputs()[0]
    torch.manual_seed(1)
    floats = [torch.rand(shape) for shape in _SHAPES]
    for x in (*floats, *(torch.zeros(shape, dtype=torch.int64) for shape in _SHAPES)):
        try:
            with torch.no_grad():
                model(x)
        except Exception:  # whatever a model says of what does not fit
            continue
        return x
    return floats[0]


def _float_model(kind: type[nn.Module]) -> tuple[nn.Module, Any]:
    model = _made(kind)
    return _quantized(model, _example(model))


def _whole_range(observer: Any) -> tuple[Tensor, Tensor]:
    """Return the range of all that was observed: one will do as well as another, and the best is searched for long."""
    return observer.min_val, observer.max_val


def _converted(kind: type[nn.Module]) -> tuple[nn.Module, Any]:
    quick = mock.patch.object(HistogramObserver, "_non_linear_param_search", _whole_range)
    with quick, warnings.catch_warnings(), redirect_stderr(io.StringIO()):  # torch prints what its exceptions say
        warnings.simplefilter("ignore")
        model = _made(kind)
        example = _example(model)
        prepared = prepare_fx(model, get_default_qconfig_mapping(_BACKEND), (example,))
        prepared(example)
        return convert_fx(prepared), example


def _program(name: str) -> tuple[Any, Tensor]:
    model, shape = CASES[name]
    return exported(model, shape), torch.rand(4, *shape, generator=torch.Generator().manual_seed(1))


@functools.cache
def cases() -> list[Case]:
    """Return all cases."""
    return [
        *_export_db(),
        *(Case(QUANTIZATION, kind.__name__, functools.partial(_float_model, kind)) for kind in _classes()),
        *(Case(FX, kind.__name__, functools.partial(_converted, kind)) for kind in _classes()),
        *(Case(PT2E, name, functools.partial(_program, name)) for name in CASES),
    ]


# Of each kind of layer one model, and each form of a branch; the others have the same layers in other numbers.
_MODELS = (
    *("ActivationsTestModel", "AnnotatedSkipQuantModel", "ConvBnReLUModel", "ConvReluAddModel", "ConvTransposeModel"),
    *(
        "DummyObserver",
        "FunctionalConvReluConvModel",
        "FunctionalLinearAddModel",
        "InnerModule",
        "LinearBnLeakyReluModel",
    ),
    *("LinearModelWithSubmodule", "LinearTanhModel", "ManualConvLinearQATModel", "ManualDropoutQATModel"),
    *("ModelForFusionWithBias", "ModelWithSequentialFusion", "NestedModel", "QuantSubModel", "ResNetBase"),
    *("SkipQuantModel", "TwoLayerConvModel"),
)
_CONVERTED = (
    *("ActivationsTestModel", "ConvModel", "DummyObserver", "EmbeddingModule", "FunctionalLinearReluModel"),
    *("ManualEmbeddingBagLinear", "ManualLinearDynamicQATModel", "ModelWithFunctionals", "NormalizationTestModel"),
    *("QuantStubModel", "RNNCellDynamicModel", "RNNDynamicModel", "ResNetBase"),
)


def long() -> set[str]:
    """Return the cases that run nothing but what others run: models that are built, and most of the converted ones."""
    kinds = expected()[QUANTIZATION]
    built = [case for case in cases() if case.source == QUANTIZATION and kinds[case.name] == BUILT]
    converted = [case for case in cases() if case.source == FX and expected()[FX][case.name] in (BUILT, REFUSED)]
    return {str(case) for case in built if case.name not in _MODELS} | {
        str(case) for case in converted if case.name not in _CONVERTED
    }
