"""PyTorch's own evaluation: a model's result, and the codes of each of its quantizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nnhw.ir.interpreter import joined
from nnhw.nn import rescale_operator as _registered  # noqa: F401  # the operator nnhw::rescale
from nnhw.nn.functional import along_axis
from nnhw.nn.given import copied
from nnhw.nn.tracing import eager_loops
from nnhw.nn.written.int8 import NAMESPACE, WEIGHT_CODES, Packed, rounding_of

Signature = tuple[Any, ...]
"""The properties by which a call of a quantizer is recognized: its arguments without tensors, and the shape behind the
first axis. In a trace, sizes that depend on the input are None."""

_QUANTIZE = torch.ops.nnhw.quantize.default
_RESCALE = torch.ops.nnhw.rescale.default
_IMITATIONS = {
    torch.ops.aten.fake_quantize_per_tensor_affine_cachemask.default,
    torch.ops.aten.fake_quantize_per_channel_affine_cachemask.default,
}
"""torch's fake quantizers, which a trace has as `nnhw.quantize`."""
_ATEN = torch.ops.aten
_MAKES_CODES = {
    *(_ATEN.quantize_per_tensor.default, _ATEN.quantize_per_tensor.tensor_qparams),
    *(_ATEN.avg_pool2d.default, _ATEN._adaptive_avg_pool2d.default, _ATEN.adaptive_avg_pool2d.default),
    *(_ATEN.mean.dim, _ATEN.sigmoid.default, _ATEN.hardsigmoid.default, _ATEN.tanh.default),
}
"""Operators of ATen that make codes of a format of their own, on tensors of torch's int8."""
_TENSORS = {_QUANTIZE: ("x", "scale", "zero_point"), _RESCALE: ("x", "multiplier", "exponent", "bias")}
"""The operators that make codes --> names of their arguments that are tensors."""


@dataclass(frozen=True)
class QuantizerCall:
    """One call of the operator `nnhw.quantize`, or of `nnhw.rescale`.

    Parameters
    ----------
    signature: see `Signature`.
    codes: in the shape of the quantized tensor: distances from the zero point, int16, where NaN has the lowest one; or
        the integers of a rescaling, int64.
    dtype: dtype in which it was computed.
    numbers: the tensor before quantization, if it was asked for.
    """

    signature: Signature
    codes: np.ndarray
    dtype: torch.dtype
    numbers: np.ndarray | None = None


@dataclass(frozen=True)
class Evaluation:
    """One forward pass of PyTorch.

    Parameters
    ----------
    result: [N, *shape]; several are joined, [N, elements].
    calls: calls of all quantizers in order, also those of weights.
    steps: number of steps, where images are sequences.
    roundings: how many roundings at most a value is off its code times the scale.
    """

    result: np.ndarray
    calls: tuple[QuantizerCall, ...]
    steps: int = 1
    roundings: float = 1.0


class Recorder(TorchDispatchMode):
    """Records the calls of quantizers while it is active, and makes float64 of float32 if asked for.

    Members
    -------
    calls: calls so far, in order.
    keeps_numbers: the numbers before quantization are recorded, too.
    """

    supports_higher_order_operators = True

    def __init__(self, double: bool, weights: Mapping[int, np.ndarray], numbers: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.calls: list[QuantizerCall] = []
        self._double, self._weights, self.keeps_numbers = double, weights, numbers

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is torch.ops.higher_order.scan:
            # torch switches a mode off while it handles a call; on again, it sees the calls in the loop's body.
            with self:
                return _looped(*args)
        narrow = self._double and given.get("dtype") == torch.float32
        makes = narrow and not _reads_tensors(args, given)
        # A dtype that the model names itself would undo the widening. A constant has the number of that dtype.
        if narrow and not makes:
            given["dtype"] = torch.float64
        result = func(*args, **given)
        if makes:
            result = result.double()
        if func is _QUANTIZE:
            # In float64 weights at ties could get other codes than the model has: the codes that were found in its own
            # precision are put in their place.
            if len(self.calls) in self._weights:
                x, scale, axis = (_arguments(func, args, given)[name] for name in ("x", "scale", "axis"))
                codes = torch.from_numpy(self._weights[len(self.calls)])
                result = (codes * along_axis(scale, x, axis)).expand_as(
                    x
                )  # x may be a start value of a state, repeated for each image
            self.calls.append(call_of(result, args, given, numbers=self.keeps_numbers))
        elif func is _RESCALE:
            self.calls.append(rescale_call_of(result, args, given, numbers=self.keeps_numbers))
        elif func in _IMITATIONS:
            self.calls.append(_imitation(args, result, numbers=self.keeps_numbers))
        elif isinstance(result, Tensor) and result.is_quantized:
            self.calls += _int8_calls(func, args, result, numbers=self.keeps_numbers)
        else:
            self.observe(func, args, given, result)
        return result

    def observe(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Called for each call of another operator, which may be a quantizer of another framework."""


class ConstantMaker(TorchFunctionMode):
    """Gives each constant that `forward` makes of Python's numbers the number that it has in the model's own precision.

    torch.tensor(0.1, dtype=x.dtype) is another number in float64, which would be another model. As the dtype is that of
    the input, a first call in the model's own precision has to tell it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._default = torch.get_default_dtype()
        self._own: list[torch.dtype | None] = []
        self._waiting: Iterator[torch.dtype | None] | None = None

    def widen(self) -> None:
        """Begin a call in float64, behind the one in the model's own precision."""
        self._waiting = iter(self._own)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func not in _ALIKE and _reads_tensors(args, given):
            return func(*args, **given)
        if self._waiting is None:
            made = func(*args, **given)
            self._own.append(made.dtype if isinstance(made, Tensor) else None)
            return made
        # An array has its own numbers, which a trace keeps: a cast is none of them.
        listed = not any(isinstance(leaf, np.ndarray) for leaf in tree_leaves(args))
        if next(self._waiting, None) != torch.float32 or not listed:
            return func(*args, **given)
        like = args[0].dtype if func in _ALIKE else None
        if (given.get("dtype") or like) == torch.float64:
            given["dtype"] = torch.float32
        with _default_dtype(self._default):
            return func(*args, **given).double()


def _reads_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, kwargs)))


