"""Hardware of the shared engine: one array that runs a program of layers out of one memory."""

from nnhw.hdl.shared.shared_engine import SharedEngine

__all__ = ["SharedEngine"]
