"""`nnhw fit`, and what is said where a network does not fit: every row is a mapping."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner, Result

import nnhw
from nnhw import cli
from nnhw.boards import Board, list_boards, load_board
from nnhw.engines.requantize import CommonSteps, Scaler
from nnhw.errors import BoardError, DoesNotFitError, InputError, LoweringError
from nnhw.fitting import Fits, FitTrial, Variant, fit_file, tables, trials
from nnhw.fitting import advice as advice_module
from nnhw.fitting.advice import advise
from nnhw.fitting.sweep import devices, parse_widths
from nnhw.fitting.tables import render_advice, render_fits
from nnhw.flow.board_budget import available, map_on_board
from nnhw.flow.commands import inspection
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.tools.stopping import TimeOver, time_limit
from nnhw.frontend.source import Source
from nnhw.ir import Graph
from nnhw.passes import lower, split

ROOT = Path(__file__).resolve().parents[2]
MODEL = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, {width}), nn.{activation}(), nn.Linear({width}, 1)).eval()
example_input = torch.randn(8, 8)
"""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.OUT, "width", 120)
    monkeypatch.setattr(cli.ERR, "width", 120)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.npy"
    np.save(path, np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32))
    return path


def model_file(folder: Path, width: int, activation: str) -> str:
    path = folder / "network.py"
    path.write_text(MODEL.format(width=width, activation=activation), encoding="utf-8")
    return str(path)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments))


def small_model() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 2)).eval()
    images = torch.randn(32, 8)
    return nnhw.quantize(model, [images]), images[:4]


FITTING = FitTrial(load_board("ulx3s_85f"), (), Variant(8, 8, own=True), "streaming", 9, 20, 48e6, 1e5, {"lc": 9})


def test_each_row_is_what_the_mapper_says() -> None:
    model, example = small_model()
    fits = nnhw.fit(model, example, boards=["icebreaker", "ulx3s_25f"], style="streaming", progress=False)
    assert [(one.board.name, one.variant.own, one.fits) for one in fits.trials] == [
        ("icebreaker", True, True),
        ("ulx3s_25f", True, True),
    ]
    body = split(lower(Source(model, example, "m").capture())).body
    for one in fits.trials:
        mapped, facts = map_on_board(body, one.board, Options(style="streaming"))
        assert one.cycles == mapped.interval
        assert one.resources == facts["resources"]
        assert one.latency_us == 1e6 * mapped.accelerator.schedule.latency_cycles / one.board.target_clock_hz
        assert one.engine == one.board.target_clock_hz / mapped.interval
        assert one.rate == min(one.engine, one.link)
    assert fits.fitting[0].rate == max(one.rate for one in fits.trials)
    assert repr(fits).startswith(f"<Fits of '{fits.name}': 2 of 2 fit, the fastest on ")
    assert "images/s (streaming)" in fits._repr_html_()


def test_widths_that_are_named_are_tried_on_every_board() -> None:
    model, example = small_model()
    fits = nnhw.fit(model, example, boards=["icebreaker"], widths=[(4, 8), (4, 4)], progress=False)
    tried = [(one.variant.weight_bits, one.variant.act_bits) for one in fits.trials]
    assert tried == [(8, 8), (4, 8), (4, 4)]
    assert all(one.fits for one in fits.trials)
    assert fits.trials[2].cycles <= fits.trials[0].cycles


@pytest.mark.parametrize("widths", [(9, 8), (8, 1), (4, True)])
def test_widths_that_are_not_possible_are_said(widths: tuple[int, int]) -> None:
    model, example = small_model()
    with pytest.raises(InputError, match=r"of this network have 8 bits, and can be made narrower down to 2"):
        nnhw.fit(model, example, boards=["icebreaker"], widths=[widths], progress=False)


def test_width_that_does_not_lower_is_a_row_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model, example = small_model()
    lower, forms = trials.lower, list[Graph]()

    def refusing(graph: Graph) -> Graph:
        forms.append(graph)
        if len(forms) == 2:
            raise LoweringError("add 'join' joins 2 branches")
        return lower(graph)

    monkeypatch.setattr(trials, "lower", refusing)
    boards = ["icebreaker", "ulx3s_25f"]
    fits = nnhw.fit(model, example, boards=boards, widths=[(4, 8), (4, 4)], progress=False)
    assert [(one.variant.weight_bits, one.variant.act_bits, one.fits) for one in fits.trials] == [
        *[(8, 8, True)] * 2,
        *[(4, 8, False)] * 2,
        *[(4, 4, True)] * 2,
    ]
    assert len(forms) == 3
    assert [one.missing for one in fits.trials[2:4]] == ["add 'join' joins 2 branches"] * 2
    console = Console(width=200, file=io.StringIO())
    console.print(render_fits(fits))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("refused") == 2
    assert text.count("4/8: add 'join' joins 2 branches") == 1


