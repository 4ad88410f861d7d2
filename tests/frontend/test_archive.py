"""Saved programs are loaded as data: whatever could run code is refused, and is not run."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nnhw.errors import CaptureError, InputError
from nnhw.frontend import capture, load_source
from nnhw.frontend.archive import load_archive
from nnhw.ir import graph_hash, run
from nnhw.nn import QuantLinear, Sign
from tests.frontend.models import binary_mlp, images, mixed_cnn
from tests.test_reading import lying

SAVE_AGAIN = "export the model again and save it with torch.export.save of torch 2.9 or newer"
MODEL = "net/models/model.json"
WEIGHTS = "net/data/weights/model_weights_config.json"
HUGE = '"sizes": [{"as_int": 1000000000}, {'
SAMPLES = "net/data/sample_inputs/model.pt"


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.path,)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("archive") / "net.pt2"
    batch = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(binary_mlp(), (images(),), dynamic_shapes=batch, strict=False), path)
    return path.read_bytes()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "code_was_run"


def pickled_trap(mark: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(Trap(mark), buffer)
    return buffer.getvalue()


def changed(archive: bytes, path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write the archive with other contents to `path`."""
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    change(entries)
    with zipfile.ZipFile(path, "w") as target:
        for name, content in entries.items():
            target.writestr(name, content)
    return path


def edit(entries: dict[str, bytes], name: str, old: str, new: str) -> None:
    text = entries[name].decode()
    assert old in text
    entries[name] = text.replace(old, new).encode()


def message_of(path: Path, mark: Path) -> str:
    with pytest.raises((InputError, CaptureError)) as caught:
        load_archive(path)
    assert not mark.exists()
    return str(caught.value)


@pytest.mark.parametrize("make", [binary_mlp, mixed_cnn])
@pytest.mark.parametrize("dynamic", [True, False])
def test_load_source_takes_programs_with_any_batch(
    tmp_path: Path, make: Callable[[], nn.Module], dynamic: bool
) -> None:
    model = make()
    batch = ({0: torch.export.Dim("batch")},) if dynamic else None
    torch.export.save(torch.export.export(model, (images(3),), dynamic_shapes=batch, strict=False), tmp_path / "a.pt2")
    source = load_source(tmp_path / "a.pt2")
    assert list(source.example_input.shape[1:]) == [1, 8, 8]
    assert torch.equal(source.example_input, load_source(tmp_path / "a.pt2").example_input)
    graph = source.capture()
    # The program of a static batch of 3 runs any number of images: the graph has no batch.
    x = images(5, seed=3).numpy()
    assert np.array_equal(run(graph, x)[0], run(capture(model, images(2)), x)[0])


