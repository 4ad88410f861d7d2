"""Sensors at an accelerator's input: what their front ends compute, as exact integers, and their pins."""

from .base import FrontParts, SensorFront, front_of, table_of
from .log_mel import LogMelConfig
from .pins import INPUTS, Camera, I2s, Pdm, ResultPins, SensorPins
from .pixels import PixelsConfig

__all__ = [
    "INPUTS",
    "Camera",
    "FrontParts",
    "I2s",
    "LogMelConfig",
    "Pdm",
    "PixelsConfig",
    "ResultPins",
    "SensorFront",
    "SensorPins",
    "front_of",
    "table_of",
]
