"""The shared engine: one array that runs a program of layers, with program, weights and activations in one memory."""

from nnhw.engines.shared.array import ArrayConfig, StepMemory
from nnhw.engines.shared.program import SharedConfig
from nnhw.engines.shared.records import Compute, Emit, Fill, Loop, make_loops

__all__ = ["ArrayConfig", "Compute", "Emit", "Fill", "Loop", "SharedConfig", "StepMemory", "make_loops"]
