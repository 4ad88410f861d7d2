"""Digits on paper in front of a camera, without a computer: the network of `mnist_cnn` behind cropping and averaging.

`nnhw build examples/mnist_camera.py --input camera` makes the device, for a camera that sends 160 x 120 gray pixels.
"""

import numpy as np
import torch
from mnist_cnn import CHECKPOINT, HERE, build_model
from torch import Tensor

from nnhw.nn import AveragePixels, SensorModel, load_packed

WIDTH, HEIGHT, LEFT, TOP, BLOCK = 160, 120, 24, 4, 4


def pictures(first: int, count: int) -> Tensor:
    """Return what a camera might see of test digits, uint8 [count, HEIGHT, WIDTH]: dark on paper, with noise."""
    with np.load(HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        digits = samples["images"][first : first + count].astype(np.float64)
    rng = np.random.default_rng(first)
    paper = np.full((count, HEIGHT, WIDTH), 245.0)
    size = 28 * BLOCK
    paper[:, TOP : TOP + size, LEFT : LEFT + size] -= digits.repeat(BLOCK, 1).repeat(BLOCK, 2) * (235 / 255)
    return torch.from_numpy((paper + rng.normal(0, 4, paper.shape)).round().clip(0, 255).astype(np.uint8))


front = AveragePixels(
    width=WIDTH, height=HEIGHT, left=LEFT, top=TOP, rows=28, columns=28, block=BLOCK, bits=4, invert=True
)
model = SensorModel(front, load_packed(build_model(), CHECKPOINT)) if CHECKPOINT.exists() else None
example_input = pictures(0, 4)
