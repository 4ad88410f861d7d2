"""From PyTorch models (modules, Python files, exported programs) and model files of other tools to the IR."""

from .capture import capture
from .source import Source, load_source

__all__ = ["Source", "capture", "load_source"]
