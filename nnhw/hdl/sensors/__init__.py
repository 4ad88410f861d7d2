"""Gateware between the pins of sensors and a network, and between a network and pins that show its result."""

from .device import SensorDevice
from .log_mel import LogMelEngine
from .pixels import PixelsEngine

__all__ = ["LogMelEngine", "PixelsEngine", "SensorDevice"]
