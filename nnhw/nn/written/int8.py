"""torch's converted models of int8, traced as what they compute: floats that are codes times a scale.

quantized.conv2d_relu(x, weights, scale, zero_point)  -->  nnhw.quantize(relu(conv2d(x, weights, bias)), scale, ..)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from nnhw.errors import CaptureError
from nnhw.nn.functional import quantize
from nnhw.nn.kinds import MOVES
from nnhw.nn.quantizers import PER_TENSOR

_HOMES = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.", "torch.nn.quantized.")
"""Packages of the modules that compute with codes."""
NAMESPACE = "quantized"
WEIGHT_CODES = (-128, 127)

_WRONG_TRANSPOSED = ("x86", "onednn")
"""Engines whose transposed convolutions differ from the weights' own; source: measured with torch 2.13."""
_BY_RECIPROCAL = ("quantize_per_tensor", "add", "cat")
"""Operators that multiply by the reciprocal of the scale."""
_FORMAT_NAME = re.compile(r"(^|_)(scale|zero_point)(_\d+)*$")
"""Names of the buffers that hold the format of a value, in torch's modules and in the graphs that it converts."""
_FORMATS = {
    "sigmoid": (1 / 256, 0),
    "hardsigmoid": (1 / 256, 0),
    "tanh": (2 / 256, 128),
    "softmax": (1 / 256, 0),
}
"""Functions whose results have a format of their own: scale and zero point of quint8."""
_AVERAGES = ("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "mean")
"""Functions whose results are rounded to codes of the format of their operand."""
_KEEPS = frozenset(
    {"relu", "max_pool1d_with_indices", "max_pool2d_with_indices", "getitem", "get", "cat", "boolean_dispatch"}
)
"""Other functions whose results are codes of their operand, or zero."""
_QUANTIZE = torch.quantize_per_tensor
_DEQUANTIZE = (Tensor.dequantize, torch.dequantize)


@dataclass(frozen=True)
class Format:
    """The codes of a tensor.

    Parameters
    ----------
    scale, zero_point: what the codes stand for.
    low, high: least and greatest code.
    """

    scale: float
    zero_point: int
    low: int = 0
    high: int = 255

    def applied(self, x: Tensor, steps: tuple[bool, bool]) -> Tensor:
        """Return numbers rounded to the format. `steps`: see `rounding_of`."""
        scale, zero_point = torch.tensor([self.scale]), torch.tensor([float(self.zero_point)])
        made: Tensor = quantize(x, scale, zero_point, self.low, self.high, PER_TENSOR, False, "half_even", *steps)
        return made


def rounding_of(name: str) -> tuple[bool, bool]:
    """Return how one of torch's operators makes codes: by the reciprocal of the scale, and with the zero point first.

    Only sums at ties tell these apart. Layers differ by the engine that computes them.

    Source: measured with torch 2.13, on sums at ties with an odd zero point.
    """
    base = name.removesuffix("_relu")
    engine = torch.backends.quantized.engine
    if base == "linear":
        return False, engine == "onednn"
    if base in _LAYERS:
        return False, engine in ("onednn", "x86")
    return base in _BY_RECIPROCAL, base != "mul"


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights and bias of a layer, as torch keeps them together.

    Parameters
    ----------
    weight: numbers, float32.
    scale, zero_point, axis: their format.
    bias: float32; None: there is none.
    sizes: stride, padding, dilation and groups of a convolution, and the output padding of a transposed one.
    """

    weight: Tensor
    scale: Tensor
    zero_point: Tensor
    axis: int
    bias: Tensor | None
    sizes: Mapping[str, Any]

    @classmethod
    def of(cls, packed: Any) -> Packed:
        """Return what an object of torch's packed parameters holds."""
        weight, bias = packed.unpack()
        if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric):
            scale, zero_point, axis = (
                weight.q_per_channel_scales(),
                weight.q_per_channel_zero_points(),
                weight.q_per_channel_axis(),
            )
        else:
            scale, zero_point, axis = (
                torch.tensor([weight.q_scale()]),
                torch.tensor([weight.q_zero_point()]),
                PER_TENSOR,
            )
        sizes = {}
        if hasattr(packed, "stride"):
            sizes = {name: getattr(packed, name)() for name in ("stride", "padding", "dilation", "groups")}
            if packed.transpose():
                sizes["output_padding"] = packed.output_padding()
        bias = None if bias is None else bias.detach()
        return cls(weight.dequantize(), scale.float(), zero_point.float(), axis, bias, sizes)

    def numbers(self) -> Tensor:
        """Return the weights, as codes times their scale."""
        made: Tensor = quantize(self.weight, self.scale, self.zero_point, *WEIGHT_CODES, self.axis, False)
        return made


