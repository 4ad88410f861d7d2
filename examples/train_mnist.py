"""Train the two MNIST examples on one CPU core: `python train_mnist.py cnn --seed 1`."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import mnist_cnn
import mnist_mlp
import torch
import typer
from mnist_data import load_mnist
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional

from nnhw.nn import QuantConv2d, QuantLinear, save_packed

VALIDATION_DIGITS = 5000  # the last of the 60,000 training digits
EVALUATION_BATCH = 1000
GAMMA_MIN = 0.05  # a positive gamma lets signs be pooled: sign(max(x)) = max(sign(x))


@dataclass(frozen=True)
class Recipe:
    """What one model is trained with.

    Members
    -------
    rotation: largest angle, in radians; zoom, shear: largest relative change; shift: largest, in pixels.
    """

    build: Callable[[], nn.Sequential]
    checkpoint: Path
    epochs: int
    learning_rate: float
    batch: int = 256
    rotation: float = 0.0
    zoom: float = 0.0
    shear: float = 0.0
    shift: float = 0.0

    @property
    def moves_digits(self) -> bool:
        """Whether images are augmented."""
        return any((self.rotation, self.zoom, self.shear, self.shift))


RECIPES = {
    "mlp": Recipe(
        mnist_mlp.build_model,
        mnist_mlp.CHECKPOINT,
        epochs=100,
        learning_rate=0.005,
        rotation=0.05,
        zoom=0.04,
        shift=0.3,
    ),
    "cnn": Recipe(
        mnist_cnn.build_model,
        mnist_cnn.CHECKPOINT,
        epochs=40,
        learning_rate=0.005,
        rotation=0.1,
        zoom=0.08,
        shear=0.05,
        shift=1.0,
    ),
}


@dataclass(frozen=True)
class Digits:
    """Images float32 [N, 1, 28, 28] and labels int64 [N]."""

    images: Tensor
    labels: Tensor

    @classmethod
    def load(cls, split: Literal["train", "test"], folder: Path | None) -> "Digits":
        """Read one half of MNIST, see `load_mnist`."""
        images, labels = load_mnist(split, folder)
        return cls(torch.from_numpy(images), torch.from_numpy(labels))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: slice | Tensor) -> "Digits":
        return Digits(self.images[index], self.labels[index])


class ChannelsLast(nn.Module):
    """The same values in the memory order that max pooling is fast in."""

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] --> [N, C, H, W]."""
        return x.contiguous(memory_format=torch.channels_last)


def pool_before_sign(model: nn.Sequential) -> nn.Sequential:
    """Reorder the modules of `model` for training; the modules themselves are shared, not copied.

        conv, norm, sign, pool   -->   conv, pool, norm, sign

    The same function while each gamma is positive, but the gradient reaches the largest value of a window
    instead of the first of many equal signs.
    """
    modules: list[nn.Module] = []
    for module in model:
        if isinstance(module, nn.MaxPool2d):
            modules[-2:-2] = [ChannelsLast(), module]
        else:
            modules.append(module)
    return nn.Sequential(*modules)


