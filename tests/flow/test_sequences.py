"""Recurrent networks from PyTorch to a device: built, simulated, and run as batches and as streams on every link."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nnhw
from examples import motion_lstm, stream_motion
from nnhw.driver import BatchError, Device
from nnhw.driver.links.hardware import Hardware
from nnhw.errors import InputError, MappingError
from nnhw.flow.verification.comparison import compare_stages
from nnhw.flow.verification.equality import check_equality
from nnhw.frontend import capture
from nnhw.ir import run
from nnhw.mapping.budget import Budget
from nnhw.mapping.mapper import map_body
from nnhw.nn import Int, QuantConv1d, QuantGRU, QuantLinear, QuantLSTM, QuantRNN, UInt
from nnhw.passes import lower, split
from sim.noise import FrameNoise, Noise
from tests.sim.test_benches import pytestmark as needs_simulator

STEPS = 10


class Small(nn.Module):
    """A recurrent network of 4 features, 6 units and 3 results."""

    def __init__(self, each_step: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codes = Int(4, scale=2.0**-2)
        self.rnn = QuantRNN(4, 6, batch_first=True, weight_quant=Int(4), state_quant=Int(4, scale=2.0**-3))
        self.last = QuantLinear(6, 3, weight_quant=Int(4))
        self.each_step = each_step

    def forward(self, x: Tensor) -> Tensor:
        """[batch, steps, 4] --> [batch, 3], or [batch, steps, 3]."""
        states, _ = self.rnn(self.codes(x))
        result: Tensor = self.last(states if self.each_step else states[:, -1])
        return result


class Behind(nn.Module):
    """A convolution and a pooling of 3 channels in front of a recurrent layer of 4 units."""

    def __init__(self, cell: type[nn.Module], layers: int = 1, each_step: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        floats = cell.__module__.startswith("torch.")
        self.codes, self.made = (
            (nn.Identity(), nn.ReLU()) if floats else (Int(8, scale=2.0**-5), UInt(7, scale=2.0**-6))
        )
        linear, conv = (nn.Linear, nn.Conv1d) if floats else (QuantLinear, QuantConv1d)
        options = {} if floats else {"weight_quant": Int(8)}
        self.conv = conv(2, 3, 3, padding=1, **options)
        self.loop = cell(3, 4, layers, batch_first=True)
        self.last = linear(4, 2, **options)
        self.each_step = each_step

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 2, time] --> [batch, 2], or [batch, time / 2, 2]."""
        steps = functional.max_pool1d(self.made(self.conv(self.codes(x))), 2).transpose(1, 2)
        states, _ = self.loop(steps)
        result: Tensor = self.last(states if self.each_step else states[:, -1])
        return result


