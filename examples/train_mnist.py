"""Train the MNIST examples on one CPU core: `python train_mnist.py cnn --seed 1`."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import mnist_cnn
import mnist_float
import mnist_mlp
import torch
import typer
from mnist_data import load_mnist
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional

from nnhw.nn import QuantConv2d, QuantLinear, save_packed

VALIDATION_DIGITS = 5000  # of the 60,000 training digits, at random: the last ones are easier than the test digits
SPLIT_SEED = 0  # one split for all seeds of training
EVALUATION_BATCH = 1000
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
GAMMA_MIN = 0.05  # a positive gamma lets signs be pooled: sign(max(x)) = max(sign(x))


@dataclass(frozen=True)
class Phase:
    """Some epochs in which the first blocks (a layer, its norm and its sign) stay as they are.

    A sign that flips changes the input of all layers behind it. Those learn the rest once the ones before them rest.
    """

    epochs: int
    frozen_blocks: int
    learning_rate: float


@dataclass(frozen=True)
class Recipe:
    """What one model is trained with.

    Members
    -------
    rotation: largest angle, in radians; zoom: largest relative change of size; shift: largest, in pixels.
    """

    build: Callable[[], nn.Sequential]
    checkpoint: Path
    phases: tuple[Phase, ...]
    batch: int
    rotation: float
    zoom: float
    shift: float


RECIPES = {
    "mlp": Recipe(
        mnist_mlp.build_model,
        mnist_mlp.CHECKPOINT,
        phases=(Phase(70, 0, 0.005), Phase(30, 1, 0.005)),
        batch=256,
        rotation=0.05,
        zoom=0.04,
        shift=0.3,
    ),
    "cnn": Recipe(
        mnist_cnn.build_model,
        mnist_cnn.CHECKPOINT,
        phases=(Phase(72, 0, 0.004), Phase(24, 1, 0.003), Phase(12, 2, 0.002)),
        batch=64,
        rotation=0.06,
        zoom=0.05,
        shift=0.5,
    ),
    "float": Recipe(
        mnist_float.build_model,
        mnist_float.CHECKPOINT,
        phases=(Phase(12, 0, 0.004),),
        batch=128,
        rotation=0.1,
        zoom=0.08,
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


def split_after_block(model: nn.Sequential, blocks: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Split `model` behind the sign that ends its block number `blocks`; both parts share its modules."""
    norms = (position for position, module in enumerate(model) if isinstance(module, NORMS))
    ends = [0, *(position + 2 for position in norms)]  # a sign stands right behind each norm
    return model[: ends[blocks]], model[ends[blocks] :]


def augment(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Move each image by its own random affine map; shape and dtype stay."""
    count = len(images)

    def uniform(limit: float) -> Tensor:
        return (torch.rand(count, generator=generator) * 2 - 1) * limit

    angle, zoom_x, zoom_y = uniform(recipe.rotation), 1 + uniform(recipe.zoom), 1 + uniform(recipe.zoom)
    pixel = 2 / images.shape[-1]  # in the coordinates of affine_grid, which run from -1 to 1
    row_x = torch.stack([zoom_x * angle.cos(), -zoom_x * angle.sin(), uniform(recipe.shift) * pixel], dim=1)
    row_y = torch.stack([zoom_y * angle.sin(), zoom_y * angle.cos(), uniform(recipe.shift) * pixel], dim=1)
    grid = functional.affine_grid(torch.stack([row_x, row_y], dim=1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def clip_latent_weights(model: nn.Module) -> None:
    """Keep latent weights in [-1, 1], where a sign's gradient passes, and each gamma positive."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, QuantLinear | QuantConv2d):
                module.weight.clamp_(-1, 1)
            elif isinstance(module, NORMS):
                module.weight.clamp_(min=GAMMA_MIN)


def settle_batch_norms(model: nn.Module, digits: Digits) -> None:
    """Replace the running statistics, which lag behind the last steps, by those of all `digits`."""
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    momentums = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over all batches
    model.train()
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
    """One training run: in each phase Adam, with a cosine schedule that ends at 0.

    Source: latent weights: Courbariaux et al., "Binarized Neural Networks", arXiv:1602.02830.
    """

    def __init__(self, model: nn.Sequential, recipe: Recipe, digits: Digits, seed: int) -> None:
        self.model, self.recipe, self.digits = model, recipe, digits
        self.generator = torch.Generator().manual_seed(seed)
        self.twin = pool_before_sign(model)
        self.steps_per_epoch = len(digits) // recipe.batch

    def run(self, progress: Progress, name: str) -> None:
        """Train `model` through all phases; it ends in eval mode."""
        epochs = sum(phase.epochs for phase in self.recipe.phases)
        task = progress.add_task(name, total=epochs * self.steps_per_epoch)
        for phase in self.recipe.phases:
            self._run_phase(phase, lambda: progress.advance(task))
        self.model.eval()

    def _run_phase(self, phase: Phase, after_step: Callable[[], None]) -> None:
        frozen, trained = split_after_block(self.twin, phase.frozen_blocks)
        frozen.eval()
        trained.train()
        optimizer = torch.optim.Adam(trained.parameters(), phase.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, phase.epochs * self.steps_per_epoch)
        for _ in range(phase.epochs):
            order = torch.randperm(len(self.digits), generator=self.generator)
            for index in order.split(self.recipe.batch)[: self.steps_per_epoch]:
                loss = self._loss(frozen, trained, self.digits[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                clip_latent_weights(trained)
                after_step()
        settle_batch_norms(self.twin, self.digits)

    def _loss(self, frozen: nn.Sequential, trained: nn.Sequential, batch: Digits) -> Tensor:
        images = augment(batch.images, self.recipe, self.generator)
        # Sums of signs up to 256 are exact in bfloat16, and gradients need no more than its 8 bits.
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                features = frozen(images)
            outputs = trained(features)
        return functional.cross_entropy(outputs.float(), batch.labels)


def train(recipe: Recipe, seed: int, data: Path | None, out: Path) -> None:
    """Train one model, write it to `out`, and print its accuracy in validation and, once, on the test digits."""
    started = time.monotonic()
    digits = Digits.load("train", data)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(SPLIT_SEED))
    training, validation = digits[order[VALIDATION_DIGITS:]], digits[order[:VALIDATION_DIGITS]]
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
    epochs: Annotated[int | None, typer.Option(min=1, help="of each phase, else the recipe's numbers")] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU cores to use")] = 1,
    out: Annotated[Path | None, typer.Option(help="else the example's own checkpoint is replaced")] = None,
) -> None:
    """Train an MNIST example and write its packed checkpoint."""
    if name not in RECIPES:
        raise typer.BadParameter(f"{name!r} is not one of: {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if epochs is not None:
        recipe = replace(recipe, phases=tuple(replace(phase, epochs=epochs) for phase in recipe.phases))
    torch.set_num_threads(threads)
    try:
        train(recipe, seed, data, out or recipe.checkpoint)
    except (FileNotFoundError, ValueError) as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    typer.run(main)
