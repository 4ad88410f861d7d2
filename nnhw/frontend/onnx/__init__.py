"""ONNX files, read as their authors wrote them. Importing this imports onnx: see `nnhw.frontend.doors`."""

from .evaluating import evaluator
from .opening import load, traceable

__all__ = ["evaluator", "load", "traceable"]
