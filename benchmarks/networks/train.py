"""Train a network of the benchmarks on one CPU core: `python -m benchmarks.networks.train mlp784_w8a8`.

The checkpoint is what the network's file then loads. Data is read from the folder NNHW_DATA.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import NETWORKS
from benchmarks.networks.data import heartbeats, mnist_pixels, motions, spoken_digits
from benchmarks.networks.settling import CHECKPOINTS
from nnhw.nn import QuantConv1d, QuantConv2d, QuantLinear, save_packed

EVALUATION_BATCH = 500
NORMAL_SHARE = 0.95  # of the training beats, which the threshold of the error lets pass


@dataclass(frozen=True)
class Task:
    """Data and recipe of one network.

    Parameters
    ----------
    train_x, train_y, test_x, test_y: images and labels; of an autoencoder, labels are 0 for what is normal.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    epochs: int
    batch: int
    learning_rate: float
    autoencoder: bool = False


def mnist(epochs: int) -> Task:
    """All 60,000 digits, pixels / 255."""
    (train_x, train_y), (test_x, test_y) = mnist_pixels("train"), mnist_pixels("t10k")
    images = [torch.from_numpy(pixels.astype(np.float32) / np.float32(255)) for pixels in (train_x, test_x)]
    return Task(images[0], torch.from_numpy(train_y), images[1], torch.from_numpy(test_y), epochs, 128, 2e-3)


def sensor() -> Task:
    """The 40 motions of BasicMotions to train on, and the 40 to test."""
    (train_x, train_y), (test_x, test_y) = motions("TRAIN"), motions("TEST")
    first, second = torch.from_numpy(train_x), torch.from_numpy(test_x)
    return Task(first, torch.from_numpy(train_y), second, torch.from_numpy(test_y), 60, 8, 2e-3)


def ecg() -> Task:
    """Normal heartbeats to learn, normal and other ones to tell apart."""
    train, test_x, test_y = heartbeats()
    images, labels = torch.from_numpy(train), torch.zeros(len(train), dtype=torch.int64)
    tests, unusual = torch.from_numpy(test_x), torch.from_numpy(test_y)
    return Task(images, labels, tests, unusual, epochs=40, batch=32, learning_rate=2e-3, autoencoder=True)


def digits_spoken() -> Task:
    """1,700 spoken digits or so to train on, each also a little earlier and later, and the rest to test."""
    features, labels, is_test = spoken_digits()
    x, y, test = torch.from_numpy(features), torch.from_numpy(labels), torch.from_numpy(is_test)
    moved = torch.cat([torch.roll(x[~test], shift, dims=2) for shift in (-3, 0, 3)])
    return Task(moved, y[~test].repeat(3), x[test], y[test], epochs=12, batch=64, learning_rate=2e-3)


TASKS: dict[str, Callable[[], Task]] = {
    "sensor_cnn1d": sensor,
    "ecg_autoencoder": ecg,
    "mlp784_w8a8": lambda: mnist(15),
    "mlp784_w4a4": lambda: mnist(20),
    "cnn_small": lambda: mnist(8),
    "ds_cnn_w8a8": digits_spoken,
    "ds_cnn_w4a4": digits_spoken,
}


def train(model: nn.Module, task: Task, seed: int = 1) -> None:
    """Train with quantizers in place; the learning rate falls along a cosine."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), task.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.epochs)
    for epoch in range(task.epochs):
        model.train()
        for rows in torch.randperm(len(task.train_x), generator=generator).split(task.batch):
            images = task.train_x[rows]
            result = model(images)
            loss = (
                functional.mse_loss(result, images)
                if task.autoencoder
                else functional.cross_entropy(result, task.train_y[rows])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        print(f"epoch {epoch + 1}: {evaluate(model, task):.2%}", flush=True)


def evaluate(model: nn.Module, task: Task) -> float:
    """Return the share of the tests that the model judges right."""
    model.eval()
    with torch.no_grad():
        results = torch.cat([model(batch) for batch in task.test_x.split(EVALUATION_BATCH)])
        if not task.autoencoder:
            return float((results.argmax(1) == task.test_y).double().mean())
        usual = ((model(task.train_x) - task.train_x) ** 2).mean(dim=1).quantile(NORMAL_SHARE)
        normal = ((results - task.test_x) ** 2).mean(dim=1) <= usual
        return float((normal == (task.test_y == 0)).double().mean())


def freeze(model: nn.Module) -> None:
    """Replace weights by what their quantizers make of them, which packs better and computes the same."""
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, QuantConv1d | QuantConv2d | QuantLinear):
                layer.weight.copy_(layer.weight_quant(layer.weight))


def main() -> None:
    """Train the networks that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=list(TASKS))
    for name in parser.parse_args().names:
        torch.manual_seed(1)
        (CHECKPOINTS / f"{name}.npz").unlink(missing_ok=True)  # training starts anew
        task, (model, _) = TASKS[name](), NETWORKS[name].load()
        train(model, task)
        before = evaluate(model, task)
        freeze(model)
        assert evaluate(model, task) == before
        CHECKPOINTS.mkdir(exist_ok=True)
        save_packed(model, CHECKPOINTS / f"{name}.npz")
        print(f"{name}: {before:.2%} of {len(task.test_x)} tests")


if __name__ == "__main__":
    main()