class _Int8AsFloats(TorchFunctionMode):
    """While active, tensors of codes are float tensors, and each operator that makes codes ends in `nnhw.quantize`.

    Parameters
    ----------
    packed: weights, by the number of the object that stands for them.
    """

    def __init__(self, packed: Mapping[int, Packed]) -> None:
        super().__init__()
        self._packed = packed
        # With the tensors themselves, as a number could be that of another one once they are gone.
        self._formats: dict[int, tuple[Tensor, Format]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        name = str(getattr(func, "__name__", func))
        if func is _QUANTIZE:
            return self._kept("quantize_per_tensor", _asked(*args, **given), args[0])
        operands = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        formats = [self._formats[id(one)][1] for one in operands if id(one) in self._formats]
        is_operator = isinstance(func, torch._ops.OpOverloadPacket | torch._ops.OpOverload)
        if is_operator and str(func).startswith(f"{NAMESPACE}."):
            return self._operator(str(func).split(".")[1], args, given)
        if not formats:
            return func(*args, **given)
        if func in _DEQUANTIZE:
            # Another tensor, which is none of codes.
            return args[0].view_as(args[0])
        if name in ("q_scale", "q_zero_point"):
            return formats[0].scale if name == "q_scale" else formats[0].zero_point
        return self._followed(name, func(*args, **given), formats[0])

    def _followed(self, name: str, result: Any, format: Format) -> Any:
        """Return the result of a function of floats on codes, whose format is noted. Raises: CaptureError."""
        parts = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if not parts:
            return result
        plain = name.strip("_") if name.startswith("__") else name.rstrip("_")
        if plain not in MOVES | _KEEPS and plain not in _FORMATS and plain not in _AVERAGES:
            raise _unsupported(plain)
        if plain in _FORMATS:
            return self._kept(plain, Format(*_FORMATS[plain]), result)
        if plain in _AVERAGES:
            return self._kept(plain, format, result)
        for part in parts:
            self._formats[id(part)] = part, format
        return result

    def _kept(self, name: str, format: Format, x: Tensor) -> Tensor:
        """Return the result of an operator, rounded to a format, which is noted."""
        made = format.applied(x, rounding_of(name))
        self._formats[id(made)] = made, format
        return made

    def _operator(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        """Compute one of torch's operators on codes."""
        relu = name.endswith("_relu") and name not in _FUNCTIONS
        base = name.removesuffix("_relu") if relu else name
        rest: Sequence[Any]
        if base.startswith("conv_transpose") and torch.backends.quantized.engine in _WRONG_TRANSPOSED:
            raise CaptureError(
                f"torch's engine '{torch.backends.quantized.engine}' computes quantized::{name} wrong where its input "
                f"has a zero point; set torch.backends.quantized.engine = 'fbgemm' before you convert the model"
            )
        if base in _LAYERS:
            x, packed, *rest = args
            result = _LAYERS[base](x, self._packed[id(packed)])
        elif base in _JOINS:
            x, other, *rest = args
            result = _JOINS[base](x, other)
        elif base == "cat":
            parts, *rest = args
            result = torch.cat(parts, dim=rest.pop() if len(rest) > 2 else kwargs.get("dim", 0))
        elif base in _FUNCTIONS:
            result, rest = _FUNCTIONS[base](*args)
        else:
            raise _unsupported(name)
        if len(rest) + len(kwargs) < 2:
            raise _unsupported(f"{name} with a number")
        format = Format(*_format_of(rest, kwargs))
        return self._kept(name, format, torch.relu(result) if relu else result)


def _unsupported(name: str) -> CaptureError:
    return CaptureError(
        f"torch's operator '{name}' on int8 tensors is not supported; quantize with PT2E (prepare_pt2e, calibrate, "
        f"convert_pt2e), or give the float model to nnhw.quantize"
    )


def _format_of(rest: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[float, int]:
    """Return the scale and the zero point of a result, which come last among an operator's arguments."""
    given = [*rest[:2], *(kwargs[key] for key in ("scale", "output_scale") if key in kwargs)]
    given += [kwargs[key] for key in ("zero_point", "output_zero_point") if key in kwargs]
    return float(given[0]), int(given[1])


def _asked(x: Tensor, scale: Any, zero_point: Any, dtype: torch.dtype) -> Format:
    """Return the format that a call of `torch.quantize_per_tensor` asks for."""
    ends = torch.iinfo(dtype)
    return Format(float(scale), int(zero_point), ends.min, ends.max)


def _convolution(function: Callable[..., Tensor]) -> Callable[[Tensor, Packed], Tensor]:
    def compute(x: Tensor, packed: Packed) -> Tensor:
        return function(x, packed.numbers(), packed.bias, **packed.sizes)

    return compute


def _conv1d(x: Tensor, weight: Tensor, bias: Tensor | None, **sizes: Any) -> Tensor:
    """Compute a convolution whose packed weights are those of height 1."""
    along = {name: size if name == "groups" else size[-1:] for name, size in sizes.items()}
    return F.conv1d(x, weight.squeeze(-2) if weight.dim() > 3 else weight, bias, **along)


_LAYERS: Mapping[str, Callable[[Tensor, Packed], Tensor]] = {
    "linear": lambda x, packed: F.linear(x, packed.numbers(), packed.bias),
    "conv1d": _convolution(_conv1d),
    "conv2d": _convolution(F.conv2d),
    "conv_transpose2d": _convolution(F.conv_transpose2d),
}
_JOINS: Mapping[str, Callable[[Tensor, Any], Tensor]] = {"add": torch.add, "mul": torch.mul}
_FUNCTIONS: Mapping[str, Callable[..., tuple[Tensor, Sequence[Any]]]] = {
    "hardswish": lambda x, *rest: (F.hardswish(x), rest),
    "leaky_relu": lambda x, slope, _inplace, *rest: (F.leaky_relu(x, slope), rest),
    "elu": lambda x, scale, zero_point, alpha=1.0, *_: (F.elu(x, alpha), (scale, zero_point)),
}


@contextmanager
def int8_as_floats(model: nn.Module) -> Iterator[None]:
    """Let a model of int8 be traced as floats that are codes times a scale.

    While active, two things in it are replaced that torch.export cannot trace: objects of C++, and tensors of which a
    number is read.
    """
    packed: dict[int, Packed] = {}
    tokens: list[object] = []
    swapped: list[tuple[dict[str, Any], dict[str, Any], str, Any]] = []
    for module in model.modules() if has_int8(model) else ():
        attributes = vars(module)
        for name, held in list(attributes.items()):
            if isinstance(held, torch.ScriptObject):
                token = object()
                packed[id(token)] = Packed.of(held)
                swapped.append((attributes, attributes, name, held))
                attributes[name] = token
                tokens.append(token)
        for name, buffer in list(module._buffers.items()):
            if _FORMAT_NAME.search(name) and buffer is not None and buffer.numel() == 1:
                swapped.append((attributes, module._buffers, name, module._buffers.pop(name)))
                attributes[name] = buffer.item()
    try:
        with _Int8AsFloats(packed):
            yield
    finally:
        for attributes, owner, name, held in swapped:
            del attributes[name]
            owner[name] = held


def has_int8(model: nn.Module) -> bool:
    """Return whether a model has layers that compute with codes."""
    return any(map(_is_int8, model.modules()))


def _is_int8(module: nn.Module) -> bool:
    own = f"{type(module).__module__}.".startswith(_HOMES) and type(module).__name__ != "FloatFunctional"
    return own or any(isinstance(held, torch.ScriptObject) for held in vars(module).values())