def test_load_archive_keeps_the_users_lines(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sign, self.fc = Sign(), QuantLinear(64, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.sign(x.flatten(1)))  # type: ignore[no-any-return]

    torch.export.save(torch.export.export(Net().eval(), (images(),), strict=False), tmp_path / "net.pt2")
    graph = load_source(tmp_path / "net.pt2").capture()
    assert str(graph.node("fc").location) == f"'fc' (test_archive.py:{Net.forward.__code__.co_firstlineno + 1})"


def test_load_archive_gives_the_graph_of_the_module(archive: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(archive)
    assert graph_hash(load_source(path).capture()) == graph_hash(capture(binary_mlp(), images()))


def test_load_archive_never_unpickles_sample_inputs(archive: bytes, tmp_path: Path, mark: Path) -> None:
    path = changed(archive, tmp_path / "net.pt2", lambda e: e.update({SAMPLES: pickled_trap(mark)}))
    load_archive(path)
    assert not mark.exists()
    # The trap is a real one: torch itself falls into it.
    with contextlib.suppress(Exception):  # which error follows depends on the handlers of torch's log
        torch.export.load(path)
    assert mark.exists()


def test_load_archive_refuses_pickled_weights(archive: bytes, tmp_path: Path, mark: Path) -> None:
    def change(entries: dict[str, bytes]) -> None:
        config = json.loads(entries[WEIGHTS])
        config["config"]["2.weight"]["use_pickle"] = True
        entries[WEIGHTS] = json.dumps(config).encode()
        entries[f"net/data/weights/{config['config']['2.weight']['path_name']}"] = pickled_trap(mark)

    path = changed(archive, tmp_path / "net.pt2", change)
    assert message_of(path, mark) == (
        f"{path} holds weight '2.weight' as a pickle or custom object, which could run code when loaded; make it a "
        f"plain, contiguous tensor, and {SAVE_AGAIN}"
    )


def test_load_archive_refuses_custom_objects_and_unknown_parts(archive: bytes, tmp_path: Path, mark: Path) -> None:
    def custom(entries: dict[str, bytes]) -> None:
        config = {"config": {"k": {"path_name": "custom_obj_0", "is_param": False, "use_pickle": True}}}
        entries["net/data/constants/model_constants_config.json"] = json.dumps(config).encode()
        entries["net/data/constants/custom_obj_0"] = pickled_trap(mark)

    path = changed(archive, tmp_path / "net.pt2", custom)
    assert message_of(path, mark) == (
        f"{path} holds 1 parts that are not plain data (data/constants/custom_obj_0), which could run code when "
        f"loaded; make weights and constants plain tensors, and {SAVE_AGAIN}"
    )
    code = changed(archive, tmp_path / "code.pt2", lambda e: e.update({"net/data/aotinductor/model/a.so": b"\x7fELF"}))
    assert message_of(code, mark) == f"{code} holds compiled code, which is not run; {SAVE_AGAIN}"


def test_load_archive_refuses_sizes_that_python_would_evaluate(archive: bytes, tmp_path: Path, mark: Path) -> None:
    symbol = next(v for v in _strings(archive) if v.startswith("Symbol("))
    attack = f"exec(\\\"import pathlib; pathlib.Path('{mark}').touch()\\\")"
    path = changed(archive, tmp_path / "net.pt2", lambda e: edit(e, MODEL, symbol, attack))
    message = message_of(path, mark)
    assert message.startswith(f"{path} needs plain sizes, got 'exec(")
    # The hole is a real one: torch itself evaluates it.
    with pytest.raises(Exception):  # noqa: B017, PT011  # whatever becomes of the result
        torch.export.load(path)
    assert mark.exists()


def _strings(archive: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        found: list[str] = []

        def walk(node: Any) -> None:
            if isinstance(node, dict | list):
                for item in node.values() if isinstance(node, dict) else node:
                    walk(item)
            elif isinstance(node, str):
                found.append(node)

        walk(json.loads(source.read(MODEL)))
    return found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch.ops.aten.flatten.using_ints", "torch.hub.load", "needs operators of torch, got 'torch.hub.load'"),
        ('builtins.tuple\\"', 'collections.defaultdict\\"', "needs tensors and plain tuples as inputs, got"),
        ('"custom_obj_values": {}', '"custom_obj_values": {"a": 1}', "must not hold custom objects, got {'a': 1}"),
    ],
)
def test_load_archive_refuses(archive: bytes, tmp_path: Path, mark: Path, old: str, new: str, message: str) -> None:
    path = changed(archive, tmp_path / "net.pt2", lambda entries: edit(entries, MODEL, old, new))
    found = message_of(path, mark)
    assert found.startswith(f"{path} {message}")
    assert found.endswith(SAVE_AGAIN)


def test_load_archive_drops_python_guards(archive: bytes, tmp_path: Path, mark: Path) -> None:
    guard = f"__import__('pathlib').Path('{mark}').touch()"
    path = changed(
        archive, tmp_path / "net.pt2", lambda e: edit(e, MODEL, '"guards_code": []', f'"guards_code": ["{guard}"]')
    )
    program = load_archive(path)
    program.module()(images())
    assert not mark.exists()


def test_load_archive_refuses_files_that_are_no_archives(archive: bytes, tmp_path: Path, mark: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"not a zip file")
    assert message_of(path, mark) == f"{path} is not a .pt2 archive: File is not a zip file; {SAVE_AGAIN}"
    path.write_bytes(archive[: len(archive) // 2])
    assert message_of(path, mark) == f"{path} is not a .pt2 archive: File is not a zip file; {SAVE_AGAIN}"
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("data.pkl", pickled_trap(mark))
    assert message_of(path, mark) == f"{path} is not a .pt2 archive of one model named 'model'; {SAVE_AGAIN}"
    changed(archive, path, lambda entries: entries.update({MODEL: b"{"}))
    assert message_of(path, mark).startswith(f"{path}: models/model.json is damaged: ")


def test_load_archive_refuses_two_files_of_one_name(archive: bytes, tmp_path: Path, mark: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(archive)
    with zipfile.ZipFile(path, "a") as target, pytest.warns(UserWarning, match="Duplicate name"):
        target.writestr(MODEL, b"{}")
    assert message_of(path, mark) == f"{path} is not a .pt2 archive: it holds two files of the same name; {SAVE_AGAIN}"


def test_load_archive_refuses_entries_that_unpack_to_much_more(archive: bytes, tmp_path: Path, mark: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(archive)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as target:
        target.writestr("net/data/weights/weight_99", bytes(80 << 20))
    assert path.stat().st_size < 1 << 20
    assert message_of(path, mark) == (
        f"{path} is not a .pt2 archive: its compressed entries unpack to {80 << 20} bytes; at most {64 << 20} are "
        f"accepted: save it without compression; {SAVE_AGAIN}"
    )


def test_load_archive_refuses_an_entry_that_unpacks_to_more_than_it_claims(
    archive: bytes, tmp_path: Path, mark: Path
) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(archive)
    lying(path, "net/data/weights/weight_99", bytes(64 << 20), 4)
    tracemalloc.start()
    message = message_of(path, mark)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert message == (
        f"{path} is not a .pt2 archive: its entry 'net/data/weights/weight_99' claims 4 bytes, but unpacks to a "
        f"different number; {SAVE_AGAIN}"
    )
    assert peak < 4 << 20


@pytest.mark.parametrize(("left", "said"), [(0, "has 0 of the 3072 bytes"), (3068, "has 3068 of the 3072 bytes")])
def test_load_archive_refuses_a_weight_without_all_of_its_bytes(
    archive: bytes, tmp_path: Path, mark: Path, left: int, said: str
) -> None:
    """torch itself takes zeros for a weight without bytes."""

    def change(entries: dict[str, bytes]) -> None:
        entry = json.loads(entries[WEIGHTS])["config"]["2.weight"]
        name = f"net/data/weights/{entry['path_name']}"
        entries[name] = entries[name][:left]

    path = changed(archive, tmp_path / "net.pt2", change)
    assert message_of(path, mark) == f"{path} {said} of weight '2.weight'; {SAVE_AGAIN}"


def test_load_archive_takes_tensors_of_no_elements_and_repeated_ones(tmp_path: Path) -> None:
    """Both have fewer bytes than a tensor of their shape has elements."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.sign, self.fc = Sign(), QuantLinear(64, 3)
            self.register_buffer("none", torch.zeros(0))
            self.register_buffer("same", torch.ones(1).expand(100))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.sign(x.flatten(1))) + self.same[:3] + self.none.sum()  # type: ignore[no-any-return]

    torch.export.save(torch.export.export(Net().eval(), (images(),), strict=False), tmp_path / "net.pt2")
    program = load_archive(tmp_path / "net.pt2")
    state = program.state_dict
    assert state["none"].shape == (0,)
    assert torch.equal(state["same"], torch.ones(100))


def test_load_archive_refuses_tensors_that_claim_more_than_there_is(archive: bytes, tmp_path: Path, mark: Path) -> None:
    path = changed(archive, tmp_path / "net.pt2", lambda entries: edit(entries, WEIGHTS, '"sizes": [{', HUGE))
    assert message_of(path, mark).startswith(f"{path} holds tensors that claim ")


def test_load_archive_refuses_claims_of_one_tensor_beside_another_one_of_many_bytes(
    archive: bytes, tmp_path: Path, mark: Path
) -> None:
    def change(entries: dict[str, bytes]) -> None:
        table = json.loads(entries[WEIGHTS])
        name, claims = next(iter(table["config"].items()))
        claims["tensor_meta"]["sizes"] = [{"as_int": 1 << 21}]
        table["config"][f"{name}_2"] = json.loads(json.dumps(claims)) | {"path_name": "weight_99"}
        table["config"][f"{name}_2"]["tensor_meta"]["sizes"] = [{"as_int": 1 << 20}]
        entries["net/data/weights/weight_99"] = bytes(4 << 20)
        entries[WEIGHTS] = json.dumps(table).encode()

    path = changed(archive, tmp_path / "net.pt2", change)
    assert message_of(path, mark).startswith(f"{path} holds tensors that claim ")
