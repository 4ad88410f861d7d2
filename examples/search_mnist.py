"""Search for a multilayer perceptron for MNIST that is as fast as `mnist_mlp.py` on a UP5K, or faster, and better.

    NNHW_DATA=DIR nnhw search search_mnist.py --style streaming --at-most cycles=196 --trials 30 --seed 1 --export best

DIR/mnist holds the files of MNIST, see `mnist_data.py`; the 300 digits beside this file are too few to train with.
"""

from functools import cache
from itertools import pairwise

import torch
from mnist_data import data_folder, load_mnist
from torch import nn
from torch.nn import functional

from nnhw.nn import Bipolar, QuantLinear, QuantReLU, Scale, Sign, Ternary, UInt

CLASSES = 10
SIDE = 28
EPOCHS = 8
BATCH = 256
VALIDATION_DIGITS = 5000  # of the 60,000 training digits, at random, the same for all trials
LEARNING_RATE = 0.005
WEIGHTS = {"bipolar": Bipolar, "ternary": Ternary}


data_folder()  # a search without data ends here


class Inner(nn.Module):
    """The pixels of an image without those near its edges, of which most digits have nothing."""

    def __init__(self, edge: int) -> None:
        super().__init__()
        self.edge = edge

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, 1, 28, 28] --> [N, 1, 28 - 2 edge, 28 - 2 edge]."""
        return x[:, :, self.edge : SIDE - self.edge, self.edge : SIDE - self.edge]


class Centre(nn.Module):
    """[0, 1] --> [-0.5, 0.5], so that the sign of a pixel says whether it is bright."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape; shape and dtype stay."""
        return x - 0.5


def model(trial) -> nn.Sequential:
    """Make the untrained network of a trial: [N, 1, 28, 28] float32 in [0, 1] --> [N, 10] float32."""
    edge = trial.suggest_int("edge", 0, 4, step=2)
    pixel_bits = trial.suggest_int("pixel_bits", 1, 2)
    depth = trial.suggest_int("depth", 1, 3)
    widths = [trial.suggest_int(f"width_{layer}", 32, 128, step=16) for layer in range(depth)]
    weights = WEIGHTS[trial.suggest_categorical("weights", list(WEIGHTS))]
    activation = trial.suggest_categorical("activation", ["sign", "relu2"])
    pixels = [Centre(), Sign()] if pixel_bits == 1 else [UInt(pixel_bits, scale=2.0**-pixel_bits)]
    layers: list[nn.Module] = [Inner(edge), nn.Flatten(), *pixels]
    for width_in, width_out in pairwise([(SIDE - 2 * edge) ** 2, *widths]):
        layers += [QuantLinear(width_in, width_out, bias=False, weight_quant=weights()), nn.BatchNorm1d(width_out)]
        layers += [Sign() if activation == "sign" else QuantReLU(2)]
    return nn.Sequential(*layers, QuantLinear(widths[-1], CLASSES, bias=False), Scale(2**-3))


@cache
def digits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images and labels of one of "train", "validation" and "test"."""
    images, labels = map(torch.from_numpy, load_mnist("test" if split == "test" else "train"))
    if split == "test":
        return images, labels
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chosen = order[VALIDATION_DIGITS:] if split == "train" else order[:VALIDATION_DIGITS]
    return images[chosen], labels[chosen]


def accuracy(network: nn.Module, split: str) -> float:
    """Return the share of the digits of a split that a network tells."""
    images, labels = digits(split)
    with torch.no_grad():
        found = torch.cat([network(batch).argmax(dim=1) for batch in images.split(1000)])
    return int((found == labels).sum()) / len(labels)


def train(network: nn.Sequential, trial) -> float:
    """Train the network of a trial in place; return its accuracy on the validation digits."""
    images, labels = digits("train")
    steps = len(labels) // BATCH
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * steps)
    for epoch in range(EPOCHS):
        network.train()
        for index in torch.randperm(len(labels)).split(BATCH)[:steps]:
            optimizer.zero_grad()
            functional.cross_entropy(network(images[index]), labels[index]).backward()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                for module in network:
                    if isinstance(module, QuantLinear):
                        module.weight.clamp_(-1, 1)  # where a sign's gradient passes
        network.eval()
        trial.report(accuracy(network, "validation"), epoch)
    return accuracy(network, "validation")


def test(network: nn.Module) -> float:
    """Return the accuracy on the 10,000 test digits."""
    return accuracy(network, "test")


example_input = torch.rand(8, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
