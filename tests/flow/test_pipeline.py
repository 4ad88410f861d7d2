"""What is current stays, what is not is made again, and an interruption leaves nothing half-done."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from nnhw.errors import BuildError, InputError, MappingError
from nnhw.flow import pipeline
from nnhw.flow.build_stages import STAGE_NAMES, STAGES, Job, dependents
from nnhw.flow.folder.build_folder import MANIFEST, BuildFolder, read_json
from nnhw.flow.options import Options, load_overrides
from nnhw.flow.pipeline import Build, build_file
from nnhw.flow.tools.processes import ToolRun
from nnhw.flow.tools.processes import run as run_tool
from nnhw.flow.tools.progress import SilentProgress
from nnhw.model_files import model_name

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8"))


def estimate(file: str, out: Path, options: Options | None = None, stop_at: str = "map") -> Build:
    return build_file(file, "icebreaker", options or Options(frames=0), out=out, stop_at=stop_at)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the stages that ran."""
    names: list[str] = []

    def recorded(run: Callable[[Job, Path], None], name: str) -> Callable[[Job, Path], None]:
        def wrapper(job: Job, out: Path) -> None:
            names.append(name)
            run(job, out)

        return wrapper

    stages = tuple(dataclasses.replace(stage, run=recorded(stage.run, stage.name)) for stage in STAGES)
    monkeypatch.setattr(pipeline, "STAGES", stages)
    return names


def test_pipeline_estimate_writes_a_valid_report(small_net: str, tmp_path: Path) -> None:
    build = estimate(small_net, tmp_path / "b")
    jsonschema.validate(build.report, SCHEMA)
    assert build.report == Build.load(tmp_path / "b").report
    assert build.report["model"]["name"] == "small"
    assert build.report["model"]["weight_bits"] == 16 * 8 + 8 * 4
    assert build.report["model"]["products"] == 16 * 8 + 8 * 4
    assert build.report["exactness"]["samples"] == 60
    assert build.report["exactness"]["torch_ir"] == 0
    assert set(build.report["exactness"]["passes"].values()) == {0}
    assert build.report["cycles"]["interval"]["predicted"] >= 1
    assert build.report["fmax_hz"] is None
    assert [layer["name"] for layer in build.report["layers"]] == ["2", "5"]


def test_pipeline_runs_nothing_again_for_unchanged_input(small_net: str, tmp_path: Path, ran: list[str]) -> None:
    estimate(small_net, tmp_path / "b")
    before = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    ran.clear()
    estimate(small_net, tmp_path / "b")
    assert ran == ["capture"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()} == before


def test_pipeline_makes_a_changed_model_anew(
    small_net: str, write_net: Callable[[int], str], tmp_path: Path, ran: list[str]
) -> None:
    first = estimate(small_net, tmp_path / "b")
    ran.clear()
    second = estimate(write_net(2), tmp_path / "b")
    assert ran == ["capture", "lower", "map"]
    assert first.report["model"]["hash"] != second.report["model"]["hash"]


def test_pipeline_makes_only_what_an_option_changes(small_net: str, tmp_path: Path, ran: list[str]) -> None:
    estimate(small_net, tmp_path / "b")
    ran.clear()
    estimate(small_net, tmp_path / "b", Options(target_fps=1000, frames=0))
    assert ran == ["capture", "map"]


def test_pipeline_repairs_a_damaged_artefact(small_net: str, tmp_path: Path, ran: list[str]) -> None:
    estimate(small_net, tmp_path / "b")
    (tmp_path / "b" / "accelerator.npz").write_bytes(b"")
    ran.clear()
    estimate(small_net, tmp_path / "b")
    assert ran == ["capture", "map"]


