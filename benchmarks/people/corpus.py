"""All models of the corpus, by name."""

from __future__ import annotations

from . import classifiers, images, mlps, mobile, quantized, signals
from .model import PeopleModel

MODELS: dict[str, PeopleModel] = {
    **mlps.MODELS,
    **classifiers.MODELS,
    **mobile.MODELS,
    **images.MODELS,
    **signals.MODELS,
    **quantized.MODELS,
}
