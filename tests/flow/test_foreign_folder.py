"""A build folder that somebody else made, or changed: it touches nothing outside of itself, and runs no code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.driver import open as open_driver
from nnhw.errors import BuildError, NnhwError
from nnhw.flow.build_stages import STAGE_NAMES
from nnhw.flow.folder.build_folder import MANIFEST, BuildFolder
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, run_build
from nnhw.flow.running.finished import program, run_file, trust_build
from nnhw.flow.tools.progress import SilentProgress
from nnhw.frontend import Source, load_source
from nnhw.nn import Int, QuantLinear, UInt
from tests.conftest import SMALL_NET

IMAGES = np.random.default_rng(3).random((2, 1, 4, 4)).astype(np.float32) - 0.5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    path = tmp_path_factory.mktemp("net") / "small.py"
    path.write_text(SMALL_NET.format(seed=1), encoding="utf-8")
    return load_source(path)


@pytest.fixture(scope="module")
def made(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("build") / "b"
    return run_build(source, "small", "icebreaker", Options(), out=out, stop_at="elaborate").path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    layers = [QuantLinear(16, 8, bias=False, weight_quant=Int(4)), UInt(4, scale=2**-3), QuantLinear(8, 4, bias=False)]
    model = torch.nn.Sequential(torch.nn.Flatten(), UInt(4, scale=2**-4), *layers)
    out = tmp_path_factory.mktemp("build") / "s"
    return nnhw.build(model, torch.from_numpy(IMAGES), name="s", out=out, style="shared", stop_at="map").path


@pytest.fixture
def build(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "b"))


def change(path: Path, edit: Callable[[Any], None]) -> None:
    """Change a JSON file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    edit(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def hash_anew(build: Path) -> None:
    """Make the manifest's hashes those of the files, as whoever changes them would."""

    def edit(manifest: Any) -> None:
        for stage in manifest["stages"].values():
            stage["files"] = {
                name: hashlib.sha256((build / name).read_bytes()).hexdigest() for name in stage["files"] if name
            }

    change(build / MANIFEST, edit)


@pytest.mark.parametrize("name", ["../victim", "/tmp/victim", "a/../../victim", "..", "", MANIFEST, "-a"])
def test_foreign_folder_cannot_name_files_outside(build: Path, source: Source, name: str) -> None:
    victim = build.parent / "victim"
    victim.write_text("not yours", encoding="utf-8")
    before = sorted(path.name for path in build.iterdir())
    change(build / MANIFEST, lambda manifest: manifest["stages"]["map"]["files"].update({name: "0" * 64}))
    for use in (
        lambda: run_build(source, "small", "icebreaker", Options(), out=build, stop_at="map"),
        lambda: nnhw.open(build, link="model"),
        lambda: trust_build(build),
    ):
        with pytest.raises(
            BuildError, match=f"{MANIFEST} names the file '{re.escape(name)}' of stage 'map', which is no "
        ):
            use()
    assert victim.read_text(encoding="utf-8") == "not yours"
    assert sorted(path.name for path in build.iterdir()) == before


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda manifest: manifest.update(stages=[]), "has no table 'stages'"),
        (lambda manifest: manifest.update(board="../b"), "needs a plain name as 'board', given '../b'"),
        (lambda manifest: manifest.pop("model"), "needs a plain name as 'model', given None"),
        (
            lambda manifest: manifest["stages"].update({"../x": {"files": {}}}),
            "needs a table of files for each stage, but",
        ),
        (
            lambda manifest: manifest["stages"]["map"].pop("files"),
            "needs a table of files for each stage, but not for 'map'",
        ),
        (lambda manifest: manifest["stages"]["map"]["files"].update({"a": 1}), "has no SHA-256 of file 'a', but 1"),
    ],
)
def test_foreign_folder_has_a_manifest_of_the_right_form(
    build: Path, edit: Callable[[Any], None], message: str
) -> None:
    change(build / MANIFEST, edit)
    with pytest.raises(BuildError, match=re.escape(f"build folder '{build}': {MANIFEST} {message}")):
        BuildFolder.open(build)


