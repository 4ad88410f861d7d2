"""Whole accelerators through cocotb: every boundary equals the IR, cycles equal the prediction, mutants are caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.timing import Schedule
from nnhw.errors import BuildError, InputError
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.build_stages import check_simulation
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.verification.comparison import Comparison, compare
from nnhw.flow.verification.record_cycles import program_rows
from nnhw.flow.verification.simulate import (
    SimulationResult,
    boundary_values,
    enough_frames,
    simulate,
    simulate_accelerator,
    simulate_pins,
)
from nnhw.ir import IntType
from nnhw.links import BoardLink, Ftdi, Spi, Uart, Ulpi, Usb
from tests.mapping.bodies import codes_of
from tests.mapping.shared.networks import NETWORKS as SHARED_NETWORKS
from tests.marks import covering
from tests.sim.networks import INT4, NETWORKS, SMALL, Chain, accelerator_of, mlp, random_codes
from tests.sim.test_benches import pytestmark as needs_simulator

PATTERNS = [("none", "none"), ("random", "rare")]
FRAMES = 6


def run(name: str, folder: Path, mutate: dict[str, MatmulConfig] | None = None) -> SimulationResult:
    """Simulate a network; `mutate` puts other engines into its accelerator."""
    body = NETWORKS[name]()
    accelerator = accelerator_of(body, SMALL)
    stages = tuple(replace(stage, config=(mutate or {}).get(stage.name, stage.config)) for stage in accelerator.stages)
    codes = random_codes(body, FRAMES)
    return simulate_accelerator(
        replace(accelerator, stages=stages), codes, boundary_values(body, codes), PATTERNS, folder, SilentProgress()
    )


def engine_of(accelerator: Accelerator, name: str) -> MatmulConfig:
    """Return the configuration of a stage."""
    (config,) = (stage.config for stage in accelerator.stages if stage.name == name)
    assert isinstance(config, MatmulConfig)
    return config


@needs_simulator
@pytest.mark.parametrize("name", covering(NETWORKS, ("cnn", "mixed")))
def test_simulate_accelerator_equals_ir_and_prediction(name: str, tmp_path: Path) -> None:
    schedule = accelerator_of(NETWORKS[name](), SMALL).schedule
    result = run(name, tmp_path)
    assert result.equal
    assert result.facts()["mismatches"] == 0
    assert set(result.facts()["layers"].values()) == {0}
    assert (result.latency_cycles, result.interval) == (schedule.latency_cycles, schedule.interval)
    assert list(result.ends) == schedule.ends(result.samples)


@needs_simulator
def test_simulate_accelerator_counts_the_cycles_of_a_program(tmp_path: Path) -> None:
    body = SHARED_NETWORKS["joined"](0)
    accelerator = map_on_board(body, load_board("icebreaker"), Options(style="shared"))[0].accelerator
    kind = body.inputs[0].type
    codes = codes_of(kind.int_dtype, (2, *kind.shape), np.random.default_rng(1))
    values = boundary_values(body, codes)
    result = simulate_accelerator(accelerator, codes, values, PATTERNS, tmp_path, SilentProgress())
    assert result.equal
    free, stalled = (program_rows(counted) for counted in result.counted)
    assert all(row["cycles"]["simulated"] == row["cycles"]["predicted"] for row in free)
    assert sum(row["cycles"]["simulated"] for row in free) == result.interval
    waits = [(row["input_wait"] > 0, row["output_wait"] > 0) for row in stalled]
    assert waits == [(True, False), *[(False, False)] * (len(waits) - 2), (False, True)]
    assert (result.facts()["program"], result.facts()["miscounted"]) == (free, 0)
    right, (counted,) = result.counted
    late = replace(result, counted=(right, (replace(counted, words=counted.words + np.uint32(1)),)))
    assert late.miscounted == 2
    with pytest.raises(BuildError, match=r"^the RTL differs from the IR in the cycles of its records \(2\), of 2 "):
        check_simulation(late)


@needs_simulator
def test_simulate_accelerator_catches_a_wrong_weight(tmp_path: Path) -> None:
    config = engine_of(accelerator_of(mlp(), SMALL), "fc2.matmul")
    weights = config.weights.copy()
    weights[3] *= -1
    result = run("mlp", tmp_path, {"fc2.matmul": replace(config, weights=weights)})
    layers = result.facts()["layers"]
    assert layers["fc1.code"] == 0
    assert layers["fc2.code"] > 0
    assert not result.equal


def result_of(ends: tuple[int, ...], frames: int = 4) -> SimulationResult:
    """Return the result of a simulation in which nothing differs, with these ends of frames."""
    schedule = Schedule(latency_cycles=44, interval_cycles=11, lead=(12,), period=(8, 13))
    return SimulationResult("none", frames, (Comparison("output", frames, 0, 0),), 0, schedule, ends)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((44, 56, 64, 77), "its latency is 45 cycles, and 44 were predicted"),
        ((43, 55, 63, 77), "its frame 3 ends 14 cycles after the one before, and 13 were predicted"),
        ((43, 55, 63), "its frame 3 never ended"),
        ((), "its frame 0 never ended"),
    ],
)
def test_simulation_stops_the_build_where_a_frame_ends_in_another_cycle(ends: tuple[int, ...], said: str) -> None:
    result = result_of(ends)
    assert not result.equal
    with pytest.raises(BuildError) as caught:
        check_simulation(result)
    assert str(caught.value) == (
        f"the RTL equals the IR, but {said}, so latency and rate would not be those that are stated; "
        "this is a mistake of nnhw, please report the model"
    )


def test_simulated_interval_is_the_mean_over_whole_periods() -> None:
    check_simulation(result_of((43, 55, 63, 76)))
    assert result_of((43, 55, 63, 76)).facts()["interval_cycles"] == 10.5


@pytest.mark.parametrize(("ends", "interval"), [((43, 55, 63), 8), ((43, 55), 12), ((43,), None)])
def test_simulated_interval_of_fewer_frames_is_that_of_their_later_half(
    ends: tuple[int, ...], interval: int | None
) -> None:
    result = result_of(ends, len(ends))
    check_simulation(result)
    assert result.facts()["interval_cycles"] == interval


@pytest.mark.parametrize(("asked", "frames"), [(1, 4), (3, 4), (4, 4), (8, 8)])
def test_simulate_runs_a_whole_period(asked: int, frames: int) -> None:
    assert enough_frames(result_of(()).schedule, asked) == frames


def test_simulate_runs_no_more_frames_than_a_multiple() -> None:
    assert enough_frames(Schedule(44, 10, (10,) * 8, (9, 11)), 2) == 2


@needs_simulator
def test_latency_of_a_shared_engine_is_that_from_rest(tmp_path: Path) -> None:
    # Its first layer is so short that a program that has just been started would not yet wait for input.
    body = Chain("net", (1,), IntType(-128, 127)).linear(1, INT4).linear(1, INT4, None).body()
    accelerator = map_on_board(body, load_board("ulx3s_25f"), Options(style="shared"))[0].accelerator
    assert len(accelerator.stages) > 1
    codes = random_codes(body, 4)
    values = boundary_values(body, codes)
    result = simulate_accelerator(accelerator, codes, values, PATTERNS, tmp_path, SilentProgress())
    assert list(result.ends) == accelerator.schedule.ends(4)
    check_simulation(result)


def test_simulate_rejects_an_unknown_stall_pattern(tmp_path: Path) -> None:
    message = "a stall pattern is one of none, alternating, random, bursts, rare; given 'often'"
    with pytest.raises(InputError, match=f"^{message}$"):
        simulate(tmp_path, stalls="often")


def test_compare_asks_for_what_is_missing_and_extra() -> None:
    expected = np.zeros((6, 1), np.uint32)  # what is missing reads as zero
    assert compare("x", expected, expected, frames=3, came=6).equal
    assert compare("x", expected, expected, frames=3, came=0).mismatches == 3
    assert compare("x", expected, expected, frames=3, came=5).mismatches == 1
    assert compare("x", expected, expected, frames=3, came=7).extra == 1
    assert not compare("x", expected, expected, frames=3, came=7).equal
    assert compare("x", expected + np.eye(6, 1, -2, dtype=np.uint32), expected, frames=3, came=6).mismatches == 1


@needs_simulator
def test_simulate_pins_counts_wrong_outputs(tmp_path: Path) -> None:
    body = mlp()
    codes = random_codes(body, 6)
    values = boundary_values(body, codes)["fc3.sum"]
    values[4, 0] += 2
    found = simulate_pins(accelerator_of(body, SMALL), codes, values, 8_000_000, Uart(1_000_000), tmp_path)
    assert (found.frames, found.mismatches) == (6, 1)


SERIAL = Uart(3_000_000, adapter="ft2232h")
# Between frames with a fault there are frames without one, at each rate of each link.
FAULTS = {
    "spi-faults": (Spi(8_000_000), None, True),
    "ftdi-faults": (Ftdi(30_000_000), None, True),
    "ftdi-slow-faults": (Ftdi(30_000_000), 15_000_000, True),
    "uart-faults": (SERIAL, None, True),
    "uart-slow-faults": (SERIAL, 3_000_000, True),
}
MORE_FAULTS = {
    "spi": (Spi(8_000_000), None, False),
    "ftdi": (Ftdi(30_000_000), None, False),
    "ftdi-slow": (Ftdi(30_000_000), 15_000_000, False),
    "uart-slow": (SERIAL, 3_000_000, False),
}
ROWS = [
    *(pytest.param(*row, id=name) for name, row in FAULTS.items()),
    *(pytest.param(*row, id=name, marks=pytest.mark.long) for name, row in MORE_FAULTS.items()),
]


@needs_simulator
@pytest.mark.parametrize(("link", "rate", "faults"), ROWS)
def test_simulate_pins_survives_faults(tmp_path: Path, link: BoardLink, rate: int | None, faults: bool) -> None:
    body = mlp()
    codes = random_codes(body, 20)
    values = boundary_values(body, codes)["fc3.sum"]
    accelerator = accelerator_of(body, SMALL)
    found = simulate_pins(accelerator, codes, values, 48_000_000, link, tmp_path, faults=faults, rate=rate)
    assert found.equal
    assert (found.frames, found.faults > 0) == (20, faults)


@needs_simulator
@pytest.mark.parametrize("link", [Usb("oscillator"), Ulpi("ulpi")], ids=["usb", "ulpi"])
def test_simulate_pins_survives_faults_on_a_usb_of_another_clock(tmp_path: Path, link: BoardLink) -> None:
    """Bits turned, ACKs lost, packets cut, and a reset of the bus: a batch, and its rest after the reset, are right."""
    body = mlp()
    codes = random_codes(body, 60)
    values = boundary_values(body, codes)["fc3.sum"]
    found = simulate_pins(
        accelerator_of(body, SMALL), codes, values, 36_000_000, link, tmp_path, faults=True, stepwise=False
    )
    assert found.equal
    assert found.frames == 60
    assert found.faults > 6


@needs_simulator
def test_simulate_pins_at_ports_of_either_speed_behind_a_phy(tmp_path: Path) -> None:
    """Descriptors and packets are those of the port's speed, before and behind each reset; a suspended bus goes on."""
    body = mlp()
    codes = random_codes(body, 36)
    values = boundary_values(body, codes)["fc3.sum"]
    accelerator, plan = accelerator_of(body, SMALL), {"stepwise": False, "ports": ("full", "high", "full")}
    found = simulate_pins(accelerator, codes, values, 36_000_000, Ulpi("ulpi"), tmp_path, faults=True, **plan)
    assert found.equal
    assert found.frames == 36
    assert found.faults > 7


@needs_simulator
def test_simulate_pins_takes_frames_back_to_back_at_four_cycles_a_bit(tmp_path: Path) -> None:
    body = mlp()
    codes = random_codes(body, 100)
    values = boundary_values(body, codes)["fc3.sum"]
    found = simulate_pins(accelerator_of(body, SMALL), codes, values, 48_000_000, SERIAL, tmp_path, stepwise=False)
    assert found.equal
    assert found.frames == 100
