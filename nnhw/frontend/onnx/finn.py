"""Annotations of FINN, which say of tensors of floats which integers they hold.

Source: https://finn.readthedocs.io, "Internals"; qonnx.core.datatype for the names.
"""

from __future__ import annotations

import re

import numpy as np

from nnhw.errors import CaptureError
from nnhw.nn.quantizers import Quantizer

from .node import OnnxNode
from .parsing import OnnxGraph
from .quantizing import PER_TENSOR, QuantizedWeight, QuantizeNode
from .values import Known, Value

BITS_MAX = 16  # of a code
_SPECIAL = {"BINARY": (0, 1), "BIPOLAR": (-1, 1), "TERNARY": (-1, 1)}
"""Names of types without a width --> their least and greatest integer."""
_INTEGERS = re.compile(r"(U?)INT(\d+)")
_FIXED = re.compile(r"FIXED<(\d+),\s*(\d+)>")
# Of these no number says what the codes are: they are floats for whoever reads them.
_NO_CODES = re.compile(r"FLOAT\d+|FLOAT<[\d,\s]+>|SCALEDINT<\d+>")
_MOVES = frozenset({"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "MaxPool", "Pad"})
_LAYERS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool"})


def quantizer_of(kind: str) -> Quantizer | None:
    """Return the quantizer whose codes are the integers of a type of FINN, such as INT4; None for floats.

        FIXED<8,4>      codes of 8 bits in steps of 2**-4

    Raises: CaptureError for another name, or for more than 16 bits.
    """
    if kind in _SPECIAL:
        return Quantizer(*_SPECIAL[kind], 1.0, bipolar=kind == "BIPOLAR")
    integers, fixed = _INTEGERS.fullmatch(kind), _FIXED.fullmatch(kind)
    if fixed and int(fixed[2]) >= int(fixed[1]):
        fixed = None  # no bit is left behind the point, which QONNX's package refuses
    if integers is None and fixed is None:
        if _NO_CODES.fullmatch(kind):
            return None
        raise CaptureError(
            f"is annotated as {kind}, which is not a FINN type; use INT<bits>, UINT<bits>, BIPOLAR, TERNARY, BINARY, "
            f"FIXED<bits,int_bits> or FLOAT32"
        )
    bits = int(integers[2] if integers else fixed[1])  # type: ignore[index]  # one of them matched
    if not 1 <= bits <= BITS_MAX:
        raise CaptureError(f"is annotated as {kind}, but codes have 1 to {BITS_MAX} bits; use fewer")
    if integers and integers[1]:
        return Quantizer(0, (1 << bits) - 1, 1.0)
    scale = 2.0 ** (int(fixed[2]) - bits) if fixed else 1.0
    return Quantizer(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, scale)


def weights_of(node: OnnxNode, place: int = 1) -> Value:
    """Return an input; constants that are annotated as integers as the codes that they are.

    Raises: CaptureError for constants that are not what their annotation says.
    """
    value = node[place]
    kind = node.builder.graph.annotations.get(value.name, "") if isinstance(value, Known) else ""
    if not isinstance(value, Known) or not kind:
        return value
    what = f"has the constant '{value.name}', which"
    try:
        quantizer = quantizer_of(kind)
    except CaptureError as error:
        raise node.refusal(f"{what} {error}") from error
    if quantizer is None:
        return value
    scale = np.float32(quantizer.scale.item())  # type: ignore[union-attr]  # fixed
    codes = value.array / scale
    fits = (codes == np.rint(codes)) & (codes >= quantizer.qmin) & (codes <= quantizer.qmax)
    fits &= (codes != 0) | (not quantizer.bipolar)
    if not fits.all():
        wrong = float(value.array[~fits].reshape(-1)[0])
        raise node.refusal(f"{what} is annotated as {kind}, but holds {wrong:.9g}; correct the annotation")
    convention = quantizer.qmin, quantizer.qmax, PER_TENSOR, quantizer.bipolar, "half_even", False, False
    layer = QuantizedWeight(value.array, QuantizeNode(np.array(scale), np.zeros(1), convention))
    return node.tap(node.emit(layer, result=place, constant=True), value.name)


def input_quantizer(graph: OnnxGraph) -> Quantizer | None:
    """Return the quantizer of a float input that is annotated as integers, which a layer reads as it is; else None.

    Raises: CaptureError for an annotation that is not understood.
    """
    kind = graph.annotations.get(graph.input, "")
    if not kind or graph.input_dtype != np.float32 or not _is_read_by_layers(graph):
        return None
    try:
        return quantizer_of(kind)
    except CaptureError as error:
        raise CaptureError(f"the input '{graph.input}' {error}") from error


def _is_read_by_layers(graph: OnnxGraph) -> bool:
    """Return whether a layer reads the input, directly or behind nodes that move its elements."""
    names = {graph.input}
    for node in graph.nodes:
        if names & set(node.input[:1]):
            if node.op_type in _LAYERS:
                return True
            names.update(node.output if node.op_type in _MOVES else ())
    return False
