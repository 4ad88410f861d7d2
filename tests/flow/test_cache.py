"""The cache of tool results: whole or absent, checked when it is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.flow.cache import Cache, cache_key


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
    folder = Cache.default().folder
    assert folder is not None
    assert folder.name == "nnhw"


@given(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), min_size=2, max_size=2, unique=True))
def test_cache_key_depends_on_every_part(pairs: list[tuple[str, str]]) -> None:
    (first, second), (third, fourth) = pairs
    assert cache_key(a=first, b=second) != cache_key(a=third, b=fourth)


def test_cache_key_is_the_same_everywhere() -> None:
    assert cache_key(b=["x", "y"], a="1") == cache_key(a="1", b=["x", "y"])
    assert cache_key(a=b"1") != cache_key(a="1")
    assert cache_key(a="1") == "1d44fabdfd95be66d9e9675533c11bb688abc2b3cf5e832151c0cb6464ce5e46"
