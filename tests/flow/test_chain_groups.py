"""Which carry chains of ECP5 share tiles: fewest tiles, short rows, near ones together, one enable."""

from __future__ import annotations

import itertools
import random
from typing import Any

from nnhw.flow.implementation.chain_groups import LENGTH_COST, LONGEST_TILES, TILE_BITS, Ends, divide, in_rows

ONE = dict.fromkeys(range(100), 1)
"""Each net is read once."""


def cost(lengths: list[int], cuts: list[tuple[int, int]]) -> float:
    """Return what a division costs."""
    tiles = [-(-sum(lengths[first:last]) // TILE_BITS) for first, last in cuts]
    return sum(count + LENGTH_COST * count * count for count in tiles)


def divisions(count: int) -> list[list[tuple[int, int]]]:
    """Return all divisions of so many chains."""
    found = []
    for chosen in itertools.product((False, True), repeat=count - 1):
        ends = [0, *(index + 1 for index, cut in enumerate(chosen) if cut), count]
        found.append(list(itertools.pairwise(ends)))
    return found


def test_division_is_the_cheapest_of_all() -> None:
    draw = random.Random(1)
    for _ in range(50):
        lengths = [draw.randint(1, 30) for _ in range(draw.randint(1, 8))]
        allowed = [
            cuts
            for cuts in divisions(len(lengths))
            if all(sum(lengths[a:b]) <= TILE_BITS * LONGEST_TILES or b == a + 1 for a, b in cuts)
        ]
        assert cost(lengths, divide(lengths)) == min(cost(lengths, cuts) for cuts in allowed)


def test_no_chains_need_no_rows() -> None:
    assert divide([]) == []
    assert in_rows([], {"cells": {}}, {}) == []


def test_chain_longer_than_a_row_stands_alone() -> None:
    assert divide([200, 4, 4]) == [(0, 1), (1, 3)]


def register(taken: int, given: int, enable: int | str) -> dict[str, Any]:
    """Return a flip-flop; `enable` is a net, or "1"."""
    parameters = {"CLKMUX": "CLK", "CEMUX": "CE", "LSRMUX": "LSR", "SRMODE": "LSR_OVER_CE", "GSR": "AUTO"}
    wires = {"CLK": [1], "CE": [enable], "LSR": ["0"], "DI": [taken], "Q": [given]}
    return {"type": "TRELLIS_FF", "parameters": parameters, "connections": wires}


def chain(inputs: list[int], sums: list[int]) -> Ends:
    """Return a chain of ten bits."""
    return Ends(10, tuple(inputs), tuple(sums))


def test_chains_that_one_sum_reads_share_a_row() -> None:
    # 0 and 3 go to 4, 1 and 2 to 5: by registers.
    chains = [chain([], [10 + index]) for index in range(4)]
    chains += [chain([20, 23], [14]), chain([21, 22], [15])]
    cells = {f"r{index}": register(10 + index, 20 + index, 9) for index in range(6)}
    rows = in_rows(chains, {"cells": cells}, ONE)
    assert sorted(index for row in rows for index in row) == list(range(6))
    order = [index for row in rows for index in row]
    assert abs(order.index(0) - order.index(3)) == 1
    assert abs(order.index(1) - order.index(2)) == 1
    assert max(len(row) for row in rows) > 1


def test_chains_of_two_enables_share_no_row() -> None:
    chains = [chain([], [10 + index]) for index in range(4)]
    cells = {f"r{index}": register(10 + index, 20 + index, 8 + index % 2) for index in range(4)}
    rows = in_rows(chains, {"cells": cells}, ONE)
    assert all(len({index % 2 for index in row}) == 1 for row in rows)
    # A chain whose own registers differ stands alone.
    both = [chain([], [10, 11]), *chains[:1]]
    assert [0] in in_rows(both, {"cells": cells}, ONE)


def test_chains_without_an_enable_share_a_row_where_their_sums_end_in_one() -> None:
    # 0 and 1 go to 4; 2 and 3 have nothing to do with them, nor with each other.
    chains = [*(chain([], [10 + index]) for index in range(4)), chain([20, 21], [14])]
    cells = {f"r{index}": register(10 + index, 20 + index, "1") for index in range(5)}
    rows = in_rows(chains, {"cells": cells}, ONE)
    assert sorted(sorted(row) for row in rows) == [[0, 1, 4], [2], [3]]


def test_chains_of_a_loop_are_in_rows() -> None:
    chains = [chain([21], [10]), chain([20], [11])]
    cells = {f"r{index}": register(10 + index, 20 + index, 9) for index in range(2)}
    assert sorted(index for row in in_rows(chains, {"cells": cells}, ONE) for index in row) == [0, 1]


def test_chains_whose_sums_are_read_in_the_same_cycle_share_no_row() -> None:
    chains = [chain([], [10 + index]) for index in range(4)]
    cells = {f"r{index}": register(10 + index, 20 + index, 9) for index in range(3)}  # none for the last
    rows = in_rows(chains, {"cells": cells}, ONE | {11: 2})
    assert [1] in rows
    assert [3] in rows
    assert sorted(rows, key=len)[-1] in ([0, 2], [2, 0])
