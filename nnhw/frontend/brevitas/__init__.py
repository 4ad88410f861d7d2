"""Models of Brevitas layers, as they are. Importing this imports Brevitas: see `nnhw.frontend.doors`."""

from .evaluating import BrevitasEvaluator
from .opening import opened

__all__ = ["BrevitasEvaluator", "opened"]
