"""A network of ours as portable C, compiled here and compared: `python examples/export_c.py FOLDER`."""

import subprocess
import sys
from pathlib import Path

import mnist_mlp
import numpy as np
from mnist_data import sample_digits

import nnhw


def main(folder: Path) -> None:
    """Export the perceptron with its program, compile both with the system's compiler, and run digits through it."""
    made = nnhw.export_c(mnist_mlp.model, mnist_mlp.example_input, out=folder, name="digits", program=True)
    print(f"{', '.join(path.name for path in made.paths)}; scratch memory: {made.program.scratch_bytes} bytes")
    program = folder.resolve() / "digits"
    sources = [str(path) for path in made.paths if path.suffix == ".c"]
    subprocess.run(["cc", "-std=c99", "-O2", *sources, "-o", str(program)], check=True)

    images, labels = sample_digits()
    np.save(folder / "digits.npy", images)
    printed = subprocess.run([str(program), str(folder / "digits.npy")], check=True, capture_output=True, text=True)
    results = np.array([line.split() for line in printed.stdout.splitlines()], dtype=np.float64)
    same = int((results == nnhw.reference(mnist_mlp.model)(images)).all(axis=1).sum())
    right = int((results.argmax(axis=1) == labels).sum())
    print(f"{same} of {len(images)} results equal nnhw.reference; {right} digits are right")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "c"))
