"""Unsigned weights in place of signed ones, so that ONNX Runtime adds exactly on every computer.

Where an x86-64 processor has no instructions for dot products of bytes (VNNI), ONNX Runtime multiplies unsigned
activations and signed weights by an instruction that clips the sum of two products at 16 bits. It says so itself
("Quantize ONNX Models", "When to use reduce-range and per-channel quantization"), and its own remedy is the same as
this one, but part of its optimizations, without which a file is evaluated here. Weights and their zero point are both
128 higher then, so that nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, TensorProto, numpy_helper

_INPUTS = {
    "QLinearConv": (2, 3, 5),
    "QLinearMatMul": (2, 3, 5),
    "QGemm": (2, 3, 5),
    "MatMulInteger": (2, 1, 3),
}
"""Operator --> its inputs with the zero point of the activations, the weights, and the zero point of the weights."""
_HALF = 128


def with_unsigned_weights(nodes: Sequence[NodeProto], initializers: dict[str, TensorProto]) -> list[NodeProto]:
    """Return nodes that compute the same with unsigned weights, where activations are unsigned and weights are not.

    Parameters
    ----------
    initializers: by name; those of the new weights and zero points are added.
    """
    return [_unsigned(node, initializers) for node in nodes]


def _unsigned(node: NodeProto, initializers: dict[str, TensorProto]) -> NodeProto:
    if node.op_type not in _INPUTS:
        return node
    activations, weights, zero = _INPUTS[node.op_type]
    inputs = [*node.input, *[""] * (zero + 1 - len(node.input))]
    # Without a zero point the activations of MatMulInteger may be of either kind, and both work with unsigned weights.
    kinds = [
        (inputs[activations], TensorProto.UINT8, True),
        (inputs[weights], TensorProto.INT8, False),
        (inputs[zero], TensorProto.INT8, True),
    ]
    if not all(_is(name, kind, initializers, absent) for name, kind, absent in kinds):
        return node
    own = NodeProto()
    own.CopyFrom(node)
    inputs[weights] = _higher(inputs[weights], initializers)
    inputs[zero] = _higher(inputs[zero], initializers)
    del own.input[:]
    own.input.extend(inputs)
    return own


def _is(name: str, kind: int, initializers: dict[str, TensorProto], absent: bool) -> bool:
    """Return whether an input is a constant of a type; `absent`: or not there."""
    return (absent and not name) or (name in initializers and initializers[name].data_type == kind)


def _higher(name: str, initializers: dict[str, TensorProto]) -> str:
    """Return the name of an initializer with numbers that are 128 higher; those of no name are zero."""
    made = f"{name}:unsigned"
    if made not in initializers:
        signed = numpy_helper.to_array(initializers[name]) if name else np.zeros((), np.int8)
        initializers[made] = numpy_helper.from_array((signed.astype(np.int16) + _HALF).astype(np.uint8), made)
    return made
