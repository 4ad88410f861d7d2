from __future__ import annotations

import dataclasses
import hashlib
import io
import pickle
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from nnhw.errors import InputError, IrError
from nnhw.ir import Graph, Location, dumps, files, graph_hash, load, save
from nnhw.ir.files import pack_arrays, widen_integers
from tests.ir.graphs import random_graphs
from tests.ir.test_graph import small


@given(random_graphs())
@settings(max_examples=20, deadline=None)
def test_load_gives_back_what_was_saved(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    path = tmp_path_factory.mktemp("graph") / "g.ir"
    assert save(graph, path) == (path, path.with_suffix(".npz"))
    again = load(path)
    assert again == graph
    assert graph_hash(again) == graph_hash(graph)


def test_save_gives_the_same_bytes_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = []
    for number, now in enumerate((1e9, 1.7e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        files = save(small(), tmp_path / f"{number}.ir")
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1]


def test_pack_arrays_narrows_integers_and_keeps_values() -> None:
    arrays = {
        "a": np.array([-128, 127]),
        "b": np.array([128]),
        "c": np.array([2**31]),
        "d": np.array([True]),
        "e": np.array([1.5]),
        "f": np.zeros((0, 2), dtype=np.int64),
    }
    with np.load(io.BytesIO(pack_arrays(arrays)), allow_pickle=False) as stored:
        assert {name: str(stored[name].dtype) for name in stored.files} == {
            "a": "int8", "b": "int16", "c": "int64", "d": "bool", "e": "float64", "f": "int8",
        }  # fmt: skip
        for name, array in arrays.items():
            np.testing.assert_array_equal(widen_integers(stored[name]), array)
            assert widen_integers(stored[name]).dtype == array.dtype


def test_graph_hash_follows_what_is_computed_and_not_where_it_came_from() -> None:
    graph = small()
    moved = tuple(dataclasses.replace(node, location=Location("x", "y.py", 9)) for node in graph.nodes)
    assert graph_hash(dataclasses.replace(graph, nodes=moved)) == graph_hash(graph)
    assert graph_hash(dataclasses.replace(graph, name="other")) == graph_hash(graph)
    assert graph_hash(dataclasses.replace(graph, outputs=("relu",))) != graph_hash(graph)
    assert graph_hash(dataclasses.replace(graph, constants={"one": np.array(2.0)})) != graph_hash(graph)


def test_load_rejects_missing_and_damaged_files(tmp_path: Path) -> None:
    path, arrays = save(small(), tmp_path / "g.ir")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "h.ir")
    assert str(caught.value) == (
        f"graph file {tmp_path / 'h.ir'} does not exist; a graph is a text file, and an .npz file beside it unless "
        "the text has all numbers"
    )
    arrays.write_bytes(arrays.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"is damaged: .*; build it again"):
        load(path)


def test_load_rejects_a_graph_without_its_array(tmp_path: Path) -> None:
    path, arrays = save(small(), tmp_path / "g.ir")
    arrays.write_bytes(pack_arrays({}))
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(caught.value) == (
            f"graph file {path}: node 'one' has no array; give its numbers in the text, as in (data 1 2), or in "
            f"{arrays}: 'nnhw ir MODEL --out g.ir' writes both files"
        )
        arrays.unlink(missing_ok=True)


def test_load_takes_numbers_of_the_text_but_not_twice(tmp_path: Path) -> None:
    path, arrays = save(small(), tmp_path / "g.ir")
    path.write_text(dumps(small(), data=True), encoding="utf-8")
    with pytest.raises(
        IrError, match=r"g\.ir:5:\d+: constant 'one' has its numbers twice: here, and in the \.npz file"
    ):
        load(path)
    arrays.unlink()
    assert load(path) == small()


def test_load_rejects_a_text_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = save(small(), tmp_path / "g.ir")
    monkeypatch.setattr(files, "TEXT_BYTES_MAX", 10)
    with pytest.raises(InputError, match=r"the text has \d+ bytes, and 10 are accepted; put numbers into the \.npz"):
        load(path)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_load_never_unpickles(tmp_path: Path) -> None:
    path, arrays = save(small(), tmp_path / "g.ir")
    mark = tmp_path / "unpickled"
    entry = io.BytesIO()
    np.lib.format.write_array(entry, np.array(Trap(mark), dtype=object), allow_pickle=True)
    with zipfile.ZipFile(arrays, "w") as archive:
        archive.writestr("one.npy", entry.getvalue())
    with pytest.raises(InputError, match="is damaged"):
        load(path)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Trap(mark)))
    assert mark.exists()