def test_network_that_does_not_lower_as_it_is_raises_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(graph: Graph) -> Graph:
        raise LoweringError("add 'join' joins 2 branches")

    model, example = small_model()
    monkeypatch.setattr(trials, "lower", refusing)
    with pytest.raises(LoweringError, match="add 'join' joins 2 branches"):
        nnhw.fit(model, example, boards=["icebreaker"], widths=[(4, 8)], progress=False)


def test_boards_by_device_stand_for_all_boards() -> None:
    found = devices(())
    names = [name for board, alike in found for name in (board.name, *alike)]
    assert sorted(names) == sorted(board.name for board in list_boards())
    assert [board.resources.lc for board, _ in found] == sorted(board.resources.lc for board, _ in found)
    assert [board.name for board, _ in devices(["ice40", "icebreaker", "ulx3s_85f"])][-1] == "ulx3s_85f"
    with pytest.raises(BoardError, match="board 'nothing' is not known"):
        devices(["nothing"])


def test_widths_as_text() -> None:
    assert parse_widths(["4/8", "2/2"]) == [(4, 8), (2, 2)]
    assert parse_widths([]) is None
    for text in ("4", "4/8/2", "a/b", "4/-1", "4/"):
        with pytest.raises(InputError, match="--widths takes bits of weights and activations, such as 4/8, got"):
            parse_widths([text])


def test_fit_command_shows_a_row_for_each_board(tmp_path: Path, data: Path) -> None:
    result = command(
        "fit", model_file(tmp_path, 8, "ReLU"), "-b", "icebreaker", "-b", "icestick", "--calibrate", str(data)
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"cycles[ ┃]+latency[ ┃]+engine/s[ ┃]+link/s[ ┃]+fullest", result.output)
    rows = [line for line in result.output.splitlines() if "8/8*" in line]
    assert re.search(r" [\d.]+ us", rows[0])
    assert [line.strip("│ ").split()[0] for line in rows] == ["icebreaker", "icestick"]


def test_fit_command_ends_with_an_error_where_nothing_fits(tmp_path: Path, data: Path) -> None:
    file = model_file(tmp_path, 32, "Tanh")
    result = command("fit", file, "-b", "icestick", "--widths", "8/8", "--calibrate", str(data))
    assert result.exit_code == 1
    assert "too large" in result.output
    assert "icestick: the network does not fit: " in result.output


def test_what_does_not_fit_comes_with_layers_and_with_what_would(tmp_path: Path, data: Path) -> None:
    file = model_file(tmp_path, 32, "Tanh")
    result = command("check", file, "-b", "icestick", "--calibrate", str(data))
    assert result.exit_code == 1
    text = result.output
    assert "Does not fit: " in text
    assert (
        text.index("Does not fit: ")
        < text.index("What each layer takes at the least")
        < text.index("What would fit, of ")
    )
    fitting = text[text.index("What would fit, of ") :]
    assert "8/8*" in fitting
    assert "blackice" in fitting


def test_layers_of_a_network_that_does_not_fit_add_up() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    images = torch.randn(32, 16)
    body = split(lower(Source(nnhw.quantize(model, [images]), images[:4], "m").capture())).body
    board = load_board("icestick")
    with pytest.raises(DoesNotFitError) as caught:
        map_on_board(body, board, Options(style="streaming"))
    layers = caught.value.layers
    assert [layer.name for layer in layers] == ["0", "2", "4"]
    said = (
        f"takes {sum(layer.lc for layer in layers):.0f} logic cells and {sum(layer.ebr for layer in layers)} block RAMs"
    )
    assert said in str(caught.value)
    left = available(board)
    assert sum(layer.lc for layer in layers) > left.lc or sum(layer.ebr for layer in layers) > left.ebr
    assert sum(layer.weight_rams for layer in layers) > 0


@pytest.mark.parametrize(
    ("microseconds", "said"),
    [
        (0.0833, "0.0833 us"),
        (26.61, "26.6 us"),
        (999.4, "999 us"),
        (1000, "1 ms"),
        (45_678, "45.7 ms"),
        (2.5e6, "2.5 s"),
    ],
)
def test_latency_has_three_digits_and_its_unit(microseconds: float, said: str) -> None:
    assert tables._time(microseconds) == said


def test_fits_of_nothing_has_no_fastest() -> None:
    assert repr(Fits("m", ())) == "<Fits of 'm': 0 of 0 fit>"


