"""The report: what follows from what the stages found out, and how a person sees it."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import nnhw
from nnhw.accelerator import INPUT, Accelerator, InputFormat, OutputFormat, Stage, Stream
from nnhw.boards import load_board
from nnhw.driver.device import CountedWork
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.shared.counters import program_parts
from nnhw.engines.timing import Schedule
from nnhw.flow.array_work import works
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.commands.terminal import render_boards, render_report, render_run
from nnhw.flow.models.lowering import lower_graph
from nnhw.flow.options import Options
from nnhw.flow.report import link_rate, make_report
from nnhw.flow.running.accuracy import score
from nnhw.flow.running.finished import FileRun
from nnhw.flow.running.measuring import count_parts
from nnhw.flow.verification.record_cycles import Counted, program_rows
from nnhw.frontend import capture
from nnhw.ir.types import BIPOLAR, IntType
from nnhw.links import Uart
from tests.mapping.shared.networks import NETWORKS

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))
FACTS: dict[str, dict[str, Any]] = {
    "capture": {"name": "net", "tools": {"torch": "2.13.0"}},
    "lower": {
        "hash": "0" * 64,
        "weight_bits": 1024,
        "accumulators": {"fc": {"low": -64, "high": 64, "bits": 8}},
        "samples": 60,
        "torch_ir": 0,
        "torch_float64_ir": None,
        "torch_float64_gap": None,
        "passes": {"collapse_chains": 0, "split": 0},
    },
    "map": {"resources": {"lc": 1000, "ebr": 9, "spram": 0, "dsp": 0}, "clock_hz": 48e6},
    "simulate": {
        **{"samples": 8, "mismatches": 0, "layers": {"fc": 0}, "latency_cycles": 40, "interval_cycles": 32},
        "simulators": [
            {
                **{"simulator": "Verilator 5.48.0", "frames": 8, "stalls": [["none", "none"], ["random", "random"]]},
                **{"bound_cycles": None, "cycles": 1500, "beats": 320, "beats_of_frames": 320},
            },
            {
                **{"simulator": "cocotb on Verilator 5.48.0", "frames": 1, "stalls": [["none", "none"]]},
                **{"bound_cycles": 20000, "cycles": 20000, "beats": 12, "beats_of_frames": 20},
            },
        ],
        "tools": {"cocotb": "2.1.0"},
    },
    "build": {
        "resources": {"lc": 990, "ebr": 9, "spram": 0, "dsp": 0},
        "fmax_hz": 51.2e6,
        "clock_hz": 48e6,
        "placed_hz": 50e6,
        "clock_reason": "the fastest of the PLL that holds; seed 1 holds 51.20 MHz",
        "attempts": [
            {"clock_hz": 52e6, "seed": 1, "fmax_hz": 49.9e6},
            {"clock_hz": 50e6, "seed": 1, "fmax_hz": 51.2e6},
        ],
        "tools": {"yosys": "0.70"},
    },
}


def accelerator(output_bytes: int = 16) -> Accelerator:
    weights = np.ones((16, 64), dtype=np.int64)
    config = MatmulConfig(4, 8, 4, 4, weights, BIPOLAR, BIPOLAR, None, vectors=1)
    element = IntType(0, 64)
    return Accelerator(
        name="net",
        model_hash="0" * 64,
        board="icebreaker",
        stages=(Stage("fc.matmul", "fc", "fc", config, (INPUT,), Stream(4, 16, element), products=1024),),
        input_format=InputFormat((64,), BIPOLAR, 8),
        output_format=OutputFormat((output_bytes,), element, 1, 1, np.zeros(output_bytes, dtype=np.int64)),
        schedule=Schedule(latency_cycles=40, interval_cycles=32),
    )


def text_of(report: dict[str, Any]) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(render_report(report))
    return console.export_text()


def test_report_of_a_whole_build_follows_the_schema() -> None:
    report = make_report(FACTS, accelerator(), load_board("icebreaker"))
    jsonschema.validate(report, SCHEMA)
    assert report["inferences_per_second"] == 48e6 / 32
    assert report["bound"] == "link"
    assert report["seeds"] == {"1": 51.2e6}
    assert report["resources"]["lc"] == {"estimated": 1000, "used": 990, "available": 5280}
    assert report["cycles"]["interval"] == {"predicted": 32, "simulated": 32}
    assert report["latency_us"] == 1e6 * 40 / 48e6
    assert report["tools"] == {"torch": "2.13.0", "cocotb": "2.1.0", "yosys": "0.70"}
    assert report["layers"] == [
        {
            **{
                "name": "fc",
                "engine": "matmul",
                "pe": 4,
                "simd": 8,
                "cycles": 32,
                "busy": 32,
                "products": 1024,
                "utilization": 1.0,
            },
            **{"weight_bits": 1024, "accumulator": {"low": -64, "high": 64, "bits": 8}},
            "requantizer": None,
        }
    ]


@pytest.mark.parametrize("done", range(len(FACTS)))
def test_report_of_an_unfinished_build_follows_the_schema(done: int) -> None:
    facts = dict(list(FACTS.items())[: done + 1])
    mapped = accelerator() if "map" in facts else None
    report = make_report(facts, mapped, load_board("icebreaker"))
    jsonschema.validate(report, SCHEMA)
    if "build" not in facts:
        assert report["bound"] == ("link" if mapped else None)
        assert [link["bound"] for link in report["links"]] == [report["bound"]] * 3
        assert "Not built yet" in text_of(report)
    if "map" in facts:
        rate = 48e6 / float(accelerator().schedule.interval)
        assert report["planned"] == {"clock_hz": 48e6, "inferences_per_second": rate}
        assert ("at 48 MHz, if it is reached" in text_of(report)) == ("build" not in facts)
    else:
        assert report["planned"] is None


def shared_accelerator() -> Accelerator:
    return map_on_board(NETWORKS["joined"](0), load_board("icebreaker"), Options(style="shared"))[0].accelerator


def test_report_of_a_program_has_the_cycles_of_its_parts() -> None:
    mapped = shared_accelerator()
    style = {"name": "shared", "why": "it was asked for", "memory": None}
    facts = {"capture": FACTS["capture"], "map": {**FACTS["map"], "style": style}}
    report = make_report(facts, mapped, load_board("icebreaker"))
    jsonschema.validate(report, SCHEMA)
    assert report["program"] == program_rows(mapped.programs)
    assert sum(row["cycles"]["predicted"] for row in report["program"]) == report["cycles"]["interval"]["predicted"]
    cycles = {row["layer"]: row for row in map(dataclasses.asdict, works(mapped))}
    for row in report["program"][1:-1]:
        layer = cycles[row["name"]]
        assert (row["cycles"]["predicted"], row["busy"]["predicted"]) == (layer["cycles"], layer["busy"])
    (program,) = mapped.programs
    words = np.array([(index, 100 + index, 10, 3, 0) for index in range(len(program.records))], np.uint32)
    counted = program_rows([Counted(program, 1, words, len(words))])
    simulate = {**FACTS["simulate"], "program": counted}
    report = make_report({**facts, "simulate": simulate}, mapped, load_board("icebreaker"))
    jsonschema.validate(report, SCHEMA)
    assert report["program"] == counted
    table = text_of(report).split("Cycles of the program, a frame")[1]
    predicted = f"{counted[0]['cycles']['predicted']:,}"
    assert re.search(rf"input \(\w+\) +│ +{predicted} │ +100 │ +10 │ +3 │ +0 │", table)


def test_run_on_a_terminal_says_what_the_device_counted() -> None:
    program = shared_accelerator().programs[0]
    cycles = sum(part.cycles for part in program_parts(program))
    measured = [part.cycles for part in program_parts(program)]
    for late, said in ((0, "as predicted"), (1, "NOT AS PREDICTED")):
        console = Console(width=120, record=True, file=io.StringIO())
        count = count_parts(program, 2, CountedWork(2 * cycles + late, 1234, 0), measured)
        console.print(render_run(FileRun(np.zeros((2, 3)), 1.0, None, count), "sim", None))
        text = console.export_text()
        verdict = f"{2 * cycles + late:,} cycles without waits, the program has {2 * cycles:,}: {said}."
        assert f"The device counted {verdict}" in text
        assert "measured for one" in text
        assert re.search(r"input \(\w+\) .* 1,234 ", text)


def test_report_link_rate_counts_framing_in_the_slower_direction() -> None:
    # In: 8 bytes an image, 240 of them with 8 around. Out: 8 around each payload, and 8 for each 240 bytes that came.
    taken = 8 * 8 / 240
    assert link_rate(accelerator(output_bytes=16), Uart(3_000_000), 48e6) == pytest.approx(300_000 / (16 + 8 + taken))
    assert link_rate(accelerator(output_bytes=241), Uart(3_000_000), 48e6) == pytest.approx(
        300_000 / (241 + 16 + taken)
    )
    long = dataclasses.replace(accelerator(output_bytes=1), input_format=InputFormat((240,), IntType(0, 255), 1))
    assert link_rate(long, Uart(3_000_000), 48e6) == pytest.approx(300_000 / 248)


def test_report_bound_is_the_engine_when_it_is_slower() -> None:
    slow = {**FACTS, "build": {**FACTS["build"], "clock_hz": 32_000.0}}
    assert make_report(slow, accelerator(), load_board("icebreaker"))["bound"] == "engine"


def test_report_on_a_terminal_shows_mismatches_rates_and_the_bound() -> None:
    wrong = {**FACTS, "simulate": {**FACTS["simulate"], "mismatches": 3}}
    text = text_of(make_report(wrong, accelerator(), load_board("icebreaker")))
    assert "net (0000000000000000) on icebreaker, up5k" in text
    assert "│ fc    │     4 x 8 │     32 │  100.0% │       1,024 │        8 │" in text
    rows = (
        ("Fmax of place and route, MHz", "51.20", ""),
        ("clock, MHz", "48.00", ""),
        ("engine, images/s", "1,500,000", ""),
        ("this build's link uart at 12,000,000 baud, images/s", "49,450", "link"),
    )
    for what, rate, limit in rows:
        assert re.search(rf"│ {re.escape(what)} +│ +{rate} │ +{limit} │", text)
    assert re.search(r"│ IR and RTL +│ +8 │ +3 │", text)
    assert "The clock is 48 MHz: the fastest of the PLL that holds; seed 1 holds 51.20 MHz." in " ".join(text.split())
    assert text.rstrip().endswith("49,450 images/s from host to result, limited by the link.")


@pytest.mark.parametrize(
    ("gap", "ties", "said"),
    [
        (0.0, 0, ""),
        (2e-16, 0, "values: by at most 2e-16 of the largest result, with the same largest output on 8 of 60. The only"),
        (0.01, 2, "largest output on 8 of 60, with a value at a tie between two codes on 2 of 60. The only"),
    ],
)
def test_report_on_a_terminal_says_how_far_float64_is_from_the_reference(gap: float, ties: int, said: str) -> None:
    found = {"torch_float64_ir": 3 * bool(gap), "torch_float64_gap": gap, "torch_float64_argmax": 8}
    facts = FACTS | {"lower": FACTS["lower"] | found, "capture": FACTS["capture"] | {"ties": {"float64": ties}}}
    text = " ".join(text_of(make_report(facts, accelerator(), load_board("icebreaker"))).split())
    assert ("On 3 of 60 samples PyTorch in float64 differs" in text) == bool(said)
    assert ("a difference beyond the bound of that rounding stops a build." in text) == bool(said)
    assert "PyTorch in float64 and IR, which is exact │ 60 │ " + ("3 │" if said else "0 │") in text
    assert said in text


@pytest.mark.parametrize(
    ("passes", "rows"),
    [
        ({f"pass_{number}": 0 for number in range(11)}, ["each of 11 passes 60 0"]),
        ({"first": 0, "second": 3, "third": 0, "split": 0}, ["second 60 3", "each of 3 other passes 60 0"]),
        ({"first": 1}, ["first 60 1"]),
        (None, []),
    ],
)
def test_report_on_a_terminal_has_one_row_for_equal_passes(passes: dict[str, int] | None, rows: list[str]) -> None:
    facts = {**FACTS, "lower": {**FACTS["lower"], "passes": passes}}
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render_report(make_report(facts, accelerator(), load_board("icebreaker"))))
    lines = [" ".join(re.sub("[│┃]", " ", line).split()) for line in console.export_text().splitlines()]
    found = [line.removeprefix("IR before and after ") for line in lines if line.startswith("IR before and after ")]
    assert found == rows


@pytest.mark.parametrize(("simulated", "said"), [(32, False), (32.5, True), (None, False)])
def test_report_says_where_frames_are_too_few_for_the_interval_of_the_long_run(simulated: Any, said: bool) -> None:
    facts = {**FACTS, "simulate": {**FACTS["simulate"], "interval_cycles": simulated}}
    text = " ".join(text_of(make_report(facts, accelerator(), load_board("icebreaker"))).split())
    remark = "32.50 cycles is the mean over the later half of 8 frames, too few to show the long-run interval of 32."
    assert (remark in text) == said
    assert ("later half" in text) == said


@pytest.mark.parametrize(("facts", "latency"), [(FACTS, "0.83"), ({"map": {**FACTS["map"], "clock_hz": 12e6}}, "3.33")])
def test_report_shows_the_latency_in_microseconds(facts: dict[str, Any], latency: str) -> None:
    text = text_of(make_report(facts, accelerator(), load_board("icebreaker")))
    (row,) = (line for line in text.splitlines() if "latency, us" in line)
    assert latency in row


@pytest.mark.parametrize("labelled", [False, True])
def test_run_on_a_terminal_says_how_many_results_are_right(labelled: bool) -> None:
    results = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    run = FileRun(results, 1.0, None, accuracy=score(results, np.array([0, 2, 2])) if labelled else None)
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(render_run(run, "sim", None))
    assert ("through 'sim': accuracy 66.67%: 2 of 3 right" in console.export_text()) == labelled


def test_lowering_says_how_far_float64_is_from_the_reference() -> None:
    torch.manual_seed(2)
    images = torch.rand(50, 4)
    model = nnhw.quantize(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(1)).eval(), images)
    with torch.no_grad():
        answers = model.double()(images.double()).numpy()
    samples = {"inputs": images.numpy(), "torch_float64": answers}
    graph = capture(model.float(), images)
    assert lower_graph(graph, samples)[1]["torch_float64_gap"] < 1e-15
    samples["torch_float64"] = answers + np.eye(50, 3)
    assert lower_graph(graph, samples)[1]["torch_float64_gap"] > 1
    del samples["torch_float64"]
    assert lower_graph(graph, samples)[1]["torch_float64_gap"] is None


def test_report_boards_table_lists_budgets() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render_boards([load_board("icebreaker")]))
    text = console.export_text()
    assert "icebreaker" in text
    assert "5,280" in text