_ALIKE = (Tensor.new_tensor, Tensor.new_full, torch.full_like)
"""What makes a constant of numbers, with no more of a tensor than its dtype and shape."""


def _looped(
    body: Callable[..., Any], starts: Sequence[Tensor], sequences: Sequence[Tensor], others: Sequence[Any]
) -> tuple[Tensor, ...]:
    """Compute torch's `scan` by a Python loop, so that each call in its body is recorded."""
    states: list[Tensor] = list(starts)
    results: list[list[Tensor]] = []
    for step in zip(*sequences, strict=True):
        made = list(body(*states, *step, *others))
        states = made[: len(starts)]
        results.append(made[len(starts) :])
    return (*states, *(torch.stack(column) for column in zip(*results, strict=True)))


class Evaluator:
    """A model as PyTorch evaluates it, in eval mode and without gradients.

    Parameters
    ----------
    model: a module, which is copied, or an exported program.
    double: compute everything in float64 that the model computes in float32, also where its own code says `.float()`.
    weights: codes of weights in the model's own precision, by the number of the quantizer's call; used in float64,
        where weights at ties could get other codes, which would be another model.
    """

    _recorder: ClassVar[type[Recorder]] = Recorder

    def __init__(
        self,
        model: nn.Module | ExportedProgram,
        *,
        double: bool = False,
        weights: Mapping[int, np.ndarray] = MappingProxyType({}),
    ) -> None:
        self.model = _opened(model) if isinstance(model, ExportedProgram) else copied(model)
        self._double, self._weights, self._batch_size = double, weights, _fixed_batch(model)
        self._constants: ConstantMaker | None = None

    def __call__(self, images: np.ndarray, *, numbers: bool = False) -> Evaluation:
        """Evaluate images [N, *shape].

        Parameters
        ----------
        numbers: keep what is quantized, too.
        """
        batch = torch.from_numpy(images)
        if not self._double:
            return self._evaluated(batch, numbers, double=False)
        if self._constants is None:
            self._constants = ConstantMaker()
            with self._constants:
                self._evaluated(batch[: self._batch_size or 1], numbers=False, double=False)
            self.model.double()
        self._constants.widen()
        with _default_dtype(torch.float64), self._constants:
            return self._evaluated(batch.double() if batch.is_floating_point() else batch, numbers, double=True)

    def _evaluated(self, batch: Tensor, numbers: bool, double: bool) -> Evaluation:
        recorder = self._recorder(double, self._weights, numbers)
        with torch.no_grad(), eager_loops(), recorder:
            result = self._result(batch, recorder.calls)
        steps = batch.shape[1] if batch.ndim > 1 else 1
        return Evaluation(joined(tensors_of(result)), tuple(recorder.calls), steps)

    def _result(self, batch: Tensor, calls: list[QuantizerCall]) -> Any:
        """Return the result for a batch; subclasses append calls of quantizers that the recorder does not see."""
        return self.model(batch)

    def parts(self, images: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Yield images in batches of `size`, or of the only size that the model takes."""
        size = self._batch_size or size
        for start in range(0, len(images), size):
            yield images[start : start + size]


def tensors_of(result: Any) -> list[np.ndarray]:
    """Return the results of a model, a tensor or a tuple or dict of them, as arrays."""
    leaves = tree_leaves(result)
    return [leaf.detach().cpu().numpy() for leaf in leaves if isinstance(leaf, Tensor)]


def signature_of(node: fx.Node) -> Signature:
    """Return the signature of a traced call of a quantizer."""
    return _signature(node.target, node.args, node.kwargs, node.meta["val"])


def call_of(
    result: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({}), *, numbers: bool = False
) -> QuantizerCall:
    """Return a call of `nnhw.quantize` by its result and its arguments.

    Parameters
    ----------
    numbers: keep what is quantized, too.
    """
    arguments = _arguments(_QUANTIZE, args, kwargs)
    x = arguments["x"]
    # Results are codes times a scale: divided and rounded they are the codes again, whatever the dtype.
    codes = (result / along_axis(arguments["scale"], x, arguments["axis"])).round()
    rounded = codes.nan_to_num(nan=torch.iinfo(torch.int16).min).to(torch.int16)
    kept = x.cpu().numpy().copy() if numbers else None
    return QuantizerCall(_signature(_QUANTIZE, args, kwargs, x), rounded.cpu().numpy(), x.dtype, kept)


def rescale_call_of(
    result: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any] = MappingProxyType({}), *, numbers: bool = False
) -> QuantizerCall:
    """Return a call of `nnhw.rescale` by its result and its arguments; see `call_of`."""
    x = _arguments(_RESCALE, args, kwargs)["x"]
    kept = x.cpu().numpy().copy() if numbers else None
    codes = result.to(torch.int64).cpu().numpy()
    return QuantizerCall(_signature(_RESCALE, args, kwargs, x), codes, x.dtype, kept)


def _imitation(args: Sequence[Any], result: Sequence[Tensor], *, numbers: bool) -> QuantizerCall:
    """Return a call of torch's fake quantizer as that of `nnhw.quantize` in the trace; see `call_of`."""
    x, scale, _, *rest = args
    *axis, low, high = rest
    step = scale if isinstance(scale, Tensor) else torch.tensor([scale])
    codes = (result[0] / along_axis(step, x, axis[0] if axis else -1)).round().to(torch.int16)
    kept = x.cpu().numpy().copy() if numbers else None
    signature = (low, high, axis[0] if axis else -1, False, "half_even", True, False, tuple(x.shape[1:]))
    return QuantizerCall(signature, codes.cpu().numpy(), x.dtype, kept)


def _int8_calls(func: Any, args: Sequence[Any], result: Tensor, *, numbers: bool) -> Iterator[QuantizerCall]:
    """Yield the calls of `nnhw.quantize` that one of torch's int8 operators is in the trace; see `call_of`."""
    is_operator = func.namespace == NAMESPACE
    if not is_operator and func not in _MAKES_CODES:
        return
    if is_operator and len(args) > 1 and isinstance(args[1], torch.ScriptObject):
        packed = Packed.of(args[1])
        steps = along_axis(packed.scale, packed.weight, packed.axis)
        codes = (packed.weight / steps).round().to(torch.int16).numpy()
        signature = (*WEIGHT_CODES, packed.axis, False, "half_even", False, False, tuple(packed.weight.shape[1:]))
        yield QuantizerCall(signature, codes, torch.float32)
    ends = torch.iinfo(result.dtype)
    distances = (result.int_repr().to(torch.int16) - result.q_zero_point()).numpy()
    kept = args[0].cpu().numpy().copy() if numbers and func is torch.ops.aten.quantize_per_tensor.default else None
    rounding = rounding_of(func._schema.name.split("::")[1].removeprefix("_"))
    signature = (ends.min, ends.max, -1, False, "half_even", *rounding, tuple(result.shape[1:]))
    yield QuantizerCall(signature, distances, torch.float32, kept)


def _arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of a quantizer by name, defaults filled in."""
    schema = target._schema.arguments
    given = dict(zip((argument.name for argument in schema), args, strict=False)) | dict(kwargs)
    return {argument.name: given.get(argument.name, argument.default_value) for argument in schema}


def _signature(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], x: Tensor) -> Signature:
    arguments = _arguments(target, args, kwargs)
    plain = (value for name, value in arguments.items() if name not in _TENSORS[target])
    return *plain, tuple(size if isinstance(size, int) else None for size in x.shape[1:])


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """While active, tensors made without a dtype have this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _opened(program: ExportedProgram) -> nn.Module:
    """Return a program's module with copies of its parameters, which may be those of the user's model."""
    module: nn.Module = program.module()
    # Parameters of the module would be those of the program, which `double()` would change in place.
    module.load_state_dict({name: value.clone() for name, value in module.state_dict().items()}, assign=True)
    return module


def _fixed_batch(model: nn.Module | ExportedProgram) -> int | None:
    """Return the batch size of an exported program that takes only this one; None for all others."""
    if not isinstance(model, ExportedProgram):
        return None
    placeholder = next(node for node in model.graph.nodes if node.name in model.graph_signature.user_inputs)
    size = placeholder.meta["val"].shape[0]
    return size if isinstance(size, int) else None
