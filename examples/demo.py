"""Real digits through a finished build on the virtual board: `python examples/demo.py build/mnist_mlp-icebreaker`."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from mnist_data import sample_digits
from rich.console import Console

import nnhw
from nnhw.flow.pipeline import Build
from nnhw.flow.tools.progress import make_progress
from nnhw.frontend import load_source

HERE = Path(__file__).resolve().parent


def main(
    folder: Annotated[Path, typer.Argument(metavar="BUILD", help="A folder that `nnhw build` made of an example.")],
    link: Annotated[str, typer.Option(help="sim, model, auto, or a serial port.")] = "sim",
) -> None:
    """Run 300 test digits through the hardware, and compare every result with the exact reference."""
    progress = make_progress(Console(stderr=True))
    build = Build.load(folder)
    model = load_source(HERE / f"{build.report['model']['name']}.py").model
    images, labels = sample_digits()
    with progress.stage(f"{len(images)} digits through link '{link}'"), nnhw.open(build, link=link) as device:
        logits = device(images.astype(np.float64))  # all bits of the results: float32 would round them
    equal = int(np.all(logits == nnhw.reference(model)(images), axis=1).sum())
    right = int((logits.argmax(axis=1) == labels).sum())
    print(f"accuracy: {right} of {len(images)} digits right, {right / len(images):.1%}")
    print(f"equality: {equal} of {len(images)} results equal to the reference in every bit")
    if equal != len(images):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
