"""What mapping hands to hardware and driver: the engines of an accelerator, in stream order, and its byte formats."""

from nnhw.accelerator.accelerator import RESERVED, Accelerator
from nnhw.accelerator.boundaries import Boundary, StreamBoundary
from nnhw.accelerator.formats import InputFormat, OutputFormat
from nnhw.accelerator.stages import INPUT, Stage
from nnhw.accelerator.streams import Stream, stream_order, tensor_order
from nnhw.engines.contract import EngineConfig

__all__ = [
    "INPUT",
    "RESERVED",
    "Accelerator",
    "Boundary",
    "EngineConfig",
    "InputFormat",
    "OutputFormat",
    "Stage",
    "Stream",
    "StreamBoundary",
    "stream_order",
    "tensor_order",
]