@pytest.mark.parametrize("name", ["map.json", ".partial-report.json", "program.bin", "anything"])
def test_foreign_folder_cannot_link_to_files_outside(build: Path, source: Source, name: str) -> None:
    victim = build.parent / "victim"
    victim.write_text("not yours", encoding="utf-8")
    (build / name).unlink(missing_ok=True)
    (build / name).symlink_to(victim)
    for use in (
        lambda: run_build(source, "small", "icebreaker", Options(), out=build, stop_at="map"),
        lambda: nnhw.open(build, link="model"),
        lambda: open_driver(build),
        lambda: program(build, SilentProgress()),
    ):
        with pytest.raises(BuildError, match=f"holds '{re.escape(name)}', which is a link, which may lead out of it"):
            use()
    assert victim.read_text(encoding="utf-8") == "not yours"


def add_code(build: Path, mark: Path) -> None:
    """Add what runs a command when it is simulated, as whoever is up to no good would."""
    text = (build / "device.v").read_text(encoding="utf-8")
    at = text.rindex("endmodule")
    code = f'initial $c("system(\\"touch {mark}\\");");\n'
    (build / "device.v").write_text(text[:at] + code + text[at:], encoding="utf-8")
    hash_anew(build)


def test_foreign_verilog_is_not_compiled(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_library(*_: object) -> Path:
        raise AssertionError("it was compiled")

    monkeypatch.setattr("nnhw.flow.virtual.compiled.compile_library", compile_library)
    add_code(build, tmp_path / "ran")
    with pytest.raises(BuildError) as error:
        nnhw.open(build, link="sim")
    assert str(error.value) == (
        f"build folder '{build}': its stage 'elaborate' was not made by this user's nnhw, or was changed since, and "
        "Verilog may run any code when it is compiled; make it anew with 'nnhw build small.py --board icebreaker "
        f"--start-from elaborate --stop-at elaborate --out {build}', or, if you trust whoever made it, say "
        f"'nnhw trust {build}'"
    )
    with pytest.raises(AssertionError, match="it was compiled"):
        nnhw.open(build, link="sim", trust=True)


def test_foreign_netlist_is_not_compiled(build: Path) -> None:
    for name in ("design.json", "build.json"):
        (build / name).write_text('{"clock_hz": 12000000}', encoding="utf-8")
    files = dict.fromkeys(("design.json", "build.json"))
    change(build / MANIFEST, lambda manifest: manifest["stages"].update(build={"key": "", "files": files}))
    hash_anew(build)
    options = Options(netlist_frames=1)
    with pytest.raises(BuildError, match="its stage 'build' was not made by this user's nnhw"):
        run_build(None, "small", "icebreaker", options, out=build, start_from="netlist")


def test_foreign_verilog_is_made_anew_from_the_accelerator(build: Path, made: Path, tmp_path: Path) -> None:
    add_code(build, tmp_path / "ran")
    command = ["build", "small.py", "--board", "icebreaker", "--start-from", "elaborate", "--stop-at", "elaborate"]
    result = CliRunner().invoke(app, [*command, "--out", str(build)])
    assert result.exit_code == 0, result.output
    assert "elaborate: made again, as this user's nnhw did not make what is there" in result.output
    assert (build / "device.v").read_bytes() == (made / "device.v").read_bytes()
    assert BuildFolder.open(build).text_to_compile("elaborate", "device.v")


def test_a_build_of_another_user_is_trusted_when_that_is_said(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHW_KEY", str(build.parent / "keys" / "other"))
    with pytest.raises(BuildError, match="was not made by this user's nnhw"):
        BuildFolder.open(build).text_to_compile("elaborate", "device.v")
    assert (build.parent / "keys" / "other").stat().st_mode & 0o777 == 0o600
    said = CliRunner().invoke(app, ["trust", str(build)]).output
    assert said == f"{build}: trusted from now on: capture, lower, map, elaborate\n"
    assert BuildFolder.open(build).text_to_compile("elaborate", "device.v")
    assert CliRunner().invoke(app, ["trust", str(build)]).output.endswith("nothing to do\n")


def test_trust_rejects_a_build_whose_files_have_changed(build: Path) -> None:
    (build / "device.v").write_text("module top; endmodule\n", encoding="utf-8")
    change(build / MANIFEST, lambda manifest: manifest["stages"]["elaborate"].pop("signature"))
    with pytest.raises(BuildError, match="has changed files of stage 'elaborate'"):
        trust_build(build)


def test_a_signature_is_of_one_stage_with_its_key_and_files(build: Path) -> None:
    folder = BuildFolder.open(build)
    assert not any(map(folder.is_foreign, folder.manifest["stages"]))
    folder.manifest["stages"]["build"] = folder.manifest["stages"]["elaborate"]
    folder.manifest["stages"]["map"]["key"] = "0" * 64
    del folder.manifest["stages"]["lower"]["files"]["lower.ir"]
    assert [stage for stage in folder.manifest["stages"] if folder.is_foreign(stage)] == ["lower", "map", "build"]


def test_without_a_place_for_the_key_a_process_trusts_itself(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNHW_KEY", str(tmp_path / "file" / "key"))
    out = run_build(source, "small", "icebreaker", Options(), out=tmp_path / "b", stop_at="capture").path
    assert not BuildFolder.open(out).is_foreign("capture")
    monkeypatch.setattr("nnhw.flow.folder.trust._key_of_process", lambda: b"another")
    with pytest.raises(BuildError, match=r"nnhw signs with a key in '.*key', which cannot be kept there: File exists"):
        BuildFolder.open(out).text_to_compile("capture", "capture.ir")
    with pytest.raises(BuildError, match=r"cannot be made or read \(File exists\), so trust ends with this process"):
        trust_build(out)


def test_a_damaged_key_is_said(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_bytes(b"short")
    monkeypatch.setenv("NNHW_KEY", str(tmp_path / "key"))
    with pytest.raises(BuildError, match=r"key file '.*key' has 5 bytes, but needs 32; delete it: "):
        BuildFolder.open(build).is_foreign("map")


VALUES = (None, True, -1, 0, 3, 1 << 40, 1 << 70, 10**400, 0.5, 1e308, "", "x", "../x", "\x1b[2J", [], {}, [[0]])


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) of a document."""
    for key in list(node if isinstance(node, dict) else range(len(node))):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def mutate(document: Any, rng: random.Random) -> str:
    """Change one place of a document; return the JSON."""
    container, key = rng.choice(list(places(document)))
    kind = rng.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container["more"] = container.pop(key)
    else:
        container[key] = rng.choice(VALUES)
    text = json.dumps(document)
    return text.replace(json.dumps("x"), rng.choice(['"x"', "NaN", "-Infinity", "[" * 5000 + "]" * 5000]))


def use(build: Path, out: Path) -> None:
    """Load, run and report a build."""
    run_file(build, out / "x.npy", "model", out / "y.npy")
    open_driver(build).close()
    Build.load(build)


@pytest.mark.parametrize("which", ["made", "shared"])
def test_changed_json_gives_messages_and_no_tracebacks(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    build = Path(shutil.copytree(request.getfixturevalue(which), tmp_path / "b"))
    np.save(tmp_path / "x.npy", IMAGES)
    use(build, tmp_path)
    rng, refused = random.Random(1), 0
    for path in sorted(build.glob("*.json")):
        content, manifest = path.read_bytes(), (build / MANIFEST).read_bytes()
        for _ in range(8):
            path.write_text(mutate(json.loads(content), rng), encoding="utf-8")
            if path.name != MANIFEST:
                hash_anew(build)
            try:
                use(build, tmp_path)
            except NnhwError:
                refused += 1
            (build / MANIFEST).write_bytes(manifest)
        path.write_bytes(content)
    assert refused > 10
    use(build, tmp_path)


@pytest.mark.parametrize("name", ["capture.json", "lower.json", "map.json", "elaborate.json", "accelerator.json"])
def test_changed_facts_give_messages_when_a_report_is_made(build: Path, name: str) -> None:
    rng, content, manifest = random.Random(1), (build / name).read_bytes(), (build / MANIFEST).read_bytes()
    for _ in range(20):
        (build / name).write_text(mutate(json.loads(content), rng), encoding="utf-8")
        hash_anew(build)
        trust_build(build)
        with contextlib.suppress(NnhwError):
            run_build(
                None, "small", "icebreaker", Options(frames=0), out=build, start_from="simulate", stop_at="simulate"
            )
        (build / MANIFEST).write_bytes(manifest)


@pytest.mark.parametrize(
    "edit",
    [
        lambda report: report.pop("layers"),
        lambda report: report["cycles"].update(interval=None),
        lambda report: report["layers"][0].update(name="\x1b[2J"),
        lambda report: report.update(exactness=[]),
    ],
)
def test_a_changed_report_gives_a_message(build: Path, edit: Callable[[Any], None]) -> None:
    change(build / "report.json", edit)
    result = CliRunner().invoke(app, ["report", str(build)])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert f"{build / 'report.json'}'" in result.output
    assert "run 'nnhw build' again" in result.output


def test_a_report_shows_a_name_with_brackets_as_it_is(build: Path) -> None:
    change(build / "report.json", lambda report: report["layers"][0].update(name="[/x]"))
    result = CliRunner().invoke(app, ["report", str(build)])
    assert result.exit_code == 0
    assert "│ [/x] " in result.output


def elaborate_with(build: Path, name: str) -> None:
    """Make the hardware of an accelerator whose first stage has another name."""

    def edit(document: Any) -> None:
        document["accelerator"]["stages"][0].update(name=name, layer=name)

    change(build / "accelerator.json", edit)
    hash_anew(build)
    run_build(None, "small", "icebreaker", Options(), out=build, start_from="elaborate", stop_at="elaborate")


def test_a_foreign_accelerator_brings_no_verilog_of_its_own(build: Path) -> None:
    elaborate_with(build, """a" ; endmodule initial $system("touch x"); /* \\ `include "x\"""")
    text = (build / "device.v").read_text(encoding="utf-8") + (build / "accelerator.v").read_text(encoding="utf-8")
    assert not [word for word in ("$system", "`include", "touch x") if word in text]
    assert "touch" in text


def test_a_foreign_accelerator_that_is_no_hardware_gives_a_message(build: Path) -> None:
    with pytest.raises(BuildError, match=r"nothing can be made of its stages map, which this user's nnhw did not make"):
        elaborate_with(build, "")


def test_a_mistake_of_nnhw_is_not_blamed_on_the_folder(made: Path) -> None:
    with pytest.raises(ZeroDivisionError), BuildFolder.open(made).reading("map"):
        _ = 1 // 0


@pytest.mark.parametrize(("side", "says"), [("input_format", "takes"), ("output_format", "gives")])
def test_an_accelerator_that_does_not_fit_its_graph_gives_a_message(build: Path, side: str, says: str) -> None:
    def edit(document: Any) -> None:
        found = document["accelerator"][side]
        found["shape"] = [2, found["shape"][0] // 2, *found["shape"][1:]]

    change(build / "accelerator.json", edit)
    hash_anew(build)
    with pytest.raises(BuildError, match=rf"'small_body' {says} integers of shape \[2, .*, but the graph b"):
        nnhw.open(build, link="model")


@pytest.mark.parametrize("which", ["made", "shared"])
def test_cut_files_give_messages_and_no_tracebacks(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    build = Path(shutil.copytree(request.getfixturevalue(which), tmp_path / "b"))
    np.save(tmp_path / "x.npy", IMAGES)
    needed = ("head.ir", "lower.ir", "tail.ir", "head.npz", "lower.npz", "tail.npz", "accelerator.npz", "program.bin")
    for name in needed:
        path, manifest = build / name, (build / MANIFEST).read_bytes()
        content = path.read_bytes() if path.exists() else b""
        for end in range(0, max(0, len(content) - 2), max(1, len(content) // 12)):
            path.write_bytes(content[:end])
            hash_anew(build)
            with pytest.raises(NnhwError):
                use(build, tmp_path)
        if content:
            path.write_bytes(content)
        (build / MANIFEST).write_bytes(manifest)


def test_every_stage_is_signed_when_it_is_made(made: Path) -> None:
    folder = BuildFolder.open(made)
    assert list(folder.manifest["stages"]) == list(STAGE_NAMES[:4])
    assert not any(map(folder.is_foreign, STAGE_NAMES))
