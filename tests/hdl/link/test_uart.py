"""The serial line: both ends against a line model, several divisors, and a device behind its pins."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from cobs import cobs

from nnhw.errors import InputError, LinkError
from nnhw.hdl.link.devices import device_at
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.hdl.link.uart import UartDevice, UartReceiver, UartTransmitter
from nnhw.links import Uart
from nnhw.links.uart import clocks_per_bit
from nnhw.protocol import Command, Frame, Reason
from sim.simulator import Simulator
from tests.hdl.link.bench import talk
from tests.hdl.link.engines import HangingEngine, SumEngine
from tests.hdl.link.wire import IDENTITY, data_frames, decode, encode, results


def line(data: bytes, clocks: float, gap_bits: int = 0) -> Iterator[int]:
    """Yield the line's level cycle by cycle; `clocks` per bit need not be whole."""
    levels = [level for byte in data for level in (0, *(byte >> bit & 1 for bit in range(8)), 1, *[1] * gap_bits)]
    for cycle in range(round(len(levels) * clocks)):
        yield levels[min(int(cycle / clocks), len(levels) - 1)]


def rough_line(data: bytes, clocks: float, jitter: float, phase: float, seed: int) -> Iterator[int]:
    """Yield the line's level as a clock sees it whose first edge comes `phase` cycles behind the line's.

    Each edge is up to `jitter` cycles early or late.
    """
    rng = random.Random(seed)
    levels = [level for byte in data for level in (0, *(byte >> bit & 1 for bit in range(8)), 1)]
    edges = [number * clocks + rng.uniform(-jitter, jitter) for number in range(len(levels))]
    bit = 0
    for cycle in range(round(len(levels) * clocks)):
        while bit + 1 < len(levels) and edges[bit + 1] <= cycle + phase:
            bit += 1
        yield levels[bit] if edges[0] <= cycle + phase else 1


