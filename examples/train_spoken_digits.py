"""Train the GRU for spoken digits on a CPU core, two minutes: `NNHW_DATA=DIR python examples/train_spoken_digits.py`.

DIR/datasets/fsdd_8k.npz holds the Free Spoken Digit Dataset of four speakers at 8 kHz (CC BY-SA 4.0,
github.com/Jakobovski/free-spoken-digit-dataset): `pcm` int16 of all recordings, `offset` [recordings + 1], `label` and
`index` [recordings]. Recordings 0 to 4 of each speaker and digit are for the test, as the authors of the data set say;
5 to 9 are held out to choose the epoch.
"""

import copy
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from spoken_digits import CHECKPOINT, SpokenDigits, features
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from nnhw.nn import save_packed
from nnhw.reading import load_npz

TEST, HELD_OUT = range(5), range(5, 10)
BATCH, LEARNING_RATE = 32, 4e-3
Part = list[tuple[Tensor, int]]
"""Features [steps, bands] and digit of each recording."""


def load_recordings(data: str | None = None) -> list[tuple[np.ndarray, int, int]]:
    """Return samples int16 [n], digit and number of each recording; `data`: folder, NNHW_DATA without it."""
    folder = data or os.environ.get("NNHW_DATA")
    if not folder:
        raise SystemExit("set NNHW_DATA=DIR, or give --data DIR, a folder with datasets/fsdd_8k.npz")
    arrays = load_npz(Path(folder) / "datasets" / "fsdd_8k.npz")
    pieces = np.split(arrays["pcm"], arrays["offset"][1:-1])
    rows = zip(pieces, arrays["label"], arrays["index"], strict=True)
    return [(pcm, int(label), int(index)) for pcm, label, index in rows]


def load_digits(data: str | None = None) -> tuple[Part, Part, Part]:
    """Return the recordings to train with, those held out, and those of the test."""
    parts: tuple[Part, Part, Part] = ([], [], [])
    for pcm, label, index in load_recordings(data):
        which = 2 if index in TEST else 1 if index in HELD_OUT else 0
        parts[which].append((features(torch.from_numpy(pcm.astype(np.float32))), label))
    return parts


def logits_of(model: SpokenDigits, sequences: list[Tensor]) -> Tensor:
    """Return the logits behind the last step of each sequence."""
    ends = torch.tensor([len(one) - 1 for one in sequences])
    return model.each(pad_sequence(sequences, batch_first=True))[torch.arange(len(sequences)), ends]


def accuracy(model: SpokenDigits, part: Part) -> float:
    """Return the share of recordings that are recognized, in percent."""
    sequences, labels = zip(*part, strict=True)
    with torch.no_grad():
        found = logits_of(model.eval(), list(sequences)).argmax(1)
    return 100 * float((found == torch.tensor(labels)).double().mean())


def varied(sequence: Tensor) -> Tensor:
    """Return a recording as if it were louder or softer, with a band and some steps that are not heard."""
    sequence = sequence + 0.25 * torch.randn(())
    low = torch.tensor(-1.5)
    start, band = int(torch.randint(0, max(1, len(sequence) - 6), ())), int(torch.randint(0, sequence.shape[1], ()))
    sequence[start : start + int(torch.randint(0, 6, ()))] = low
    sequence[:, band : band + int(torch.randint(0, 3, ()))] = low
    return sequence


def trained(model: SpokenDigits, train: Part, held_out: Part, epochs: int, rate: float) -> SpokenDigits:
    """Return the model of the epoch that is best on the recordings held out."""
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * -(-len(train) // BATCH))
    best, kept = -1.0, model
    for epoch in range(epochs):
        model.train()
        for places in torch.randperm(len(train)).split(BATCH):
            sequences = [varied(train[place][0].clone()) for place in places.tolist()]
            labels = torch.tensor([train[place][1] for place in places.tolist()])
            optimizer.zero_grad()
            functional.cross_entropy(logits_of(model, sequences), labels, label_smoothing=0.05).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        now = accuracy(model, held_out)
        if now > best:
            best, kept = now, copy.deepcopy(model)
            print(f"epoch {epoch + 1}: {now:.2f} % of {len(held_out)} recordings held out", flush=True)
    return kept.eval()


def main(
    epochs: Annotated[int, typer.Option(help="Passes over the recordings in float.")] = 60,
    more: Annotated[int, typer.Option(help="Passes with quantizers.")] = 12,
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 1,
    data: Annotated[str | None, typer.Option(help="Folder with datasets/; NNHW_DATA without it.")] = None,
) -> None:
    """Train in float, then with 8 and 4 bits from there; save the weights of 8 bits, and say how good each is."""
    torch.manual_seed(seed)
    train, held_out, test = load_digits(data)
    model = trained(SpokenDigits(), train, held_out, epochs, LEARNING_RATE)
    models = {"float": model}
    for bits in (8, 4):
        start = SpokenDigits(bits)
        start.load_state_dict(model.state_dict(), strict=False)
        models[f"{bits} bits"] = trained(start, train, held_out, more, LEARNING_RATE / 8)
    save_packed(models["8 bits"], CHECKPOINT)
    for name, one in models.items():
        found = accuracy(one, held_out), accuracy(one, test)
        print(f"{name}: {found[0]:.2f} % of {len(held_out)} held out, {found[1]:.2f} % of {len(test)} tested")


if __name__ == "__main__":
    typer.run(main)
