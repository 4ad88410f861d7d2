"""What a door owes: the source framework's own answers, equal to those of the program that the door has made.

A door turns a model that came in another form into a program whose quantizers are nnhw's. Everything behind it is the
path of any program. Before that, both are evaluated on the same images, those that lie half-way between two codes of
the input among them, and all numbers behind quantizers are compared by `==`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.export import ExportedProgram

from nnhw.errors import ExactnessError


@dataclass(frozen=True)
class Answer:
    """What one place of a model gives for some images.

    Parameters
    ----------
    place: in the user's words: a quantizer with its line, or the result.
    values: [N, ..].
    """

    place: str
    values: Tensor


@dataclass(frozen=True)
class Entry:
    """A quantizer of the model's input.

    Parameters
    ----------
    scales: float32, one or one per channel.
    low, high: range of its codes, as distances from the zero point.
    """

    scales: Tensor
    low: int
    high: int

    def half_way(self) -> Tensor:
        """Return all numbers between two codes, one beyond either end, and their neighbours in float32."""
        steps = torch.arange(self.low - 1, self.high + 2, dtype=torch.float64) + 0.5
        ties = (steps * self.scales.double().reshape(-1, 1)).flatten().float()
        ends = torch.tensor([-torch.inf]), torch.tensor([torch.inf])
        return torch.cat([ties, *(torch.nextafter(ties, end) for end in ends)])


@dataclass(frozen=True)
class Opened:
    """A model behind its door.

    Parameters
    ----------
    kind: what it was, for messages: 'PT2E'.
    program: the same model with nnhw's quantizers.
    example: [batch, ..].
    entries: the quantizers of its input.
    theirs: evaluates the model in its own framework; answers in the order of the model.
    ours: evaluates the program; the same places in the same order.
    """

    kind: str
    program: ExportedProgram
    example: Tensor
    entries: Sequence[Entry]
    theirs: Callable[[Tensor], Sequence[Answer]]
    ours: Callable[[Tensor], Sequence[Answer]]


def check_answers(opened: Opened) -> None:
    """Compare the source's evaluation with the program's: on the example, and on half-way points of the input.

    Raises
    ------
    ExactnessError: they differ, with the first place that does.
    """
    for images in (opened.example, *_half_way_images(opened)):
        for theirs, ours in zip(opened.theirs(images), opened.ours(images), strict=True):
            differs = (theirs.values != ours.values) & ~(theirs.values.isnan() & ours.values.isnan())
            if differs.any():
                raise ExactnessError(_message(opened.kind, theirs, ours, differs))


def _half_way_images(opened: Opened) -> Iterator[Tensor]:
    """Yield batches like the example that have every half-way point somewhere."""
    example = opened.example
    points = [entry.half_way() for entry in opened.entries]
    for part in torch.cat(points).split(example.numel()) if points else ():
        repeated = part.repeat(-(-example.numel() // len(part)))
        yield repeated[: example.numel()].reshape(example.shape).to(example.dtype)


def _message(kind: str, theirs: Answer, ours: Answer, differs: Tensor) -> str:
    place = tuple(differs.nonzero()[0].tolist())
    return (
        f"{theirs.place} is the first that differs between {kind}'s own evaluation and nnhw's quantizers: "
        f"{theirs.values[place].item()} and {ours.values[place].item()} at {list(place)}, one of "
        f"{int(differs.sum())} of {differs.numel()} numbers; this is a mistake of nnhw, please report the model"
    )
