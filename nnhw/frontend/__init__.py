"""PyTorch models in: from a module, a Python file or an exported program to the IR."""

from .capture import capture
from .source import Source, load_source

__all__ = ["Source", "capture", "load_source"]