def listen(levels: list[int], clocks: int) -> bytes:
    """Return the bytes on a line; a missing stop bit is an error."""
    data, cycle = bytearray(), 0
    while cycle + 10 * clocks <= len(levels):
        if levels[cycle]:
            cycle += 1
            continue
        bits = [levels[cycle + clocks * bit + clocks // 2] for bit in range(10)]
        assert bits[9] == 1, f"no stop bit at cycle {cycle}"
        data.append(sum(bit << place for place, bit in enumerate(bits[1:9])))
        cycle += 9 * clocks + clocks // 2
    return bytes(data)


def run(component: Any, bench: Any) -> None:
    simulator = Simulator(component)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def receive(divisor: int, levels: Iterator[int], ready_every: int = 1) -> tuple[bytes, int]:
    """Return what a receiver made of a line, and how many bytes it says it lost."""
    receiver, data, lost = UartReceiver(divisor), bytearray(), 0

    async def bench(ctx: Any) -> None:
        nonlocal lost
        for cycle, level in enumerate((*[1] * 20, *levels, *[1] * 20)):
            ctx.set(receiver.rx, level)
            ctx.set(receiver.o.ready, cycle % ready_every == 0)
            if ctx.get(receiver.o.valid) and cycle % ready_every == 0:
                data.append(ctx.get(receiver.o.payload))
            lost += ctx.get(receiver.overrun)
            await ctx.tick()

    run(receiver, bench)
    return bytes(data), lost


def random_bytes(count: int) -> bytes:
    return bytes(random.Random(count).randrange(256) for _ in range(count))


@pytest.mark.parametrize(("drift", "jitter"), [(0.98, 0.1), (1.02, 0.1), (0.99, 0.25), (1.01, 0.25), (1.0, 0.4)])
@pytest.mark.parametrize("divisor", [3, 4, 5, 6, 7, 8, 16])
def test_receiver_reads_a_line_that_is_off_and_whose_edges_jitter(divisor: int, drift: float, jitter: float) -> None:
    """Bytes without a pause, whose bits begin anywhere between two edges of the clock, with long runs of a level."""
    data = bytes((0x00, 0xFF, 0x01, 0x80, 0xFE, 0x7F, 0x55, 0xAA)) + random_bytes(8)
    for step in range(5):
        found = receive(divisor, rough_line(data, divisor * drift, jitter, step / 5, seed=step))
        assert found == (data, 0), f"phase {step / 5}"


@pytest.mark.parametrize("drift", [0.96, 1.0, 1.04])
@pytest.mark.parametrize("divisor", [8, 13, 16, 100])
def test_receiver_reads_the_line(divisor: int, drift: float) -> None:
    data = random_bytes(24)
    assert receive(divisor, line(data, divisor * drift, gap_bits=drift < 1)) == (data, 0)


def test_receiver_waits_for_a_slow_taker() -> None:
    data = random_bytes(24)
    assert receive(16, line(data, 16), ready_every=20) == (data, 0)


def test_receiver_reports_overrun() -> None:
    data, lost = receive(16, line(random_bytes(20), 16), ready_every=170)
    assert lost > 0
    assert len(data) + lost == 20


@pytest.mark.parametrize("low_bits", [1, 2, 40])
def test_receiver_finds_its_place_after_a_missing_stop_bit(low_bits: int) -> None:
    broken = [0, *[1, 0] * 4, *[0] * low_bits]
    levels = [level for level in broken for _ in range(16)] + [1] * 32
    assert receive(16, iter([*levels, *line(b"\x5a", 16)])) == (b"\x55\x5a", 0)


def test_receiver_ignores_short_glitches() -> None:
    glitch = [1] * 40 + [0] * 5 + [1] * 40
    assert receive(16, iter([*glitch, *line(b"\x5a", 16)])) == (b"\x5a", 0)


@pytest.mark.parametrize("divisor", [3, 4, 5, 8, 13, 16])
def test_transmitter_writes_the_line(divisor: int) -> None:
    transmitter, data, levels = UartTransmitter(divisor), random_bytes(20), []

    async def bench(ctx: Any) -> None:
        waiting = list(reversed(data))
        for cycle in range((len(data) + 3) * 10 * divisor):
            # A pause in the middle: the line has to rest at 1.
            offer = bool(waiting) and not 5 * 10 * divisor < cycle < 7 * 10 * divisor
            ctx.set(transmitter.i.valid, offer)
            ctx.set(transmitter.i.payload, waiting[-1] if offer else 0xAA)
            if offer and ctx.get(transmitter.i.ready):
                waiting.pop()
            levels.append(ctx.get(transmitter.tx))
            await ctx.tick()

    run(transmitter, bench)
    assert levels[0] == 1
    assert listen(levels, divisor) == data


class _Loop(wiring.Component):
    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        transmitter, receiver = UartTransmitter(divisor), UartReceiver(divisor)
        self._parts = (transmitter, receiver)
        super().__init__({"i": transmitter.signature.members["i"], "o": receiver.signature.members["o"]})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.transmitter, m.submodules.receiver = transmitter, receiver = self._parts
        wiring.connect(m, wiring.flipped(self.i), transmitter.i)
        wiring.connect(m, receiver.o, wiring.flipped(self.o))
        m.d.comb += receiver.rx.eq(transmitter.tx)
        return m


@pytest.mark.parametrize("divisor", [3, 4, 7, 8, 9, 16, 31])
def test_transmitter_and_receiver_agree(divisor: int) -> None:
    data = random_bytes(30)
    assert talk(_Loop(divisor), data, quiet=20 * divisor).data == data


def through_pins(engine: SumEngine, sent: bytes, baud: int, tail_cycles: int, drift: float = 1.0) -> list[Frame]:
    """Return the frames that a device with serial pins sends back."""
    clocks = IDENTITY.clock_hz // baud
    device = UartDevice(LinkedEngine(engine, IDENTITY), clocks)
    levels: list[int] = []

    async def bench(ctx: Any) -> None:
        for level in (*line(sent, clocks * drift), *[1] * tail_cycles):
            ctx.set(device.rx, level)
            levels.append(ctx.get(device.tx))
            await ctx.tick()

    run(device, bench)
    return decode(listen(levels, clocks))


@pytest.mark.parametrize(
    ("baud", "drift"),
    [
        *((16_000_000, drift) for drift in (0.98, 1.0, 1.02)),
        *((12_000_000, drift) for drift in (0.98, 1.0, 1.02)),
        *((baud, 1.0) for baud in (6_000_000, 3_000_000)),
    ],
)
def test_uart_device_answers_through_its_pins(baud: int, drift: float) -> None:
    engine, batch = SumEngine(12, 5), [random_bytes(12) for _ in range(3)]
    sent = encode(Command.RESET, 4) + b"".join(data_frames(b"".join(batch), 13)) + encode(Command.IDENTIFY, 6)
    frames = [
        frame
        for frame in through_pins(engine, sent, baud, 90 * 10 * IDENTITY.clock_hz // baud, drift)
        if frame.command != Command.TAKEN
    ]
    expected = [
        Frame(Command.RESET_DONE, 4),
        *results(map(engine.expected, batch)),
        Frame(Command.IDENTITY, 6, IDENTITY.pack()),
    ]
    assert (
        sorted(frames, key=lambda frame: (frame.command != Command.RESET_DONE, frame.command == Command.IDENTITY))
        == expected
    )


def test_uart_device_reports_overrun_and_can_be_reset() -> None:
    """The engine hangs: one frame stays before it, one behind that, and the third finds no room."""
    device = UartDevice(LinkedEngine(HangingEngine(), IDENTITY), 8)
    sent = b"".join(data_frames(random_bytes(60), 20)) + 30 * b"\0" + encode(Command.RESET, 2)
    levels: list[int] = []

    async def bench(ctx: Any) -> None:
        for level in (*line(sent, 8), *[1] * 900):
            ctx.set(device.rx, level)
            levels.append(ctx.get(device.tx))
            await ctx.tick()

    run(device, bench)
    frames = decode(listen(levels, 8))
    reasons = [Reason(frame.payload[0]) for frame in frames[1:-1]]
    assert frames[0] == Frame(Command.TAKEN, 1)
    assert reasons == [Reason.OVERRUN, Reason.DAMAGED]
    assert frames[-1] == Frame(Command.RESET_DONE, 2)


def test_clocks_per_bit_takes_what_is_near_enough() -> None:
    assert clocks_per_bit(48_000_000, 3_000_000) == 16
    assert clocks_per_bit(50_250_000, 3_000_000) == 17
    assert clocks_per_bit(12_000_000, 115_200) == 104


@pytest.mark.parametrize(
    ("clock_hz", "baud", "cycles", "limit", "near"),
    [
        (48_000_000, 24_000_000, "2.00", "1%", 16_000_000),
        (49_000_000, 12_000_000, "4.08", "1%", 12_250_000),
        (40_000_000, 3_800_000, "10.53", "2%", 3_636_364),
    ],
)
def test_device_at_serial_pins_rejects_a_clock(clock_hz: int, baud: int, cycles: str, limit: str, near: int) -> None:
    device: Any = SimpleNamespace(identity=dataclasses.replace(IDENTITY, clock_hz=clock_hz))
    with pytest.raises(InputError) as caught:
        device_at(Uart(baud), device)
    assert str(caught.value) == (
        f"UART: {baud} baud from a clock of {clock_hz} Hz needs {cycles} cycles per bit; it must be 3 or more and "
        f"within {limit} of a whole number; use {near} baud or another clock"
    )


@pytest.mark.parametrize(
    ("clock_hz", "adapter", "rates"),
    [
        (48e6, "ft2232h", (12_000_000, 3_000_000)),
        (36e6, "ft2232h", (12_000_000, 3_000_000)),
        (24e6, "ft2232h", (8_000_000, 3_000_000)),
        (18e6, "ft2232h", (6_000_000, 3_000_000)),
        (50.25e6, "ft2232h", (3_000_000,)),
        (100e6, "ft2232h", (6_000_000, 3_000_000)),
        (48e6, "ft231x", (3_000_000,)),
        (48e6, "", (3_000_000,)),
    ],
)
def test_uart_takes_the_fastest_rate_of_adapter_and_clock(
    clock_hz: float, adapter: str, rates: tuple[int, ...]
) -> None:
    assert Uart(3_000_000, adapter=adapter).rates(clock_hz) == rates


ANSWER_BYTES = 30
"""How long an answer to RESET is waited for, in bytes: it has 9, and the device needs a few to empty its engine."""


class TwoRates:
    """A device that speaks two rates, and a host that takes one for each exchange.

    Parameters
    ----------
    divisors: of the device.
    """

    def __init__(self, *divisors: int) -> None:
        self.device = UartDevice(LinkedEngine(SumEngine(12, 5), IDENTITY), *divisors)
        self._divisors = divisors

    def ask(self, *questions: tuple[int, bytes]) -> list[list[Frame]]:
        """Return the answers to questions, each sent and listened to at the rate of a number."""
        heard: list[list[int]] = []

        async def bench(ctx: Any) -> None:
            for which, sent in questions:
                clocks, levels = self._divisors[which], list[int]()
                for level in (*line(sent, clocks), *[1] * (ANSWER_BYTES * 10 * clocks)):
                    ctx.set(self.device.rx, level)
                    levels.append(ctx.get(self.device.tx))
                    await ctx.tick()
                heard.append(levels)

        run(self.device, bench)
        return [
            self._frames(levels, self._divisors[which]) for (which, _), levels in zip(questions, heard, strict=True)
        ]

    @staticmethod
    def _frames(levels: list[int], clocks: int) -> list[Frame]:
        try:
            return decode(listen(levels, clocks))
        except (AssertionError, cobs.DecodeError, LinkError):
            return []


FAST, SLOW = 0, 1


@pytest.mark.parametrize("divisors", [(4, 16), (3, 8), (9, 17)])
def test_uart_device_speaks_the_rate_of_its_host(divisors: tuple[int, int]) -> None:
    def reset(token: int) -> bytes:
        return b"\0" + encode(Command.RESET, token)

    asked = [(FAST, 1), (FAST, 2), (SLOW, 3), (SLOW, 4), (FAST, 5), (FAST, 6), (SLOW, 7)]
    answers = TwoRates(*divisors).ask(*((which, reset(token)) for which, token in asked))
    expected = [[Frame(Command.RESET_DONE, token)] for _, token in asked]
    # The first question at the faster rate behind a slower one turns the device to it, and is not heard itself.
    assert answers[:4] + answers[6:] == expected[:4] + expected[6:]
    assert answers[5][-1:] == expected[5]


TOKENS = [
    pytest.param(token, marks=pytest.mark.long if number % 3 else ()) for number, token in enumerate(range(1, 256, 23))
]


@pytest.mark.parametrize("token", TOKENS)
def test_uart_device_comes_back_to_the_faster_rate_whatever_the_token(token: int) -> None:
    slow, lost, heard = (b"\0" + encode(Command.RESET, one) for one in (9, token, 1 + token % 255))
    answers = TwoRates(4, 16).ask((SLOW, slow), (FAST, lost), (FAST, heard))
    assert answers[2][-1:] == [Frame(Command.RESET_DONE, 1 + token % 255)]
