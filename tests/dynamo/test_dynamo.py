"""torch.compile with the backend 'nnhw': results equal the reference composed with PyTorch, and what runs where."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import nnhw
from nnhw.dynamo import Backend, backend, close, graph_parts, notes
from nnhw.dynamo.compile_options import CompileOptions
from nnhw.errors import BoardError, InputError, LinkError, MappingError
from nnhw.nn import Int, QuantIdentity, QuantLinear, QuantReLU
from tests.driver.fakes import said_by_child
from tests.dynamo.models import Heads, Mixed, Residual, seeded, small_net

Kept = Callable[..., Backend]


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Each test has a fresh Dynamo, and hears all notes."""
    torch._dynamo.reset()
    notes.forget()
    yield
    torch._dynamo.reset()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of all builds that are made."""
    made: list[Path] = []
    run_build = graph_parts.run_build

    def counted(*args: Any, **options: Any) -> Any:
        made.append(options["out"])
        return run_build(*args, **options)

    monkeypatch.setattr(graph_parts, "run_build", counted)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests of this file keep builds."""
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="module")
def mixed() -> Mixed:
    model = seeded(Mixed)
    assert isinstance(model, Mixed)
    return model


@pytest.fixture(scope="module")
def exact(mixed: Mixed) -> Callable[[Tensor], Tensor]:
    """The reference of its network."""
    return nnhw.reference(mixed.net)


