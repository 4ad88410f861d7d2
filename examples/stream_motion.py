"""`motion_lstm` on a device, one step at a time: what the network believes after each second.

`python examples/stream_motion.py` maps the network for the ULX3S and asks the exact model of the device. Any other link
of `nnhw.open` may be given: `python examples/stream_motion.py sim` asks the virtual board.
"""

import sys
from pathlib import Path

from torch import Tensor

import nnhw
from nnhw.driver import Device

try:
    from examples.motion_lstm import CLASSES, example_input, model, swings
except ModuleNotFoundError:  # run as a script, which finds its own folder
    from motion_lstm import CLASSES, example_input, model, swings

STEPS = 50
EVERY = 10
"""Steps from line to line."""


def watch(device: Device, recording: Tensor) -> list[str]:
    """Stream a recording [steps, 6] into a device; return what it believes behind every tenth step."""
    found = []
    with device.stream() as stream:
        for number, step in enumerate(recording, 1):
            logits = stream(step)
            if number % EVERY == 0:
                found.append(CLASSES[int(logits.argmax())])
    return found


def main(link: str = "model", folder: Path = Path("build")) -> None:
    """Build, open the device, stream four made-up movements, and print a line for each."""
    build = nnhw.build(
        model, example_input, name="motion_lstm", board="ulx3s_25f", out=folder / "stream_motion", stop_at="map"
    )
    with nnhw.open(build, link) as device:
        for recording in swings(4, STEPS):
            print(" -> ".join(watch(device, recording)))


if __name__ == "__main__":
    main(*sys.argv[1:])
