"""The order of the tests: files that take long come first, or all is shuffled with `--shuffle SEED`.

With the longest first, no process of tests is alone with a long file at the end. Shuffled, files come in any order, and
tests of a file in any order: no test may need what another one leaves behind.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

SECONDS = {"pnr": 6.0, "synth": 2.0, "rtl": 2.0, "slow": 2.0}
"""What a test takes for each of its marks, about; without any, a tenth."""
LONGEST = (
    "test_readme.py",
    "frontend/test_brevitas.py",
    "frontend/test_support.py",
    "dynamo/test_dynamo.py",
    "flow/test_end_to_end.py",
    "sim/test_simulate.py",
    "test_lint.py",
    "searching/test_search.py",
    "flow/test_netlist.py",
    "flow/test_place.py",
    "flow/test_sequences.py",
    "flow/test_patching.py",
    "flow/test_style.py",
    "frontend/test_onnx.py",
    "frontend/test_brevitas_loops.py",
    "flow/test_synthesis.py",
    "frontend/test_loop_capture.py",
    "flow/test_running.py",
    "hdl/test_cores.py",
    "hdl/link/test_ftdi.py",
    "export/test_driver.py",
)
"""Files that take longer than their marks say, the longest first; below tests.

The first two do not both start nextpnr: its first run compiles its WebAssembly, and two at once would compile it twice.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that shuffles."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files by their expected time, the longest first; tests of a file stay in their order.

    pytest-xdist's own order, by the number of tests, is switched off in `make test`.
    """
    seed = config.getoption("shuffle")
    if seed is not None:
        shuffle(items, seed)
        return
    tests = Path(__file__).parent
    order = {tests / name: number for number, name in enumerate(LONGEST)}
    seconds: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        seconds[item.path] += 0.1 + sum(SECONDS.get(mark.name, 0.0) for mark in item.iter_markers())
    items.sort(key=lambda item: (order.get(item.path, len(LONGEST)), -seconds[item.path], str(item.path)))


def shuffle(items: list[pytest.Item], seed: int) -> None:
    """Put the files into an order that a seed gives, and the tests of each file, too; those of a file stay together.

    Every process of tests has the same order: it depends on nothing but the seed and the tests.
    """
    drawn = random.Random(seed)
    files = {path: drawn.random() for path in sorted({item.path for item in items})}
    places = {item.nodeid: drawn.random() for item in sorted(items, key=lambda item: item.nodeid)}
    items.sort(key=lambda item: (files[item.path], places[item.nodeid]))
