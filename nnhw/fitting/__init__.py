"""On which boards a network fits: as it is, with fewer bits, with other activations."""

from .sweep import Fits, fit, fit_file
from .trials import Trial, Variant

__all__ = ["Fits", "Trial", "Variant", "fit", "fit_file"]