def augment(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Move each image by its own random affine map; shape and dtype stay."""
    count = len(images)

    def uniform(limit: float) -> Tensor:
        return (torch.rand(count, generator=generator) * 2 - 1) * limit

    angle, shear = uniform(recipe.rotation), uniform(recipe.shear)
    zoom_x, zoom_y = 1 + uniform(recipe.zoom), 1 + uniform(recipe.zoom)
    shift = 2 / images.shape[-1]  # one pixel in the coordinates of affine_grid, which run from -1 to 1
    row_x = torch.stack([zoom_x * angle.cos(), -zoom_x * (angle.sin() + shear), uniform(recipe.shift) * shift], dim=1)
    row_y = torch.stack([zoom_y * angle.sin(), zoom_y * angle.cos(), uniform(recipe.shift) * shift], dim=1)
    grid = functional.affine_grid(torch.stack([row_x, row_y], dim=1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def clip_latent_weights(model: nn.Module) -> None:
    """Keep latent weights in [-1, 1], where a sign's gradient passes, and each gamma positive."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, QuantLinear | QuantConv2d):
                module.weight.clamp_(-1, 1)
            elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.weight.clamp_(min=GAMMA_MIN)


def settle_batch_norms(model: nn.Module, digits: Digits) -> None:
    """Replace the running statistics, which lag behind the last steps, by those of all `digits`."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    momentums = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
    with torch.no_grad():
        for batch in digits.images.split(EVALUATION_BATCH):
            model(batch)
    for norm, momentum in zip(norms, momentums, strict=True):
        norm.momentum = momentum


def count_correct(model: nn.Module, digits: Digits) -> int:
    """Count the digits that `model` classifies correctly."""
    with torch.no_grad():
        outputs = torch.cat([model(batch) for batch in digits.images.split(EVALUATION_BATCH)])
    return int((outputs.argmax(dim=1) == digits.labels).sum())


class Trainer:
    """One training run: Adam with a cosine schedule that ends at 0.

    Source: latent weights: Courbariaux et al., "Binarized Neural Networks", arXiv:1602.02830.
    """

    def __init__(self, model: nn.Sequential, recipe: Recipe, digits: Digits, seed: int) -> None:
        self.recipe, self.digits = recipe, digits
        self.generator = torch.Generator().manual_seed(seed)
        self.model = model
        self.twin = pool_before_sign(model)
        self.optimizer = torch.optim.Adam(model.parameters(), recipe.learning_rate)
        self.steps = recipe.epochs * (len(digits) // recipe.batch)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)

    def run(self, progress: Progress, name: str) -> None:
        """Show the training digits `epochs` times, each time in a new order."""
        task = progress.add_task(name, total=self.steps)
        self.twin.train()
        full = len(self.digits) // self.recipe.batch * self.recipe.batch
        for _ in range(self.recipe.epochs):
            order = torch.randperm(len(self.digits), generator=self.generator)
            for index in order[:full].split(self.recipe.batch):
                self._step(self.digits[index])
                progress.advance(task)
        settle_batch_norms(self.twin, self.digits)
        self.model.eval()

    def _step(self, batch: Digits) -> None:
        images = augment(batch.images, self.recipe, self.generator) if self.recipe.moves_digits else batch.images
        # Sums of signs up to 256 are exact in bfloat16, and gradients need no more than its 8 bits.
        with torch.autocast("cpu", torch.bfloat16):
            outputs = self.twin(images)
        self.optimizer.zero_grad()
        functional.cross_entropy(outputs.float(), batch.labels).backward()
        self.optimizer.step()
        self.schedule.step()
        clip_latent_weights(self.model)


def train(recipe: Recipe, seed: int, data: Path | None, out: Path) -> None:
    """Train one model, write it to `out`, and print its accuracy in validation and, once, on the test digits."""
    started = time.monotonic()
    digits = Digits.load("train", data)
    training, validation = digits[:-VALIDATION_DIGITS], digits[-VALIDATION_DIGITS:]
    console = Console()
    with Progress(console=console) as progress:
        torch.manual_seed(seed)
        model = recipe.build()
        Trainer(model, recipe, training, seed).run(progress, f"seed {seed}")
    save_packed(model, out)
    console.print(f"{out}: seed {seed}, {time.monotonic() - started:.0f} s")
    for name, held_out in (("validation", validation), ("test", Digits.load("test", data))):
        correct = count_correct(model, held_out)
        console.print(f"{name}: {correct} of {len(held_out)} digits are right ({correct / len(held_out):.2%})")


def main(
    name: Annotated[str, typer.Argument(metavar="MODEL", help=f"one of: {', '.join(RECIPES)}")],
    data: Annotated[Path | None, typer.Option(envvar="NNHW_DATA", help="folder that holds mnist/*.gz")] = None,
    seed: Annotated[int, typer.Option(help="start of all random numbers")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="else the recipe's number")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU cores to use")] = 1,
    out: Annotated[Path | None, typer.Option(help="else the example's own checkpoint is replaced")] = None,
) -> None:
    """Train an MNIST example and write its packed checkpoint."""
    if name not in RECIPES:
        raise typer.BadParameter(f"{name!r} is not one of: {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if epochs is not None:
        recipe = replace(recipe, epochs=epochs)
    torch.set_num_threads(threads)
    try:
        train(recipe, seed, data, out or recipe.checkpoint)
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    typer.run(main)
