"""A mixed model by `torch.compile`: frames are resampled and pooled by attention in PyTorch, digits read in hardware.

python examples/compile_mixed.py --link sim
"""

from typing import Annotated

import mnist_mlp
import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import nn

import nnhw
from nnhw.dynamo import Backend
from nnhw.nn import load_packed

FRAMES, SIZE = 4, 36
NOISE = 0.9
SHARPNESS = 0.05  # of the attention: frames that are alike count more


class FrameReader(nn.Module):
    """Reads a digit that several noisy frames of another size show."""

    def __init__(self) -> None:
        super().__init__()
        self.net = load_packed(mnist_mlp.build_model(), mnist_mlp.CHECKPOINT)

    def pool(self, frames: torch.Tensor) -> torch.Tensor:
        """[N, FRAMES, H, W] --> [N, 1, 28, 28]: each frame attends to all, and their mean remains."""
        pixels = F.interpolate(frames, (28, 28), mode="bilinear", antialias=True).flatten(2)
        weights = torch.softmax(pixels @ pixels.transpose(1, 2) * SHARPNESS, dim=-1)
        return (weights @ pixels).mean(1).reshape(-1, 1, 28, 28)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """[N, FRAMES, H, W] in [0, 1] --> probabilities [N, 10]."""
        return torch.softmax(self.net(self.pool(frames)), dim=-1)


def make_frames(count: int) -> tuple[torch.Tensor, np.ndarray]:
    """Return noisy frames of the first digits, float32 [count, FRAMES, SIZE, SIZE], and labels."""
    with np.load(mnist_mlp.HERE / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        pixels, labels = samples["images"][:count, np.newaxis], samples["labels"][:count]
    large = F.interpolate(torch.from_numpy(pixels.astype(np.float32) / np.float32(255)), (SIZE, SIZE), mode="bilinear")
    noise = torch.randn((count, FRAMES, SIZE, SIZE), generator=torch.Generator().manual_seed(1))
    return (large + NOISE * noise).clamp(0, 1), labels


model = FrameReader().eval() if mnist_mlp.CHECKPOINT.exists() else None  # None: train_mnist.py makes it
example_input = make_frames(8)[0]


def main(
    link: Annotated[str, typer.Option(help="sim, model, auto, or a serial port.")] = "sim",
    digits: Annotated[int, typer.Option(help="How many to read.")] = 100,
    batch: Annotated[int, typer.Option(help="How many at a time.")] = 32,
) -> None:
    """Read digits in batches, and compare every probability with the exact reference composed with PyTorch."""
    assert model is not None
    frames, labels = make_frames(digits)
    backend = Backend(board="icebreaker", link=link)
    compiled, exact = torch.compile(model, backend=backend), nnhw.reference(model.net)
    with torch.inference_mode():
        given = torch.cat([compiled(part) for part in frames.split(batch)])
        expected = torch.cat([torch.softmax(exact(model.pool(part)).float(), -1) for part in frames.split(batch)])
        single = model.net(F.interpolate(frames[:, :1], (28, 28), mode="bilinear", antialias=True))
    print(backend.partitions[0])
    right = [int((result.argmax(1).numpy() == labels).sum()) for result in (single, given)]
    print(f"digits: {right[0]} of {digits} right of one frame, {right[1]} of {FRAMES} frames by attention")
    equal = int((given == expected).all(1).sum())
    print(f"equality: {equal} of {digits} digits equal to the reference composed with PyTorch in every bit")
    if equal != digits:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
