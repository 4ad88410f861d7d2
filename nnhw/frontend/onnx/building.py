"""From a checked graph to a module of PyTorch: node by node, each by the builder of its operator."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from onnx import AttributeProto, NodeProto, helper
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from nnhw.errors import CaptureError, InputError, NnhwError, raise_all
from nnhw.nn.tracing import quiet_torch

from .module import OnnxFile, OnnxModel, Step, Tap
from .node import Build, OnnxNode
from .parsing import OnnxGraph, array_of, label_of
from .refusals import reason_of
from .values import EXAMPLES, Known, Traced, Value

Fold = Callable[[OnnxNode], "Sequence[Value] | None"]

_IMAGE_ELEMENTS_MAX = 1 << 24  # of one value for one image
# A layer with such a name would hide an attribute of the module (`OnnxModel`).
_LAYERS_RESERVED = frozenset(dir(nn.Module())) | {"steps", "result", "file"}


class ModuleBuilder:
    """Builds the module that computes what a graph does.

    Parameters
    ----------
    graph: after its checks (`parsing.read`).
    table: builders by (domain, operator).
    fold: returns the results of a node that reads constants alone; None for any other node.

    Members
    -------
    batch: images that the file takes at once; None where it leaves that open.
    fixed_batch: whether that number is written into the file's constants, too, so that it takes no other.
    consumers: the nodes that read each tensor.
    inputs: the model's integer input as codes, by its name and the zero point that is taken off, 'x - 128'.
    """

    def __init__(self, graph: OnnxGraph, table: Mapping[tuple[str, str], Build], fold: Fold) -> None:
        self.graph, self._fold = graph, fold
        self.batch = graph.input_shape[0] if graph.input_shape else None
        self.fixed_batch = False
        self.inputs: dict[str, Traced] = {}
        self.consumers: dict[str, list[NodeProto]] = {}
        for node in graph.nodes:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
        self._table = table
        self._values: dict[str, Value] = {
            name: Known(name, array, graph.kinds.get(name, "")) for name, array in graph.constants.items()
        }
        self._layers: dict[str, nn.Module] = {}
        self._steps: list[Step] = []
        self._taps: list[Tap] = []
        self._broken: set[str] = set()
        # Layers have real weights, and fake inputs go through them.
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)

    def build(self) -> OnnxModel:
        """Return the module. Raises: CaptureError, or ProblemList with the errors of all nodes at once."""
        self._add_input()
        problems: list[NnhwError] = []
        for proto in self.graph.nodes:
            # Nodes behind a refused one are skipped: only the cause is reported.
            if self._broken & set(proto.input):
                self._broken.update(proto.output)
                continue
            try:
                self._build(proto)
            except NnhwError as error:
                problems.append(error)
                self._broken.update(proto.output)
        raise_all(problems)
        result = self._values[self.graph.output]
        if not isinstance(result, Traced) or result.constant:
            raise CaptureError("the model's output does not depend on its input; export what is computed from it")
        bare = result.bare
        result, integers = self._plain_result(result)
        batch = self.batch if self.fixed_batch else None
        # Kept whole, with external weights taken in: the evaluation runs the file as it is, and does not depend on what
        # was read of it.
        content = self.graph.model.SerializeToString()
        tensors: dict[str, str] = {}
        for tensor, value in self._values.items():
            if isinstance(value, Traced):
                tensors.setdefault(value.key, tensor)  # others of this value are behind it, such as by Identity
        names = self.graph.input, self.graph.output
        file = OnnxFile(content, *names, batch, tuple(self._taps), integers, bare, tensors)
        return OnnxModel(self._layers, tuple(self._steps), result.key, file)

    def _add_input(self) -> None:
        shape = self.graph.input_shape
        if len(shape) < 2 or None in shape[1:]:
            shown = ["batch" if index == 0 and size is None else size or "?" for index, size in enumerate(shape)]
            raise InputError(
                f"the input '{self.graph.input}' has the shape {shown}; the batch has to come first, and may be open, "
                f"but all other sizes have to be fixed: export with fixed sizes"
            )
        dtype = torch.from_numpy(np.empty(0, self.graph.input_dtype)).dtype
        count = math.prod(size or 0 for size in shape[1:])
        if count > _IMAGE_ELEMENTS_MAX:
            raise InputError(
                f"the input '{self.graph.input}' has {count} numbers for one image; {_IMAGE_ELEMENTS_MAX} are "
                f"accepted: export with smaller images"
            )
        with self._fake:
            like = torch.empty((EXAMPLES, *shape[1:]), dtype=dtype)  # type: ignore[arg-type]
        self._values[self.graph.input] = Traced(self.graph.input, like)

    def _build(self, proto: NodeProto) -> None:
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        build = self._table.get((domain, proto.op_type))
        inputs = tuple(self._values[name] if name else None for name in proto.input)
        node = OnnxNode(proto, inputs, self.graph.opsets[domain], self, _attributes(proto))
        results = self._results(node, build)
        if node.untaken:
            raise node.refusal(
                f"has the attribute '{node.untaken[0]}', of which nothing is known here; export it without"
            )
        for name, value in zip(proto.output, results, strict=False):
            if name:
                self._values[name] = value
        missing = [name for name in proto.output[len(results) :] if name and self._is_read(name)]
        if missing:
            raise node.refusal(f"has the result '{missing[0]}', which is not supported; leave it out")

    def _results(self, node: OnnxNode, build: Build | None) -> list[Value]:
        """Return the results of a node. Raises: CaptureError, also for attributes of a wrong type."""
        try:
            results = self._fold(node)
            if results is not None:
                return list(results)
            if build is None:
                raise node.refusal(reason_of(node.op))
            # Builders read attributes and shapes of a file that anybody may have written, so that any error of Python
            # may come of it, such as a text where a number is expected: hence the broad clause below.
            made = build(node)
        # A builder's own refusal already says what is wrong.
        except NnhwError:
            raise
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0]
            raise node.refusal(
                f"has inputs or attributes of another form than its operator: {type(error).__name__}: {line}; export "
                f"the model again"
            ) from error
        return [made] if isinstance(made, Known | Traced) else list(made)

    def _is_read(self, name: str) -> bool:
        return name in self.consumers or name == self.graph.output

    def number_of(self, name: str) -> float | None:
        """Return the number that a constant holds; None for any other tensor, and for several numbers."""
        value = self._values.get(name)
        if value is None:
            # A Constant node may stand behind the node that asks, so it may not be built yet.
            maker = next(
                (node for node in self.graph.nodes if name in node.output and node.op_type == "Constant"), None
            )
            value = Known(name, next(iter(_attributes(maker).values()))) if maker is not None else None
        if not isinstance(value, Known):
            return None
        array = np.asarray(value.array)
        return float(array.reshape(-1)[0]) if array.size == 1 else None

    def constant_step(self, node: OnnxNode, value: Known, place: int) -> Traced:
        """Add a step that returns constants, and return its value. `place`: of the input that reads them."""
        if value.depends_on_batch:
            raise node.refusal("computes with the size of the batch; an image's result must not depend on it")
        return self.emit(node, Numbers(value.array), (), place + 1, {"constant": True})

    def emit(
        self, node: OnnxNode, layer: nn.Module, operands: Sequence[Traced], result: int, facts: dict[str, Any]
    ) -> Traced:
        """Add a step that calls a layer with operands; see `OnnxNode.emit`."""
        name = self._name(label_of(node.proto) or node.op, result)
        self._layers[name] = layer.eval()
        key = f"{name}()"
        self._steps.append(Step(name, tuple(value.key for value in operands), key))
        try:
            # Fake tensors have shapes and no numbers: nothing is computed, however large the layer is.
            with quiet_torch(), self._fake, torch.no_grad():
                like = layer(*(value.like for value in operands))
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0]
            raise node.refusal(
                f"does not fit its inputs: {type(error).__name__}: {line}; export the model again"
            ) from error
        # What is computed from constants alone has no batch, and stays out of the check of the first axis.
        constant = facts.pop("constant", False) or (bool(operands) and all(value.constant for value in operands))
        _check_shape(node, like, constant)
        return Traced(key, like, constant, **facts)

    def tap(self, value: Traced, tap: Tap) -> None:
        """Note in which tensor of the file a quantizer's codes are; see `OnnxNode.tap`."""
        layer = next(step.layer for step in reversed(self._steps) if step.result == value.key)
        self._taps.append(replace(tap, layer=layer))

    def _name(self, label: str, result: int) -> str:
        """Return a name for a layer, made from the node's label, that no other layer has."""
        # Names of layers become parts of module paths, in messages and in the names of hardware: dots would make paths
        # of them.
        base = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_") or "node"
        base = base if base[0].isalpha() else f"n_{base}"
        base = f"{base}_{result}" if result else base
        name, count = base, 1
        while name in self._layers or name in _LAYERS_RESERVED:
            count += 1
            name = f"{base}_{count}"
        return name

    def _plain_result(self, value: Traced) -> tuple[Traced, bool]:
        """Return the output with the file's integers as floats, and whether it has integers at all.

        The module computes with integer - zero point: a step adds the zero point again.
        """
        if value.coding is None:
            return value, False
        coding = value.coding
        # The quantizer's step gives (integer - zero point) * scale only if DequantizeLinear alone reads it; then no
        # step has the integers.
        if coding.real:
            raise CaptureError(f"the output '{self.graph.output}' is both read as numbers and returned as integers")
        if not coding.zero_point.any():
            return value, True
        layer = Shifted(float(coding.zero_point.reshape(-1)[0]))
        self._layers["integers_of_the_result"] = layer
        self._steps.append(Step("integers_of_the_result", (value.key,), "integers()"))
        return Traced("integers()", value.like), True


