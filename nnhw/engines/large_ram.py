"""Large RAMs: they have one port, which reads or writes a word a cycle, and no content at first.

Source: Lattice, iCE40 SPRAM usage guide (FPGA-TN-02022).
"""

from __future__ import annotations

from nnhw.errors import MappingError

LARGE_WORDS, LARGE_BITS = 16384, 16
"""Words of one large RAM, and bits of a word; several side by side make wider words."""


def check_large(what: str, words: int) -> None:
    """Check that a memory has no more words than a large RAM.

    Parameters
    ----------
    what: what the memory is for, as the error's message calls it.

    Raises
    ------
    MappingError: it has more.
    """
    if words > LARGE_WORDS:
        raise MappingError(f"{what} in large RAM needs at most {LARGE_WORDS} words, given {words}")
