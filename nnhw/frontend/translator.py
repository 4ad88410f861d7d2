"""From a traced ATen graph to the IR: state of the translation, and rules that hold for all operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx

from nnhw.errors import CaptureError, IrError, NnhwError
from nnhw.ir import FLOAT, Graph, GraphBuilder, Location, Node, Op, TensorType
from nnhw.ir.ops import AsSteps, Dequantize, Input

from .calls import SHAPED_AS, SIZE_QUERY, Call, check_sole_use, make_call
from .constant_folding import computed_constant, shaped_constant
from .locations import Lines, location_of
from .sequences import broadcast, by_step, each_image
from .values import Batch, Block, Codes, Float, Integers, PerImage, Stacked, StepsFirst, TracedConstant, Unknown, Value

Handler = Callable[["Translator", Call], "Value | list[Value | None]"]
"""A function from a call to its value; or to a list of its values, with None for those that nothing reads."""

QUANTIZE = "nnhw.quantize.default"
RESCALE = "nnhw.rescale.default"
ITEM = "_operator.getitem"
ASSERTIONS = ("aten._assert_scalar.default", "aten._assert_tensor_metadata.default")


class KnownResult(CaptureError):
    """A problem of a layer after which translation can go on, with its result as floats of the traced shape."""


class Unquantized(KnownResult):
    """A layer that needs codes, but reads floats."""


class Translator:
    """Builds the graph node by node, and collects what cannot be translated.

    Parameters
    ----------
    name: of the graph.
    handlers: the supported operators.
    lines: see `location_of`.

    Members
    -------
    builder: the graph so far.
    problems: what could not be translated.
    permuted: (value before, axes) by the name of each permuted value.
    reshaped: value before, by the name of each reshaped value.
    bodies: bodies of loops, by their calls.
    quantized: codes by (value, quantizer, scale), so that equal ones are computed once.
    """

    def __init__(self, name: str, handlers: Mapping[str, Handler], lines: Lines) -> None:
        self.builder = GraphBuilder(name)
        self.problems: list[NnhwError] = []
        self.reshaped: dict[str, Codes | Float] = {}
        self.permuted: dict[str, tuple[Codes | Float, tuple[int, ...]]] = {}
        self.bodies: dict[fx.Node, Any] = {}
        self.quantized: dict[tuple[str, Op, tuple[int, ...], bytes], Codes] = {}
        self._handlers, self._lines = handlers, lines
        self._values: dict[fx.Node, Any] = {}
        self._dequantized: dict[str, str] = {}
        self._parameters: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._batch: Any = None
        self._steps: Any = None
        self._place: Location | None = None

    def add_input(self, node: fx.Node) -> None:
        """Add the model's input: its first axis is the batch; a second axis of variable size is that of steps."""
        self._batch, *rest = node.meta["val"].shape
        if rest and not isinstance(rest[0], int):
            self._steps = rest[0]
        self._values[node] = self._input_like(node)

    def inner(self, name: str, location: Location) -> Translator:
        """Return a translator for the body of a loop, which is one step, with the same operators.

        Parameters
        ----------
        location: place of the loop, which all its ops get.
        """
        made = Translator(name, self._handlers, self._lines)
        made._batch, made._place = self._batch, location
        return made

    def add_codes(self, node: fx.Node, name: str, type: TensorType, scale: np.ndarray, quantized: bool = True) -> None:
        """Add an input of a body that is codes."""
        self._values[node] = Codes(self.builder.input(name, type), scale, quantized)

    def set_value(self, node: fx.Node, value: Value) -> None:
        """Set the value of a traced node."""
        self._values[node] = value

    def add_constant(self, node: fx.Node, tensor: torch.Tensor, label: str) -> None:
        """Set a traced node to a parameter or buffer."""
        self._values[node] = TracedConstant(tensor.detach(), label)

    def add_block(self, node: fx.Node, block: Block) -> None:
        """Set a traced node to a block of code, such as the body of a loop."""
        self._values[node] = block

    def translate(self, node: fx.Node) -> None:
        """Translate one call. A problem is noted, and translation goes on, to find all of them."""
        # With these torch.export states what it assumes of sizes: there is nothing to compute.
        if str(node.target) in ASSERTIONS:
            return
        try:
            call = make_call(node, self._values, self._lines)
            self._values[node] = self._value_of(replace(call, location=self._place) if self._place else call)
        # The shape of the result is known: what reads it can be checked, too, so that all problems are listed at once.
        except KnownResult as error:
            self.problems.append(error)
            self._values[node] = self._input_like(node)
        except NnhwError as error:
            self.problems.append(
                _placed(error, self._place or location_of(node, self._lines)) if isinstance(error, IrError) else error
            )
            self._values[node] = Unknown()

    def value_of(self, node: fx.Node) -> Any:
        """Return the value of a traced node; None if it was not translated."""
        return self._values.get(node)

    def unquantized(self, call: Call, value: Any, remedy: str) -> Unquantized:
        """Return the error of a layer that reads floats. `remedy`: where these are not those of the model's input."""
        if isinstance(value, Float) and value.spoiled:
            return Unquantized(f"{call} needs quantized inputs, but {value.spoiled}")
        if isinstance(value, Float) and self._is_given(value.name):
            return Unquantized(
                f"{call} needs quantized inputs, but reads the model's input as floats; add a quantizer there with "
                f"--calibrate DATA.npy or nnhw.quantize(model, data), or put one there yourself, such as "
                f"nnhw.nn.UInt(8, scale=2**-8) for an image"
            )
        if (join := self._join(value)) is not None:
            return Unquantized(
                f"{call} needs quantized inputs, but reads {join}, which joins values and has no quantizer behind it; "
                f"put one there, such as nnhw.nn.QuantIdentity(8, scale='observed')"
            )
        return Unquantized(f"{call} needs quantized inputs, {remedy}")

    def _join(self, value: Any) -> Node | None:
        """Return the node of several computed values from which a value comes; None for all others."""
        if not isinstance(value, Float):
            return None
        graph = self.builder.build([value.name])
        node = graph.node(value.name)
        return node if len(graph.data_inputs(node)) > 1 else None

    def _is_given(self, name: str) -> bool:
        """Return whether a value is the model's input, or a function of it alone that has no quantizer or layer."""
        graph = self.builder.build([name])
        needed = {name}
        for node in reversed(graph.nodes):
            if node.name not in needed or node.name in graph.constants:
                continue
            if node.type.dtype != FLOAT or (isinstance(node.op, Input) and node.name != graph.nodes[0].name):
                return False
            needed.update(node.inputs)
        return True

    def finish(self, output: fx.Node, keys: tuple[str, ...] = ()) -> Graph:
        """Return the graph whose results are the arguments of the traced output node.

        Parameters
        ----------
        keys: of the results, if they are a dict.
        """
        results = output.args[0]
        given = results if isinstance(results, tuple | list) else ()
        nodes = [result for result in given if isinstance(result, fx.Node)]
        if not nodes or len(nodes) < len(given):
            raise CaptureError("the model must return tensors alone; return those to be computed")
        names = [self._result(result) for result in nodes]
        sequences = [name for name in names if self.builder.type_of(name).is_sequence]
        if len(names) > 1 and sequences:
            raise CaptureError(
                f"the model returns {len(names)} tensors, among them a sequence, '{sequences[0]}'; a model of "
                f"sequences returns one tensor: return one of them, or all in one by torch.cat"
            )
        return self.builder.build(names, keys)

    def _result(self, result: fx.Node) -> str:
        """Return the node of a result of the model. Raises: CaptureError for what no graph can end in."""
        value = self._values[result]
        if isinstance(value, TracedConstant | Batch | Unknown | PerImage | Block):
            raise CaptureError("the model's output does not depend on its input; return something computed from it")
        if isinstance(value, Stacked):
            raise CaptureError(
                "the model's output is stacked along a new first axis, which must be the batch; use dim=1"
            )
        if isinstance(value, StepsFirst):
            raise CaptureError("the model's output has its steps in front of the batch; return it with transpose(0, 1)")
        return value.name if isinstance(value, Integers) else self.floats(value, location_of(result, self._lines))

    def emit(self, call: Call, op: Op, *inputs: str, suffix: str = "") -> str:
        """Add a node named after the module that it comes from; return its name."""
        return self.builder.add(self.label(call, suffix), op, inputs, call.location)

    def label(self, call: Call, suffix: str = "") -> str:
        """Return the name for a call's result: its module's path, or outside of modules and in loops its traced name.

        The operator is put in front of a bare number, as modules in nn.Sequential have it: 'linear_3' is module '3'.
        """
        module, operator = "" if self._place else call.location.module, call.operator.split(".")[1]
        base = f"{operator}_{module}" if module[:1].isdigit() else module or call.node.name
        return f"{base}.{suffix}" if suffix else base

    def floats(self, value: Value, location: Location) -> str:
        """Return the node of a value as float64; codes are dequantized, by one node for all readers."""
        if isinstance(value, Float):
            return value.name
        if not isinstance(value, Codes):
            if isinstance(value, Batch):
                raise CaptureError(
                    f"the size of the batch is computed with at {location}, but an image's result must not depend on "
                    f"how many images come with it; use a constant"
                )
            indices = isinstance(value, Integers)
            remedy = "let argmax be the model's end" if indices else "compute it from the model's input"
            raise CaptureError(
                f"floating-point values are needed at {location}, got {type(value).__name__.lower()}; {remedy}"
            )
        if value.name not in self._dequantized:
            made = self.builder.location_of(value.name)
            scale = self.array(f"{value.name}.scale", value.scale, made)
            name = self.builder.add(f"{value.name}.dequantize", Dequantize(), [value.name, scale], made)
            self._dequantized[value.name] = name
        return self._dequantized[value.name]

    def array(self, label: str, array: np.ndarray, location: Location) -> str:
        """Add a float64 constant; return its name."""
        array = np.asarray(array, dtype=np.float64)
        return self.builder.constant(label, array, TensorType(array.shape, FLOAT), location)

    def parameter(self, value: TracedConstant, call: Call, shape: tuple[int, ...]) -> str:
        """Add a constant in float64, reshaped; one node for all of its uses. Return its name."""
        array = value.doubles.cpu().numpy().reshape(shape)
        bad = int((~np.isfinite(array)).sum())
        if bad:
            raise CaptureError(
                f"{call} reads '{value.label}', which holds NaN or infinity in {bad} of {array.size} places; train "
                f"again, or load another file"
            )
        key = (value.label, shape, array.tobytes())  # a quantized parameter has the label of the parameter itself
        if key not in self._parameters:
            self._parameters[key] = self.array(value.label, array, call.location)
        return self._parameters[key]

    def shape(self, value: Codes | Float) -> tuple[int, ...]:
        """Return the shape of a value without its batch axis."""
        return self.builder.type_of(value.name).shape

    def show(self, shape: Any) -> str:
        """Return a traced shape as text, in which the size of the batch is 'batch'."""
        sizes = [str(size) if isinstance(size, int) else str(size).replace(str(self._batch), "batch") for size in shape]
        return f"[{', '.join(sizes)}]"

    def result_shape(self, call: Call) -> tuple[int, ...]:
        """Return the traced shape of a call's result without its batch axis.

        Raises: CaptureError if its first axis is not the batch, or another one depends on it.
        """
        shape = call.node.meta["val"].shape
        in_steps = self.fixed_steps is None or any(map(self.is_sequence, call.values))
        if in_steps and len(shape) > 1 and (self.starts(shape) or self.starts(shape[1::-1])):
            shape = (self._batch, *shape[2:])
        if not shape or not _same(shape[0], self._batch) or not all(isinstance(size, int) for size in shape[1:]):
            raise CaptureError(
                f"{call} must keep the batch as its first axis, but makes the shape {self.show(shape)}; "
                f"use x.flatten(1) or x.reshape(x.shape[0], ..)"
            )
        return tuple(shape[1:])

    @property
    def fixed_steps(self) -> int | None:
        """The number of steps of all sequences, if the model fixes it."""
        return self._steps if isinstance(self._steps, int) else None

    def as_steps(self, call: Call, value: Codes | Float) -> StepsFirst:
        """Return the sequence whose steps are along the first axis of a value.

        Raises: CaptureError where another sequence has another number of steps.
        """
        steps = self.shape(value)[0]
        if self._steps not in (None, steps):
            raise CaptureError(f"{call} makes {steps} steps, but other sequences of the model have {self._steps}")
        self._steps = steps
        return StepsFirst(replace(value, name=self.emit(call, AsSteps(), value.name, suffix="steps")))

    def starts(self, shape: Any) -> bool:
        """Return whether a traced shape begins with the batch and the steps."""
        return self._steps is not None and _same(shape[0], self._batch) and _same(shape[1], self._steps)

    def batch_axis(self, shape: Any) -> int | None:
        """Return the axis of a traced shape that is the batch; None unless it is one, and all others are numbers."""
        axes = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
        return axes[0] if len(axes) == 1 and _same(shape[axes[0]], self._batch) else None

    def is_sequence(self, value: object) -> bool:
        """Return whether a traced value is a sequence."""
        if isinstance(value, StepsFirst):
            return True
        named = isinstance(value, Codes | Float | Integers)
        return named and self.builder.type_of(value.name).is_sequence  # type: ignore[attr-defined]

    def _value_of(self, call: Call) -> Any:
        handler = self._handlers.get(call.operator)
        variable = any(not isinstance(value, TracedConstant | Batch) for value in call.values)
        if call.operator == SIZE_QUERY:
            # With the steps first, the batch is axis 1.
            return Batch() if call["dim"] == int(isinstance(call["self"], StepsFirst)) else call.node.meta["val"]
        # Before constants are computed, for these may not depend on the size of the batch.
        if (filled := each_image(self, call)) is not None:
            return filled
        call = broadcast(call)
        if handler is None and variable:
            raise call.refusal()
        # Values of a graph never change, so that an operation in place is one out of place only if nobody else sees the
        # change.
        check_sole_use(call)
        if handler is None or (not variable and call.operator not in (QUANTIZE, ITEM)):
            return computed_constant(call)
        if call.operator in SHAPED_AS and isinstance(call["self"], TracedConstant):
            return shaped_constant(call, self.result_shape(call))
        if any(isinstance(value, Unknown) for value in call.values):
            # A quantizer's result is known whatever its input is.
            return Unknown() if call.operator != QUANTIZE else self._after_unknown(handler, call)
        return by_step(self, call, handler)

    def _after_unknown(self, handler: Handler, call: Call) -> Any:
        arguments = {k: self._input_like(call.node) if isinstance(v, Unknown) else v for k, v in call.arguments.items()}
        return handler(self, Call(call.node, call.operator, arguments, call.location))

    def _input_like(self, node: fx.Node) -> Float:
        shape = node.meta["val"].shape
        is_sequence = len(shape) > 1 and (self.starts(shape) or self.starts(shape[1::-1]))
        sizes = tuple(int(size) for size in shape[1 + is_sequence :])
        return Float(self.builder.input(node.name, TensorType(sizes, FLOAT, is_sequence)))


def _placed(error: IrError, place: Location) -> CaptureError:
    """Return the error of an op with the place of its call added, if it does not have it."""
    return CaptureError(str(error) if str(place) in str(error) else f"{error}, at {place}")


def _same(size: Any, batch: Any) -> bool:
    if isinstance(size, int) or isinstance(batch, int):
        return isinstance(size, int) and isinstance(batch, int) and size == batch
    return bool(size.node.expr == batch.node.expr)
