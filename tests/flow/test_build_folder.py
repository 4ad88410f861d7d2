"""Artefacts are whole or absent, and the manifest never lies, wherever a build stops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nnhw
from nnhw.errors import BuildError
from nnhw.flow.folder.build_folder import MANIFEST, BuildFolder, read_json, write_json


def commit(folder: BuildFolder, stage: str, key: str = "k", **files: str) -> None:
    with folder.staging(stage) as staged:
        for name, text in files.items():
            (staged / name).write_text(text, encoding="utf-8")
        folder.commit(stage, key, staged)


def visible(path: Path) -> list[str]:
    return sorted(item.name for item in path.iterdir())


def test_build_folder_commit_puts_files_and_manifest_into_place(tmp_path: Path) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    commit(folder, "lower", "key", a="1", b="2")
    again = BuildFolder.open(tmp_path / "b")
    assert visible(tmp_path / "b") == ["a", "b", MANIFEST]
    assert again.is_current("lower", "key")
    assert not again.is_current("lower", "other")
    assert not again.is_current("map", "key")
    assert (again.model, again.board) == ("net", "board")


def test_build_folder_interrupted_stage_leaves_nothing(tmp_path: Path) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    commit(folder, "lower", a="old")

    def interrupted() -> None:
        with folder.staging("lower") as staged:
            (staged / "a").write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert visible(tmp_path / "b") == ["a", MANIFEST]
    assert (tmp_path / "b" / "a").read_text(encoding="utf-8") == "old"
    assert BuildFolder.open(tmp_path / "b").is_current("lower", "k")


@pytest.mark.parametrize("moved", [0, 1])
def test_build_folder_interrupted_commit_is_no_finished_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    commit(folder, "lower", "old", a="old", b="old")
    done: list[object] = []

    def replace(source: Path, target: Path) -> None:
        if Path(target).name in ("a", "b"):
            if len(done) == moved:
                raise KeyboardInterrupt
            done.append(target)
        Path(source).rename(target)

    monkeypatch.setattr("nnhw.flow.folder.build_folder.os.replace", replace)
    with pytest.raises(KeyboardInterrupt):
        commit(folder, "lower", "new", a="new", b="new")
    again = BuildFolder.open(tmp_path / "b")
    assert not again.is_intact("lower")
    assert all(path.read_text(encoding="utf-8") == "new" for path in (tmp_path / "b").glob("[ab]"))


def test_build_folder_commit_removes_files_that_the_stage_no_longer_makes(tmp_path: Path) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    commit(folder, "lower", a="1", b="2")
    commit(folder, "lower", a="3")
    assert visible(tmp_path / "b") == ["a", MANIFEST]


@pytest.mark.parametrize("damage", ["remove", "change"])
def test_build_folder_notices_a_changed_file(tmp_path: Path, damage: str) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    commit(folder, "lower", a="1")
    if damage == "remove":
        (tmp_path / "b" / "a").unlink()
    else:
        (tmp_path / "b" / "a").write_text("x", encoding="utf-8")
    assert not folder.is_intact("lower")
    with pytest.raises(BuildError) as error:
        folder.require("lower")
    assert str(error.value) == (
        f"build folder '{tmp_path / 'b'}' has changed files of stage 'lower'; run 'nnhw build' again"
    )


def test_build_folder_rejects_a_missing_stage(tmp_path: Path) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    with pytest.raises(BuildError) as error:
        folder.require("map")
    assert str(error.value) == (
        f"build folder '{tmp_path / 'b'}' does not have stage 'map': its last build failed, or stopped "
        "before that stage; run 'nnhw build' again"
    )


def test_build_folder_rejects_a_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as error:
        BuildFolder.open(tmp_path)
    assert str(error.value) == f"'{tmp_path}' is no build folder: it has no {MANIFEST}; make one with 'nnhw build'"


def test_build_folder_rejects_to_build_into_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("", encoding="utf-8")
    with pytest.raises(BuildError) as error:
        BuildFolder.create(tmp_path, "net", "board")
    assert str(error.value) == (
        f"'{tmp_path}' holds files, but no {MANIFEST}: it is no build folder; give another with --out"
    )


def test_build_folder_rejects_another_model(tmp_path: Path) -> None:
    commit(BuildFolder.create(tmp_path / "b", "net", "icebreaker"), "lower", a="1")
    with pytest.raises(BuildError) as error:
        BuildFolder.create(tmp_path / "b", "other", "icebreaker")
    assert str(error.value) == (
        f"build folder '{tmp_path / 'b'}' holds model 'net' on board 'icebreaker', not 'other' on 'icebreaker'; "
        "give another folder with --out, or delete this one"
    )


def test_build_folder_rejects_another_version(tmp_path: Path) -> None:
    commit(BuildFolder.create(tmp_path / "b", "net", "board"), "lower", a="1")
    manifest = read_json(tmp_path / "b" / MANIFEST)
    write_json(tmp_path / "b" / MANIFEST, {**manifest, "nnhw": "0.0.9"})
    with pytest.raises(BuildError) as error:
        BuildFolder.open(tmp_path / "b")
    assert str(error.value) == (
        f"build folder '{tmp_path / 'b'}' was made by nnhw 0.0.9, this is nnhw {nnhw.__version__}; "
        "run 'nnhw build' again"
    )
    assert not BuildFolder.create(tmp_path / "b", "net", "board").is_intact("lower")


def test_build_folder_rejects_a_damaged_manifest(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{", encoding="utf-8")
    with pytest.raises(BuildError, match=r"^build file '.*json' cannot be read \(.*\); run 'nnhw build' again$"):
        BuildFolder.open(tmp_path)


def test_build_folder_create_removes_what_a_killed_build_left(tmp_path: Path) -> None:
    (tmp_path / ".partial-map-x").mkdir()
    (tmp_path / ".partial-report.json").write_text("{", encoding="utf-8")
    BuildFolder.create(tmp_path, "net", "board")
    assert visible(tmp_path) == []


def test_build_folder_lend_takes_what_is_there_and_removes_what_is_empty(tmp_path: Path) -> None:
    with BuildFolder.lend(tmp_path / "b", "net", "board", pytest.fail) as folder:
        commit(folder, "lower", a="1")
    assert visible(tmp_path / "b") == ["a", MANIFEST]
    with BuildFolder.lend(tmp_path / "b", "net", "board", pytest.fail) as folder:
        assert folder.is_current("lower", "k")
    with BuildFolder.lend(tmp_path / "empty", "net", "board", pytest.fail):
        pass
    assert not (tmp_path / "empty").exists()


def test_build_folder_lend_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("", encoding="utf-8")
    with pytest.raises(BuildError, match=r"holds files, but no manifest"):
        with BuildFolder.lend(tmp_path, "net", "board", pytest.fail):
            pytest.fail("the folder was lent")
    assert visible(tmp_path) == ["thesis.txt"]


def test_build_folder_rejects_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    commit(folder, "lower", a="1")

    def refuse(path: Path, mode: str = "r") -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(BuildError) as error:
        folder.require("lower")
    path = tmp_path / "b" / "a"
    assert str(error.value) == (
        f"build file '{path}' cannot be read: Permission denied ('{path}'); run 'nnhw build' again"
    )


def test_build_folder_manifest_bytes_do_not_depend_on_the_place(tmp_path: Path) -> None:
    for name in ("one", "two"):
        commit(BuildFolder.create(tmp_path / name, "net", "board"), "lower", a="1")
    assert (tmp_path / "one" / MANIFEST).read_bytes() == (tmp_path / "two" / MANIFEST).read_bytes()
    assert str(tmp_path) not in json.dumps(read_json(tmp_path / "one" / MANIFEST))


def test_build_folder_logs_have_no_hash_but_belong_to_their_stage(tmp_path: Path) -> None:
    folder = BuildFolder.create(tmp_path / "b", "net", "board")
    with folder.staging("build") as staged:
        (staged / "yosys.log").write_text("12:00", encoding="utf-8")
        folder.commit("build", "k", staged)
    assert folder.files("build") == {"yosys.log": None}
    (tmp_path / "b" / "yosys.log").write_text("13:00", encoding="utf-8")
    assert folder.is_current("build", "k")
    folder.drop("build")
    assert visible(tmp_path / "b") == [MANIFEST]