def test_graphs_with_integers_of_their_own_are_tried_as_they_are() -> None:
    notes: list[str] = []

    class Progress(SilentProgress):
        def note(self, text: str) -> None:
            notes.append(text)

    file = str(ROOT / "examples" / "mnist_int8.tflite")
    fits = fit_file(file, boards=["icestick"], style="streaming", progress=Progress())
    assert [one.variant.own for one in fits.trials] == [True]
    row, *others = notes
    assert row == str(fits.trials[0]) == "icestick, 8-bit weights, 8-bit activations: does not fit"
    assert others == [note for note in others if note.startswith("fewer bits were not tried: ")] != []
    own, narrow = fit_file(file, boards=["icestick"], style="streaming", widths=["4/4"]).trials
    assert own == fits.trials[0]
    assert not narrow.fits
    assert "no narrower form; quantize the model with fewer bits" in narrow.missing


@pytest.mark.parametrize("activation", ["LeakyReLU", "PReLU"])
def test_two_lines_need_few_block_rams_beside_the_weights(activation: str) -> None:
    torch.manual_seed(0)
    kind = getattr(nn, activation)
    model = nn.Sequential(nn.Linear(8, 32), kind(), nn.Linear(32, 32), kind(), nn.Linear(32, 1)).eval()
    images = torch.randn(256, 8)
    quantized = nnhw.quantize(model, [images])
    (one,) = nnhw.fit(quantized, images[:4], boards=["icebreaker"], style="streaming", progress=False).trials[:1]
    assert one.fits, one.missing
    body = split(lower(Source(quantized, images[:4], "m").capture())).body
    accelerator = map_on_board(body, one.board, Options(style="streaming"))[0].accelerator
    kinds = [stage.config.requantizing for stage in accelerator.stages if stage.config.requantizing is not None]
    assert len(kinds) == 2
    assert all(isinstance(one, CommonSteps) or (isinstance(one, Scaler) and one.segments == 2) for one in kinds)


def test_advice_ends_after_the_seconds_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    model, example = small_model()
    graph = Source(model, example, "m").capture()
    begun: list[str] = []

    def slow(form: trials.LoweredVariant, board: Board, alike: tuple[str, ...], options: Options) -> FitTrial:
        begun.append(board.name)
        if len(begun) == 2:
            # Longer than there is time: the trial itself is ended.
            time.sleep(30)
        return FITTING

    monkeypatch.setattr(trials.LoweredVariant, "attempt", slow)
    start = time.monotonic()
    advice = advise(graph, "icestick", Options(style="streaming"), SilentProgress(), faster=30)
    assert time.monotonic() - start < 10
    assert begun == ["ulx3s_85f", "icestick"]
    assert advice.tried == (FITTING,)
    assert [board.name for board, _ in advice.untried[:2]] == ["icestick", "icestick"]
    assert advice.untried[-1][0].name not in ("icestick", "ulx3s_85f")
    console = Console(width=400, file=io.StringIO())
    console.print(render_advice(advice))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Not tried, as time was over: icestick at 8/8, 8/4, 4/8, 4/4, 2/4, 2/2 bits; " in text
    assert "`nnhw fit` does." in text


def test_largest_board_has_more_time_than_all_else() -> None:
    model, example = small_model()
    steps = list(
        advice_module._steps(
            Source(model, example, "m").capture(), load_board("icestick"), "auto", [], SilentProgress()
        )
    )
    assert [one.board.name for one in steps if one.seconds > advice_module.MOST_SECONDS] == ["ulx3s_85f"]
    assert steps[0].board.name == "ulx3s_85f"


def test_time_limit_ends_what_takes_longer_and_nothing_else() -> None:
    with pytest.raises(TimeOver), time_limit(0.05):
        time.sleep(10)
    with time_limit(0.2):
        pass
    time.sleep(0.3)
    with pytest.raises(TimeOver), time_limit(0):
        pytest.fail("there is no time")


def advised(
    monkeypatch: pytest.MonkeyPatch, style: str, fits: Callable[[str, bool, str], bool]
) -> tuple[list[tuple[str, str, str]], str]:
    """Return (board, bits, style) of each trial, and the text; `fits` says of (board, own form, style) what maps."""

    def attempt(form: trials.LoweredVariant, board: Board, alike: tuple[str, ...], options: Options) -> FitTrial:
        mapped = fits(board.name, form.variant.own, options.style)
        missing = "" if mapped else "too large"
        tried.append((board.name, f"{form.variant.weight_bits}/{form.variant.act_bits}", options.style))
        cycles = 9 if mapped else 0
        return FitTrial(board, alike, form.variant, "shared", cycles, 2 * cycles, 48e6, 1e5, {"lc": 9}, missing)

    tried: list[tuple[str, str, str]] = []
    monkeypatch.setattr(trials.LoweredVariant, "attempt", attempt)
    model, example = small_model()
    advice = advise(Source(model, example, "m").capture(), "ulx3s_12f", Options(style=style), SilentProgress())
    console = Console(width=300, file=io.StringIO(), record=True)
    console.print(render_advice(advice))
    return tried, console.export_text()


