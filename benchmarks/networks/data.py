"""The data sets that networks are trained on and measured with, from the folder NNHW_DATA."""

from __future__ import annotations

import gzip
import itertools
import os
from pathlib import Path

import numpy as np

from nnhw.errors import InputError

IDX_IMAGES_HEADER, IDX_LABELS_HEADER = 16, 8  # bytes
FRAMES, COEFFICIENTS = 49, 10  # of a spoken second: the shape that keyword spotting of MLPerf Tiny has
_SAMPLE_HZ = 8000


def data_path(*parts: str) -> Path:
    """Return a file or folder below NNHW_DATA. Raises: InputError if it is not there."""
    root = os.environ.get("NNHW_DATA")
    if not root:
        raise InputError(f"{'/'.join(parts)} is read from the folder NNHW_DATA, which is not set")
    path = Path(root, *parts)
    if not path.exists():
        raise InputError(f"{path} does not exist; put it there, or set NNHW_DATA to the folder that has it")
    return path


def mnist_pixels(stem: str = "t10k") -> tuple[np.ndarray, np.ndarray]:
    """Return uint8 [N, 1, 28, 28] and labels int64 [N]; `stem` is t10k or train."""
    images = gzip.decompress(data_path("mnist", f"{stem}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress(data_path("mnist", f"{stem}-labels-idx1-ubyte.gz").read_bytes())
    pixels = np.frombuffer(images, np.uint8, offset=IDX_IMAGES_HEADER).reshape(-1, 1, 28, 28)
    return pixels, np.frombuffer(labels, np.uint8, offset=IDX_LABELS_HEADER).astype(np.int64)


def motions(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Return BasicMotions: float32 [40, 6, 100] and labels int64 [40]; `split` is TRAIN or TEST."""
    lines = data_path("datasets", f"BasicMotions_{split}.ts").read_text(encoding="utf-8").splitlines()
    header = next(line for line in lines if line.startswith("@classLabel"))
    names = header.split()[2:]
    rows = [line.split(":") for line in lines[lines.index("@data") + 1 :] if line]
    series = [[np.array(axis.split(","), dtype=np.float32) for axis in row[:-1]] for row in rows]
    return np.array(series), np.array([names.index(row[-1].strip()) for row in rows])


def heartbeats() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ECG5000: normal beats to train on [N, 140], beats to test [N, 140], and 0 or 1 for normal or not."""
    with np.load(data_path("datasets", "ecg5000_2class.npz"), allow_pickle=False) as data:
        return data["normal_train"], data["test_x"], data["test_y"].astype(np.int64)


def spoken_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log-mel features of the Free Spoken Digits, float32 [2000, 1, 49, 10], labels, and who is a test.

    40 ms frames every 20 ms, ten mel bands, of a second with the word in its middle; the recordings 0 to 4 of each
    speaker and digit are the test, as the data set's authors split it. Features by kaldi-native-fbank: one small wheel
    that needs NumPy alone, kept up by those who ship it in their recognizers.
    """
    from kaldi_native_fbank import FbankOptions, OnlineFbank

    options = FbankOptions()
    options.frame_opts.samp_freq = float(_SAMPLE_HZ)
    options.frame_opts.frame_length_ms, options.frame_opts.frame_shift_ms = 40.0, 20.0
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = COEFFICIENTS
    with np.load(data_path("datasets", "fsdd_8k.npz"), allow_pickle=False) as data:
        pcm, ends, labels, index = data["pcm"], data["offset"], data["label"], data["index"]
    features = np.empty((len(labels), 1, FRAMES, COEFFICIENTS), np.float32)
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        bank = OnlineFbank(options)
        bank.accept_waveform(float(_SAMPLE_HZ), _one_second(pcm[start:end]).tolist())
        bank.input_finished()
        features[number, 0] = [bank.get_frame(frame) for frame in range(FRAMES)]
    return features, labels.astype(np.int64), index < 5


def _one_second(samples: np.ndarray) -> np.ndarray:
    """Return a second with the samples in its middle, in [-1, 1)."""
    spare = _SAMPLE_HZ - len(samples)
    if spare < 0:
        samples, spare = samples[-spare // 2 :][:_SAMPLE_HZ], 0
    return np.pad(samples, (spare // 2, spare - spare // 2)).astype(np.float32) / 32768