def test_pipeline_makes_all_anew_with_other_code(
    small_net: str, tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate(small_net, tmp_path / "b")
    ran.clear()
    monkeypatch.setattr("nnhw.flow.build_stages.code_hash", lambda: "changed")
    estimate(small_net, tmp_path / "b")
    assert ran == ["capture", "lower", "map"]


def test_pipeline_waits_for_another_build_into_its_folder(small_net: str, tmp_path: Path) -> None:
    waits, built = threading.Event(), list[Build]()

    class Progress(SilentProgress):
        def note(self, text: str) -> None:
            if "another build" in text:
                waits.set()

    def build() -> None:
        built.append(
            build_file(
                small_net, "icebreaker", Options(frames=0), out=tmp_path / "b", stop_at="lower", progress=Progress()
            )
        )

    second = threading.Thread(target=build, daemon=True)
    with BuildFolder.lend(tmp_path / "b", "small", "icebreaker", pytest.fail) as folder:
        with folder.staging("lower") as staged:
            (staged / "a").write_text("1", encoding="utf-8")
            second.start()
            assert waits.wait(60)
            assert not built
            assert [path.name for path in staged.iterdir()] == ["a"]
            folder.commit("lower", "first", staged)
    second.join(60)
    assert built[0].report["model"]["name"] == "small"
    assert not (tmp_path / "b" / "a").exists()  # it was known, and belonged to another lowering


def test_pipeline_same_input_gives_same_bytes_without_paths(small_net: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        estimate(small_net, tmp_path / name)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert {name for name in one if one[name] != two[name]} <= {"timing.json"}
    assert one.keys() == two.keys()
    assert not [name for name, content in one.items() if str(tmp_path).encode() in content]


@pytest.mark.parametrize("stage", ["capture", "lower", "map"])
def test_pipeline_interrupted_stage_leaves_the_old_build_whole(
    small_net: str, write_net: Callable[[int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    estimate(small_net, tmp_path / "b")
    before = {path.name for path in (tmp_path / "b").iterdir()}

    def interrupted(job: Job, out: Path) -> None:
        (out / "half").write_text("", encoding="utf-8")
        raise KeyboardInterrupt

    stages = tuple(dataclasses.replace(s, run=interrupted) if s.name == stage else s for s in STAGES)
    monkeypatch.setattr(pipeline, "STAGES", stages)
    changed = write_net(2)
    with pytest.raises(KeyboardInterrupt):
        estimate(changed, tmp_path / "b", Options(target_fps=1000, frames=0))
    folder = BuildFolder.open(tmp_path / "b")
    assert not list((tmp_path / "b").glob(".partial*"))
    assert "half" not in {path.name for path in (tmp_path / "b").iterdir()}
    done = [name for name in STAGE_NAMES if name in folder.manifest["stages"]]
    assert all(folder.is_intact(name) for name in done)
    # A stage whose input changed is gone with its files; the report of the old build is gone with it.
    left = "elaborate" if stage == "capture" else stage
    assert done == list(STAGE_NAMES[: STAGE_NAMES.index(left)])
    if stage == "capture":
        assert {path.name for path in (tmp_path / "b").iterdir()} == before
    else:
        assert not (tmp_path / "b" / "report.json").exists()


def test_pipeline_interrupted_first_build_leaves_no_folder(
    small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(job: Job, out: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "STAGES", (dataclasses.replace(STAGES[0], run=interrupted), *STAGES[1:]))
    with pytest.raises(KeyboardInterrupt):
        estimate(small_net, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("jobs", "begun"), [(1, ["simulate"]), (2, ["build", "simulate"])])
def test_pipeline_failed_simulation_ends_the_build_beside_it(
    small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, begun: list[str]
) -> None:
    """With one process at a time the build does not even begin; the message is the same."""
    names: list[str] = []

    def build(job: Job, out: Path) -> None:
        names.append("build")
        run_tool(ToolRun("python", (sys.executable, "-c", "import time; time.sleep(60)"), out, "tool.log"))

    def simulate(job: Job, out: Path) -> None:
        names.append("simulate")
        raise BuildError("the RTL differs from the IR")

    runs = {"build": build, "simulate": simulate, "elaborate": lambda job, out: None}
    stages = tuple(dataclasses.replace(stage, run=runs.get(stage.name, stage.run)) for stage in STAGES)
    monkeypatch.setattr(pipeline, "STAGES", stages)
    monkeypatch.setattr(pipeline, "_can_simulate", lambda options, progress: True)
    with pytest.raises(BuildError, match="the RTL differs from the IR"):
        estimate(small_net, tmp_path / "b", Options(jobs=jobs), "build")
    assert names == begun
    assert {"map", "elaborate"} < set(json.loads((tmp_path / "b" / MANIFEST).read_text())["stages"])
    assert "build" not in json.loads((tmp_path / "b" / MANIFEST).read_text())["stages"]
    assert not list((tmp_path / "b").glob(".partial-*"))


def failing(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Let the first stage fail with what the system says."""

    def run(job: Job, out: Path) -> None:
        (out / "half").write_text("", encoding="utf-8")
        raise error

    monkeypatch.setattr(pipeline, "STAGES", (dataclasses.replace(STAGES[0], run=run), *STAGES[1:]))


def test_pipeline_rejects_a_full_disk_and_leaves_nothing_half_written(
    small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimate(small_net, tmp_path / "b")
    before = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    failing(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    for folder in ("b", "new"):
        with pytest.raises(BuildError) as error:
            estimate(small_net, tmp_path / folder)
        assert str(error.value) == (
            f"build folder '{tmp_path / folder}' cannot be written: No space left on device; make room, or correct "
            "what stands in the way, and build again; or give another folder with --out"
        )
    assert {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_pipeline_rejects_a_disk_that_is_full_at_the_manifest(
    small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(path: Path, *arguments: str, **options: str) -> int:
        if "manifest" not in path.name:
            return real(path, *arguments, **options)
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real = Path.write_text
    monkeypatch.setattr(Path, "write_text", write_text)
    with pytest.raises(BuildError, match=r"^build folder '.*' cannot be written: No space left on device; make room"):
        estimate(small_net, tmp_path / "b")
    assert not list((tmp_path / "b").glob(".*"))


def test_pipeline_rejects_what_stands_in_the_way_of_an_artefact(small_net: str, tmp_path: Path) -> None:
    estimate(small_net, tmp_path / "b")
    (tmp_path / "b" / "report.json").unlink()
    (tmp_path / "b" / "report.json").mkdir()
    with pytest.raises(BuildError, match=r"^build folder '.*' cannot be written: Is a directory \('.*report.json'\); "):
        estimate(small_net, tmp_path / "b")


def test_pipeline_says_of_whom_a_missing_file_is(
    small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "weights.pt"))
    with pytest.raises(FileNotFoundError):
        estimate(small_net, tmp_path / "b")


def test_pipeline_rejects_an_unusable_cache_before_it_begins(
    small_net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"^NNHW_CACHE is '.*file', which is no folder that can be written: "):
        estimate(small_net, tmp_path / "b")
    assert ran == []


def test_pipeline_starts_from_what_is_there(small_net: str, tmp_path: Path, ran: list[str]) -> None:
    estimate(small_net, tmp_path / "b", stop_at="lower")
    Path(small_net).unlink()
    ran.clear()
    build_file(small_net, "icebreaker", Options(frames=0), out=tmp_path / "b", start_from="map", stop_at="map")
    assert ran == ["map"]


def test_pipeline_rejects_to_start_without_the_stages_before(small_net: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as error:
        build_file(small_net, "icebreaker", Options(), out=tmp_path / "b", start_from="map", stop_at="map")
    assert str(error.value) == (
        f"build folder '{tmp_path / 'b'}' does not have stage 'capture': its last build failed, or stopped "
        "before that stage; run 'nnhw build' again"
    )
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            ("capture", "mapp"),
            "there is no stage 'mapp'; the stages are capture, lower, map, elaborate, simulate, sense, build, netlist",
        ),
        (("map", "lower"), "a build cannot start from 'map' and stop at 'lower', which comes before it"),
    ],
)
def test_pipeline_rejects_stages(small_net: str, tmp_path: Path, stages: tuple[str, str], message: str) -> None:
    with pytest.raises(InputError) as error:
        build_file(small_net, "icebreaker", Options(), out=tmp_path / "b", start_from=stages[0], stop_at=stages[1])
    assert str(error.value) == message


def test_pipeline_target_rate_gives_a_smaller_mapping(small_net: str, tmp_path: Path) -> None:
    fast = estimate(small_net, tmp_path / "fast", Options(frames=0, fast_for="engine")).report
    small = estimate(small_net, tmp_path / "small", Options(target_fps=100_000, frames=0)).report
    assert small["resources"]["lc"]["estimated"] < fast["resources"]["lc"]["estimated"]
    assert fast["cycles"]["interval"]["predicted"] < small["cycles"]["interval"]["predicted"] <= 480


def test_pipeline_rejects_a_rate_out_of_reach(small_net: str, tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"^--target-fps 1e\+09 at 48 MHz leaves 0.048 cycles per frame, but the "):
        estimate(small_net, tmp_path / "b", Options(target_fps=1e9, frames=0))


@pytest.mark.parametrize("option", ["clock_hz", "target_fps"])
@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan")])
def test_options_rejects_rates(option: str, value: float) -> None:
    """The message has the name and the unit of the command line."""
    needed, of_one = {
        "clock_hz": ("--clock needs a number of MHz from 0.001 to 10000", 1e6),
        "target_fps": ("--target-fps needs a positive number of frames/s", 1),
    }[option]
    with pytest.raises(InputError) as error:
        Options(**{option: value * of_one})  # type: ignore[arg-type]
    assert str(error.value) == f"{needed}, given {value:g}"


@pytest.mark.parametrize("clock_mhz", [1e300, 10_001, 0.0009])
def test_options_rejects_clocks_that_no_hardware_has(clock_mhz: float) -> None:
    with pytest.raises(InputError, match=r"--clock needs a number of MHz from 0.001 to 10000, given"):
        Options(clock_hz=clock_mhz * 1e6)


@pytest.mark.parametrize("option", ["seeds", "jobs", "frames", "netlist_frames", "sequences"])
def test_options_rejects_counts(option: str) -> None:
    least = 0 if "frames" in option else 1
    with pytest.raises(InputError) as error:
        Options(**{option: least - 1})  # type: ignore[arg-type]
    assert str(error.value) == f"--{option.replace('_', '-')} needs a whole number from {least} on, given {least - 1}"


def test_options_overrides_reach_the_mapping(small_net: str, tmp_path: Path) -> None:
    path = tmp_path / "o.toml"
    path.write_text('["2"]\npe = 2\n', encoding="utf-8")
    report = estimate(small_net, tmp_path / "b", Options(overrides=load_overrides(path), frames=0)).report
    assert report["layers"][0]["pe"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["2"]\npe = "x"\n', "'2' needs a table of whole numbers, such as [\"2\"] with pe = 8, given {'pe': 'x'}"),
        (f"a = {'[' * 9999}", "cannot be read: it is nested too deeply: 100 levels are accepted"),
        ("pe = 3\n", "'pe' needs a table of whole numbers, such as [\"pe\"] with pe = 8, given 3"),
    ],
)
def test_options_rejects_overrides(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "o.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_overrides(path)
    assert str(error.value).replace("': ", "' ", 1) == f"overrides file '{path}' {message}"


def test_pipeline_names_models_like_the_loader(small_net: str) -> None:
    from nnhw.frontend import load_source

    assert model_name(small_net) == load_source(small_net).name
    assert model_name(f"{small_net}:model") == load_source(f"{small_net}:model").name


def test_stages_know_who_reads_them() -> None:
    assert dependents("capture") == ["lower", "map", "elaborate", "simulate", "sense", "build", "netlist"]
    assert dependents("build") == ["netlist"]
    assert "build" not in dependents("simulate")


def test_report_schema_page_names_every_key() -> None:
    page = (ROOT / "docs" / "report-schema.md").read_text(encoding="utf-8")
    missing = [key for key in SCHEMA["required"] if f"`{key}" not in page]
    assert missing == []
    for section in ("model", "exactness", "cycles", "link", "board"):
        keys = SCHEMA["properties"][section]["required"]
        assert [key for key in keys if f"`{section}.{key}`" not in page] == []
    layer = SCHEMA["properties"]["layers"]["items"]["required"]
    assert [key for key in layer if f"`layers[].{key}`" not in page and f"`.{key}`" not in page] == []


def test_manifest_is_valid_json_with_hashes(small_net: str, tmp_path: Path) -> None:
    estimate(small_net, tmp_path / "b")
    manifest = read_json(tmp_path / "b" / MANIFEST)
    digests = [digest for stage in manifest["stages"].values() for digest in stage["files"].values()]
    assert {len(digest or "") for digest in digests} == {64}
