"""The stage `simulate`: compiled code over all frames, the start of a frame in cocotb; what each of them catches."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.engines.timing import Schedule
from nnhw.errors import BuildError, ToolError
from nnhw.flow.build_stages import check_simulation
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.tools.toolchain import run_yosys
from nnhw.flow.verification import compare_rtl as stage
from nnhw.flow.verification import simulate
from nnhw.flow.verification.compare_rtl import (
    COCOTB_PATTERNS,
    SIMULATION_S,
    RtlComparison,
    compare_rtl,
    frames_within,
    joined,
    predicted_cycles,
)
from nnhw.flow.verification.comparison import Passing, boundary_values
from nnhw.flow.verification.equality import PATTERNS, CompiledEngine
from nnhw.flow.verification.simulate import Start, StartRun, engine_verilog, simulate_start
from nnhw.flow.virtual import compiled
from nnhw.flow.virtual.contents import part_contents
from nnhw.hdl.engine import Engine
from nnhw.hdl.verilog import to_verilog
from tests.sim.networks import SMALL, accelerator_of, mlp, random_codes
from tests.sim.test_benches import pytestmark as needs_simulator

FRAMES = 4


class Faulty(wiring.Component):
    """An engine with taps, whose output stream has a fault at its beat number `begin`.

    Parameters
    ----------
    kind: 'value': a bit is inverted; 'extra': the beat comes twice; 'late': it waits for a cycle.
    """

    def __init__(self, accelerator: Accelerator, kind: str, begin: int = 0) -> None:
        self.kind, self.begin = kind, begin
        self.inner = Engine(accelerator, taps=True, preloaded=True)
        super().__init__(self.inner.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = self.inner
        wiring.connect(m, wiring.flipped(self.i), inner.i)
        for name in inner.signature.members:
            if name.startswith("tap_"):
                m.d.comb += getattr(self, name).eq(getattr(inner, name))
        beats, waited, more = Signal(16), Signal(), Signal()
        here = beats == self.begin
        blocked = here & ~waited & (self.kind == "late")
        repeated = here & ~more & (self.kind == "extra")
        m.d.comb += [
            self.o.payload.eq(inner.o.payload ^ (here & (self.kind == "value"))),
            self.o.valid.eq(inner.o.valid & ~blocked),
            inner.o.ready.eq(self.o.ready & ~blocked & ~repeated),
        ]
        with m.If(inner.o.valid & blocked):
            m.d.sync += waited.eq(1)
        with m.If(self.o.valid & self.o.ready):
            with m.If(repeated):
                m.d.sync += more.eq(1)
            with m.Else():
                m.d.sync += beats.eq(beats + 1)
        return m


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mapped build folder, as far as the stage reads it; its samples are random codes."""
    body, accelerator = mlp(), accelerator_of(mlp(), SMALL)
    accelerator.save(tmp_path)
    ir.save(body, tmp_path / "lower.ir")
    monkeypatch.setattr(stage, "sample_codes", lambda folder, accelerator, frames: random_codes(body, frames))
    return tmp_path


def plant(monkeypatch: pytest.MonkeyPatch, kind: str, begin: int = 0) -> None:
    """Let the stage see faulty hardware."""

    def verilog(accelerator: Accelerator) -> str:
        return to_verilog(Faulty(accelerator, kind, begin), run_yosys)

    monkeypatch.setattr(stage, "engine_verilog", verilog)
    monkeypatch.setattr(simulate, "engine_verilog", verilog)


def compared(folder: Path, frames: int | None = FRAMES, cocotb_frames: int | None = None) -> RtlComparison:
    """Run the stage."""
    return compare_rtl(folder, frames, cocotb_frames, SilentProgress())


