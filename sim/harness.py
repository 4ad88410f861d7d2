"""What benches are made of: stream drivers that stall, monitors that know the stream rules, scoreboards.

All drive just behind the rising edge of the clock and look at the falling one, when everything has settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, RisingEdge, Timer

CLOCK_NS = 10


class BenchFailure(AssertionError):
    """A bench that found something: which stream, which beat, what was seen and what should have been."""


@dataclass
class Scoreboard:
    """Expected beats of one stream.

    Parameters
    ----------
    name: of the stream.
    expected: words, in order.
    frames: that the words belong to, the same number of words each.
    """

    name: str
    expected: Sequence[int]
    frames: int = 1
    count: int = 0
    cycles: list[int] = field(default_factory=list)
    wrong: list[tuple[int, int]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def take(self, word: int, cycle: int) -> None:
        """Compare the next beat."""
        if self.count < len(self.expected) and word != self.expected[self.count]:
            self.wrong.append((self.count, word))
        self.count += 1
        self.cycles.append(cycle)

    @property
    def complete(self) -> bool:
        """Whether as many beats came as were expected."""
        return self.count >= len(self.expected)

    @property
    def mismatches(self) -> int:
        """Frames in which a beat differs or is missing."""
        beats = len(self.expected) // self.frames
        late = range(self.count // beats, self.frames)
        return len({number // beats for number, _ in self.wrong} | set(late))

    def finish(self, cut: bool = False) -> None:
        """Ask whether anything was expected, anything differs, anything is missing, anything is extra.

        Parameters
        ----------
        cut: the bench ended before all beats had time to come, so that none is missing.

        Raises
        ------
        BenchFailure: with the first difference.
        """
        if not self.expected:
            raise BenchFailure(f"{self.name}: nothing was expected, so nothing was shown")
        if self.broken:
            raise BenchFailure(f"{self.name}: {self.broken[0]}")
        if self.wrong:
            number, word = self.wrong[0]
            raise BenchFailure(
                f"{self.name}: beat {number} is {word:#x}, expected {self.expected[number]:#x}; "
                f"{len(self.wrong)} of {len(self.expected)} beats differ"
            )
        if self.count < len(self.expected) and not cut:
            raise BenchFailure(
                f"{self.name}: {len(self.expected) - self.count} of {len(self.expected)} beats are missing"
            )
        if self.count > len(self.expected):
            raise BenchFailure(f"{self.name}: {self.count - len(self.expected)} beats too many")


@dataclass
class Log:
    """Keeps the beats of a stream of which nobody knows beforehand what comes.

    Parameters
    ----------
    name: of the stream.
    """

    name: str
    words: list[int] = field(default_factory=list)

    def take(self, word: int, cycle: int) -> None:
        """Keep the next beat."""
        self.words.append(word)


class Cycles:
    """Count clock cycles. `now` is the cycle whose rising edge was the last."""

    def __init__(self, dut: Any) -> None:
        self.now = 0
        self._dut = dut
        cocotb.start_soon(self._count())

    async def _count(self) -> None:
        while True:
            await RisingEdge(self._dut.clk)
            self.now += 1


class Stream:
    """The signals of one stream.

    Parameters
    ----------
    dut: the design.
    name: prefix of the stream's ports.
    """

    def __init__(self, dut: Any, name: str) -> None:
        self.clk = dut.clk
        self.name = name
        self.valid = getattr(dut, f"{name}__valid")
        self.ready = getattr(dut, f"{name}__ready")
        self.payload = getattr(dut, f"{name}__payload")


class Source:
    """Send words; a beat that is offered stays until it is taken. Between beats the payload is garbage.

    Parameters
    ----------
    words: to send.
    stalls: in which cycles a new beat may be offered.
    """

    def __init__(self, stream: Stream, words: Sequence[int], stalls: Iterator[bool]) -> None:
        self.left = len(words)
        self.first_cycle: int | None = None
        cocotb.start_soon(self._run(stream, words, stalls))

    async def _run(self, stream: Stream, words: Sequence[int], stalls: Iterator[bool]) -> None:
        garbage = (1 << len(stream.payload)) - 1
        offering = False
        while True:
            await RisingEdge(stream.clk)
            offering = offering or (self.left > 0 and next(stalls))
            stream.valid.value = int(offering)
            stream.payload.value = words[len(words) - self.left] if offering else garbage
            await FallingEdge(stream.clk)
            if offering and stream.ready.value == 1:
                self.left -= 1
                offering = False


class Sink:
    """Take beats in the cycles in which `stalls` says so."""

    def __init__(self, stream: Stream, stalls: Iterator[bool]) -> None:
        cocotb.start_soon(self._run(stream, stalls))

    async def _run(self, stream: Stream, stalls: Iterator[bool]) -> None:
        while True:
            await RisingEdge(stream.clk)
            stream.ready.value = int(next(stalls))


class Monitor:
    """Watch a stream: each beat goes to a scoreboard, each broken rule too.

    The rules: valid stays and the payload holds until the beat is taken; neither valid nor ready is undefined.
    """

    def __init__(self, stream: Stream, scoreboard: Scoreboard, cycles: Cycles) -> None:
        cocotb.start_soon(self._run(stream, scoreboard, cycles))

    async def _run(self, stream: Stream, scoreboard: Scoreboard, cycles: Cycles) -> None:
        held: int | None = None
        while True:
            await FallingEdge(stream.clk)
            if not (stream.valid.value.is_resolvable and stream.ready.value.is_resolvable):
                scoreboard.broken.append(f"valid or ready is undefined in cycle {cycles.now}")
                continue
            valid, ready = stream.valid.value == 1, stream.ready.value == 1
            if held is not None and not valid:
                scoreboard.broken.append(f"valid dropped before the beat was taken, in cycle {cycles.now}")
            word = int(stream.payload.value) if valid else None
            if held is not None and valid and word != held:
                scoreboard.broken.append(f"payload changed from {held:#x} while it waited, in cycle {cycles.now}")
            held = word if not ready else None
            if word is not None and ready:
                scoreboard.take(word, cycles.now)


class Taps:
    """Watch outputs `<name>_valid`, `<name>_payload` that are valid for one cycle per beat.

    One task watches all of them: to wake a task for each in every cycle takes longer than to look at its output.

    Parameters
    ----------
    boards: what takes the beats, by name of the output.
    """

    def __init__(self, dut: Any, boards: Mapping[str, Scoreboard | Log], cycles: Cycles) -> None:
        cocotb.start_soon(self._run(dut, boards, cycles))

    async def _run(self, dut: Any, boards: Mapping[str, Scoreboard | Log], cycles: Cycles) -> None:
        outputs = [
            (getattr(dut, f"{name}_valid"), getattr(dut, f"{name}_payload"), board) for name, board in boards.items()
        ]
        edge = FallingEdge(dut.clk)
        while True:
            await edge
            for valid, payload, board in outputs:
                if valid.value == 1:
                    board.take(int(payload.value), cycles.now)


async def start(dut: Any) -> Cycles:
    """Start the clock of a design whose registers have their initial values; return the count of cycles."""
    dut.clk.value = 0
    dut.rst.value = 0
    await Timer(CLOCK_NS, unit="ns")  # an edge from an undefined clock, with an undefined reset, would count
    cocotb.start_soon(Clock(dut.clk, CLOCK_NS, unit="ns").start())
    return Cycles(dut)


async def wait_for(
    scoreboards: Sequence[Scoreboard], source: Source, dut: Any, limit: int, idle: int = 200, cut: bool = False
) -> int:
    """Wait until all is sent and all came, then some cycles more for what nobody expects; at most `limit` cycles.

    Returns
    -------
    Cycles that were seen.

    Parameters
    ----------
    cut: end in any case when `limit` cycles have been seen from the first in which the source may offer a beat.
    """
    seen = 0
    while seen < limit:
        await RisingEdge(dut.clk)
        seen += 1
        if source.left == 0 and all(board.complete for board in scoreboards):
            break
    else:
        if cut:
            # The first edge is that with which the first cycle begins: its end is seen at the next one.
            await RisingEdge(dut.clk)
            return limit
    for _ in range(idle):
        await RisingEdge(dut.clk)
    if source.left:
        raise BenchFailure(f"i: {source.left} words were never taken in {limit} cycles")
    return seen + idle
