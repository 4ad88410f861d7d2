"""Real digits through the virtual board: `python examples/demo.py --board ice40 mnist_mlp`."""

from pathlib import Path
from typing import Annotated

import typer
from mnist_data import sample_digits
from rich.console import Console

import nnhw
from nnhw.flow.progress import make_progress
from nnhw.frontend import load_source

HERE = Path(__file__).resolve().parent


def main(
    name: Annotated[str, typer.Argument(help="mnist_mlp or mnist_cnn")] = "mnist_mlp",
    board: Annotated[str, typer.Option(help="Name or alias of a board.")] = "ice40",
) -> None:
    """Build an example, run 300 test digits through the compiled hardware, compare with the exact reference."""
    console = Console()
    progress = make_progress(Console(stderr=True))
    source = load_source(HERE / f"{name}.py")
    assert source.example_input is not None
    build = nnhw.build(source.model, source.example_input, board=board, name=source.name, progress=progress)
    images, labels = sample_digits()
    with progress.stage(f"{len(images)} digits through the virtual board"), nnhw.open(build, link="sim") as device:
        logits = device(images)
    equal = int((logits == nnhw.reference(source.model)(images)).all(axis=1).sum())
    right = int((logits.argmax(axis=1) == labels).sum())
    console.print(f"accuracy: {right} of {len(images)} digits right, {right / len(images):.1%}", highlight=False)
    console.print(f"equality: {equal} of {len(images)} results equal to the reference in every bit", highlight=False)
    if equal != len(images):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
