"""What PyTorch computes for the example signals of a model that begins with a sensor's front end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnhw.errors import BuildError
from nnhw.reading import load_npz

if TYPE_CHECKING:
    from nnhw.frontend import Source

SIGNALS = "signals.npz"
"""File of a build folder: `signals` [N, ..], `codes` int16 [N, frames, *shape], `labels` int16 [N, frames]."""


def expected_of(source: Source, kind: str) -> dict[str, np.ndarray]:
    """Return the example signals of a source, and for each the frames' codes and PyTorch's largest results.

    Of results that are equal the first one counts, in hardware as well.

    Parameters
    ----------
    kind: of the sensor; empty: none. A PDM microphone does not send the signals themselves, see `SensorFront.received`.
    """
    from nnhw.frontend.evaluation import Evaluator

    assert source.front is not None
    assert source.signals is not None
    signals = source.signals.detach().cpu().numpy().astype(np.int32)
    config = source.front.config
    codes = source.front.codes(config.received(kind, signals)).numpy()
    frames = (codes.reshape(-1, *codes.shape[2:]) * config.scale).astype(np.float32)
    results = Evaluator(source.model)(frames).result
    labels = results.reshape(*codes.shape[:2], -1).argmax(axis=2)
    return {"signals": signals, "codes": codes.astype(np.int16), "labels": labels.astype(np.int16)}


def load_expected(folder: Path) -> dict[str, np.ndarray]:
    """Return what `expected_of` gave when a build was captured.

    Raises
    ------
    BuildError: the file is missing or damaged.
    """
    path = folder / SIGNALS
    try:
        arrays = load_npz(path)
        signals, codes, labels = (arrays[name] for name in ("signals", "codes", "labels"))
        if any(array.dtype.kind != "i" for array in arrays.values()) or codes.shape[:2] != labels.shape:
            raise ValueError("it holds something else than integers of frames")
        if len(signals) != len(codes):
            raise ValueError("signals or their codes are missing")
    except (OSError, ValueError, KeyError) as error:
        raise BuildError(f"build file '{path}' cannot be read ({error!r}); run 'nnhw build' again") from None
    return arrays
