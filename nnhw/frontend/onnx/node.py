"""A node of an ONNX file, as the builders of operators see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import NodeProto
from torch import nn

from nnhw.errors import CaptureError

from .module import Tap
from .parsing import label_of
from .values import Known, Traced, Value

if TYPE_CHECKING:
    from .building import ModuleBuilder

Build = Callable[["OnnxNode"], "Value | Sequence[Value]"]
"""A function that adds the steps of a node to the module, and returns the node's result or results."""


@dataclass
class OnnxNode:
    """A node of the file while the module is built.

    Parameters
    ----------
    proto: the node in the file.
    inputs: its values; None for an optional one that is left out.
    version: opset version of the node's domain.
    builder: builds the module.
    """

    proto: NodeProto
    inputs: tuple[Value | None, ...]
    version: int
    builder: ModuleBuilder
    # Attributes that are left: builders take them out one by one, and one that stays was ignored, which is refused.
    _attributes: dict[str, Any]

    @property
    def op(self) -> str:
        """The name of the operator."""
        return str(self.proto.op_type)

    def __str__(self) -> str:
        return f"{self.op} '{label_of(self.proto)}'"

    def refusal(self, reason: str) -> CaptureError:
        """Return the error that refuses the node for a reason: "Op 'name' reason"."""
        return CaptureError(f"{self} {reason}")

    def axis(self, number: int, rank: int) -> int:
        """Return the axis 0..rank - 1 that a number stands for, which counts from the end if it is negative.

        Raises: CaptureError for a number that stands for none.
        """
        if not -rank <= number < rank:
            raise self.refusal(f"has the axis {number} of a value with {rank} axes; use {-rank} to {rank - 1}")
        return int(number % rank)

    def take(self, name: str, default: Any = None) -> Any:
        """Return an attribute, and note that it is understood: attributes that no builder takes are refused."""
        return self._attributes.pop(name, default)

    def required(self, name: str) -> Any:
        """Return an attribute that must be there, as `take` does. Raises: CaptureError if it is left out."""
        if name not in self._attributes:
            raise self.refusal(f"lacks the attribute '{name}'; write it into the file")
        return self.take(name)

    def adopt(self, other: OnnxNode) -> None:
        """Share the attributes of another node, so that what is taken here counts as taken there."""
        self._attributes = other._attributes

    @property
    def untaken(self) -> list[str]:
        """The names of attributes that no builder has taken."""
        return list(self._attributes)

    def given(self, place: int) -> bool:
        """Return whether there is an input at a place."""
        return place < len(self.inputs) and self.inputs[place] is not None

    def __getitem__(self, place: int) -> Value:
        value = self.inputs[place] if place < len(self.inputs) else None
        if value is None:
            raise self.refusal(f"lacks its input {place}; export the model again")
        return value

    def traced(self, place: int = 0, *, bare: bool = False) -> Traced:
        """Return an input as a value of the module; a constant becomes a step of its own.

        Parameters
        ----------
        bare: it may be without the axis of the batch in the file.

        Raises
        ------
        CaptureError: it is, and may not.
        """
        value = self[place]
        if isinstance(value, Known):
            return self.builder.constant_step(self, value, place)
        if value.bare and not bare:
            raise self.refusal(
                f"reads a value of shape {list(value.file_shape)} without the batch axis; keep the batch as first "
                f"axis, or put Reshape or Unsqueeze in front of it"
            )
        return value

    def floats(self, place: int = 0) -> Traced:
        """Return an input that is of floats in the file. Raises: CaptureError if it is of integers."""
        value = self.traced(place)
        # The model's own integers have no coding before an operator states their zero point. Arithmetic on them would
        # be that of floats here, and wraps around in the file.
        if value.coding is not None or (not value.constant and not value.like.is_floating_point()):
            raise self.refusal("computes with integers; put DequantizeLinear in front of it")
        return value

    def known(self, place: int, what: str) -> np.ndarray:
        """Return the numbers of an input that must be constant; `what` names it in the CaptureError if it is not."""
        value = self[place]
        if not isinstance(value, Known):
            raise self.refusal(f"computes its {what} from the model's input; export it as a constant")
        return value.array

    def optional(self, place: int, what: str) -> np.ndarray | None:
        """Return the numbers of a constant input; None if it is left out."""
        return self.known(place, what) if self.given(place) else None

    def integers(self, place: int, what: str) -> list[int] | None:
        """Return the integers of a constant input, such as axes; None if it is left out."""
        array = self.optional(place, what)
        return None if array is None else [int(number) for number in array.reshape(-1)]

    def emit(self, layer: nn.Module, *operands: Traced, result: int = 0, **facts: Any) -> Traced:
        """Add a step that calls a layer, and return its value.

        Parameters
        ----------
        result: a number that becomes part of the layer's name, as layers of one node need different ones; 0: no part.
        facts: members of `Traced`, such as coding.
        """
        return self.builder.emit(self, layer, operands, result, facts)

    def tap(
        self,
        value: Traced,
        tensor: str,
        offset: Any = 0.0,
        factor: Any = 1.0,
        part: tuple[int, int, int] | None = None,
        reads: str = "",
    ) -> Traced:
        """Note that the step which makes a value quantizes, and in which tensor the file has its codes; see `Tap`."""
        self.builder.tap(value, Tap("", tensor, np.asarray(offset), np.asarray(factor), value.constant, part, reads))
        return value