class Numbers(nn.Module):
    """A constant of the file."""

    numbers: Tensor

    def __init__(self, array: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.from_numpy(np.array(array)))

    def forward(self) -> Tensor:
        """Return the constant."""
        return self.numbers


class Shifted(nn.Module):
    """x + offset."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """Add the offset to every element."""
        return x + self.offset


def _attributes(proto: NodeProto) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.TENSOR:
            attributes[attribute.name] = array_of(attribute.t, f"{proto.op_type} '{label_of(proto)}'")
            continue
        try:
            value = helper.get_attribute_value(attribute)
        except ValueError as error:
            raise CaptureError(
                f"{proto.op_type} '{label_of(proto)}' has the attribute '{attribute.name}' of no known type; export "
                f"the model again"
            ) from error
        attributes[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return attributes


def _check_shape(node: OnnxNode, like: object, constant: bool) -> None:
    if not isinstance(like, Tensor):
        raise node.refusal("does not make one tensor; export the model again")
    if not constant and (like.ndim < 1 or like.shape[0] != EXAMPLES):
        shape = ["batch" if size == EXAMPLES else size for size in like.shape]
        raise node.refusal(
            f"must keep the batch as its first axis, but makes the shape {shape}; permute the others alone"
        )
    if math.prod(like.shape[1:]) > _IMAGE_ELEMENTS_MAX:
        raise node.refusal(
            f"makes {math.prod(like.shape[1:])} numbers for one image; {_IMAGE_ELEMENTS_MAX} are accepted"
        )
