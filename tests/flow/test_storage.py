"""Builds take turns in a folder, and what the system refuses is a message."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from nnhw.errors import BuildError, InputError
from nnhw.flow.tools.storage import (
    LOCK,
    check_file_place,
    check_folder_place,
    locked,
    make_folder,
    reported,
    reported_in,
    system_errors,
)


def refusal(number: int, path: Path | None = None) -> OSError:
    """Return what the system says; a disk that is full does not say where."""
    return OSError(number, os.strerror(number), *([] if path is None else [str(path)]))


class Second(threading.Thread):
    """Another build into a folder, which has to wait; threads of one process take turns like processes.

    Parameters
    ----------
    folder: of both builds.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.notes: list[str] = []
        self.waits = threading.Event()
        self.seen: list[str] = []

    def run(self) -> None:
        with locked(self.folder, self._note):
            self.seen = sorted(path.name for path in self.folder.iterdir())

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.waits.set()


def test_locked_lets_a_second_build_wait_with_a_note(tmp_path: Path) -> None:
    folder, first_notes = tmp_path / "b", list[str]()
    second = Second(folder)
    with locked(folder, first_notes.append):
        (folder / "half").touch()
        second.start()
        assert second.waits.wait(60)
        assert second.seen == []
        (folder / "half").rename(folder / "whole")
    second.join(60)
    assert second.seen == [LOCK, "whole"]
    assert first_notes == []
    assert second.notes == [f"another build into '{folder}' is under way: this one begins when that one has ended"]
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_locked_makes_the_folder_again_that_the_first_build_removed(tmp_path: Path) -> None:
    second = Second(tmp_path / "b")
    with locked(tmp_path / "b", pytest.fail):
        second.start()
        assert second.waits.wait(60)
    second.join(60)
    assert second.seen == [LOCK]
    assert list(tmp_path.iterdir()) == []


def test_locked_needs_no_help_after_a_build_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with locked(tmp_path, pytest.fail):
        assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_locked_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "mine").write_text("whole", encoding="utf-8")
    (tmp_path / "b" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(BuildError, match=r"^build folder '.*b' cannot be written: .*\.lock'\); make room, or "):
        with reported_in(tmp_path / "b"), locked(tmp_path / "b", pytest.fail):
            pytest.fail("a link was followed")
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "whole"


@pytest.mark.parametrize("name", ["file", "file/below", "file/far/below"])
def test_make_folder_rejects_a_file_in_the_way(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildError) as caught:
        make_folder(tmp_path / name)
    assert str(caught.value) == (
        f"'{tmp_path / 'file'}' is a file, but a folder is needed there; give another with --out"
    )


def test_make_folder_rejects_what_the_system_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(path: Path, **options: object) -> None:
        raise refusal(errno.EACCES, path)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(BuildError) as caught:
        make_folder(tmp_path / "b")
    assert str(caught.value) == (
        f"build folder '{tmp_path / 'b'}' cannot be made: Permission denied ('{tmp_path / 'b'}'); "
        "give another with --out"
    )


def test_reported_says_what_and_why_and_what_to_do() -> None:
    with pytest.raises(BuildError) as caught, reported("it cannot be kept", "make room"):
        raise refusal(errno.ENOSPC)
    assert str(caught.value) == "it cannot be kept: No space left on device; make room"


@pytest.mark.parametrize(
    ("number", "name"), [(errno.ENOSPC, None), (errno.EROFS, "/elsewhere"), (errno.EACCES, "b/x"), (errno.ENOTDIR, "b")]
)
def test_reported_in_tells_what_concerns_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, name: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("b"), tmp_path / "b"):
        with pytest.raises(BuildError, match=rf"^build folder '{folder}' cannot be written: "), reported_in(folder):
            raise refusal(number, None if name is None else tmp_path / name)


def test_reported_in_leaves_errors_of_the_model_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), reported_in(tmp_path / "b"):
        (tmp_path / "weights.pt").read_bytes()


def test_system_errors_are_messages_but_for_a_reader_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught, system_errors():
        (tmp_path / "x").read_bytes()
    assert str(caught.value) == (
        f"the system refused to read or write a file: No such file or directory ('{tmp_path / 'x'}'); see whether it "
        "is there, may be used, and the disk has room"
    )
    with pytest.raises(BrokenPipeError), system_errors():
        raise BrokenPipeError


def test_place_of_a_file_rejects_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_file_place(tmp_path / "new")
    with pytest.raises(InputError, match="it exists and is not a file; give another path"):
        check_file_place(tmp_path)
    with pytest.raises(InputError, match=r"cannot be written: there is no folder '.*/none'; make it, or give another"):
        check_file_place(tmp_path / "none" / "new")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"cannot be written: folder '.*' is protected; give another path"):
        check_file_place(tmp_path / "new")


def test_place_of_a_folder_rejects_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder_place(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(BuildError) as caught:
        check_folder_place(tmp_path / "a" / "b")
    assert str(caught.value) == f"folder '{tmp_path}' cannot be written: it is protected; give another with --out"
