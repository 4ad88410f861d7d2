"""Gateware between the pins of sensors and a network, and between a network and pins that show its result."""

from .log_mel import LogMelEngine
from .pixels import PixelsEngine
from .sensor_device import SensorDevice

__all__ = ["LogMelEngine", "PixelsEngine", "SensorDevice"]
