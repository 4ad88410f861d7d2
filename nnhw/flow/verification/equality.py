"""Comparing RTL with the IR on many images: compiled hardware, every layer boundary, frames back to back, stalls."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.accelerator.formats import Codes
from nnhw.engines.shared.counters import COUNTER_BITS, COUNTER_WORDS
from nnhw.engines.timing import Schedule, as_number
from nnhw.flow.verification.comparison import Comparison, Passing
from nnhw.flow.verification.record_cycles import Counted
from nnhw.flow.verification.simulate import cycle_limit, engine_verilog, rest_cycles
from nnhw.flow.virtual.compiled import PROBED, compile_library, library_cache
from nnhw.flow.virtual.virtual_board import CompiledHardware, StreamPlan, StreamRun

PATTERNS = (("none", "none"), ("random", "random"), ("bursts", "rare"))
"""Stall patterns of (source, sink). In the last, input comes in bursts, and a slow output stalls all layers."""


@dataclass(frozen=True)
class Equality:
    """The result of a run under one pair of stall patterns.

    Parameters
    ----------
    pattern: stall patterns of source and sink.
    streams: comparison of each boundary, then of the output.
    run: what passed in the hardware.
    seconds: time that the run took on this machine.
    counted: cycles of the records of each shared engine's program.
    schedule: the predicted schedule; None where there are stalls, which it does not cover.
    """

    pattern: tuple[str, str]
    streams: tuple[Comparison, ...]
    run: StreamRun
    seconds: float
    counted: tuple[Counted, ...] = ()
    schedule: Schedule | None = None

    @property
    def interval_cycles(self) -> int | float | None:
        """Cycles from frame to frame, see `Schedule.interval_in`; None: one frame ran, or there were stalls."""
        interval = self.schedule.interval_in(self.run.ends) if self.schedule else None
        return None if interval is None else as_number(interval)

    @property
    def as_predicted(self) -> bool:
        """Whether each frame ended in the predicted cycle; True with stalls, where nothing is predicted."""
        if self.schedule is None:
            return True
        predicted = self.schedule.ends(len(self.run.ends))
        return self.run.ends[: len(predicted)] == predicted

    @property
    def equal(self) -> bool:
        """Whether exactly the expected values passed every boundary, by the rules, in the predicted cycles."""
        clean = self.run.i_left == 0 and self.run.broken_rules == 0 and not self.miscounted
        return clean and self.as_predicted and all(stream.equal for stream in self.streams)

    @property
    def miscounted(self) -> int:
        """Frames in which a record of a program took other cycles than predicted."""
        return sum(counted.mismatches for counted in self.counted)

    def row(self) -> dict[str, Any]:
        """Return the result as a table; its keys are those of `report.json` where they mean the same."""
        return {
            "stalls": list(self.pattern),
            "rtl_samples": self.streams[-1].frames,
            "ir_rtl": self.streams[-1].mismatches,
            "layers": {stream.name: stream.mismatches for stream in self.streams[:-1]},
            "extra": sum(stream.extra for stream in self.streams),
            "broken_rules": self.run.broken_rules,
            "cycles": self.run.cycles,
            "cycles_per_second": round(self.run.cycles / self.seconds),
            "latency_cycles": self.run.latency_cycles,
            "interval_cycles": self.interval_cycles,
            "miscounted": self.miscounted,
            "equal": self.equal,
        }


class CompiledEngine:
    """The engine of an accelerator as a compiled library that shows every boundary.

    Parameters
    ----------
    verilog: see `engine_verilog`.
    cache: folder, see `compile_library`.
    effort: optimization, such as `-O2`.
    watch: see `nnhw.flow.virtual.compiled.Watch`.

    Raises
    ------
    ToolError: see `compile_library`.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        verilog: str,
        cache: Path,
        effort: str = PROBED.effort,
        watch: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        self.accelerator = accelerator
        taps, programs = accelerator.boundaries, accelerator.programs
        self._bits = [*(tap.bits for tap in taps), *[COUNTER_BITS * COUNTER_WORDS] * len(programs)]
        self._beats = (*(tap.beats for tap in taps), *(len(program.records) for program in programs))
        product = replace(PROBED, effort=effort)
        self.library = compile_library(verilog, self._bits, cache, product=product, watch=watch)

    def run(
        self,
        codes: Codes,
        pattern: tuple[str, str],
        bound_cycles: int | None = None,
        watch: Callable[[int], None] = lambda o_bytes: None,
    ) -> StreamRun:
        """Return what passes for codes, from the state after power-up, in which the schedule begins.

        Parameters
        ----------
        bound_cycles: cycles after which the run ends, from the first one in which a beat is offered; None: more than
            all frames need.
        watch: see `CompiledHardware.stream`.
        """
        form = self.accelerator.input_format
        beats = form.pack_beats(codes)
        count = beats.size // (form.beat_bytes * form.frame_beats)
        plan = StreamPlan(
            o_bytes=self.accelerator.output_format.frame_beats,
            i_beat_bytes=form.beat_bytes,
            tap_beats=self._beats,
            limit_cycles=bound_cycles or cycle_limit(self.accelerator, count),
            i_pattern=pattern[0],
            o_pattern=pattern[1],
            rest_cycles=rest_cycles(self.accelerator),
        )
        hardware = CompiledHardware(self.library, self._bits)
        try:
            return hardware.stream(beats.reshape(count, -1), plan, watch)
        finally:
            hardware.close()

    def compare(
        self,
        codes: Codes,
        expected: Passing,
        pattern: tuple[str, str],
        watch: Callable[[int], None] = lambda o_bytes: None,
    ) -> Equality:
        """Compare what passes under a pair of stall patterns with what must pass."""
        start = time.monotonic()
        run = self.run(codes, pattern, watch=watch)
        seconds = time.monotonic() - start
        taps, count = self.accelerator.boundaries, len(expected.outputs)
        passed = Passing(run.taps[: len(taps)], run.outputs)
        came = (*run.tap_beats[: len(taps)], run.o_count)
        counted = tuple(
            Counted(program, count, run.taps[number], run.tap_beats[number])
            for number, program in enumerate(self.accelerator.programs, len(taps))
        )
        schedule = self.accelerator.schedule if pattern == ("none", "none") else None
        streams = passed.compared(self.accelerator, expected, came)
        return Equality(pattern, streams, run, seconds, counted, schedule)


def check_equality(
    accelerator: Accelerator, body: ir.Graph, codes: Codes, patterns: Sequence[tuple[str, str]] = PATTERNS
) -> list[Equality]:
    """Compare compiled hardware with the IR, in every value that passes a boundary.

    Parameters
    ----------
    body: the integer graph that the accelerator was mapped from.
    codes: one frame or more; see `nnhw.accelerator.formats.Codes`.
    patterns: pairs of stall patterns of source and sink; cycles are compared for ('none', 'none') alone.

    Returns
    -------
    A result for each pair of patterns.
    """
    expected = Passing.of_graph(accelerator, body, codes)
    with tempfile.TemporaryDirectory() as scratch:
        engine = CompiledEngine(accelerator, engine_verilog(accelerator), library_cache(Path(scratch)))
        return [engine.compare(codes, expected, pattern) for pattern in patterns]
