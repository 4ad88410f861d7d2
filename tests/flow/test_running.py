"""A finished build: its device over interpreter and compiled hardware, files through it, and what is refused."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.driver import BatchError, Device
from nnhw.driver.image import ProgramImage
from nnhw.errors import BuildError, ClosedError, InputError, LinkError
from nnhw.flow.folder.build_folder import MANIFEST, BuildFolder, read_json, write_json
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, build_file
from nnhw.flow.running.accuracy import Score, score
from nnhw.flow.running.finished import load_images, run_file, simulate_build
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.tools.toolchain import find_tool
from nnhw.flow.virtual.virtual_board import CompiledHardware
from nnhw.frontend import Source, load_source
from nnhw.ir import IntType
from nnhw.nn import Int, QuantConv2d, Quantizer, QuantLinear, UInt
from tests.conftest import SMALL_NET
from tests.marks import covering

ZERO_POINTS = tuple(
    (first, style)
    for first in (Int(8, 2**-6, zero_point=-1), UInt(8, 2**-6, zero_point=100))
    for style in ("streaming", "shared")
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = tmp_path_factory.mktemp("net") / "small.py"
    path.write_text(SMALL_NET.format(seed=1), encoding="utf-8")
    return load_source(path)


@pytest.fixture(scope="module")
def small_build(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Build:
    assert isinstance(source.model, torch.nn.Module)
    assert source.example_input is not None
    out = tmp_path_factory.mktemp("build") / "b"
    return nnhw.build(source.model, source.example_input, name="small", out=out, stop_at="elaborate")


@pytest.fixture
def images() -> np.ndarray:
    return (np.random.default_rng(3).random((9, 1, 4, 4)) - 0.5).astype(np.float32)


@pytest.mark.parametrize("link", ["model", "sim"])
def test_running_device_equals_the_reference(source: Source, small_build: Build, images: np.ndarray, link: str) -> None:
    expected = nnhw.reference(source.model)(images)
    with nnhw.open(small_build, link=link) as device:
        for dtype in (np.float32, np.float64):
            asked = images.astype(dtype)
            results, as_torch = device(asked), device(torch.from_numpy(asked))
            assert results.dtype == dtype
            assert (results == expected.astype(dtype)).all()
            assert torch.equal(as_torch, torch.from_numpy(expected.astype(dtype)))


class SwappedHardware:
    """Hardware that is another one from the third writing on, and a third one from the fifth on."""

    def __init__(self, *hardware: CompiledHardware) -> None:
        self._all, self._writings = hardware, 0

    @property
    def cycles(self) -> int:
        return sum(hardware.cycles for hardware in self._all)

    def transfer(self, data: bytes, budget_cycles: int) -> bytes:
        self._writings += bool(data)
        place = min(max(0, self._writings - 1) // 2, len(self._all) - 1)
        return self._all[place].transfer(data, budget_cycles)

    def close(self) -> None:
        """Leave it to those that opened it."""


@pytest.mark.parametrize("back", [False, True], ids=["another one", "and back"])
def test_running_rejects_hardware_that_is_swapped_in_a_batch(
    source: Source, small_build: Build, images: np.ndarray, back: bool, tmp_path: Path
) -> None:
    path = tmp_path / "other.py"
    path.write_text(SMALL_NET.format(seed=2), encoding="utf-8")
    other_build = build_file(str(path), "icebreaker", Options(), out=tmp_path / "b", stop_at="elaborate")
    batch = np.tile(images, (400, 1, 1, 1))
    expected, batch = nnhw.reference(source.model)(batch), batch.astype(np.float64)
    builds = [small_build, other_build, *[small_build] * back]
    with ExitStack() as stack:
        devices = [stack.enter_context(nnhw.open(build, link="sim")) for build in builds]
        device, hardware = devices[0], [one.link.hardware for one in devices]  # type: ignore[attr-defined]
        device.pace = dataclasses.replace(device.pace, window_bytes=480)
        assert (device(batch) == expected).all()
        device.link.hardware = SwappedHardware(*hardware)  # type: ignore[attr-defined]
        why = ""
        try:
            results = device(batch)
        except BatchError as error:
            results, why = error.results, str(error)
        assert "was loaded with another bitstream while its link was open" in why or (back and not why)
        assert np.array_equal(results, expected[:0] if why else expected)
        hardware[0].close()


@pytest.mark.parametrize("link", ["model", "sim"])
def test_running_device_says_that_it_is_closed(small_build: Build, images: np.ndarray, link: str) -> None:
    with nnhw.open(small_build, link=link) as device:
        device(images)
    for use in (lambda: device(images), device.status):
        with pytest.raises(ClosedError, match=f"link '{link}': the device is closed; open it again"):
            use()


def test_running_needs_neither_torch_nor_amaranth(small_build: Build, images: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", images)
    for link in ("model", "sim"):
        script = (
            f"import sys, numpy, nnhw\nwith nnhw.open({str(small_build.path)!r}, link={link!r}) as device:\n"
            f"    device(numpy.load({str(tmp_path / 'x.npy')!r}))\n"
            "print(sorted({'torch', 'amaranth', 'serial'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


def test_running_file_saves_what_it_prints(
    small_build: Build, source: Source, images: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", images)
    command = ["run", str(small_build.path), str(tmp_path / "x.npy"), "--link", "sim", "--out", str(tmp_path / "y.npy")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "Results: 9 of shape [4]" in result.output
    assert (np.load(tmp_path / "y.npy") == nnhw.reference(source.model)(images)).all()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file/y.npy", "there is no folder '{folder}/file'; make it, or give another path"),
        ("folder", "it exists and is not a file; give another path"),
    ],
)
def test_running_file_rejects_to_save_where_it_cannot(
    small_build: Build, images: np.ndarray, tmp_path: Path, name: str, reason: str
) -> None:
    np.save(tmp_path / "x.npy", images)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError) as error:
        run_file(small_build.path, tmp_path / "x.npy", "model", tmp_path / name)
    assert str(error.value) == f"'{tmp_path / name}' cannot be written: {reason.format(folder=tmp_path)}"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "x.npy"]


@pytest.mark.parametrize(("first", "style"), covering(ZERO_POINTS, ZERO_POINTS[1:3]))
def test_running_device_takes_an_input_with_a_zero_point_as_bytes(first: Quantizer, style: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    model = torch.nn.Sequential(
        first,
        QuantConv2d(2, 3, 3, padding=1, weight_quant=Int(4)),
        UInt(4, scale=2**-3),
        torch.nn.Flatten(),
        QuantLinear(48, 4, bias=False, weight_quant=Int(4)),
    )
    images = (4 * np.random.default_rng(3).standard_normal((7, 2, 4, 4))).astype(np.float32)
    build = nnhw.build(model, torch.from_numpy(images), name="z", out=tmp_path / "b", style=style, stop_at="elaborate")
    form = build.accelerator.input_format
    zero_point = int(first.zero_point)
    assert (form.codes.low, form.codes.high) == (first.qmin - zero_point, first.qmax - zero_point)
    assert (form.element, form.frame_bytes) == (IntType(-128, 127), 32)
    for link in ("model", "sim"):
        with nnhw.open(build, link=link) as device:
            assert (device(images.astype(np.float64)) == nnhw.reference(model)(images)).all()
            with pytest.raises(InputError, match=f"needs codes of {form.codes.low} to {form.codes.high}, but"):
                device.infer_codes(np.full((1, 2, 4, 4), form.codes.high + 1))


def test_running_a_file_with_labels_says_the_accuracy(
    source: Source, small_build: Build, images: np.ndarray, tmp_path: Path
) -> None:
    expected = nnhw.reference(source.model)(images).argmax(axis=1)
    labels = expected.copy()
    labels[:2] = (labels[:2] + 1) % 4
    for name, array in (("x", images), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", array)
    run = run_file(small_build.path, tmp_path / "x.npy", "model", labels=tmp_path / "labels.npy")
    assert run.accuracy == Score(7, 9)
    shown = CliRunner().invoke(
        app,
        [
            "run",
            str(small_build.path),
            str(tmp_path / "x.npy"),
            "--link",
            "sim",
            "--labels",
            str(tmp_path / "labels.npy"),
        ],
    )
    assert "through 'sim': accuracy 77.78%: 7 of 9 right" in shown.stdout


@pytest.mark.parametrize(
    ("labels", "given"),
    [(np.zeros(8, int), "int64 [8]"), (np.zeros(9), "float64 [9]"), (np.zeros((9, 1), int), "int64 [9, 1]")],
)
def test_running_rejects_labels_before_the_device_is_opened(
    small_build: Build, images: np.ndarray, tmp_path: Path, labels: np.ndarray, given: str
) -> None:
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(InputError) as caught:
        run_file(small_build.path, tmp_path / "x.npy", "no such port", labels=tmp_path / "labels.npy")
    path = tmp_path / "labels.npy"
    assert str(caught.value) == f"labels '{path}' need the shape [9], whole numbers, one per image, got {given}"


def test_running_rejects_labels_of_classes_that_there_are_not(
    small_build: Build, images: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "labels.npy", np.arange(9))
    with pytest.raises(InputError, match=r"^labels need numbers from 0 to 3, .* got others in 5 of 9 places, first 4"):
        run_file(small_build.path, tmp_path / "x.npy", "model", tmp_path / "y.npy", labels=tmp_path / "labels.npy")
    assert np.load(tmp_path / "y.npy").shape == (9, 4)


def test_score_takes_the_classes_of_a_model_that_ends_in_argmax() -> None:
    assert score(np.array([[1], [2], [0]]), np.array([1, 2, 2])) == Score(2, 3)
    with pytest.raises(InputError, match=r"^accuracy needs results \[N, classes\], got \[3, 1\]; leave --labels out$"):
        score(np.array([[1.0], [2.0], [0.0]]), np.array([1, 2, 2]))


def test_running_a_program_measures_its_layers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        UInt(4, scale=2**-4),
        QuantLinear(12, 8, bias=False, weight_quant=Int(4, "max_abs")),
        UInt(4, scale=2**-3),
        QuantLinear(8, 6, bias=False, weight_quant=Int(4, "max_abs")),
    )
    images = np.random.default_rng(3).random((5, 12)).astype(np.float32)
    build = nnhw.build(
        model, torch.from_numpy(images), name="small", out=tmp_path / "b", style="shared", stop_at="elaborate"
    )
    assert build.accelerator.programs
    np.save(tmp_path / "x.npy", images)
    run = run_file(build.path, tmp_path / "x.npy", measure=True)
    assert (run.results == nnhw.reference(model)(images)).all()
    assert run.program is not None
    assert run.program.as_predicted
    assert [row.measured for row in run.program.parts] == [row.part.cycles for row in run.program.parts]
    assert [row.part.kind for row in run.program.parts] == ["input", "layer"]
    assert (run.program.parts[0].input_wait > 0, run.program.parts[1].output_wait > 0) == (True, True)


def test_running_rejects_to_measure_engines_without_a_program(
    small_build: Build, images: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", images)
    result = CliRunner().invoke(app, ["run", str(small_build.path), str(tmp_path / "x.npy"), "--measure"])
    assert result.exit_code == 1
    assert "cycles of layers can be measured where a shared engine runs a program" in " ".join(result.output.split())


def test_running_simulation_compares_every_boundary(small_build: Build) -> None:
    result = CliRunner().invoke(app, ["sim", str(small_build.path), "--frames", "2", "--stalls", "alternating"])
    assert result.exit_code == 0, result.output
    assert "2 frames equal, without stalls and with 'alternating' on both sides" in result.output
    assert "output" in result.output


def test_running_simulation_stops_at_a_difference(small_build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from nnhw.flow.verification import simulate as module

    honest = module.boundary_values

    def wrong(*arguments: object) -> dict[str, np.ndarray]:
        values = honest(*arguments)  # type: ignore[arg-type]
        name = next(name for name in values if name.startswith("quantize_4"))
        return {**values, name: -values[name]}

    monkeypatch.setattr(module, "boundary_values", wrong)
    with pytest.raises(BuildError, match=r"^the RTL differs from the IR in quantize_4 \(2\), of 2 frames \(0 broken"):
        simulate_build(small_build.path, 2, "none", SilentProgress())


def test_running_a_batch_that_breaks_keeps_what_was_finished(
    small_build: Build, images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", images)

    def breaks(self: Device, images: np.ndarray, progress: object) -> np.ndarray:
        raise BatchError("the link went away", 2, np.ones((2, 4)))

    monkeypatch.setattr(Device, "__call__", breaks)
    with pytest.raises(LinkError, match="the link went away"):
        run_file(small_build.path, tmp_path / "x.npy", "model", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").shape == (2, 4)


def test_running_rejects_a_build_of_another_version(small_build: Build, tmp_path: Path) -> None:
    copy = tmp_path / "b"
    copy.mkdir()
    for path in small_build.path.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    write_json(copy / MANIFEST, {**read_json(copy / MANIFEST), "nnhw": "9.9"})
    with pytest.raises(BuildError) as error:
        nnhw.open(copy)
    assert str(error.value) == (
        f"build folder '{copy}' was made by nnhw 9.9, this is nnhw {nnhw.__version__}; run 'nnhw build' again"
    )


def test_running_rejects_a_build_that_is_not_mapped(small_net: str, tmp_path: Path) -> None:
    build = build_file(small_net, "icebreaker", Options(frames=0), out=tmp_path / "b", stop_at="lower")
    with pytest.raises(BuildError) as error:
        nnhw.open(build, link="model")
    assert str(error.value) == (
        f"build folder '{tmp_path / 'b'}' does not have stage 'map': its last build failed, or stopped "
        "before that stage; run 'nnhw build' again"
    )


def test_running_rejects_to_program_without_a_bitstream(small_build: Build) -> None:
    result = CliRunner().invoke(app, ["program", str(small_build.path)])
    assert result.exit_code == 1
    assert "does not have stage 'build': its last build failed, or stopped" in result.output


def test_running_program_calls_the_loader_with_board_and_bitstream(
    small_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = tmp_path / "b"
    shutil.copytree(small_build.path, build)
    folder = BuildFolder.open(build)
    with folder.staging("build") as staged:
        (staged / "design.bin").write_bytes(b"bits")
        folder.commit("build", "k", staged)
    loader = tmp_path / "loader"
    loader.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n', encoding="utf-8")
    loader.chmod(0o755)
    monkeypatch.setenv("NNHW_OPENFPGALOADER", str(loader))
    find_tool.cache_clear()
    result = CliRunner().invoke(app, ["program", str(build)])
    find_tool.cache_clear()
    assert result.exit_code == 0, result.output
    called = (tmp_path / "called").read_text(encoding="utf-8")
    assert called == f"--board ice40_generic {build / 'design.bin'}\n"


def test_running_program_writes_the_program_of_a_build_to_flash(
    small_build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = tmp_path / "b"
    shutil.copytree(small_build.path, build)
    folder = BuildFolder.open(build)
    with folder.staging("build") as staged:
        (staged / "design.bin").write_bytes(b"bits")
        folder.commit("build", "k", staged)
    (build / "program.bin").write_bytes(ProgramImage.pack(1, bytes(8), 1).data)
    loader = tmp_path / "loader"
    loader.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n', encoding="utf-8")
    loader.chmod(0o755)
    monkeypatch.setenv("NNHW_OPENFPGALOADER", str(loader))
    find_tool.cache_clear()
    result = CliRunner().invoke(app, ["program", str(build)])
    find_tool.cache_clear()
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    start = "--board ice40_generic --write-flash"
    assert [line for line in lines if line != "--Version"] == [
        f"{start} {build / 'design.bin'}",
        f"{start} --offset 0x20000 --file-type raw {build / 'program.bin'}",
    ]


def test_running_rejects_images_of_another_shape(small_build: Build, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 1, 5, 5)))
    result = CliRunner().invoke(app, ["run", str(small_build.path), str(tmp_path / "x.npy"), "--link", "model"])
    assert result.exit_code == 1
    assert "needs an array of shape [N, 1, 4, 4], got [2, 1, 5, 5]" in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((0, 3)), "needs numbers of shape [images, ...], at least one image, given float64 of shape [0, 3]"),
        (np.zeros(3), "needs numbers of shape [images, ...], at least one image, given float64 of shape [3]"),
        (np.array([["a"]]), "needs numbers of shape [images, ...], at least one image, given <U1 of shape [1, 1]"),
    ],
)
def test_running_rejects_image_files(tmp_path: Path, content: np.ndarray, message: str) -> None:
    np.save(tmp_path / "x.npy", content)
    with pytest.raises(InputError) as error:
        load_images(tmp_path / "x.npy")
    assert str(error.value) == f"images file '{tmp_path / 'x.npy'}' {message}"


def test_running_rejects_images_that_claim_more_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((100, 8)))
    path.write_bytes(path.read_bytes().replace(b"(100, 8), }" + 8 * b" ", b"(10000000000, 8), }"))
    with pytest.raises(InputError) as error:
        load_images(path)
    assert str(error.value) == (
        f"images file '{path}' cannot be read as .npy: its header claims float64 of shape [10000000000, 8], "
        "640000000000 bytes, but only 6400 follow; it is cut or damaged; save them with numpy.save"
    )


def test_running_rejects_files_that_are_no_arrays(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("no", encoding="utf-8")
    np.savez(tmp_path / "y.npz", a=np.zeros(1))
    np.save(tmp_path / "z.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(InputError, match=r"missing\.npy' does not exist; check the path$"):
        load_images(tmp_path / "missing.npy")
    for name in ("x.npy", "z.npy"):
        with pytest.raises(InputError, match=r"cannot be read as \.npy: .*; save them with numpy\.save$"):
            load_images(tmp_path / name)
    with pytest.raises(InputError, match=r"it is an archive of several arrays, not one; save them with"):
        load_images(tmp_path / "y.npz")


@pytest.mark.parametrize(
    ("link", "baud", "message"),
    [
        ("model", 9600, "baud 9600 is the rate of a port, and link 'model' is none; leave out the rate"),
        ("/dev/ttyUSB1", 0, "the rate of a port must be 1 bit per second or more, given 0"),
    ],
)
def test_open_rejects_a_rate_that_cannot_be(tmp_path: Path, link: str, baud: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        nnhw.open(tmp_path, link, baud=baud)
    assert str(caught.value) == message


@pytest.mark.parametrize(("baud", "tried"), [(None, [12_000_000, 3_000_000]), (1_000_000, [1_000_000])])
def test_open_tries_the_rates_that_were_built(
    small_build: Build, monkeypatch: pytest.MonkeyPatch, baud: int | None, tried: list[int]
) -> None:
    asked: list[int] = []

    class Port:
        def __init__(self, name: str, rate: int) -> None:
            asked.append(rate)
            raise LinkError(f"'{name}' cannot be opened")

    monkeypatch.setattr("nnhw.driver.links.serial.SerialLink", Port)
    with pytest.raises(LinkError, match="'/dev/ttyUSB1' cannot be opened"):
        nnhw.open(small_build, "/dev/ttyUSB1", baud=baud)
    assert asked == tried


@pytest.mark.parametrize("name", ["auto", "ftdi", "ftdi:ib7"])
def test_open_opens_the_ftdi_chip_that_the_build_is_for(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "b", stop_at="map", link="ftdi")
    asked: list[tuple[str, float]] = []

    class Chip:
        def __init__(self, link: str, hz: float) -> None:
            asked.append((link, hz))
            raise LinkError(f"'{link}' cannot be opened")

    monkeypatch.setattr("nnhw.driver.links.ftdi.FtdiLink", Chip)
    with pytest.raises(LinkError, match="cannot be opened"):
        nnhw.open(build, name)
    found = "ftdi" if name == "auto" else name
    assert asked == [(found, 30_000_000), (found, 15_000_000)]
    with pytest.raises(LinkError) as caught:
        nnhw.open(build, "/dev/ttyUSB1")
    assert str(caught.value) == (
        f"build '{build.path}' is for the board's link 'ftdi', not for '/dev/ttyUSB1'; use --link ftdi, or build it "
        "for the other link with 'nnhw build --link'"
    )


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("usb", "auto", "usb"),
        ("usb", "usb", "usb"),
        ("usb", "usb:/dev/ttyACM3", "usb:/dev/ttyACM3"),
        ("usb", "/dev/ttyACM3", "usb:/dev/ttyACM3"),
        ("ulpi", "usb", "ulpi"),
        ("ulpi", "usb:/dev/ttyACM3", "ulpi:/dev/ttyACM3"),
    ],
)
def test_open_opens_the_usb_that_the_build_is_for(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, found: str
) -> None:
    options = {"board": {"usb": "tinyfpga_bx", "ulpi": "ecpix5_45f"}[kind], "link": "usb", "style": "streaming"}
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "b", stop_at="map", **options)
    asked: list[str] = []

    class Port:
        def __init__(self, link: str) -> None:
            asked.append(link)
            raise LinkError(f"'{link}' cannot be opened")

    monkeypatch.setattr("nnhw.driver.links.serial.UsbSerialLink", Port)
    with pytest.raises(LinkError, match="cannot be opened"):
        nnhw.open(build, name)
    assert asked == [found]
    with pytest.raises(LinkError, match=rf"is for the board's link '{kind}', not for 'ftdi'; use --link usb"):
        nnhw.open(build, "ftdi")


def test_open_rejects_a_port_for_a_link_to_a_microcontroller(source: Source, tmp_path: Path) -> None:
    options = {"link": "spi", "style": "streaming"}
    build = nnhw.build(source.model, source.example_input, name="small", out=tmp_path / "b", stop_at="map", **options)
    with pytest.raises(LinkError) as caught:
        nnhw.open(build, "/dev/ttyUSB1")
    assert str(caught.value) == (
        f"build '{build.path}' is for the board's link 'spi', which no port of this computer speaks; "
        "drive it from a microcontroller, or build it with --link uart or --link ftdi"
    )