def images(*shape: int) -> Tensor:
    """Return numbers in float64, in which PyTorch's own answers have no rounding."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class NoisyHardware:
    """Hardware behind a line that harms what it carries, both ways."""

    def __init__(self, hardware: Hardware, to_board: Noise, to_host: Noise) -> None:
        self.hardware, self.to_board, self.to_host = hardware, to_board, to_host

    @property
    def cycles(self) -> int:
        return self.hardware.cycles

    def transfer(self, data: bytes, budget_cycles: int) -> bytes:
        return self.to_host(self.hardware.transfer(self.to_board(data), budget_cycles))

    def close(self) -> None:
        self.hardware.close()


def unlike(rng: np.random.Generator) -> list[np.ndarray]:
    """Return sequences of unlike lengths."""
    return [rng.integers(-8, 8, (length, 4)) for length in rng.integers(1, 12, 40)]


def check_under_faults(device: Device, reference: Device, draw: Callable[[np.random.Generator], Any] = unlike) -> None:
    """Run inputs over a line that loses, repeats and spoils bytes and frames: no result is wrong.

    A batch that is stopped has right results alone, and the next one begins with a state of its own.
    """
    quiet, harmed, right, given = device.link.hardware, 0, 0, 0  # type: ignore[attr-defined]
    for seed in range(2):
        rng = np.random.default_rng(seed)
        codes = draw(rng)
        wanted = reference.infer_codes(codes)
        kind, chance = ((Noise, 0.001), (FrameNoise, 0.02))[seed % 2]
        noises = kind(seed, chance), kind(seed + 100, chance)
        device.link.hardware = NoisyHardware(quiet, *noises)  # type: ignore[attr-defined]
        try:
            results = device.infer_codes(codes)
        except BatchError as error:
            results = error.results
        assert all(np.array_equal(result, other) for result, other in zip(results, wanted, strict=False))
        harmed, right = harmed + sum(noise.count for noise in noises), right + len(results)
        given += len(codes)
        device.link.hardware = quiet  # type: ignore[attr-defined]
        assert all(np.array_equal(*both) for both in zip(device.infer_codes(codes), wanted, strict=True))
    assert harmed >= 8
    assert right == given


@needs_simulator
@pytest.mark.parametrize(
    ("sequences", "each_step", "style"), [(1, False, "streaming"), (3, True, "auto"), (1, True, "shared")]
)
def test_recurrent_network_runs_on_every_link(sequences: int, each_step: bool, style: str, tmp_path: Path) -> None:
    model = Small(each_step).eval()
    example = images(4, STEPS, 4).float()
    options = {"sequences": sequences, "style": style, "stop_at": "simulate"}
    build = nnhw.build(model, example, name="small", out=tmp_path / "b", **options)
    report = json.loads((build.path / "report.json").read_text(encoding="utf-8"))
    assert report["exactness"]["ir_rtl"] == 0
    assert report["exactness"]["rtl_samples"] >= 32
    assert report["cycles"]["interval"]["predicted"] == report["cycles"]["interval"]["simulated"]
    exact = model.double()
    given = images(5, 7, 4)
    wanted = exact(given).detach()
    for link in ("model", "c", "sim"):
        with nnhw.open(build, link) as device:
            assert torch.equal(device(given), wanted)
            with device.stream() as stream:
                for step in range(7):
                    result = stream(given[2, step])
                    expected = wanted[2, step] if each_step else exact(given[2:3, : step + 1]).detach()[0]
                    assert torch.equal(result, expected)
                    if step == 4:
                        device(given[:2])  # somebody else's state
    with nnhw.open(build, "sim", max_retries=30) as device, nnhw.open(build, "model") as reference:
        check_under_faults(device, reference)


def test_example_streams_what_the_model_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream_motion.main("model", tmp_path)
    network = copy.deepcopy(motion_lstm.model).double()
    lines = []
    for recording in motion_lstm.swings(4, stream_motion.STEPS).double():
        seconds = range(stream_motion.EVERY, stream_motion.STEPS + 1, stream_motion.EVERY)
        answers = [int(network(recording[None, :steps]).argmax()) for steps in seconds]
        lines.append(" -> ".join(motion_lstm.CLASSES[answer] for answer in answers))
    assert capsys.readouterr().out.splitlines() == lines
    assert len(set(lines)) > 1


def test_turns_are_of_networks_with_a_state(tmp_path: Path) -> None:
    model = nn.Sequential(Int(4, scale=0.25), QuantLinear(4, 3, weight_quant=Int(4))).eval()
    with pytest.raises(MappingError, match="--sequences 2 is of recurrent networks"):
        nnhw.build(model, torch.randn(4, 4), out=tmp_path / "b", sequences=2, stop_at="map")
    with pytest.raises(InputError, match="--sequences needs a whole number from 1 on, given 0"):
        nnhw.build(model, torch.randn(4, 4), out=tmp_path / "b", sequences=0, stop_at="map")


def test_shared_engine_refuses_several_sequences_in_turn(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"scan 'rnn' \(.*\): a shared engine keeps the states of one sequence"):
        nnhw.build(
            Small().eval(), torch.randn(4, STEPS, 4), out=tmp_path / "b", style="shared", sequences=2, stop_at="map"
        )


@needs_simulator
def test_network_of_both_directions_runs_on_every_link(tmp_path: Path) -> None:
    class Both(Small):
        def __init__(self) -> None:
            super().__init__(each_step=True)
            self.rnn = QuantRNN(4, 3, batch_first=True, bidirectional=True)

    model, example = Both().eval(), images(4, STEPS, 4).float()
    build = nnhw.build(model, example, name="both", out=tmp_path / "b", sequences=2, stop_at="simulate")
    report = json.loads((build.path / "report.json").read_text(encoding="utf-8"))
    assert report["exactness"]["ir_rtl"] == 0
    assert report["rounds"] == 2
    exact, given = model.double(), images(3, 7, 4)
    for link in ("model", "c", "sim"):
        with nnhw.open(build, link) as device:
            assert torch.equal(device(given), exact(given).detach())
            with pytest.raises(InputError, match="reads sequences in both directions"):
                device.stream()
    with nnhw.open(build, "sim", max_retries=30) as device, nnhw.open(build, "model") as reference:
        check_under_faults(device, reference)


@needs_simulator
@pytest.mark.parametrize(
    ("cell", "layers", "each_step", "steps"),
    [(QuantRNN, 1, False, 1), (QuantGRU, 1, True, 3), (QuantLSTM, 2, False, 5)],
)
def test_loop_behind_a_convolution_equals_pytorch_in_hardware(
    cell: type[nn.Module], layers: int, each_step: bool, steps: int
) -> None:
    model, given = Behind(cell, layers, each_step), images(6, 2, 2 * steps)
    model(given.float())  # formats that are observed
    parts = split(lower(capture(model.eval(), given[:4].float())))
    wanted = model.double()(given).detach()
    np.testing.assert_array_equal(parts.run([given.numpy()])[0], wanted.numpy())
    accelerator = map_body(parts.body, "board", Budget(lc=100_000, ebr=1000))
    (codes,) = run(parts.head, [given.numpy()])
    assert [one.name for one in compare_stages(accelerator, parts.body, codes) if not one.equal] == []
    assert [one.pattern for one in check_equality(accelerator, parts.body, codes) if not one.equal] == []


@needs_simulator
def test_loop_behind_a_convolution_gets_whole_images_on_every_link(tmp_path: Path) -> None:
    given = images(12, 2, 8).float()
    model = nnhw.quantize(Behind(nn.RNN).eval(), given)
    build = nnhw.build(model, given[:4], name="behind", out=tmp_path / "b", stop_at="simulate")
    report = json.loads((build.path / "report.json").read_text(encoding="utf-8"))
    assert report["exactness"]["ir_rtl"] == 0
    assert report["cycles"]["interval"]["predicted"] == report["cycles"]["interval"]["simulated"]
    assert (report["style"]["name"], report["frame"]) == ("streaming", "image")
    wanted = nnhw.reference(model, given[:4])(given).to(given.dtype)
    for link in ("model", "sim"):
        with nnhw.open(build, link) as device:
            assert torch.equal(device(given), wanted)
            with pytest.raises(InputError, match="keeps no state from one image to the next"):
                device.stream()
    with nnhw.open(build, "sim", max_retries=30) as device, nnhw.open(build, "model") as reference:
        check_under_faults(device, reference, lambda rng: rng.integers(-128, 128, (150, 2, 8)))
    for options in ({"style": "shared"}, {"sequences": 2}):
        with pytest.raises(MappingError, match=r"use '--style streaming'|keeps no state from one image to the next"):
            nnhw.build(model, given[:4], out=tmp_path / "other", stop_at="map", **options)


def test_core_for_ones_own_design_says_how_a_sequence_begins(tmp_path: Path) -> None:
    from nnhw.flow.commands.exporting_core import _page
    from nnhw.hdl.core import AxiStreamCore

    model = Small().eval()
    build = nnhw.build(model, torch.randn(4, STEPS, 4), out=tmp_path / "b", sequences=2, stop_at="map")
    page = _page(build.accelerator, AxiStreamCore(build.accelerator), "axi-stream", "core")
    assert "the lowest of them is 1 in the first step of a sequence" in page
    assert "The steps of 2 sequences take turns" in page
    assert "only that of its last step counts" in page


def test_simulation_has_sequences_of_unlike_lengths(tmp_path: Path) -> None:
    from nnhw.accelerator import Accelerator
    from nnhw.flow.verification.simulate import sample_codes

    build = nnhw.build(Small().eval(), torch.randn(4, STEPS, 4), out=tmp_path / "b", stop_at="map")
    codes = sample_codes(build.path, Accelerator.load(build.path), 30)
    lengths = [len(sequence) for sequence in codes]
    assert sum(lengths) == 30
    assert {1, 2, 3} <= set(lengths)
    assert max(lengths) == STEPS
    assert all(isinstance(sequence, np.ndarray) for sequence in codes)
