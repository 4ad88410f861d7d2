"""Damaged and hostile ONNX files: refused in a sentence; nothing in them is run, nothing outside is read or written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import NnhwError

cases = pytest.importorskip(
    "tests.frontend.onnx_cases", reason="needs ONNX: pip install 'nnhw[onnx]'", exc_type=ImportError
)
import onnx  # noqa: E402  # behind the skip
from onnx import ModelProto, TensorProto, helper, numpy_helper  # noqa: E402

from nnhw.frontend.onnx import load  # noqa: E402
from nnhw.frontend.onnx.external import load_external  # noqa: E402
from nnhw.frontend.onnx.parsing import array_of  # noqa: E402

CONTENT = cases.quant().SerializeToString()


def refusal(content: bytes, folder: Path) -> str:
    """Return what is said of a file that is refused. Nothing may be written beside it."""
    path = folder / "model.onnx"
    path.write_bytes(content)
    before = sorted(folder.iterdir())
    with pytest.raises(NnhwError) as raised:
        load(path)
    assert sorted(folder.iterdir()) == before
    return str(raised.value).replace(f"{folder}/", "")


def changed(change: Callable[[ModelProto], object]) -> bytes:
    """Return a small model after a change."""
    made = ModelProto()
    made.ParseFromString(CONTENT)
    change(made)
    return made.SerializeToString()


@given(cut=st.integers(0, len(CONTENT) - 1))
@settings(max_examples=40, deadline=None)
def test_truncated_file_is_refused_or_whole(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cut")
    assert refusal(CONTENT[:cut], folder)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_changed_bytes_crash_nothing(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("changed") / "model.onnx"
    path.write_bytes(bytes(content))
    said = "nothing; "
    try:
        load(path)
    except NnhwError as error:
        said = str(error)
    assert "; " in said


def _loop(made: ModelProto) -> None:
    body = helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "body", [], [])
    made.graph.node.append(helper.make_node("Loop", ["", "", "x"], ["never"], "the_loop", body=body))


def _function(made: ModelProto) -> None:
    call = helper.make_node("again", ["a"], ["b"], domain="own")
    made.functions.append(helper.make_function("own", "again", ["a"], ["b"], [call], [helper.make_opsetid("", 17)]))


def _cycle(made: ModelProto) -> None:
    made.graph.node[0].input[0] = "y"


def _renamed_output(made: ModelProto) -> None:
    made.graph.node[1].output[0] = made.graph.node[0].output[0]


def _same_constants(made: ModelProto) -> None:
    made.graph.initializer.append(made.graph.initializer[0])


def _open_sizes(made: ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].Clear()


def _two_inputs(made: ModelProto) -> None:
    made.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, [1, 6]))


def _two_outputs(made: ModelProto) -> None:
    made.graph.output.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, None))


def _domain(made: ModelProto) -> None:
    made.graph.node[0].domain = "evil.ops"


def _version(made: ModelProto) -> None:
    made.opset_import[0].version = 1000


def _old(made: ModelProto) -> None:
    made.opset_import[0].version = 6


def _newer_domain(made: ModelProto) -> None:
    made.opset_import[1].version = 9


def _large(made: ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]


def _negative(made: ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [-1]


def _fewer_numbers(made: ModelProto) -> None:
    made.graph.initializer[0].dims[:] = [7]


def _large_input(made: ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1 << 40


def _large_constant(made: ModelProto) -> None:
    made.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [2], [1 << 30, 1 << 30]))
    made.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], ["huge"], "filled"))
    made.graph.node.append(helper.make_node("Add", ["y", "huge"], ["sum"]))
    made.graph.output[0].name = "sum"


AGAIN = "export the model again"
HOSTILE: dict[str, tuple[Callable[[ModelProto], object], str]] = {
    "loop": (
        _loop,
        (
            "model.onnx: Loop 'the_loop' runs a graph inside of the graph; export the model with fixed branches and "
            "without loops"
        ),
    ),
    "function": (
        _function,
        (
            "model.onnx has functions of its own, such as 'again'; put their nodes into the graph by "
            "onnx.inliner.inline_local_functions"
        ),
    ),
    "cycle": (
        _cycle,
        (
            "model.onnx: Quant 'the_q' reads 'y', which nothing makes before it; the nodes must be in the order in "
            f"which they run, without cycles: {AGAIN}"
        ),
    ),
    "name": (_renamed_output, f"model.onnx: 'q' is made twice, the second time by Quant 'the_wq'; {AGAIN}"),
    "constants": (_same_constants, f"model.onnx has two constants with the name 's'; {AGAIN}"),
    "open sizes": (
        _open_sizes,
        (
            "the input 'x' has the shape ['batch', '?']; the batch has to come first, and may be open, but all other "
            "sizes have to be fixed: export with fixed sizes"
        ),
    ),
    "two inputs": (
        _two_inputs,
        (
            "model.onnx must have one input, got 2: 'x', 'other'; make constants of the others, or export a model with "
            "one input"
        ),
    ),
    "two outputs": (
        _two_outputs,
        "model.onnx must have one output, got 2: 'y', 'q'; keep one, such as by onnx.utils.extract_model",
    ),
    "domain": (
        _domain,
        (
            "model.onnx has the operator Quant of the domain 'evil.ops', but operators of this domain are not known "
            "here; export with operators of ONNX, of ONNX Runtime (com.microsoft), or of QONNX "
            "(qonnx.custom_op.general)"
        ),
    ),
    "large": (
        _large,
        (
            "model.onnx: tensor 's' has the shape [1099511627776, 1048576]; constants may have 268435456 numbers all "
            "together; export a smaller model"
        ),
    ),
    "large input": (
        _large_input,
        "the input 'x' has 1099511627776 numbers for one image; 16777216 are accepted: export with smaller images",
    ),
    "large constant": (
        _large_constant,
        "ConstantOfShape 'filled' makes a constant of 1.15e+18 numbers; 268435456 are accepted",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_refused(name: str, tmp_path: Path) -> None:
    change, said = HOSTILE[name]
    assert refusal(changed(change), tmp_path) == said


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_version, "needs an opset version from 7 to "),
        (_old, "got 6; convert it by onnx.version_converter.convert_version"),
        (_newer_domain, "but its version 9 is not known here; "),
        (_negative, "tensor 's' has the shape [-1]; "),
        (_fewer_numbers, "the numbers of tensor 's' are not those of its shape [7] and type: "),
    ],
)
def test_damaged_file_is_refused(change: Callable[[ModelProto], object], part: str, tmp_path: Path) -> None:
    assert part in refusal(changed(change), tmp_path)


def test_empty_file_and_other_files_are_refused(tmp_path: Path) -> None:
    assert refusal(b"", tmp_path) == f"model.onnx is empty; {AGAIN}"
    assert refusal(b"PK\x03\x04 nothing", tmp_path).startswith("model.onnx is no ONNX file, or ")
    assert refusal(b"\x08\x08", tmp_path) == f"model.onnx is no ONNX file, or has no nodes; {AGAIN}"


def external(location: str, **more: str) -> bytes:
    """Return a model whose weights are in another file."""

    def change(made: ModelProto) -> None:
        tensor = next(item for item in made.graph.initializer if item.name == "w")
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **more}.items():
            tensor.external_data.add(key=key, value=value)

    return changed(change)


WEIGHTS = np.arange(24, dtype=np.float32)


def test_external_integers_of_two_bits_are_four_in_a_byte(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes([0b11_10_01_00, 0b01]))
    tensor = TensorProto(name="w", data_type=TensorProto.INT2, dims=[5])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    load_external([tensor], tmp_path / "model.onnx")
    assert array_of(tensor, "the file").tolist() == [0, 1, -2, -1, 1]


def test_external_data_in_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    WEIGHTS.tofile(tmp_path / "below" / "weights.bin")
    (tmp_path / "model.onnx").write_bytes(external("below/weights.bin"))
    model, _ = load(tmp_path / "model.onnx")
    assert [value.flatten().tolist() for name, value in model.state_dict().items() if name.endswith("weight")] == [
        WEIGHTS.tolist()
    ]


def test_external_data_at_offsets_is_what_onnx_reads(tmp_path: Path) -> None:
    """Both evaluations read weights through nnhw's own loader, so that it is compared with that of onnx."""
    rng = np.random.default_rng(3)
    tensors = [numpy_helper.from_array(rng.normal(size=size).astype(np.float32), f"t{size}") for size in (3, 5, 2)]
    made = helper.make_model(helper.make_graph([helper.make_node("Add", ["t3", "t5"], ["y"])], "g", [], [], tensors))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    saved = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    load_external(list(saved.graph.initializer), tmp_path / "m.onnx")
    assert [array_of(item, "the file").tolist() for item in saved.graph.initializer] == [
        numpy_helper.to_array(item).tolist() for item in onnx.load(tmp_path / "m.onnx").graph.initializer
    ]


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "below/../../secret.bin", "C:\\secret.bin", ""])
def test_external_data_outside_of_the_folder_is_refused(location: str, tmp_path: Path) -> None:
    WEIGHTS.tofile(tmp_path / "secret.bin")
    folder = tmp_path / "inside"
    folder.mkdir()
    assert refusal(external(location), folder) == (
        f"model.onnx: the numbers of tensor 'w' are said to be in '{location}', which is not in the folder of the "
        f"model; keep weights in a plain file in the folder of the model, or in the model itself"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
@pytest.mark.parametrize("name", ["link.bin", "folder/secret.bin"])
def test_external_data_behind_a_link_is_refused(name: str, tmp_path: Path) -> None:
    WEIGHTS.tofile(tmp_path / "secret.bin")
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "folder").symlink_to(tmp_path)
    assert "is a symbolic link, which is not followed; " in refusal(external(name), folder)


@pytest.mark.parametrize("more", [{"offset": "-4"}, {"offset": "96"}, {"length": "4"}, {"offset": "x"}])
def test_external_data_of_another_size_is_refused(more: dict[str, str], tmp_path: Path) -> None:
    WEIGHTS.tofile(tmp_path / "weights.bin")
    assert "tensor 'w' needs 96 bytes for its shape [6, 4], but 'weights.bin' has 96 bytes" in refusal(
        external("weights.bin", **more), tmp_path
    )


def test_external_data_that_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    assert "there is no such file beside the model; " in refusal(external("weights.bin"), tmp_path)
    (tmp_path / "folder").mkdir()
    assert "which is no plain file; " in refusal(external("folder"), tmp_path)
