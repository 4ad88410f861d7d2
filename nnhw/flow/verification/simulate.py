"""Comparing the RTL of an accelerator with the IR at every layer boundary, in a simulator driven by cocotb."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.accelerator.formats import Codes
from nnhw.engines.shared import SharedConfig
from nnhw.engines.shared.counters import COUNTER_WORDS
from nnhw.engines.shared.cycle_model import rest_cycles as program_rest_cycles
from nnhw.engines.timing import Schedule, as_number, cycles_to_rest
from nnhw.errors import InputError
from nnhw.flow.models.samples import load_samples
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.progress import Progress, SilentProgress
from nnhw.flow.verification.benches import Simulator, find_simulator, run_bench
from nnhw.flow.verification.comparison import Comparison, Passing, boundary_values
from nnhw.flow.verification.record_cycles import Counted, program_rows
from nnhw.flow.virtual.virtual_board import PATTERNS
from nnhw.ir.files import pack_arrays
from nnhw.links import BoardLink

STALLS = PATTERNS
SEED = 2


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation.

    Parameters
    ----------
    simulator: name and version.
    samples: number of frames.
    streams: comparison of each boundary in stream order, then of the output; the worst over all stall patterns.
    broken_rules: number of cycles in which a stream broke a rule.
    schedule: the predicted one.
    ends: cycle of the last byte of each frame without stalls; the first byte of the first frame is taken in cycle 0.
    counted: cycles of the records of each program, for each pair of stall patterns.
    patterns: pairs of stall patterns of source and sink.
    cycles: clock cycles of all runs together.
    beats: beats that were compared, in all runs together.
    untaken: input beats that were not taken.
    """

    simulator: str
    samples: int
    streams: tuple[Comparison, ...]
    broken_rules: int
    schedule: Schedule
    ends: tuple[int, ...]
    counted: tuple[tuple[Counted, ...], ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    cycles: int = 0
    beats: int = 0
    untaken: int = 0

    @property
    def latency_cycles(self) -> int | None:
        """Cycles from the first byte taken to the last byte of the first frame, both included; None: it never came."""
        return self.ends[0] + 1 if self.ends else None

    @property
    def interval(self) -> Fraction | None:
        """Cycles between the last bytes of two frames, as simulated, see `Schedule.interval_in`; None: one ran."""
        return self.schedule.interval_in(self.ends)

    @property
    def mistimed(self) -> int | None:
        """Number of the first frame that did not end in its predicted cycle; None: there is none."""
        predicted = self.schedule.ends(self.samples)
        # Longest: a frame that never ended has no end to compare.
        pairs = enumerate(itertools.zip_longest(self.ends[: len(predicted)], predicted))
        return next((frame for frame, (end, expected) in pairs if end != expected), None)

    @property
    def miscounted(self) -> int:
        """Frames in which a record of a program took other cycles than predicted, under any stall pattern."""
        return sum(counted.mismatches for found in self.counted for counted in found)

    @property
    def equal(self) -> bool:
        """Whether exactly the expected values passed every boundary, and each frame ended in its predicted cycle."""
        return (
            not self.broken_rules
            and not self.untaken
            and not self.miscounted
            and self.mistimed is None
            and bool(self.streams)
            and all(stream.equal for stream in self.streams)
        )

    def facts(self) -> dict[str, Any]:
        """Return the facts of the stage `simulate` for the report."""
        return {
            "simulator": self.simulator,
            "samples": self.samples,
            "mismatches": self.streams[-1].mismatches,
            "layers": {stream.name: stream.mismatches for stream in self.streams[:-1]},
            "extra": sum(stream.extra for stream in self.streams),
            "broken_rules": self.broken_rules,
            "latency_cycles": self.latency_cycles,
            "interval_cycles": None if self.interval is None else as_number(self.interval),
            "miscounted": self.miscounted,
            "program": program_rows(self.counted[0]) if self.counted and self.counted[0] else None,
        }

    def row(self) -> dict[str, Any]:
        """Return what this simulator did, a row of `simulators` of the report."""
        return {
            "simulator": self.simulator,
            "frames": self.samples,
            "stalls": [list(pattern) for pattern in self.patterns],
            "bound_cycles": None,
            "cycles": self.cycles,
            "beats": self.beats,
            "beats_of_frames": self.beats,
        }


@dataclass(frozen=True)
class Start:
    """The beats of one boundary, or of the output, that passed until a bound of cycles.

    Parameters
    ----------
    name: of the value that passes, or 'output'.
    came: number of beats. wrong: number of those that differ from the IR, or are too many.
    due: number that passes in as many cycles of compiled hardware; None: there is none.
    of: number of beats of all frames.
    """

    name: str
    came: int
    wrong: int
    due: int | None
    of: int

    @property
    def equal(self) -> bool:
        """Whether exactly the beats came that were due, and each of them is right."""
        return not self.wrong and self.due in (None, self.came)


@dataclass(frozen=True)
class StartRun:
    """The result of a simulation that ends at a bound of cycles, whatever has come until then.

    Parameters
    ----------
    simulator: name and version.
    frames: number of frames that were offered.
    bound_cycles: of each run, from the first cycle in which a beat is offered.
    patterns: pairs of stall patterns of source and sink, a run each.
    streams: of each run, each boundary, then the output.
    broken_rules: number of cycles in which a stream broke a rule.
    cycles: clock cycles of all runs together.
    """

    simulator: str
    frames: int
    bound_cycles: int
    patterns: tuple[tuple[str, str], ...]
    streams: tuple[tuple[Start, ...], ...]
    broken_rules: int
    cycles: int

    @property
    def equal(self) -> bool:
        """Whether something came, and everything that came is right."""
        starts = [start for run in self.streams for start in run]
        return not self.broken_rules and any(start.came for start in starts) and all(start.equal for start in starts)

    def facts(self) -> dict[str, Any]:
        """Return the facts of a stage `simulate` in which no frame was simulated as a whole; see `SimulationResult`."""
        worst = {same[0].name: sum(not start.equal for start in same) for same in zip(*self.streams, strict=True)}
        return {
            **{"simulator": self.simulator, "samples": 0, "mismatches": worst.pop("output"), "layers": worst},
            **{"extra": 0, "broken_rules": self.broken_rules, "latency_cycles": None, "interval_cycles": None},
            **{"miscounted": 0, "program": None},
        }

    def row(self) -> dict[str, Any]:
        """Return what this simulator did, a row of `simulators` of the report."""
        return {
            "simulator": self.simulator,
            "frames": self.frames,
            "stalls": [list(pattern) for pattern in self.patterns],
            "bound_cycles": self.bound_cycles,
            "cycles": self.cycles,
            "beats": sum(start.came for run in self.streams for start in run),
            "beats_of_frames": sum(start.of for run in self.streams for start in run),
        }


@dataclass(frozen=True)
class PinsRun:
    """The result of a simulation at the pins of a device.

    Parameters
    ----------
    kind: of the link.
    frames: number of images.
    mismatches: number of images with a wrong output.
    seconds: simulated time from the first bit of the first image to the last bit of the last result.
    faults: number of faults that were injected.
    """

    kind: str
    frames: int
    mismatches: int
    seconds: float
    faults: int

    @property
    def equal(self) -> bool:
        """Whether every image has its output."""
        return not self.mismatches


def simulate(
    folder: Path, frames: int = 8, stalls: str = "random", progress: Progress | None = None
) -> SimulationResult:
    """Run frames of a build's own samples through its RTL, without stalls and then with them on both sides.

    Parameters
    ----------
    folder: a build folder, mapped.
    frames: number of frames at least; more where that shows a whole period of the schedule, see `enough_frames`.
    stalls: pattern of the second run, one of `STALLS`.

    Raises
    ------
    InputError: an unknown pattern. BuildError: not mapped yet. ToolError: no simulator, or it failed.
    """
    if stalls not in STALLS:
        raise InputError(f"a stall pattern is one of {', '.join(STALLS)}; given '{stalls}'")
    progress = progress or SilentProgress()
    accelerator = Accelerator.load(folder)
    body = ir.load(folder / "lower.ir")
    if accelerator.input_format.headed:
        frames *= STEPS_A_FRAME
    frames = enough_frames(accelerator.schedule, frames)
    codes = sample_codes(folder, accelerator, frames)
    patterns = list(dict.fromkeys((("none", "none"), (stalls, stalls))))
    order = accelerator.input_format.order(codes) if accelerator.input_format.headed else None
    values = boundary_values(body, codes, order)
    with tempfile.TemporaryDirectory() as name:
        return simulate_accelerator(accelerator, codes, values, patterns, Path(name), progress)


def simulate_accelerator(
    accelerator: Accelerator,
    codes: Codes,
    values: Mapping[str, np.ndarray],
    patterns: Sequence[tuple[str, str]],
    folder: Path,
    progress: Progress,
    simulator: Simulator | None = None,
    library: Path | None = None,
) -> SimulationResult:
    """Run codes through the RTL under pairs of stall patterns; the first pair is ('none', 'none') to measure cycles.

    Parameters
    ----------
    codes: input codes; see `nnhw.accelerator.formats.Codes`.
    values: values of the IR for all frames, [N, *shape] by name; see `boundary_values`.
    folder: for all files of the run.
    library: the same hardware, compiled already; see `run_bench`.
    """
    simulator = simulator or find_simulator()
    frames = len(values[accelerator.output_node])
    progress.note(f"{simulator.title}: {frames} frames under {len(patterns)} stall patterns")
    found = _run_plans(accelerator, codes, values, patterns, folder, simulator, library)
    return _collect(found, simulator, frames, accelerator, patterns)


def simulate_start(
    accelerator: Accelerator,
    codes: Codes,
    values: Mapping[str, np.ndarray],
    patterns: Sequence[tuple[str, str]],
    folder: Path,
    bound_cycles: int,
    due: Sequence[Sequence[int]] | None = None,
    simulator: Simulator | None = None,
    library: Path | None = None,
) -> StartRun:
    """Run codes through the RTL until a bound of cycles, and compare every beat that has passed until then.

    Parameters
    ----------
    codes, values, folder, library: see `simulate_accelerator`.
    bound_cycles: of each run, from the first cycle in which a beat is offered.
    due: for each pair of patterns, the beats that pass in as many cycles of compiled hardware, of each boundary and the
        output.
    """
    simulator = simulator or find_simulator()
    found = _run_plans(accelerator, codes, values, patterns, folder, simulator, library, bound_cycles)
    runs = []
    for number, result in enumerate(found):
        expected = [None] * len(result["streams"]) if due is None else due[number]
        rows = zip(result["streams"], expected, strict=True)
        runs.append(
            tuple(Start(row["name"], row["beats"], row["wrong"] + row["extra"], want, row["of"]) for row, want in rows)
        )
    return StartRun(
        simulator=f"cocotb on {simulator.title}",
        frames=len(values[accelerator.output_node]),
        bound_cycles=bound_cycles,
        patterns=tuple(patterns),
        streams=tuple(runs),
        broken_rules=sum(result["broken_rules"] for result in found),
        cycles=sum(result["cycles"] for result in found),
    )


def _run_plans(
    accelerator: Accelerator,
    codes: Codes,
    values: Mapping[str, np.ndarray],
    patterns: Sequence[tuple[str, str]],
    folder: Path,
    simulator: Simulator,
    library: Path | None,
    bound_cycles: int | None = None,
) -> list[dict[str, Any]]:
    """Run the bench under each pair of patterns; return what it found."""
    plans = [
        _write_plan(accelerator, codes, values, pattern, folder, n, bound_cycles) for n, pattern in enumerate(patterns)
    ]
    verilog = "" if library else engine_verilog(accelerator)
    environments = [{"NNHW_PLAN": str(path)} for path, _ in plans]
    try:
        run_bench(verilog, "bench_accelerator", environments, folder, simulator, library)
    except ToolFailure:
        # A bench fails after it has written what it found: that is the answer. Without it, the tool failed.
        if not all(result.exists() for _, result in plans):
            raise
    return [json.loads(result.read_text(encoding="utf-8")) for _, result in plans]


PIN_BENCHES = {"uart": "bench_uart", "spi": "bench_spi", "ftdi": "bench_ftdi", "usb": "bench_usb", "ulpi": "bench_usb"}
"""Bench that drives the pins of a link, by kind of the link."""
HURRY = 16
"""Number by which the milliseconds of a reset are divided where a link takes them: they are most of the run."""


def simulate_pins(
    accelerator: Accelerator,
    codes: np.ndarray,
    outputs: np.ndarray,
    clock_hz: int,
    link: BoardLink,
    folder: Path,
    simulator: Simulator | None = None,
    faults: bool = False,
    stepwise: bool = True,
    rate: int | None = None,
    ports: Sequence[str] = (),
) -> PinsRun:
    """Run codes through the pins of a device, bit by bit, by the protocol.

    Parameters
    ----------
    codes: int [N, *shape].
    outputs: int [N, *shape], the expected results.
    clock_hz: clock of the device, in Hz.
    folder: for all files of the run.
    faults: send a damaged or cut copy in front of each frame, and pauses.
    stepwise: send a frame only when the one before is taken; without it the engine must be faster than the link.
    rate: bits per second, one of those that the link has with this clock; default: the fastest.
    ports: of link `ulpi`: speeds of ports of the computer, 'full' or 'high', into which the device is plugged one after
        the other, each time in the middle of the images; the bus is suspended at each. Default: one of high speed.

    Raises
    ------
    InputError: the link does not work with this clock.
    ToolError: there is no simulator, or the device broke the protocol; the message has the bench's words.
    """
    from nnhw.flow.tools.toolchain import run_yosys
    from nnhw.flow.virtual.device_hardware import make_linked_device
    from nnhw.hdl.verilog import to_verilog

    arrays, result = folder / "arrays.npz", folder / "result.json"
    packed = accelerator.input_format.pack(codes), accelerator.output_format.pack(outputs)
    np.savez(arrays, input=packed[0], output=packed[1])
    rate = rate or link.rates(clock_hz)[0]
    divisor = max(1, round(clock_hz / rate))
    given = {"divisor": divisor, "rate": rate, "clock_hz": clock_hz, "faults": faults, "stepwise": stepwise}
    device = make_linked_device(accelerator, clock_hz, link)
    if hasattr(device, "hurry"):
        device.hurry = given["hurry"] = HURRY
    plan = {"link": link.kind, "arrays": str(arrays), "result": str(result), "ports": list(ports), **given}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    verilog = to_verilog(device, run_yosys)
    try:
        run_bench(verilog, PIN_BENCHES[link.kind], [{"NNHW_PLAN": str(folder / "plan.json")}], folder, simulator)
    except ToolFailure:
        if not result.exists():
            raise
    found = json.loads(result.read_text(encoding="utf-8"))
    return PinsRun(link.kind, len(codes), found["mismatches"], found["cycles"] / clock_hz, found["faults"])


def engine_verilog(accelerator: Accelerator, taps: bool = True) -> str:
    """Return the Verilog of an accelerator; with `taps` it has outputs that show every layer boundary."""
    from nnhw.flow.tools.toolchain import run_yosys
    from nnhw.hdl.engine import Engine
    from nnhw.hdl.verilog import to_verilog

    return to_verilog(Engine(accelerator, taps=taps, preloaded=True), run_yosys)


def sample_codes(folder: Path, accelerator: Accelerator, frames: int) -> Codes:
    """Return input codes: the build's samples through the float head, then random codes.

    Returns
    -------
    int [frames, *shape]; of a recurrent network, sequences of unlike lengths, `frames` steps in all, as they are sent:
        of one that reads them in both directions the frames of all rounds.
    """
    form = accelerator.input_format
    samples = load_samples(folder / "samples.npz")["inputs"][:frames]
    codes = ir.run(ir.load(folder / "head.ir"), samples)[0]
    if form.headed:
        rounds = accelerator.rounds.count if accelerator.rounds else 1
        sequences = _cut(codes, -(-frames // rounds))
        return _first_steps(ir.one_direction(ir.load(folder / "lower.ir")).sent(sequences), frames)
    element, codes = form.codes, codes.reshape(-1, *form.shape)
    rng = np.random.default_rng(SEED)
    more = rng.integers(element.low, element.high + 1, (max(0, frames - len(codes)), *form.shape))
    if element.bipolar:
        # 0 is between -1 and 1, but no bipolar code.
        more = np.where(more < 1, -1, 1)
    return np.concatenate([codes, more])


def _cut(codes: np.ndarray, steps: int) -> list[np.ndarray]:
    """Return sequences of `steps` steps in all: the first takes half of them, the next ones 1, 2, 3, .. steps."""
    found: list[np.ndarray] = []
    while steps:
        longest = -(-steps // 2) if not found else len(found)
        found.append(codes[len(found) % len(codes)][: min(longest, steps)])
        steps -= len(found[-1])
    return found


def _first_steps(sequences: Sequence[np.ndarray], steps: int) -> list[np.ndarray]:
    """Return sequences of `steps` steps in all: the first ones, of which the last may be cut."""
    ends = np.minimum(np.cumsum([0, *map(len, sequences)]), steps)
    return [one[:count] for one, count in zip(sequences, np.diff(ends).tolist(), strict=True) if count]


STEPS_A_FRAME = 4
"""Steps of sequences that are simulated instead of each frame that was asked for."""
MOST_MORE_FRAMES = 4
"""Most frames that are simulated to see a whole period of the schedule, as a multiple of those asked for."""


def enough_frames(schedule: Schedule, frames: int) -> int:
    """Return the number of frames to simulate: `frames`, or a few more where these show the interval."""
    needed = schedule.frames or 0
    return needed if frames < needed <= MOST_MORE_FRAMES * frames else frames


MOST_RESTING = 10_000_000
"""Cycles in which everything that follows from constants alone has surely filled what holds it."""


def rest_cycles(accelerator: Accelerator) -> int:
    """Return the cycles after a reset until the hardware is at rest, with programs and constants waiting for input."""
    of_programs = max(map(program_rest_cycles, accelerator.programs), default=0)
    if all(stage.sources for stage in accelerator.stages):
        return of_programs
    configs = [stage.config for stage in accelerator.stages]
    models, sources = [config.model() for config in configs], [stage.sources for stage in accelerator.stages]
    return max(of_programs, cycles_to_rest(models, sources, MOST_RESTING))


def cycle_limit(accelerator: Accelerator, frames: int) -> int:
    """Return a number of cycles that is more than enough for `frames` frames under any of the stall patterns."""
    schedule = accelerator.schedule
    link = accelerator.input_format.frame_bytes + accelerator.output_format.frame_bytes
    return 10_000 + 64 * (schedule.latency_cycles + frames * (schedule.interval_cycles + link))


def _write_plan(
    accelerator: Accelerator,
    codes: Codes,
    values: Mapping[str, np.ndarray],
    pattern: tuple[str, str],
    folder: Path,
    number: int,
    bound_cycles: int | None,
) -> tuple[Path, Path]:
    """Write what the bench reads; return the paths of its plan and of its result."""
    arrays = folder / "arrays.npz"
    # All patterns read the same arrays: they are written once, with the first plan.
    if not number:
        expected = Passing.of_values(accelerator, values)
        beats = {f"tap_{index}": beats for index, beats in enumerate(expected.beats)}
        packed = {"input": accelerator.input_format.pack_beats(codes), "output": expected.outputs.reshape(-1)}
        arrays.write_bytes(pack_arrays(packed | beats))
    path, result = folder / f"plan-{number}.json", folder / f"result-{number}.json"
    plan = {
        "arrays": str(arrays),
        "names": [boundary.name for boundary in accelerator.boundaries],
        "counted": len(accelerator.programs),
        "frames": len(values[accelerator.output_node]),
        "stalls": pattern,
        "rest_cycles": rest_cycles(accelerator),
        "limit_cycles": bound_cycles or cycle_limit(accelerator, len(values[accelerator.output_node])),
        "cut": bound_cycles is not None,
        "result": str(result),
    }
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path, result


def _collect(
    found: Sequence[dict[str, Any]],
    simulator: Simulator,
    frames: int,
    accelerator: Accelerator,
    patterns: Sequence[tuple[str, str]],
) -> SimulationResult:
    """Join the results of all patterns; cycles come from the first."""
    streams = tuple(
        Comparison(
            name=same[0]["name"],
            frames=frames,
            mismatches=max(stream["mismatches"] for stream in same),
            extra=max(stream["extra"] for stream in same),
        )
        for same in zip(*(result["streams"] for result in found), strict=True)
    )
    first, ends = found[0]["first_cycle"], found[0]["frame_cycles"]
    return SimulationResult(
        simulator=f"cocotb on {simulator.title}",
        samples=frames,
        streams=streams,
        broken_rules=sum(result["broken_rules"] for result in found),
        schedule=accelerator.schedule,
        ends=tuple(end - first for end in ends),
        counted=tuple(
            tuple(
                _counted(program, frames, beats)
                for program, beats in zip(accelerator.programs, result["records"], strict=True)
            )
            for result in found
        ),
        patterns=tuple(patterns),
        cycles=sum(result["cycles"] for result in found),
        beats=sum(stream["beats"] for result in found for stream in result["streams"]),
        untaken=sum(result["untaken"] for result in found),
    )


def _counted(program: SharedConfig, frames: int, beats: Sequence[int]) -> Counted:
    """Return the cycles of records from the beats of their tap."""
    words = np.zeros((frames * len(program.records), COUNTER_WORDS), np.uint32)
    for row, beat in zip(words, beats, strict=False):
        row[:] = np.frombuffer(beat.to_bytes(4 * COUNTER_WORDS, "little"), "<u4")
    return Counted(program, frames, words, len(beats))
