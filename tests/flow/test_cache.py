"""The cache of tool results: whole or absent, checked when it is read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.errors import InputError
from nnhw.flow.tools.cache import Cache, cache_key


def store(cache: Cache, folder: Path, key: str, **files: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content)
    cache.store(key, folder, list(files))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def into(tmp_path: Path) -> Path:
    path = tmp_path / "into"
    path.mkdir()
    return path


KEY = cache_key(stage="a", tool="b")


def entry_of(cache: Cache) -> Path:
    assert cache.folder is not None
    return cache.folder / KEY[:2] / KEY


def test_cache_gives_back_what_it_was_given(cache: Cache, into: Path, tmp_path: Path) -> None:
    assert not cache.fetch(KEY, into)
    store(cache, tmp_path / "made", KEY, one="1", two="22")
    assert cache.fetch(KEY, into)
    assert {path.name: path.read_text() for path in into.iterdir()} == {"one": "1", "two": "22"}
    assert not cache.fetch(cache_key(stage="b", tool="b"), into)


@pytest.mark.parametrize("damage", ["changed", "cut", "gone", "index", "index_type"])
def test_cache_removes_damaged_entry(cache: Cache, into: Path, tmp_path: Path, damage: str) -> None:
    store(cache, tmp_path / "made", KEY, one="1", two="22")
    entry = entry_of(cache)
    actions = {
        "changed": lambda: (entry / "two").write_text("23"),
        "cut": lambda: (entry / "two").write_text("2"),
        "gone": lambda: (entry / "one").unlink(),
        "index": lambda: (entry / "index.json").write_text("{"),
        "index_type": lambda: (entry / "index.json").write_text("3"),
    }
    actions[damage]()
    assert not cache.fetch(KEY, into)
    assert list(into.iterdir()) == []
    assert not entry.exists()
    store(cache, tmp_path / "made", KEY, one="1", two="22")
    assert cache.fetch(KEY, into)


def test_cache_keeps_the_first_of_two_equal_entries(cache: Cache, into: Path, tmp_path: Path) -> None:
    store(cache, tmp_path / "made", KEY, one="1")
    store(cache, tmp_path / "made", KEY, one="1")
    assert cache.fetch(KEY, into)
    assert cache.folder is not None
    assert [path.name for path in cache.folder.iterdir()] == [KEY[:2]]


def test_cache_leaves_nothing_half_written(cache: Cache, into: Path, tmp_path: Path) -> None:
    store(cache, tmp_path / "made", KEY, one="1")
    cache.store(cache_key(other="x"), tmp_path / "made", ["one", "missing"])
    assert cache.folder is not None
    assert len(list(cache.folder.glob("??/*"))) == 1
    assert not list(cache.folder.glob(".partial-*"))


def test_cache_drops_what_was_used_least_recently(tmp_path: Path, into: Path) -> None:
    cache = Cache(tmp_path / "cache", limit_bytes=1000)
    keys = [cache_key(number=number) for number in range(3)]
    for age, key in enumerate(keys[:2]):
        store(cache, tmp_path / "made", key, one="x" * 300)
        os.utime(tmp_path / "cache" / key[:2] / key, (1000 + age, 1000 + age))
    assert cache.fetch(keys[0], into)
    store(cache, tmp_path / "made", keys[2], one="x" * 300)
    assert [cache.fetch(key, into) for key in keys] == [True, False, True]


def test_cache_that_is_off_finds_nothing(tmp_path: Path, into: Path) -> None:
    cache = Cache(None)
    store(cache, tmp_path / "made", KEY, one="1")
    assert not cache.fetch(KEY, into)


def test_cache_that_cannot_be_written_is_no_error(tmp_path: Path, into: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file")
    store(cache, tmp_path / "made", KEY, one="1")
    assert not cache.fetch(KEY, into)


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path))
    assert Cache.default().folder == tmp_path
    monkeypatch.setenv("NNHW_CACHE", "off")
    assert Cache.default().folder is None
    monkeypatch.delenv("NNHW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    folder = Cache.default().folder
    assert folder is not None
    assert folder.name == "nnhw"


def test_cache_finds_entries_where_they_are_and_removes_damaged_ones(cache: Cache, tmp_path: Path) -> None:
    assert cache.find(KEY) is None
    store(cache, tmp_path / "made", KEY, one="1")
    assert cache.find(KEY) == entry_of(cache)
    (entry_of(cache) / "one").write_text("")
    assert cache.find(KEY) is None
    assert not entry_of(cache).exists()


def test_cache_keeps_what_a_file_may(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "program").write_text("1")
    (tmp_path / "program").chmod(0o755)
    assert os.access(cache.keep(KEY, tmp_path, ["program"]) / "program", os.X_OK)


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_cache_rejects_a_folder_that_cannot_be_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path / name))
    with pytest.raises(InputError) as caught:
        Cache.default()
    said = "File exists" if name == "file" else "Not a directory"
    assert str(caught.value) == (
        f"NNHW_CACHE is '{tmp_path / name}', which is no folder that can be written: {said} ('{tmp_path / name}'); "
        "name another folder, set it to 'off' to keep nothing, or unset it to use the system's place for caches"
    )


def refuse(*arguments: object, **options: object) -> NoReturn:
    """Stand in for the system that lets nobody write: tests may run as root, whom it lets."""
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(options["dir"]))


def test_cache_rejects_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("nnhw.flow.tools.cache.tempfile.TemporaryFile", refuse)
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path))
    with pytest.raises(
        InputError, match=rf"^NNHW_CACHE is '{tmp_path}', .*: Permission denied \('{tmp_path}'\); name "
    ):
        Cache.default()
    # The system's own place was not asked for: without it everything is made anew.
    monkeypatch.delenv("NNHW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert Cache.default().folder is None


def test_cache_takes_a_relative_folder_and_makes_those_around_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NNHW_CACHE", "not/there/yet")
    assert Cache.default().folder == tmp_path / "not" / "there" / "yet"
    assert list((tmp_path / "not" / "there" / "yet").iterdir()) == []


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), min_size=2, max_size=2, unique=True))
def test_cache_key_depends_on_every_part(pairs: list[tuple[str, str]]) -> None:
    (first, second), (third, fourth) = pairs
    assert cache_key(a=first, b=second) != cache_key(a=third, b=fourth)


def test_cache_key_is_the_same_everywhere() -> None:
    assert cache_key(b=["x", "y"], a="1") == cache_key(a="1", b=["x", "y"])
    assert cache_key(a=b"1") != cache_key(a="1")
    assert cache_key(a="1") == "1d44fabdfd95be66d9e9675533c11bb688abc2b3cf5e832151c0cb6464ce5e46"


def test_cache_drops_an_entry_for_another(cache: Cache, tmp_path: Path, into: Path) -> None:
    cache.drop(KEY)  # there is none
    store(cache, tmp_path / "one", KEY, a="1")
    cache.drop(KEY)
    assert cache.find(KEY) is None
    store(cache, tmp_path / "two", KEY, a="2")
    assert cache.fetch(KEY, into)
    assert (into / "a").read_text() == "2"
    Cache(None).drop(KEY)