def test_advice_tries_the_largest_board_then_the_other_style_then_fewer_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, text = advised(monkeypatch, "streaming", lambda board, own, style: board in ("ulx3s_85f", "ulx3s_45f"))
    assert tried == [
        ("ulx3s_85f", "8/8", "streaming"),
        ("ulx3s_12f", "8/8", "auto"),
        *[("ulx3s_12f", bits, "streaming") for bits in ("8/4", "4/8", "4/4", "2/4", "2/2")],
        ("ulx3s_45f", "8/8", "streaming"),
        ("ulx3s_25f", "8/8", "streaming"),
    ]
    assert text.startswith("What would fit, of 9 that were mapped\n")
    assert [line.strip("│ ").split()[0] for line in text.splitlines() if "8/8*" in line] == ["ulx3s_85f", "ulx3s_45f"]


def test_advice_claims_nothing_of_what_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, text = advised(monkeypatch, "auto", lambda board, own, style: False)
    assert [board for board, _, _ in tried] == ["ulx3s_85f", *["ulx3s_12f"] * 5, *["ulx3s_85f"] * 5]
    assert text.strip() == (
        "Tried without success: ulx3s_85f at 8/8, 8/4, 4/8, 4/4, 2/4, 2/2 bits; ulx3s_12f at 8/4, 4/8, 4/4, 2/4, 2/2 "
        "bits. Use fewer channels, smaller images or fewer layers."
    )


def test_advice_tries_fewer_bits_on_the_largest_board_where_neither_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, text = advised(monkeypatch, "auto", lambda board, own, style: board == "ulx3s_85f" and not own)
    assert tried[-2:] == [("ulx3s_12f", "2/2", "auto"), ("ulx3s_85f", "8/4", "auto")]
    assert text.startswith("What would fit, of 7 that were mapped")


def test_advice_tries_no_fewer_bits_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, _ = advised(monkeypatch, "auto", lambda board, own, style: not own)
    assert tried == [("ulx3s_85f", "8/8", "auto"), ("ulx3s_12f", "8/4", "auto"), ("ulx3s_12f", "4/8", "auto")]


def test_check_of_what_does_not_fit_captures_once(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[object] = []
    capture = inspection.captured_graph
    monkeypatch.setattr(inspection, "captured_graph", lambda *args: captured.append(args) or capture(*args))
    monkeypatch.setattr(trials.LoweredVariant, "attempt", lambda form, board, alike, options: FITTING)
    result = command("check", model_file(tmp_path, 32, "Tanh"), "-b", "icestick", "--calibrate", str(data))
    assert result.exit_code == 1
    assert "What would fit, of " in result.output
    assert len(captured) == 1


def test_check_refuses_what_is_far_too_large_before_it_is_lowered(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(graph: Graph, board: Board) -> None:
        raise DoesNotFitError("its weights alone are too many", "use fewer")

    monkeypatch.setattr(inspection, "refuse_on_board", refuse)
    monkeypatch.setattr(inspection, "lowered", lambda *_: pytest.fail("it is lowered"))
    monkeypatch.setattr(trials.LoweredVariant, "attempt", lambda form, board, alike, options: FITTING)
    result = command("check", model_file(tmp_path, 32, "Tanh"), "-b", "icestick", "--calibrate", str(data))
    assert result.exit_code == 1
    assert "Does not fit: its weights alone are too many; use fewer" in result.output


def test_check_wraps_what_runs_where(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "deep.py"
    layers = "".join("nn.Linear(8, 8), nn.ReLU(), " for _ in range(5))
    path.write_text(
        "import torch\nfrom torch import nn\n"
        f"model, example_input = nn.Sequential({layers}).eval(), torch.randn(8, 8)\n",
        encoding="utf-8",
    )
    result = command("check", str(path), "-b", "ulx3s_85f", "--calibrate", str(data))
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    (first,) = (number for number, line in enumerate(lines) if line.startswith("on the device: "))
    (behind,) = (number for number, line in enumerate(lines) if line.startswith("on the host, behind: "))
    assert behind > first + 1
    assert all(line.startswith("  ") for line in lines[first + 1 : behind])
    assert max(map(len, lines[first:behind])) <= 80
