"""Quantized and binarized PyTorch layers; each of their quantizers is one node of an exported graph."""

from .activations import QuantHardTanh, QuantIdentity, QuantReLU, Sign
from .functional import power_of_two_scale
from .linear import QuantConv1d, QuantConv2d, QuantConvTranspose1d, QuantConvTranspose2d, QuantLinear, Scale
from .normalization import QuantLayerNorm, QuantRMSNorm, QuantSoftmax
from .packed import load_packed, save_packed
from .quantizers import Bipolar, Int, Quantizer, Ternary, UInt
from .recurrent import QuantGRU, QuantLSTM, QuantRNN
from .rescale import Rescale
from .sensors import AveragePixels, LogMel, SensorModel

__all__ = [
    "AveragePixels",
    "Bipolar",
    "Int",
    "LogMel",
    "QuantConv1d",
    "QuantConv2d",
    "QuantConvTranspose1d",
    "QuantConvTranspose2d",
    "QuantGRU",
    "QuantHardTanh",
    "QuantIdentity",
    "QuantLSTM",
    "QuantLayerNorm",
    "QuantLinear",
    "QuantRMSNorm",
    "QuantRNN",
    "QuantReLU",
    "QuantSoftmax",
    "Quantizer",
    "Rescale",
    "Scale",
    "SensorModel",
    "Sign",
    "Ternary",
    "UInt",
    "load_packed",
    "power_of_two_scale",
    "save_packed",
]
