"""Place and route: seeds in order, the report, a design that does not fit, and the bitstream."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nnhw.boards import Resources, load_board
from nnhw.errors import BuildError
from nnhw.families import ECP5, ICE40
from nnhw.flow.implementation import place
from nnhw.flow.implementation.place import (
    CIRCLING_LINES,
    OTHER_ROUTER,
    SPARSE_OPTIONS,
    Hop,
    crawls,
    describe_path,
    finds_no_place,
    goes_in_circles,
    hops_of,
    is_crowded,
    is_lost,
    large_options,
    nextpnr_options,
    pack,
    place_seeds,
    read_placement,
)
from nnhw.flow.implementation.synthesis import Netlist, synthesize
from nnhw.flow.tools.cache import Cache
from nnhw.flow.tools.toolchain import Tool
from tests.flow.designs import RomDevice, ShiftDevice, top_of

BOARD = load_board("icebreaker")
CLOCK_HZ = 48_000_000


@pytest.fixture(scope="module")
def constraints() -> str:
    return top_of(RomDevice(), BOARD).constraints


@pytest.fixture
def netlist(tmp_path: Path) -> Netlist:
    return synthesize(top_of(RomDevice(), BOARD).rtlil, BOARD, tmp_path)


def test_place_seeds_come_in_order_whatever_runs_at_once(netlist: Netlist, constraints: str) -> None:
    results = []
    for jobs in (1, 3):
        placements = list(place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (3, 1, 2), jobs=jobs))
        assert [placement.seed for placement in placements] == [3, 1, 2]
        results.append([placement.file("asc").read_bytes() for placement in placements])
    assert results[0] == results[1]
    assert len(set(results[0])) == 3


def test_large_designs_get_the_second_router_at_once(
    netlist: Netlist, constraints: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = []
    for limit in (netlist.resources.lc, netlist.resources.lc - 1):
        monkeypatch.setattr(place, "MANY_CELLS", limit)
        (placement,) = place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (1,))
        logs.append(placement.file("log").read_text())
    assert ["Running router2" in log for log in logs] == [False, True]


@pytest.mark.parametrize(
    ("lc", "dsp", "sparse"), [(40_000, 150, None), (50_000, 150, True), (60_000, 150, False), (50_000, 30, True)]
)
def test_large_sparse_designs_get_the_static_placer(lc: int, dsp: int, sparse: bool | None) -> None:
    device = load_board("ulx3s_85f").resources
    options = large_options(Resources(lc=lc, ebr=140, spram=0, dsp=dsp, ff=lc), device)
    assert options == (() if sparse is None else (*OTHER_ROUTER, *(SPARSE_OPTIONS if sparse else ())))


def test_large_designs_with_crowded_blocks_keep_the_usual_placer() -> None:
    device = load_board("ulx3s_85f").resources
    crowded = Resources(lc=50_000, ebr=device.ebr, spram=0, dsp=device.dsp, ff=50_000)
    assert large_options(crowded, device) == OTHER_ROUTER


def test_place_seeds_measure_resources_and_clock(netlist: Netlist, constraints: str) -> None:
    (placement,) = place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (1,))
    assert placement.resources.lc >= netlist.resources.lc
    assert dataclasses.replace(placement.resources, lc=0) == Resources(lc=0, ebr=1, spram=0, dsp=0)
    assert placement.clock_hz == CLOCK_HZ
    assert placement.holds
    assert sum(hop.delay_ns for hop in placement.path) == pytest.approx(1e9 / placement.fmax_hz, rel=1e-3)
    assert placement.path[0].kind == "clk-to-q"
    assert json.dumps(hops_of(placement))


def test_place_seeds_take_what_is_in_the_cache(
    netlist: Netlist, constraints: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = Cache(tmp_path / "cache")
    first = list(place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (1, 2), cache=cache))
    ran: list[int] = []
    monkeypatch.setattr(place, "_succeed", lambda commands, *rest: iter(ran.extend(commands) or commands))
    assert list(place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (2, 1), cache=cache)) == first[::-1]
    assert ran == []
    monkeypatch.setattr(place, "sources_hash", lambda module: f"changed {module}")
    assert len(list(place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (1,), cache=cache))) == 1
    assert ran == [1]


def test_place_seeds_rejects_clock_that_the_design_does_not_have(netlist: Netlist, constraints: str) -> None:
    with pytest.raises(BuildError) as caught:
        next(place_seeds(netlist, constraints, BOARD, 50_000_000, (1,)))
    assert str(caught.value) == (
        "the design should run at 50 MHz, but place and route found clocks of 48.00 MHz; "
        "this is a mistake in nnhw: please report it"
    )


def test_place_seeds_rejects_a_constraint_of_a_clock_that_is_not_there(netlist: Netlist, constraints: str) -> None:
    with pytest.raises(BuildError, match=r"^place and route does not find the clock 'lost', whose frequency it "):
        list(place_seeds(netlist, f"{constraints}\nset_frequency lost 60\n", BOARD, CLOCK_HZ, (1,)))


def test_place_seeds_rejects_design_that_does_not_fit(tmp_path: Path) -> None:
    # The netlist is within the device (a small one, to be quick); with what nextpnr adds it is not.
    hx8k = load_board("hx8k")
    board = dataclasses.replace(hx8k, device="hx1k", package="tq144", resources=Resources(1280, 16, 0, 0))
    netlist = synthesize(top_of(ShiftDevice(1250), hx8k).rtlil, board, tmp_path)
    constraints = (
        "set_io clk12_0__io 21\nset_io uart_0__rx__io 9\nset_io uart_0__tx__io 8\nset_frequency clk12_0__io 12\n"
    )
    with pytest.raises(BuildError) as caught:
        next(place_seeds(netlist, constraints, board, CLOCK_HZ, (1,)))
    message = str(caught.value)
    assert message.startswith("the design does not fit 'ice40_hx8k_b_evn': Unable to")
    assert message.endswith(
        "use a smaller network, a slower --target-fps, smaller foldings in --overrides, or a larger board"
    )


def test_pack_makes_a_bitstream(netlist: Netlist, constraints: str) -> None:
    (placement,) = place_seeds(netlist, constraints, BOARD, CLOCK_HZ, (1,))
    content = pack(placement, ICE40).read_bytes()
    # The preamble that the device looks for. Source: Project IceStorm, "Bitstream file format".
    assert bytes.fromhex("7eaa997e") in content[:64]
    assert len(content) == 104_090


def hop(kind: str, delay_ns: float, cells: tuple[str, str]) -> dict[str, Any]:
    return {"type": kind, "delay": delay_ns, "from": {"cell": cells[0]}, "to": {"cell": cells[1]}}


def write_report(folder: Path, achieved_mhz: float, paths: list[dict[str, Any]]) -> None:
    utilization = {"ICESTORM_LC": {"used": 7, "available": 5280}}
    report = {
        "fmax": {"clk": {"achieved": achieved_mhz, "constraint": 48.0031}},
        "utilization": utilization,
        "critical_paths": paths,
    }
    (folder / "seed4.json").write_text(json.dumps(report))


def test_read_placement_takes_the_path_between_registers(tmp_path: Path) -> None:
    inner = [hop("clk-to-q", 1.0, ("a", "a")), hop("routing", 2.0, ("a", "b")), hop("setup", 0.5, ("b", "b"))]
    slow_input = [hop("source", 50.0, ("pin", "b"))]
    paths = [
        {"from": "<async>", "to": "posedge clk", "path": slow_input},
        {"from": "posedge clk", "to": "posedge clk", "path": inner},
    ]
    write_report(tmp_path, 47.9, paths)
    placement = read_placement(tmp_path, 4, CLOCK_HZ, ICE40)
    assert not placement.holds
    assert placement.fmax_hz == pytest.approx(47.9e6)
    assert placement.resources == Resources(7, 0, 0, 0)
    assert describe_path(placement.path) == "3.50 ns from 'a' to 'b' (0 cells, 2.00 ns of it in wires)"


def test_read_placement_holds_at_exactly_the_clock(tmp_path: Path) -> None:
    write_report(tmp_path, 48.0, [])
    placement = read_placement(tmp_path, 4, CLOCK_HZ, ICE40)
    assert placement.holds
    assert describe_path(placement.path) == "no path between registers"


@pytest.mark.parametrize(("link_mhz", "fmax_mhz"), [(30.0, 60.0), (29.0, 0.0)])
def test_read_placement_takes_the_clock_of_a_link_only_where_it_is_missed(
    tmp_path: Path, link_mhz: float, fmax_mhz: float
) -> None:
    write_report(tmp_path, 60.0, [])
    report = json.loads((tmp_path / "seed4.json").read_text())
    report["fmax"]["device.ftdi_sck"] = {"achieved": link_mhz, "constraint": 30.0}
    (tmp_path / "seed4.json").write_text(json.dumps(report))
    placement = read_placement(tmp_path, 4, CLOCK_HZ, ICE40)
    assert placement.fmax_hz == pytest.approx(fmax_mhz * 1e6)
    assert placement.holds == (link_mhz >= 30)


def test_describe_path_counts_cells_and_wires() -> None:
    path = (
        Hop("clk-to-q", 1, "a", "a"),
        Hop("routing", 2, "a", "b"),
        Hop("logic", 1, "b", "b"),
        Hop("setup", 0, "c", "c"),
    )
    assert describe_path(path) == "4.00 ns from 'a' to 'c' (1 cells, 2.00 ns of it in wires)"


def test_place_and_pack_an_ecp5(tmp_path: Path) -> None:
    board = load_board("ulx3s_25f")
    design = top_of(RomDevice(), board, 100e6)
    netlist = synthesize(design.rtlil, board, tmp_path)
    (placement,) = place_seeds(netlist, design.constraints, board, 100_000_000, (1,))
    assert placement.holds
    assert placement.resources.lc >= netlist.resources.lc
    assert placement.resources.ff == netlist.resources.ff > 0
    assert dataclasses.replace(placement.resources, lc=0, ff=0) == Resources(lc=0, ebr=1, spram=0, dsp=0)
    content = pack(placement, ECP5).read_bytes()
    # The preamble that the device looks for. Source: Project Trellis, "Bitstream format".
    assert bytes.fromhex("ffffbdb3") in content[:256]


def test_read_placement_counts_luts_and_flip_flops_of_an_ecp5(tmp_path: Path) -> None:
    write_report(tmp_path, 48.0, [])
    report = json.loads((tmp_path / "seed4.json").read_text())
    kinds = {"TRELLIS_COMB": 7, "TRELLIS_FF": 9, "DP16KD": 2, "MULT18X18D": 3}
    report["utilization"] = {kind: {"used": used, "available": 100} for kind, used in kinds.items()}
    (tmp_path / "seed4.json").write_text(json.dumps(report))
    assert read_placement(tmp_path, 4, CLOCK_HZ, ECP5).resources == Resources(7, 2, 0, 3, ff=9)


def test_router_goes_in_circles_only_if_nothing_moves_for_long() -> None:
    line = "Info:    {} |  {}       5437 | 1000     0 |      9171|       0.22     306.64|"
    lines = [line.format(1000 * number, 1000 * number) for number in range(100)]
    assert goes_in_circles("\n".join(lines))
    assert not goes_in_circles("\n".join(lines[: CIRCLING_LINES - 1]))
    assert not goes_in_circles(
        "\n".join([*lines, lines[0].replace("1000     0 |      9171", " 900   100 |      9071")])
    )
    assert not goes_in_circles("Info: Routing complete.\n" * 100)


ROUTER = """
import pathlib, sys, time
seed, lines = sys.argv[sys.argv.index("--seed") + 1], "Info:     161000 |    21417     129985 |  266   633 |      1046|"
first = "--router" not in sys.argv
for _ in range(2):
    print(lines + ("  999999999.16  999999999.64|" if first else "       0.10       0.20|"), flush=True)