def composed(model: Mixed, images: Tensor, exact: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return what the reference gives, with PyTorch in front of it and behind."""
    with torch.no_grad():
        x = model.before(images)
        return model.after((exact or nnhw.reference(model.net))(x).to(x.dtype))


def images(count: int, size: int = 6, seed: int = 3) -> Tensor:
    return torch.randn(count, 1, size, size, generator=torch.Generator().manual_seed(seed))


def same(result: Tensor, expected: Tensor) -> bool:
    return result.dtype == expected.dtype and torch.equal(result, expected)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what nnhw has said: torch logs, too."""
    return [record.getMessage() for record in caplog.records if record.name == "nnhw.dynamo"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_dynamo_equals_composed_reference_in_an_evaluation_loop(
    mixed: Mixed, exact: Callable[[Tensor], Tensor], folder: Path, mode: Callable[[], Any]
) -> None:
    batches = images(21).split(8)
    kept = Backend(builds=folder)
    compiled = torch.compile(mixed, backend=kept)
    with mode():
        results = [compiled(batch) for batch in (*batches, images(1), images(3))]
    for result, batch in zip(results, (*batches, images(1), images(3)), strict=True):
        assert same(result, composed(mixed, batch, exact))
    assert len({part.key for partition in kept.partitions for part in partition.parts}) == 1


def test_dynamo_builds_once_for_all_batches_and_finds_it_on_disk(
    mixed: Mixed, exact: Callable[[Tensor], Tensor], tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Backend(builds=tmp_path)
    with torch.no_grad():
        for count in (5, 3, 1, 7):
            assert same(torch.compile(mixed, backend=kept)(images(count)), composed(mixed, images(count), exact))
    assert len(builds) == 1
    assert [part.origin for partition in kept.partitions for part in partition.parts] == [
        "built",
        *["open already"] * 2,
    ]
    monkeypatch.setattr(graph_parts, "_RUNNERS", {})  # as in another process
    torch._dynamo.reset()
    again = Backend(builds=tmp_path)
    with torch.no_grad():
        assert same(torch.compile(mixed, backend=again)(images(4)), composed(mixed, images(4), exact))
    assert len(builds) == 1
    assert [part.origin for part in again.partitions[0].parts] == ["found on disk"]
    assert [path.name for path in tmp_path.iterdir()] == [again.partitions[0].parts[0].folder.name]


def test_dynamo_makes_a_damaged_build_anew(
    mixed: Mixed, exact: Callable[[Tensor], Tensor], tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.no_grad():
        torch.compile(mixed, backend=Backend(builds=tmp_path))(images(4))
        (found,) = tmp_path.iterdir()
        (found / "lower.ir").write_text("(damaged)", encoding="utf-8")
        monkeypatch.setattr(graph_parts, "_RUNNERS", {})
        torch._dynamo.reset()
        assert same(
            torch.compile(mixed, backend=Backend(builds=tmp_path))(images(4)), composed(mixed, images(4), exact)
        )
    assert len(builds) == 2


def _of_another_model(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "model": "other", "stages": {}}), encoding="utf-8")


MANIFESTS: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "missing": Path.unlink,
    "of another model": _of_another_model,
}


def test_dynamo_makes_a_build_with_a_damaged_manifest_anew(
    tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the very process that finds it; a folder that is whole stays as it is."""
    model, given = seeded(small_net()), torch.randn(4, 16)
    expected = nnhw.reference(model)(given).to(given.dtype)
    for damage in (*MANIFESTS.values(), lambda path: None):
        monkeypatch.setattr(graph_parts, "_RUNNERS", {})
        torch._dynamo.reset()
        kept = Backend(builds=tmp_path)
        with torch.no_grad():
            assert same(torch.compile(model, backend=kept)(given), expected)
        (found,) = tmp_path.iterdir()
        assert graph_parts._is_whole(found, "map")
        damage(found / "manifest.json")
    assert len(builds) == 1 + len(MANIFESTS)
    assert [part.origin for part in kept.partitions[0].parts] == ["built"]


@pytest.fixture(scope="module")
def compiled(mixed: Mixed, folder: Path) -> Callable[[Tensor], Tensor]:
    """The model, compiled once for all examples of a property."""
    return torch.compile(mixed, backend=Backend(builds=folder), dynamic=None)


@settings(max_examples=10)
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_dynamo_equals_composed_reference_for_any_batches(
    mixed: Mixed,
    exact: Callable[[Tensor], Tensor],
    compiled: Callable[[Tensor], Tensor],
    counts: list[int],
    seed: int,
) -> None:
    with torch.no_grad():
        for count in counts:
            batch = images(count, seed=seed)
            assert same(compiled(batch), composed(mixed, batch, exact))


def test_dynamo_gives_an_empty_batch_for_an_empty_batch(folder: Path) -> None:
    model = seeded(small_net())
    compiled = torch.compile(model, backend=Backend(builds=folder))
    with torch.no_grad():
        assert compiled(torch.zeros(5, 16)).shape == (5, 4)
        assert same(compiled(torch.zeros(0, 16)), model(torch.zeros(0, 16)))


def test_dynamo_partition_says_what_runs_where_and_why(mixed: Mixed, folder: Path) -> None:
    kept, seen = Backend(builds=folder), []
    with torch.no_grad():
        torch.compile(mixed, backend=kept)(images(2))
        torch._dynamo.reset()
        torch.compile(mixed, backend=backend, options={"builds": folder, "on_partition": seen.append})(images(2))
    (partition,) = kept.partitions
    assert [row.operation for row in partition.accelerated()] == [
        *("quantize", "linear", "batch_norm", "relu", "quantize", "linear")
    ]
    assert [row.place.partition(" ")[0] for row in partition.accelerated()] == [
        f"'net.{number}'" for number in range(6)
    ]
    others = {row.operation: row.why for row in partition.rows if row.part is None}
    assert others["interpolate"] == "the accelerator has no 'interpolate'"
    assert others["matmul"] == others["softmax"] == "nothing quantizes its inputs"
    (part,) = partition.parts
    assert (part.layers, part.i_shape, part.o_shape, part.board) == (2, (16,), (4,), "icebreaker")
    assert [line.splitlines() for line in partition.lines()] == [[line] for line in partition.lines()]
    assert str(partition.rows[0]).startswith("PyTorch: x: interpolate (models.py:")
    assert partition.table().row_count == len(partition.rows)
    assert seen[0].rows == partition.rows


def test_dynamo_tells_the_partition_when_asked(
    mixed: Mixed, folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "nnhw.dynamo"), torch.no_grad():
        torch.compile(mixed, backend=Backend(builds=folder))(images(2))
    assert any("the accelerator has no 'interpolate'" in text for text in caplog.messages)
    assert capsys.readouterr().err == ""
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(mixed, backend=Backend(builds=folder, show=True))(images(2))
    assert "nnhw 0" in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 4])
def test_dynamo_takes_a_whole_residual_network_whatever_its_batch_was(folder: Path, count: int) -> None:
    model, kept = seeded(Residual), Backend(builds=folder)
    batch = torch.randn(count, 2, 3, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        result = torch.compile(model, backend=kept)(batch)
    assert same(result, nnhw.reference(model)(batch).float())
    assert all(row.part == 0 for row in kept.partitions[0].rows)
    assert len(list(folder.glob(kept.partitions[0].parts[0].folder.name))) == 1


def heads_composed(model: Heads, batch: Tensor) -> tuple[Tensor, Tensor]:
    codes = nnhw.reference(model.trunk)(batch).float()
    first = nnhw.reference(nn.Sequential(model.trunk[-1], model.first))(codes).float()
    second = nnhw.reference(nn.Sequential(model.trunk[-1], model.second[0]))(codes).float()
    return first, model.second[1](second)


def test_dynamo_cuts_a_trunk_with_two_heads_so_that_each_part_has_one_output(folder: Path) -> None:
    model, kept = seeded(Heads), Backend(builds=folder)
    assert isinstance(model, Heads)
    batch = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        result = torch.compile(model, backend=kept)(batch)
        expected = heads_composed(model, batch)
    assert all(map(same, result, expected))
    assert [part.layers for part in kept.partitions[0].parts] == [1, 2, 1]
    torch._dynamo.reset()
    one = Backend(builds=folder, max_parts=1)
    with torch.no_grad():
        first, second = torch.compile(model, backend=one)(batch)
        codes = nnhw.reference(model.trunk)(batch).float()
    assert same(first, model.first(codes))
    assert same(second, model.second(codes))
    assert len(one.partitions[0].parts) == 1
    reasons = {row.why for row in one.partitions[0].rows if row.part is None}
    assert any("1 parts already" in why for why in reasons) or reasons == {"nothing quantizes its inputs"}


class Stem(nn.Module):
    """Changes in place in front of the quantizer, and behind it."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.stem, self.net, self.late = nn.Linear(16, 16), small_net(), late

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        torch.relu_(x)
        y = self.net(x)
        if self.late:
            x.mul_(2.0)
        return y.add_(x.sum(1, keepdim=True))


@pytest.mark.parametrize("late", [False, True])
def test_dynamo_keeps_the_order_of_changes_in_place(folder: Path, late: bool) -> None:
    model = seeded(Stem(late))
    assert isinstance(model, Stem)
    batch = torch.randn(5, 16, generator=torch.Generator().manual_seed(1))
    kept = Backend(builds=folder)
    with torch.no_grad():
        result = torch.compile(model, backend=kept)(batch)
        between = torch.relu(model.stem(batch))
        computed = model.net(between) if late else nnhw.reference(model.net)(between).float()
        expected = computed + (between * (2.0 if late else 1.0)).sum(1, keepdim=True)
    assert same(result, expected)
    assert bool(kept.partitions[0].parts) != late


def test_dynamo_computes_in_float64_what_is_float64(folder: Path) -> None:
    model = seeded(Mixed).double()
    assert isinstance(model, Mixed)
    kept = Backend(builds=folder)
    with torch.no_grad():
        assert same(torch.compile(model, backend=kept)(images(3).double()), composed(model, images(3).double()))
    assert len(kept.partitions[0].parts) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dynamo_leaves_half_floats_to_pytorch(
    dtype: torch.dtype, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = seeded(Mixed).to(dtype)
    with torch.no_grad():
        result = torch.compile(model, backend=Backend(builds=tmp_path))(images(3).to(dtype))
        assert same(result, model(images(3).to(dtype)))
    name = str(dtype).removeprefix("torch.")
    assert f"it computes in {name}, in which every step rounds; only float32 and float64 are exact" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_dynamo_runs_a_model_that_is_moved_to_another_dtype_and_back(folder: Path) -> None:
    model = seeded(Mixed)
    assert isinstance(model, Mixed)
    compiled = torch.compile(model, backend=Backend(builds=folder))
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64, torch.float32):
            model.to(dtype)
            assert same(compiled(images(3).to(dtype)), composed(model, images(3).to(dtype)))


def test_dynamo_notices_weights_that_change(folder: Path) -> None:
    model = seeded(Mixed)
    assert isinstance(model, Mixed)
    kept = Backend(builds=folder)
    compiled = torch.compile(model, backend=kept)
    layer = model.net[1]
    assert isinstance(layer, QuantLinear)
    with torch.no_grad():
        first = compiled(images(3))
        layer.weight.data.neg_()  # the version of the parameter stays
        assert same(compiled(images(3)), composed(model, images(3)))
        layer.weight.neg_()
        assert same(compiled(images(3)), first)
    assert [part.origin for partition in kept.partitions for part in partition.parts][2] == "open already"


def test_dynamo_leaves_gradients_to_pytorch_with_one_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, builds: list[Path]
) -> None:
    model = seeded(Mixed)
    compiled = torch.compile(model, backend=Backend(builds=tmp_path))
    for _ in range(2):
        compiled(images(3)).sum().backward()
    assert all(value.grad is not None for value in model.parameters())
    model.requires_grad_(False)
    x = images(3).requires_grad_()
    compiled(x).sum().backward()
    assert x.grad is not None
    assert (len(said(caplog)), builds) == (1, [])
    assert "for it records gradients, which the accelerator has not; call the model under" in caplog.text


def test_dynamo_leaves_training_to_pytorch_with_one_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, builds: list[Path]
) -> None:
    model, twin = seeded(Mixed).train(), seeded(Mixed).train()
    compiled = torch.compile(model, backend=Backend(builds=tmp_path))
    with torch.no_grad():
        for count in (4, 5):
            assert same(compiled(images(count)), twin(images(count)))
    assert (len(said(caplog)), builds) == (1, [])
    assert "batch_norm 'net.2' (models.py:" in caplog.text
    assert "computes as in training; call model.eval()" in caplog.text
    model.eval()
    assert isinstance(model, Mixed)
    with torch.no_grad():
        assert same(compiled(images(4)), composed(model, images(4)))
    assert len(builds) == 1


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Sequential(nn.Linear(16, 4)), "it has no quantizer of nnhw; use nnhw.nn, or nnhw.quantize"),
        (nn.Sequential(QuantIdentity(4), nn.Linear(16, 4)), "linear '1': its weights are not quantized"),
        (
            nn.Sequential(QuantIdentity(4), nn.Softmax(-1), QuantLinear(16, 4)),
            "linear '2': the accelerator refuses it: linear '2' needs quantized inputs, but",
        ),
        (
            nn.Sequential(QuantIdentity(4, scale=1.0), QuantLinear(16, 4, weight_quant=Int(4, axis=1))),
            "linear '1': the accelerator refuses it: linear '1' needs weights with one scale",
        ),
    ],
    ids=["float", "float weights", "softmax", "refused"],
)
def test_dynamo_says_what_is_in_the_way(
    model: nn.Module, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = seeded(model)
    batch = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert same(torch.compile(model, backend=Backend(builds=tmp_path))(batch), model(batch))
    assert "PyTorch runs the whole graph, for no part of it can run on the accelerator: " in caplog.text
    assert why in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_dynamo_cuts_what_the_accelerator_refuses(folder: Path) -> None:
    refused = QuantLinear(8, 4, weight_quant=Int(4, axis=1))
    model = seeded(nn.Sequential(QuantIdentity(4), QuantLinear(16, 8), QuantReLU(2), refused, QuantReLU(2)))
    kept = Backend(builds=folder)
    batch = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        result = torch.compile(model, backend=kept)(batch)
        codes = nnhw.reference(model[:3])(batch).float()  # type: ignore[index]
        assert same(result, model[3:](codes))  # type: ignore[index]
    assert [row.part for row in kept.partitions[0].rows] == [0, 0, 0, None, None]
    assert "needs weights with one scale" in kept.partitions[0].rows[3].why


def big() -> nn.Module:
    return seeded(nn.Sequential(QuantIdentity(8), QuantLinear(128, 256, weight_quant=Int(8)), nn.Sigmoid()))


def test_dynamo_rejects_a_part_that_does_not_fit_unless_pytorch_may_run_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, batch = big(), torch.randn(3, 128, generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(model, backend=backend, options={"builds": tmp_path, "style": "streaming"})
    for _ in range(2):
        with torch.no_grad(), pytest.raises(MappingError) as error:
            compiled(batch)
        assert str(error.value).startswith("the part of 1 layers up to 'input_1' does not fit: ")
        assert str(error.value).endswith("; or let PyTorch run it by options={'fallback': True}")
        assert list(tmp_path.iterdir()) == []
    torch._dynamo.reset()
    kept = Backend(builds=tmp_path, style="streaming", fallback=True)
    with torch.no_grad():
        assert same(torch.compile(model, backend=kept)(batch), model(batch))
    assert "the part of 1 layers up to 'input_1' does not fit: " in caplog.text
    assert (kept.partitions[0].parts, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"bord": "icebreaker"}, InputError, "has no option 'bord'; did you mean 'board'? There are board, style, "),
        ({"board": "icebraker"}, BoardError, "board 'icebraker' is not known; did you mean 'icebreaker'"),
        ({"style": "quick"}, InputError, "--style is one of auto, streaming, shared; given 'quick'"),
        ({"link": 3}, InputError, "option 'link' of the backend 'nnhw' needs model, sim, auto or the name of a "),
        ({"max_parts": 0}, InputError, "option 'max_parts' of the backend 'nnhw' needs 1 or more, given 0"),
        ({"fallback": 1}, InputError, "option 'fallback' of the backend 'nnhw' needs True or False, given 1"),
        ({"builds": __file__}, InputError, f"needs a folder, but '{__file__}' is a file"),
        ({"link": "/dev/nnhw-none"}, LinkError, "serial port '/dev/nnhw-none' cannot be opened"),
    ],
)
def test_dynamo_rejects_options(
    mixed: Mixed, tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    compiled = torch.compile(mixed, backend=backend, options={"builds": tmp_path, **options})
    for _ in range(2):
        with torch.no_grad(), pytest.raises(error) as raised:
            compiled(images(2))
        assert text in str(raised.value)
    if "link" not in options or options["link"] == 3:
        with pytest.raises(error):
            Backend(**options)
    assert list(tmp_path.iterdir()) == []


def test_dynamo_model_is_shared_by_threads(mixed: Mixed, exact: Callable[[Tensor], Tensor], folder: Path) -> None:
    compiled = torch.compile(mixed, backend=Backend(builds=folder))
    results: list[bool] = []

    def work() -> None:
        with torch.no_grad():
            results.extend(same(compiled(images(count)), composed(mixed, images(count), exact)) for count in (5, 3))

    work()  # one thread compiles
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_dynamo_page_has_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "torch-compile.md").read_text(encoding="utf-8")
    section = page.partition("## Options")[2].partition("## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {field.name for field in fields(CompileOptions)}


def test_dynamo_rejects_modes_of_torch(mixed: Mixed) -> None:
    with torch.no_grad(), pytest.raises(InputError, match="the backend 'nnhw' has no mode, given 'max-autotune'"):
        torch.compile(mixed, backend=backend, mode="max-autotune")(images(2))


def test_dynamo_opens_a_closed_device_anew(mixed: Mixed, folder: Path) -> None:
    compiled = torch.compile(mixed, backend=Backend(builds=folder))
    with torch.no_grad():
        first = compiled(images(3))
        close()
        assert same(compiled(images(3)), first)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_dynamo_refuses_its_open_device_to_a_forked_process(folder: Path) -> None:
    """The first call of the child says so; the next one opens a device of its own, and the parent goes on with its."""
    model, given = seeded(small_net()), torch.randn(4, 16)
    expected, compiled = (
        nnhw.reference(model)(given).to(given.dtype),
        torch.compile(model, backend=Backend(builds=folder)),
    )
    with torch.no_grad():
        assert same(compiled(given), expected)

        def use() -> bool:
            with pytest.raises(LinkError, match=r"belongs to process \d+, which opened it, but this is process \d+"):
                compiled(given)
            return same(compiled(given), expected)

        assert said_by_child(use) == "True"
        assert same(compiled(given), expected)


def test_dynamo_keeps_builds_with_the_process_where_the_cache_is_off(
    mixed: Mixed, exact: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNHW_CACHE", "off")
    kept = Backend()
    with torch.no_grad():
        assert same(torch.compile(mixed, backend=kept)(images(3)), composed(mixed, images(3), exact))
    assert "nnhw-parts-" in str(kept.partitions[0].parts[0].folder)


def test_dynamo_finds_the_build_of_another_process(mixed: Mixed, folder: Path) -> None:
    script = (
        "import torch\nfrom nnhw.dynamo import Backend\nfrom tests.dynamo.models import Mixed, seeded\n"
        f"kept = Backend(builds={str(folder)!r})\n"
        "with torch.no_grad():\n    torch.compile(seeded(Mixed), backend=kept)(torch.zeros(9, 1, 5, 5))\n"
        "print(kept.partitions[0].parts[0].key, kept.partitions[0].parts[0].origin)"
    )
    kept = Backend(builds=folder)
    with torch.no_grad():
        torch.compile(mixed, backend=kept)(images(2))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split(" ", 1) == [kept.partitions[0].parts[0].key, "found on disk\n"]


def test_dynamo_equals_composed_reference_on_the_virtual_board(
    mixed: Mixed, exact: Callable[[Tensor], Tensor], folder: Path
) -> None:
    compiled = torch.compile(mixed, backend=backend, options={"link": "sim", "builds": folder})
    with torch.no_grad():
        for count in (5, 2):
            assert same(compiled(images(count)), composed(mixed, images(count), exact))
