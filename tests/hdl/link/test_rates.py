"""The driver at the serial pins of a device that speaks two rates: adapters that do both, one, or the wrong one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nnhw.driver import Device as HostDevice
from nnhw.driver.rates import open_fastest
from nnhw.errors import LinkError
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.uart import UartDevice
from nnhw.protocol import DeviceIdentity
from tests.hdl.link.engines import SumEngine
from tests.hdl.link.test_driver import make_accelerator
from tests.hdl.link.uart_pins import PinsPort, UartPins

CLOCK_HZ = 48_000_000
RATES = (12_000_000, 3_000_000)
ACCELERATOR = make_accelerator(12, 5)


def device(model_hash: str = ACCELERATOR.model_hash) -> UartDevice:
    identity = DeviceIdentity(model_hash, 12, 5, CLOCK_HZ)
    return UartDevice(LinkedEngine(SumEngine(12, 5, pause=0), identity), *(CLOCK_HZ // rate for rate in RATES))


def able(pins: UartPins, baud: int) -> PinsPort:
    """Open a port that does every rate."""
    return PinsPort(pins, CLOCK_HZ, CLOCK_HZ // baud)


def refusing(pins: UartPins, baud: int) -> PinsPort:
    """Open a port whose system refuses the faster rate."""
    if baud > 3_000_000:
        raise LinkError("serial port 'pins' cannot be opened (no such rate)")
    return able(pins, baud)


def rounding(pins: UartPins, baud: int) -> PinsPort:
    """Open a port whose adapter silently takes the nearest rate that it has: 3 Mbaud at most."""
    return able(pins, min(baud, 3_000_000))


def slow(pins: UartPins, baud: int) -> PinsPort:
    """Open a port whose adapter makes 5 Mbaud at the most, which is no rate of the device."""
    return PinsPort(pins, CLOCK_HZ, 10) if baud > 3_000_000 else able(pins, baud)


def opened(pins: UartPins, open_at: Callable[[UartPins, int], PinsPort]) -> tuple[PinsPort, list[str]]:
    notices: list[str] = []
    link = open_fastest(RATES, lambda baud: open_at(pins, baud), notices.append)
    assert isinstance(link, PinsPort)
    return link, notices


def check(link: PinsPort, count: int = 10) -> None:
    """Run images; compare every output."""
    codes = np.random.default_rng(count).integers(0, 256, (count, 12))
    expected = (codes.sum(axis=1, keepdims=True) + 3 * np.arange(5)) % 256
    with HostDevice(link, ACCELERATOR) as opened_device:
        assert np.array_equal(opened_device.infer_codes(codes), expected)


@pytest.mark.parametrize(
    ("open_at", "divisor", "notices"),
    [
        (able, 4, 0),
        (refusing, 16, 1),
        (rounding, 16, 0),
        (slow, 16, 1),
    ],
)
def test_driver_finds_the_fastest_rate(
    open_at: Callable[[UartPins, int], PinsPort], divisor: int, notices: int
) -> None:
    link, told = opened(UartPins(device()), open_at)
    assert (link._divisor, len(told)) == (divisor, notices)
    check(link)


def test_driver_changes_rates_from_session_to_session() -> None:
    pins = UartPins(device())
    for open_at, divisor in ((refusing, 16), (refusing, 16), (able, 4), (rounding, 16)):
        link, _ = opened(pins, open_at)
        assert link._divisor == divisor
        check(link, 3)


def test_driver_goes_on_at_its_rate_when_the_board_restarts() -> None:
    """A device that has just started takes the faster rate for that of its host until the next RESET."""
    pins = UartPins(device())
    link, _ = opened(pins, refusing)
    pins.replace(device())
    check(link)


class _NoBoard:
    """Wires without a board behind them."""

    cycles = 0

    def run(self, levels: list[int]) -> list[int]:
        self.cycles += len(levels)
        return [1] * len(levels)


def test_driver_says_that_nothing_answers_at_any_rate() -> None:
    link, notices = opened(_NoBoard(), able)  # type: ignore[arg-type]
    assert notices == ["link 'pins': no answer at 12,000,000 bits a second; the next rate is tried"]
    assert not link.closed
    with pytest.raises(LinkError, match="the device does not answer: nothing came"):
        HostDevice(link, ACCELERATOR)