while first and time.process_time() < 0.3:  # a process of a few milliseconds may count as one that had none
    pass
time.sleep(60 * first)
pathlib.Path(f"seed{seed}.asc").write_text("laid out")
pathlib.Path(f"seed{seed}.json").write_text(pathlib.Path("seed4.json").read_text())
"""
"""Stands for nextpnr: its first router crawls, its second one routes."""


def test_second_router_takes_over_where_the_first_one_crawls(
    netlist: Netlist, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_report(netlist.folder, 50.0, [])
    monkeypatch.setattr(place, "find_tool", lambda name: Tool(name, "path", "1", (sys.executable, "-c", ROUTER)))
    monkeypatch.setattr(place, "prepare", lambda tool, note: None)
    cache, notes = Cache(tmp_path / "cache"), list[str]()
    again = "seed 1: the router comes to no end; nextpnr's other router takes over"
    reached = "seed 1 reaches 50.00 MHz of 48"
    for expected in ([again, reached], [f"{reached}, as the cache has it"]):
        found = list(place_seeds(netlist, "", BOARD, CLOCK_HZ, [1], cache=cache, note=notes.append))
        assert [(placement.seed, placement.fmax_hz) for placement in found] == [(1, 50e6)]
        assert notes == expected
        notes.clear()
        (netlist.folder / "seed1.json").unlink()


def test_router_crawls_only_if_its_last_wires_take_long() -> None:
    line = "Info:     161000 |    21417     129985 |  266   633 |      1046|     {}     718.64|\n"
    assert crawls(line.format("205.16") + line.format("65.16"), 1.0)
    assert not crawls(line.format("205.16") + line.format("7.16"), 1.0)
    assert not crawls("Info: Routing complete.\n", 1.0)


def test_router_on_a_machine_that_was_asleep_does_not_crawl() -> None:
    line = "Info:     161000 |    21417     129985 |  266   633 |      1046|     {}     718.64|\n"
    assert not crawls(line.format("9000.00"), 1.0)
    assert not crawls(line.format("7.16") + line.format("9000.00"), 1.0)


def test_router_on_a_busy_machine_does_not_crawl() -> None:
    line = 2 * "Info:     161000 |    21417     129985 |  266   633 |      1046|     90.00     718.64|\n"
    assert crawls(line, 0.7)
    assert not crawls(line, 0.5)


def test_other_router_goes_in_circles_if_no_wire_more_is_settled_for_long() -> None:
    falling = [f"Info:     iter={i} wires=5196 overused={200 - i} overuse={300 - i} archfail=NA" for i in range(100)]
    assert not goes_in_circles("\n".join(falling))
    still = [falling[-1]] * (CIRCLING_LINES - 1)
    assert not goes_in_circles("\n".join(falling + still))
    assert goes_in_circles("\n".join([*falling, *still, falling[0]]))


def test_seed_without_places_is_lost_and_one_without_cells_is_not() -> None:
    end = "ERROR: Unable to find legal placement for all cells, design is probably at utilisation limit.\n"
    assert finds_no_place(end)
    assert is_lost(end, 1.0)
    missing = "ERROR: Unable to place cell 'x', no BELs remaining to implement cell type 'ICESTORM_LC'\n"
    assert not is_lost(missing, 1.0)


def test_ecp5_gives_up_chains_without_places() -> None:
    assert "--placer-heap-cell-placement-timeout" in nextpnr_options(load_board("ulx3s_25f"), CLOCK_HZ, 1)
    attempts = (
        "ERROR: Unable to find legal placement for cell 'a' of type 'TRELLIS_COMB' after 1732058 attempts, check "
        "constraints and utilisation. Use `--placer-heap-cell-placement-timeout` to change the number of attempts.\n"
    )
    assert is_lost(attempts, 1.0)


def test_device_is_crowded_when_logic_or_two_kinds_of_blocks_run_out() -> None:
    full = Resources(lc=24288, ebr=56, spram=0, dsp=28, ff=24288)
    assert is_crowded(dataclasses.replace(full, lc=12000, ebr=0, dsp=0, ff=22000), full)
    assert not is_crowded(dataclasses.replace(full, lc=12000, ebr=0, dsp=0, ff=20000), full)
    given = Resources(lc=5280, ebr=30, spram=4, dsp=8)
    assert is_crowded(Resources(lc=4000, ebr=28, spram=4, dsp=0), given)
    assert is_crowded(Resources(lc=4000, ebr=3, spram=4, dsp=8), given)
    assert is_crowded(Resources(lc=4800, ebr=3, spram=0, dsp=0), given)
    assert not is_crowded(Resources(lc=4700, ebr=3, spram=0, dsp=0), given)
    assert not is_crowded(Resources(lc=4000, ebr=27, spram=4, dsp=7), given)
    assert not is_crowded(Resources(lc=4000, ebr=30, spram=0, dsp=0), given)
    assert not is_crowded(Resources(lc=1000, ebr=0, spram=0, dsp=0), Resources(lc=7680, ebr=32, spram=0, dsp=0))
    assert nextpnr_options(BOARD, CLOCK_HZ, 1, crowded=True)[-2:] == ["--placer-heap-beta", "1"]
    assert "--placer-heap-beta" not in nextpnr_options(BOARD, CLOCK_HZ, 1)
    assert "--router" not in nextpnr_options(BOARD, CLOCK_HZ, 1, crowded=True)


@pytest.mark.parametrize(("constraint", "is_clock"), [(33.034, True), (33.1, False)])
def test_read_placement_knows_the_clock_of_a_pll_by_its_period_in_picoseconds(
    constraint: float, is_clock: bool, tmp_path: Path
) -> None:
    report = {
        "fmax": {"clk": {"achieved": 40.0, "constraint": constraint}},
        "utilization": {f"ICESTORM_{kind}": {"used": 0} for kind in ("LC", "RAM", "SPRAM", "DSP")},
        "critical_paths": [],
    }
    (tmp_path / "seed1.json").write_text(json.dumps(report), encoding="utf-8")
    if is_clock:
        assert read_placement(tmp_path, 1, 33_000_000, ICE40).holds
        return
    with pytest.raises(BuildError, match=r"the design should run at 33 MHz, but place and route found clocks of 33\.1"):
        read_placement(tmp_path, 1, 33_000_000, ICE40)
