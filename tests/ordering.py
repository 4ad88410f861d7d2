"""Files that take long come first, so that no process of tests is alone with one at the end."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

SECONDS = {"pnr": 6.0, "synth": 2.0, "rtl": 2.0, "slow": 2.0}
"""What a test takes for each of its marks, about; without any, a tenth."""
LONGEST = (
    "test_readme.py",
    "frontend/test_support.py",
    "frontend/test_brevitas.py",
    "flow/test_style.py",
    "flow/test_end_to_end.py",
    "flow/test_orders.py",
    "mapping/test_cost.py",
    "benchmarks/test_networks.py",
)
"""Files that take longer than their marks say, the longest first; below tests."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files by their expected time, the longest first; tests of a file stay in their order.

    pytest-xdist's own order, by the number of tests, is switched off in `make test`.
    """
    tests = Path(__file__).parent
    order = {tests / name: number for number, name in enumerate(LONGEST)}
    seconds: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        seconds[item.path] += 0.1 + sum(SECONDS.get(mark.name, 0.0) for mark in item.iter_markers())
    items.sort(key=lambda item: (order.get(item.path, len(LONGEST)), -seconds[item.path], str(item.path)))
