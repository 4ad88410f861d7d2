"""`mnist_mlp` with other weights: its bitstream is made of the layout of a build that is there already."""

import copy
import time
from pathlib import Path

import torch
from torch import nn

import nnhw

try:
    from examples.mnist_mlp import example_input, model
except ModuleNotFoundError:  # run as a script, which finds its own folder
    from mnist_mlp import example_input, model


def changed(network: nn.Module, share: float = 0.02, seed: int = 1) -> nn.Module:
    """Return a copy in which a share of the weights has the other sign, and batch norms are a little shifted."""
    other = copy.deepcopy(network)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in other.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                flips = torch.rand(layer.weight.shape, generator=generator) < share
                layer.weight.mul_(torch.where(flips, -1.0, 1.0))
            elif isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
                layer.bias.add_(0.1 * torch.randn(layer.bias.shape, generator=generator))
    return other


def main(folder: Path = Path("build")) -> None:
    """Build the network, then the one with other weights out of its layout; print how long each took."""
    base = None
    for name, network in (("mnist_mlp", model), ("mnist_mlp_changed", changed(model))):
        start = time.monotonic()
        build = nnhw.build(network, example_input, name=name, out=folder / name, frames=0, base=base)
        patched = build.report["patched"]
        print(f"{name}: {time.monotonic() - start:.1f} s{f', patched from {base}' if patched else ''}")
        base = build.path


if __name__ == "__main__":
    main()