@needs_simulator
def test_compare_rtl_runs_all_frames_compiled_and_the_start_of_one_in_cocotb(folder: Path) -> None:
    found = compared(folder)
    accelerator = Accelerator.load(folder)
    for part in found.parts:
        check_simulation(part)
    facts = found.facts()
    assert (facts["samples"], facts["mismatches"], facts["extra"], facts["broken_rules"]) == (FRAMES, 0, 0, 0)
    assert facts["latency_cycles"] == accelerator.schedule.latency_cycles
    assert facts["interval_cycles"] == accelerator.schedule.interval
    first, second = facts["simulators"]
    beats = sum(boundary.beats for boundary in accelerator.boundaries) + accelerator.output_format.frame_beats
    assert (first["frames"], first["beats"], first["bound_cycles"]) == (FRAMES, 3 * FRAMES * beats, None)
    assert [tuple(pair) for pair in first["stalls"]] == list(PATTERNS)
    assert second["simulator"].startswith("cocotb on Verilator ")
    assert (second["frames"], second["beats"], second["beats_of_frames"]) == (1, 2 * beats, 2 * beats)
    assert second["bound_cycles"] == stage.COCOTB_CYCLES


@needs_simulator
@pytest.mark.parametrize("before_end", [1, 2, 30])
def test_start_in_cocotb_sees_the_beats_of_as_many_compiled_cycles(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before_end: int
) -> None:
    cycles = Accelerator.load(folder).schedule.latency_cycles - before_end
    monkeypatch.setattr(stage, "COCOTB_CYCLES", cycles)
    found = compared(folder).cocotb
    assert isinstance(found, StartRun)
    check_simulation(found)
    assert found.cycles == cycles * len(COCOTB_PATTERNS)
    assert all(start.due == start.came for run in found.streams for start in run)
    assert found.row()["beats"] < found.row()["beats_of_frames"]


@needs_simulator
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("value", r"^the RTL differs from the IR in output \(1\), of 4 frames \(0 broken stream rules\)"),
        ("extra", r"^the RTL differs from the IR in output \(4\), of 4 frames"),
        ("late", r"^the RTL equals the IR, but its latency is \d+ cycles, and \d+ were predicted"),
    ],
)
def test_compiled_comparison_catches(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, said: str) -> None:
    # Late is the last beat of a frame, as the cycle of that one is predicted.
    plant(monkeypatch, kind, 4 if kind == "late" else 0)
    found = compared(folder)
    assert found.cocotb is None
    with pytest.raises(BuildError, match=said):
        check_simulation(found.parts[0])


@needs_simulator
@pytest.mark.parametrize(("begin", "caught"), [(0, True), (3, False)])
def test_start_in_cocotb_catches_a_wrong_beat_in_front_of_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int, caught: bool
) -> None:
    plant(monkeypatch, "value", begin)
    body, accelerator = mlp(), accelerator_of(mlp(), SMALL)
    codes = random_codes(body, 1)
    first = accelerator.schedule.latency_cycles - accelerator.output_format.frame_beats + 1
    found = simulate_start(accelerator, codes, boundary_values(body, codes), [("none", "none")], tmp_path, first + 1)
    assert 0 < found.streams[0][-1].came < 4
    assert found.equal is not caught
    if caught:
        with pytest.raises(BuildError, match=r"^the RTL differs in output \(1 of \d beats, no other simulator\) in "):
            check_simulation(found)


def test_start_in_cocotb_asks_for_beats_that_came_in_compiled_code() -> None:
    def run(*starts: Start) -> StartRun:
        return StartRun("cocotb", 1, 100, (("none", "none"),), (starts,), 0, 100)

    assert run(Start("a", 3, 0, 3, 9), Start("output", 0, 0, 0, 4)).equal
    assert run(Start("a", 3, 0, None, 9), Start("output", 0, 0, None, 4)).equal
    assert not run(Start("a", 2, 0, 3, 9), Start("output", 0, 0, 0, 4)).equal
    assert not run(Start("a", 0, 0, None, 9), Start("output", 0, 0, None, 4)).equal
    with pytest.raises(BuildError) as error:
        check_simulation(run(Start("a", 2, 0, 3, 9), Start("output", 0, 0, 0, 4)))
    assert str(error.value) == (
        "the RTL differs in a (0 of 2 beats, 3 in compiled code) in the first 100 cycles, simulated by cocotb "
        "(0 broken stream rules); this is a mistake of nnhw, please report the model"
    )


