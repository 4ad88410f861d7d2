"""Train the network of a microphone on a CPU core: `NNHW_DATA=DIR python examples/train_spoken_digits_mic.py`.

Data and parts are those of `train_spoken_digits.py`. Each recording stands in a sound of its own: noise before it, half
a second of noise behind it. A frame counts as a digit while half a second holds three fifths of it or more, and as
nothing while it holds less than a fifth.
"""

import copy
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from spoken_digits_mic import CHECKPOINT, NOTHING, build_model
from torch import Tensor, nn
from torch.nn import functional
from train_spoken_digits import HELD_OUT, TEST, load_recordings

from nnhw.nn import SensorModel, save_packed

BEFORE, BEHIND = 1280, 4096  # samples of noise around a recording
BATCH, LEARNING_RATE, PER_SOUND = 64, 4e-3, 4
SOFTEST_LOG2, LOUDEST_LOG2, LEAST_NOISE, MOST_NOISE = -2.5, 0.5, 1.0, 60.0


@dataclass(frozen=True)
class Sound:
    """A recording in noise: features int8 [n, bands], its digit, and its first and last step."""

    features: np.ndarray
    digit: int
    first: int
    last: int


def sounds(model: SensorModel, part: list[tuple[np.ndarray, int]], seed: int, louder: bool) -> list[Sound]:
    """Return recordings in noise of their own.

    Parameters
    ----------
    louder: each is made louder or softer at random.
    """
    rng, front, found = np.random.default_rng(seed), model.front.config, []
    for pcm, digit in part:
        gain = 2 ** rng.uniform(SOFTEST_LOG2, LOUDEST_LOG2) if louder else 1.0
        noise = LEAST_NOISE * (MOST_NOISE / LEAST_NOISE) ** rng.uniform() if louder else 4.0
        whole = rng.normal(0, noise, BEFORE + len(pcm) + BEHIND)
        whole[BEFORE : BEFORE + len(pcm)] += gain * pcm
        samples = np.rint(whole).clip(-32768, 32767)
        first, last = BEFORE // front.hop, (BEFORE + len(pcm)) // front.hop
        found.append(Sound(front.features(samples[None])[0].astype(np.int8), digit, first, last))
    return found


def labels(sound: Sound, steps: int) -> np.ndarray:
    """Return the class of each frame: the digit, nothing, or -1 where a frame may be either."""
    end = np.arange(len(sound.features)) + 1
    heard = np.minimum(end, sound.last) - np.maximum(end - steps, sound.first)
    part = heard / min(sound.last - sound.first, steps)
    return np.where(part >= 0.6, sound.digit, np.where(part < 0.2, NOTHING, -1))


def frames_of(model: SensorModel, sound: Sound) -> np.ndarray:
    """Return the codes int8 [n, 1, steps, bands] of a sound's frames."""
    frames: np.ndarray = model.front.config.frames(sound.features[None].astype(np.int64))[0]
    return frames.astype(np.int8)


def recognized(model: SensorModel, part: list[Sound]) -> tuple[float, float]:
    """Return the share of recordings whose digit most frames show that show one, and of frames that are right."""
    right, frames_right, frames_all = 0, 0, 0
    with torch.no_grad():
        for sound in part:
            given = torch.from_numpy(frames_of(model, sound)).float() * model.front.config.scale
            shown, wanted = model.network.eval()(given).argmax(1).numpy(), labels(sound, given.shape[2])
            votes = np.bincount(shown[shown != NOTHING], minlength=NOTHING)
            right += bool(votes.any() and votes.argmax() == sound.digit)
            frames_right += int((shown == wanted)[wanted >= 0].sum())
            frames_all += int((wanted >= 0).sum())
    return 100 * right / len(part), 100 * frames_right / frames_all


def batches(model: SensorModel, part: list[Sound], rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return frames int8 [n, 1, steps, bands] and classes [n] of all sounds, `PER_SOUND` each, in random order."""
    given, wanted = [], []
    for sound in part:
        classes = labels(sound, model.front.config.steps)
        words, rest = np.flatnonzero((classes >= 0) & (classes != NOTHING)), np.flatnonzero(classes == NOTHING)
        chosen = np.append(rng.choice(words, PER_SOUND - 1), rng.choice(rest, 1))
        given.append(frames_of(model, sound)[chosen])
        wanted.append(classes[chosen])
    order = rng.permutation(PER_SOUND * len(part))
    return torch.from_numpy(np.concatenate(given)[order]), torch.from_numpy(np.concatenate(wanted)[order])


def trained(
    model: SensorModel, train: list[list[Sound]], held_out: list[Sound], epochs: int, rng: np.random.Generator
) -> SensorModel:
    """Return the model of the epoch that is best on the recordings held out."""
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.02)
    steps = -(-PER_SOUND * len(train[0]) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, epochs * steps)
    best, kept = (-1.0, -1.0), model
    for epoch in range(epochs):
        frames, wanted = batches(model, train[epoch % len(train)], rng)
        model.network.train()
        for given, classes in zip(frames.split(BATCH), wanted.split(BATCH), strict=True):
            optimizer.zero_grad()
            logits = model.network(given.float() * model.front.config.scale)
            functional.cross_entropy(logits, classes, label_smoothing=0.05).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        now = recognized(model, held_out) if epoch % 3 == 2 or epoch == epochs - 1 else best
        if now > best:
            best, kept = now, copy.deepcopy(model)
            print(f"epoch {epoch + 1}: {now[0]:.2f} % of {len(held_out)} recordings held out", flush=True)
    return kept.eval()


def main(
    epochs: Annotated[int, typer.Option(help="Passes over the recordings.")] = 40,
    copies: Annotated[int, typer.Option(help="Sounds made of each recording.")] = 4,
    seed: Annotated[int, typer.Option(help="Of weights, noise and order.")] = 1,
    data: Annotated[str | None, typer.Option(help="Folder with datasets/; NNHW_DATA without it.")] = None,
) -> None:
    """Train with quantizers from the start; save the weights, and say how good they are."""
    torch.manual_seed(seed)
    recordings = load_recordings(data)
    parts = [[(pcm, digit) for pcm, digit, index in recordings if chosen(index)] for chosen in (_trains, _held, _tests)]
    model = build_model()
    train = [sounds(model, parts[0], seed + number, louder=True) for number in range(copies)]
    held_out, test = sounds(model, parts[1], 0, louder=False), sounds(model, parts[2], 0, louder=False)
    model = trained(model, train, held_out, epochs, np.random.default_rng(seed))
    save_packed(model, CHECKPOINT)
    for name, part in (("held out", held_out), ("tested", test)):
        found = recognized(model, part)
        print(f"{found[0]:.2f} % of {len(part)} recordings {name}, {found[1]:.2f} % of their frames")


def _tests(index: int) -> bool:
    return index in TEST


def _held(index: int) -> bool:
    return index in HELD_OUT


def _trains(index: int) -> bool:
    return index not in TEST and index not in HELD_OUT


if __name__ == "__main__":
    typer.run(main)
