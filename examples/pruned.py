"""The network of `mnist_float.py` with a quarter of its channels pruned: they are not in the hardware.

`python examples/pruned.py` maps both networks on an iCEBreaker and prints what pruning saves.
"""

import copy
import tempfile
from pathlib import Path

import torch
from mnist_float import CALIBRATION_DIGITS, example_input, float_model, sample_images
from mnist_float import model as whole
from torch import nn
from torch.nn.utils import prune

import nnhw

SHARE = 0.25
"""Channels that are pruned, of each convolution."""


def pruned(network: nn.Sequential, share: float = SHARE) -> nn.Sequential:
    """Return a copy in which the weights of some channels are 0, those with the least sum of magnitudes.

    The batch normalization behind a convolution gets the mask of its channels, too: else such a channel is its bias
    for every input, which goes into the thresholds of the next layer, but cannot go into a last layer's sums.
    """
    network = copy.deepcopy(network)
    mask = torch.ones(0)
    for module in network:
        if isinstance(module, nn.Conv2d):
            prune.ln_structured(module, "weight", share, n=1, dim=0)
            mask = module.weight_mask.amax(dim=(1, 2, 3))
            prune.remove(module, "weight")
        if isinstance(module, nn.BatchNorm2d):
            for name in ("weight", "bias"):
                prune.custom_from_mask(module, name, mask)
                prune.remove(module, name)
    return network.eval()


model = None if float_model is None else nnhw.quantize(pruned(float_model), [sample_images(CALIBRATION_DIGITS)])


def figures(network: nn.Module) -> dict[str, int]:
    """Return what a network takes on an iCEBreaker, by the mapper's estimate."""
    with tempfile.TemporaryDirectory() as folder:
        build = nnhw.build(network, example_input, board="icebreaker", out=Path(folder) / "b", stop_at="map")
    report = build.report
    return {
        "weight bits": report["model"]["weight_bits"],
        "products": report["model"]["products"],
        "cycles a frame": report["cycles"]["interval"]["predicted"],
        "logic cells": report["resources"]["lc"]["estimated"],
        "block RAMs": report["resources"]["ebr"]["estimated"],
    }


def main() -> None:
    """Print the figures of both networks side by side."""
    before, after = figures(whole), figures(model)
    for name, value in before.items():
        print(f"{name:15} {value:>8,} {after[name]:>8,}")


if __name__ == "__main__":
    main()
