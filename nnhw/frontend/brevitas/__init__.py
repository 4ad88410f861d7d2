"""Models of Brevitas layers, as they are. Importing this imports Brevitas: see `nnhw.frontend.doors`."""

from .evaluating import BrevitasEvaluator as evaluator
from .opening import traceable

__all__ = ["evaluator", "traceable"]
