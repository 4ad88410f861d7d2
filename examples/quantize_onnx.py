"""Export the float network of `mnist_float.py` to ONNX, let ONNX Runtime quantize it, and write mnist_qdq.onnx.

Needs `pip install 'nnhw[onnx]'`, and onnxscript for the export.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from mnist_float import CALIBRATION_DIGITS, float_model, sample_images
from onnxruntime import quantization

FILE = Path(__file__).resolve().parent / "mnist_qdq.onnx"


class Digits(quantization.CalibrationDataReader):
    """Shows one digit at a time."""

    def __init__(self, images: np.ndarray) -> None:
        self.digits = iter(images[:, None])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next digit; None behind the last one."""
        digit = next(self.digits, None)
        return None if digit is None else {"digit": digit}


def quantized(model: torch.nn.Module, images: torch.Tensor) -> onnx.ModelProto:
    """Export a float model, and quantize it with images [N, ..]."""
    with tempfile.TemporaryDirectory() as folder:
        exported, made = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        torch.onnx.export(
            model.eval(), (images[:2],), exported, input_names=["digit"], dynamic_shapes=({0: torch.export.Dim("n")},),
            external_data=False,
        )  # fmt: skip
        quantization.quantize_static(
            exported,
            made,
            Digits(images.numpy()),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
        )
        return onnx.load(made)


if __name__ == "__main__":
    model = quantized(float_model, sample_images(CALIBRATION_DIGITS))
    for node in model.graph.node:
        del node.metadata_props[:]  # it names folders of this computer
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del value.metadata_props[:]
    del model.graph.metadata_props[:], model.metadata_props[:]
    onnx.save(model, FILE)
