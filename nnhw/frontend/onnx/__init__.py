"""ONNX files as they are. Importing this imports onnx: see `nnhw.frontend.doors`."""

from .evaluating import OnnxEvaluator, evaluator
from .opening import is_mine, load

__all__ = ["OnnxEvaluator", "evaluator", "is_mine", "load"]