@needs_simulator
def test_cocotb_frames_run_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "COCOTB_CYCLES", 20)
    second = compared(folder, cocotb_frames=2).facts()["simulators"][1]
    assert (second["frames"], second["bound_cycles"]) == (2, None)
    assert second["beats"] == second["beats_of_frames"]


@pytest.mark.skipif(not shutil.which("iverilog"), reason="Icarus Verilog is not installed")
@pytest.mark.parametrize(("bound", "frames"), [(100_000, 8), (30, 0)])
def test_without_a_compiler_icarus_runs_what_the_bound_allows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bound: int, frames: int
) -> None:
    def missing() -> None:
        raise ToolError("no compiler")

    monkeypatch.setattr(compiled.Compiler, "find", staticmethod(missing))
    monkeypatch.setattr(stage, "COCOTB_CYCLES", bound)
    found = compared(folder, frames=None)
    check_simulation(found.parts[0])
    facts = found.facts()
    (row,) = facts["simulators"]
    assert row["simulator"] == "cocotb on Icarus Verilog"
    assert facts["samples"] == frames
    assert (row["bound_cycles"] is None) == (frames > 0)


def test_fewer_frames_are_chosen_where_they_take_long() -> None:
    accelerator = accelerator_of(mlp(), SMALL)
    assert frames_within(accelerator, 1000) == 8
    long = replace(accelerator, schedule=Schedule(2_000_000, 1_000_000, (), (900_000, 1_100_000)))
    assert long.schedule.frames == 3
    # A whole period, however long it takes; then as many as the seconds allow.
    assert frames_within(long, 10_000_000) == 3
    assert frames_within(long, 100_000) == 8
    frames = frames_within(long, 200_000)
    assert 3 < frames < 8
    most_cycles = SIMULATION_S / (stage.CYCLE_S_PER_BYTE * 200_000)
    assert predicted_cycles(long, frames) <= most_cycles < predicted_cycles(long, frames + 1)


def test_contents_of_memories_are_parted_from_hardware() -> None:
    block = "  initial begin\n    mem[0] = 8'h0f;\n    mem[1] = 8'hf0;\n  end\n"
    undefined = "  initial begin\n    mem[0] = 8'hxx;\n  end\n"
    gap = "  initial begin\n    mem[1] = 8'h0f;\n  end\n"
    decimal = "  initial begin\n    words[0] = 32'd4000000000;\n    words[1] = 32'd10;\n  end\n"
    hardware, contents = part_contents(f"module top;\n{block}{undefined}{gap}{decimal}endmodule\n")
    assert contents == ("0f\nf0\n", "ee6b2800\na\n")
    assert undefined in hardware
    assert gap in hardware
    assert '$readmemh({folder, "/0.hex"}, mem);' in hardware


@needs_simulator
def test_other_weights_need_no_compiler(compiled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, accelerator = mlp(), accelerator_of(mlp(), SMALL)
    codes = random_codes(body, FRAMES)
    CompiledEngine(accelerator, engine_verilog(accelerator), compiled_cache)
    weights = {name: array.copy() for name, array in body.constants.items()}
    weights["fc2.weight"][3] *= -1
    other = ir.Graph(body.name, body.nodes, body.outputs, weights)
    changed = accelerator_of(other, SMALL)

    def fail(*arguments: Any) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiled, "_compile", fail)
    engine = CompiledEngine(changed, engine_verilog(changed), compiled_cache)
    expected = Passing.of_graph(changed, other, codes)
    assert joined([engine.compare(codes, expected, pattern) for pattern in PATTERNS], changed).equal
    assert not engine.compare(codes, Passing.of_graph(accelerator, body, codes), PATTERNS[0]).equal


@needs_simulator
def test_watch_that_raises_ends_the_run(compiled_cache: Path) -> None:
    body, accelerator = mlp(), accelerator_of(mlp(), SMALL)
    engine = CompiledEngine(accelerator, engine_verilog(accelerator), compiled_cache)

    def watch(o_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run(random_codes(body, FRAMES), PATTERNS[0], watch=watch)
