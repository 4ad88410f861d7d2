"""Train the vision transformer on one CPU core, two minutes: `NNHW_DATA=DIR python examples/train_vit.py`.

Digits that are held out choose the epoch and the width of activations; the test digits are looked at once, at the end.
"""

import copy
from typing import Annotated

import torch
import typer
from mnist_data import load_mnist
from mnist_vit import CALIBRATION_DIGITS, CHECKPOINT, VisionTransformer, sample_images
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from nnhw.nn import save_packed

VALIDATION_DIGITS, SPLIT_SEED = 5000, 0
BATCH, LEARNING_RATE = 128, 2e-3


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of digits that are recognized, in percent."""
    with torch.no_grad():
        found = torch.cat([model(part).argmax(1) for part in images.split(500)])
    return 100 * float((found == labels).double().mean())


def trained(images: Tensor, labels: Tensor, held_out: tuple[Tensor, Tensor], epochs: int) -> nn.Module:
    """Return the model of the epoch that is best on the digits held out."""
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, epochs * -(-len(images) // BATCH))
    best, kept = -1.0, model
    for epoch in range(epochs):
        model.train()
        for places in track(torch.randperm(len(images)).split(BATCH), f"epoch {epoch + 1}"):
            shifted = torch.roll(images[places], torch.randint(-1, 2, (2,)).tolist(), (2, 3))
            optimizer.zero_grad()
            functional.cross_entropy(model(shifted), labels[places]).backward()
            optimizer.step()
            schedule.step()
        now = accuracy(model.eval(), *held_out)
        print(f"epoch {epoch + 1}: {now:.2f} % of {len(held_out[1])} digits held out")
        if now > best:
            best, kept = now, copy.deepcopy(model)
    return kept


def main(
    epochs: Annotated[int, typer.Option(help="Passes over the training digits.")] = 8,
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 1,
    data: Annotated[str | None, typer.Option(help="Folder with mnist/; NNHW_DATA without it.")] = None,
) -> None:
    """Train in float, save the weights, and say what quantization after training costs."""
    torch.manual_seed(seed)
    images, labels = map(torch.from_numpy, load_mnist("train", data))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SPLIT_SEED))
    out, rest = order[:VALIDATION_DIGITS], order[VALIDATION_DIGITS:]
    held_out = images[out], labels[out]
    model = trained(images[rest], labels[rest], held_out, epochs).eval()
    save_packed(model, CHECKPOINT)
    quantized = {bits: nnhw.quantize(model, [sample_images(CALIBRATION_DIGITS)], act_bits=bits) for bits in (6, 8)}
    scores = {bits: accuracy(one, *held_out) for bits, one in quantized.items()}
    print(f"held out: float {accuracy(model, *held_out):.2f} %, quantized {scores}")
    chosen = max(scores, key=lambda bits: scores[bits])
    test = tuple(map(torch.from_numpy, load_mnist("test", data)))
    print(f"test: float {accuracy(model, *test):.2f} %, {chosen} bits {accuracy(quantized[chosen], *test):.2f} %")


if __name__ == "__main__":
    typer.run(main)
