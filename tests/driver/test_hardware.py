"""The link to simulated hardware: cycles are the clock, and a batch gets as many as its engine needs."""

from __future__ import annotations

import numpy as np
import pytest

from nnhw.driver.links.hardware import HardwareLink
from nnhw.errors import LinkError, ToolError
from tests.driver.fakes import golden, make_accelerator, make_board, make_codes, open_toy


class SlowHardware:
    """A model board that takes a byte in so many cycles, and fails as the real harness does when they run out."""

    def __init__(self, board: object, cycles_per_byte: int) -> None:
        self._board, self._cycles_per_byte = board, cycles_per_byte
        self.cycles = 0
        self.closed = False

    def transfer(self, data: bytes, budget_cycles: int) -> bytes:
        needed = len(data) * self._cycles_per_byte
        self.cycles += needed if data else budget_cycles
        if needed > budget_cycles:
            raise ToolError(f"bytes left untaken after {budget_cycles} cycles")
        return self._board.exchange(data)  # type: ignore[attr-defined,no-any-return]

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("cycles_per_byte", [1, 2, 50, 1000])
@pytest.mark.parametrize("count", [1, 2000])
def test_hardware_link_gives_a_slow_engine_its_time(cycles_per_byte: int, count: int) -> None:
    accelerator = make_accelerator(98, 10, interval_cycles=98 * cycles_per_byte)
    hardware = SlowHardware(make_board(accelerator), cycles_per_byte)
    codes = make_codes(count, 98)
    with open_toy(HardwareLink(hardware, 48_000_000), accelerator) as device:  # type: ignore[arg-type]
        assert np.array_equal(device.infer_codes(codes), golden(codes, 10))
    assert hardware.closed
    assert hardware.cycles > count * 98 * cycles_per_byte


def test_hardware_link_rejects_hardware_that_is_stuck() -> None:
    accelerator = make_accelerator()
    hardware = SlowHardware(make_board(accelerator), 10**6)
    with pytest.raises(LinkError) as caught:
        open_toy(HardwareLink(hardware, 48_000_000), accelerator)  # type: ignore[arg-type]
    assert str(caught.value).startswith("link 'sim': bytes left untaken after ")
    assert hardware.closed
