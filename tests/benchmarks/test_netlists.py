"""Hashes of netlists: equal under other names, unlike for other hardware."""

from __future__ import annotations

from benchmarks import netlists
from nnhw.engines.fifo import FifoConfig
from nnhw.hdl.fifo import Fifo
from nnhw.hdl.verilog import to_rtlil


def fifo(depth: int) -> str:
    """Return the RTLIL of a FIFO."""
    return to_rtlil(Fifo(FifoConfig(lanes=1, bits=4, depth=depth, beats=8)))


def test_fingerprint_ignores_names_and_attributes() -> None:
    text = fifo(8)
    assert text.count("\\i__payload") > 1
    other = text.replace("\\i__payload", "\\given").replace("\\top", "\\whole")
    assert netlists.fingerprint("attribute \\src 1\n" + other) == netlists.fingerprint(text)


def test_fingerprint_tells_hardware_apart() -> None:
    text = fifo(8)
    assert netlists.fingerprint(text) != netlists.fingerprint(fifo(16))
    for old, new in (("cell $add", "cell $sub"), ("\\i__payload", "\\o__payload"), ("connect \\A ", "connect \\B ")):
        assert old in text
        assert netlists.fingerprint(text.replace(old, new, 1)) != netlists.fingerprint(text)


def test_changes_names_what_differs_from_the_stored_hashes() -> None:
    stored = {"examples": {"a": {"mapping": "1", "netlist": "2"}, "b": {}}, "engines": {"x": "3", "y": "4"}}
    now = {"examples": {"a": {"mapping": "1", "netlist": "5"}}, "engines": {"x": "3", "y": "6", "z": "7"}}
    assert list(netlists.changes(stored, now)) == ["a netlist", "y", "z"]


def test_small_example_has_hashes() -> None:
    hashes = netlists.hashes_of(netlists.DESIGNS["hand_written"])
    assert set(hashes) == {"mapping", "netlist"}
