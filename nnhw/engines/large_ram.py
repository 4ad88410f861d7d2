"""Large RAMs: one port, which reads or writes a word a cycle, and nothing in them at first.

Source: Lattice, iCE40 SPRAM usage guide (FPGA-TN-02022).
"""

from __future__ import annotations

from nnhw.errors import MappingError

LARGE_WORDS, LARGE_BITS = 16384, 16
"""Words of a large RAM and their width; the words of several side by side are wider."""


def check_large(what: str, words: int) -> None:
    """Raise MappingError where more words are wanted than a large RAM has."""
    if words > LARGE_WORDS:
        raise MappingError(f"{what} in large RAM needs at most {LARGE_WORDS} words, given {words}")
