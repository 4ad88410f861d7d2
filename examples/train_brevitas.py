"""Train the example of Brevitas layers on one CPU core: `python train_brevitas.py --seed 1`."""

from typing import Annotated

import torch
import typer
from brevitas_mlp import CHECKPOINT, build_model, load, save
from mnist_data import load_mnist
from torch import Tensor, nn
from torch.nn import functional

BATCH, EPOCHS, LEARNING_RATE = 128, 12, 4e-3


def main(seed: int = 1, data: Annotated[str | None, typer.Option(help="folder that holds mnist/")] = None) -> None:
    """Train, save, and count the test digits that the saved model gets right."""
    torch.manual_seed(seed)
    images, labels = (torch.from_numpy(array) for array in load_mnist("train", data))
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    steps = EPOCHS * len(images) // BATCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(EPOCHS):
        loss = torch.zeros(())
        for chosen in torch.randperm(len(images)).split(BATCH)[:-1]:
            loss = functional.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss.item():.3f}", flush=True)
    save(model, CHECKPOINT)
    images, labels = (torch.from_numpy(array) for array in load_mnist("test", data))
    print(f"right: {count_right(load(CHECKPOINT), images, labels):,} of {len(images):,} test digits")


def count_right(model: nn.Module, images: Tensor, labels: Tensor) -> int:
    """Return how many digits a model tells right."""
    with torch.no_grad():
        return int((model(images).argmax(dim=1) == labels).sum())


if __name__ == "__main__":
    typer.run(main)
