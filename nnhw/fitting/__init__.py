"""On which boards a network fits: as it is, with fewer bits, with other activations."""

from .sweep import Fits, fit, fit_file
from .trials import FitTrial, Variant

__all__ = ["FitTrial", "Fits", "Variant", "fit", "fit_file"]
