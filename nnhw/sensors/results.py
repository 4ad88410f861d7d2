"""The text in which results leave a device that no computer takes part in."""

from __future__ import annotations

import numpy as np

RESULT_BAUD = 115_200
"""Bits a second of the serial port on which results leave: any terminal knows this rate."""
LINE_BYTES = 3
LINE_BITS = 10 * (LINE_BYTES + 1)
"""Bits on the line until a result has left; a transmitter may wait a byte before it begins."""


def lines_of(labels: np.ndarray) -> bytes:
    """Return the lines of results: two hexadecimal digits and a line feed each."""
    return "".join(f"{int(label):02x}\n" for label in labels).encode("ascii")
