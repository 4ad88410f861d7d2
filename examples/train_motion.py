"""Train the LSTM for movements on one CPU core, two minutes: `NNHW_DATA=DIR python examples/train_motion.py`.

DIR/datasets holds BasicMotions_TRAIN.ts and BasicMotions_TEST.ts of the UEA archive (timeseriesclassification.com): 40
recordings each, ten seconds of six sensors at 10 Hz. Three of the ten recordings of each movement are held out to
choose the epoch.
"""

import copy
import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from motion_lstm import CHECKPOINT, CLASSES, Motion, scaled
from torch import Tensor, nn
from torch.nn import functional

from nnhw.nn import save_packed

HELD_OUT, CROP, LEARNING_RATE = 3, 60, 1e-2
Part = tuple[Tensor, Tensor]
"""Recordings [count, steps, 6] and movements [count]."""


def load_motions(name: str, data: str | None = None) -> Part:
    """Return the recordings of `TRAIN` or `TEST`."""
    folder = data or os.environ.get("NNHW_DATA")
    if not folder:
        raise SystemExit("set NNHW_DATA=DIR, or give --data DIR, a folder with datasets/BasicMotions_TRAIN.ts")
    path = Path(folder) / "datasets" / f"BasicMotions_{name}.ts"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] not in "#@"]
    recordings, labels = [], []
    for line in lines:
        *sensors, label = line.split(":")
        recordings.append(torch.tensor([[float(value) for value in sensor.split(",")] for sensor in sensors]).T)
        labels.append(CLASSES.index(label.strip().lower()))
    return scaled(torch.stack(recordings)), torch.tensor(labels)


def divided(part: Part) -> tuple[Part, Part]:
    """Return the recordings to train with, and the last ones of each movement, which are held out."""
    sequences, labels = part
    out = torch.cat([torch.where(labels == label)[0][-HELD_OUT:] for label in range(len(CLASSES))])
    kept = torch.tensor([place not in out for place in range(len(labels))])
    return (sequences[kept], labels[kept]), (sequences[out], labels[out])


def accuracy(model: nn.Module, part: Part) -> float:
    """Return the share of recordings whose movement is told, in percent."""
    with torch.no_grad():
        return 100 * float((model.eval()(part[0]).argmax(1) == part[1]).double().mean())


def loss_of(model: nn.Module, part: Part) -> float:
    """Return the cross entropy of a part."""
    with torch.no_grad():
        return float(functional.cross_entropy(model.eval()(part[0]), part[1]))


def trained(model: nn.Module, train: Part, held_out: Part, epochs: int, rate: float) -> nn.Module:
    """Return the model of the epoch whose cross entropy is least on the recordings held out."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs)
    best, kept = float("inf"), model
    for _ in range(epochs):
        model.train()
        first = int(torch.randint(0, train[0].shape[1] - CROP + 1, ()))
        crop = train[0][:, first : first + CROP] * (1 + 0.1 * torch.randn(len(train[0]), 1, 1))
        optimizer.zero_grad()
        functional.cross_entropy(model(crop + 0.02 * torch.randn_like(crop)), train[1], label_smoothing=0.05).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        now = loss_of(model, held_out)
        if now < best:
            best, kept = now, copy.deepcopy(model)
    return kept.eval()


def main(
    epochs: Annotated[int, typer.Option(help="Passes over the recordings in float.")] = 400,
    more: Annotated[int, typer.Option(help="Passes with quantizers.")] = 100,
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 1,
    data: Annotated[str | None, typer.Option(help="Folder with datasets/; NNHW_DATA without it.")] = None,
) -> None:
    """Train in float, then with 8 and 4 bits from there; save the weights of 8 bits, and say how good each is."""
    torch.manual_seed(seed)
    train, held_out = divided(load_motions("TRAIN", data))
    model = trained(Motion(), train, held_out, epochs, LEARNING_RATE)
    models = {"float": model}
    for bits in (8, 4):
        start = Motion(bits)
        start.load_state_dict(model.state_dict(), strict=False)
        models[f"{bits} bits"] = trained(start, train, held_out, more, LEARNING_RATE / 8)
    save_packed(models["8 bits"], CHECKPOINT)
    test = load_motions("TEST", data)
    for name, one in models.items():
        found = accuracy(one, held_out), accuracy(one, test)
        print(f"{name}: {found[0]:.1f} % of {len(held_out[1])} held out, {found[1]:.1f} % of {len(test[1])} tested")


if __name__ == "__main__":
    typer.run(main)
