"""Files of TFLite: each operator is built and equal, or refused by name; goldens are equal by `==`."""

from __future__ import annotations

import importlib
import os
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import nnhw
from nnhw.cli import app
from nnhw.errors import ExactnessError, InputError, NnhwError
from nnhw.frontend import load_source
from nnhw.frontend.capture import capture_quantizers
from nnhw.ir import run
from nnhw.ir.ops import FixedSoftmax, Permute
from nnhw.passes import lower, split
from tests.frontend.cases import Case, check, check_names, rows
from tests.frontend.doors_table import check_row
from tests.sim.test_benches import pytestmark as needs_simulator

pytest.importorskip("tflite", reason="needs tflite: pip install 'nnhw[tflite]'")
from nnhw.frontend.tflite import TfliteModel, curves, evaluator, fixed_point, kernels, load, parse_model
from tests.frontend.tflite_cases import FILES, FORMS, behind, cases, joined, network, refusal
from tests.frontend.tflite_cases import split as split_file
from tests.frontend.tflite_models import File

EXAMPLES = Path(__file__).parents[2] / "examples"
CORRECT = 300  # of the 300 digits in examples/data
PAGE = (Path(__file__).parents[2] / "docs" / "tflite.md").read_text(encoding="utf-8")
DATA = Path(os.environ.get("NNHW_DATA", "/nonexistent"), "tflite_small")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="NNHW_DATA does not name a folder with tflite_small")


@pytest.mark.parametrize("case", rows(cases()))
def test_tflite_case_is_built_and_equal_or_refused_by_name(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("name", FORMS)
def test_operators_whose_sizes_all_differ_equal_their_kernels(name: str, rounding: str) -> None:
    model, _ = network(FORMS[name](), rounding)
    given = model.file.tensors[model.file.input]
    codes = np.random.default_rng(3).integers(given.distances.low, given.distances.high + 1, (16, *given.shape[1:]))
    numbers = codes * given.scale
    result = evaluator(model)(numbers).result
    assert len(np.unique(result)) > 16
    np.testing.assert_array_equal(model(torch.from_numpy(numbers)).numpy(), result)


def test_page_counts_the_cases_as_they_are() -> None:
    check_names(cases())
    check_row("TFLite")


def test_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()
    results = [CliRunner().invoke(app, command.split()[1:]) for command in commands]
    assert [result.exit_code for result in results] == [0, 0, 0], [result.output for result in results]
    assert "no problems" in results[0].output


def test_example_is_what_its_script_makes_and_tells_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    script = importlib.import_module("quantize_tflite")
    assert script.float_model is not None
    made = script.quantized(script.float_model, script.sample_images(script.CALIBRATION_DIGITS))
    assert made == (EXAMPLES / "mnist_int8.tflite").read_bytes()
    source = load_source(EXAMPLES / "mnist_int8.tflite")
    with np.load(EXAMPLES / "data" / "mnist_300.npz", allow_pickle=False) as samples:
        images = samples["images"][..., np.newaxis].astype(np.float32) / np.float32(255)
        labels = samples["labels"]
    answers = nnhw.reference(source.model, source.example_input)(images)
    np.testing.assert_array_equal(answers, evaluator(source.model)(images).result)
    assert int((answers.argmax(axis=1) == labels).sum()) == CORRECT


def test_program_of_the_page_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(program, {"__name__": "__main__"})


def goldens(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return images in real numbers, and the expected results."""
    stored = np.load(DATA / f"{name}_golden.npz", allow_pickle=False)
    if name == "magic_wand":
        return stored["inputs"].reshape(-1, 128, 3, 1), stored["expected_f32_bits"].view(np.float32)
    file = parse_model((DATA / f"{name}.tflite").read_bytes(), name)
    scale = file.tensors[file.input].scale
    return (stored["inputs"].astype(np.float64) + 128) * scale, stored["expected_softmax_plus128"] / 256


@needs_data
@pytest.mark.parametrize("name", ["magic_wand", "micro_speech"])
def test_tflite_golden_outputs_are_equal(name: str) -> None:
    source, (images, wanted) = load_source(DATA / f"{name}.tflite"), goldens(name)
    captured = source.capture()
    parts = split(lower(captured))
    for made in (run(captured, images)[0], parts.run(images)[0], source.model(torch.from_numpy(images)).numpy()):
        np.testing.assert_array_equal(made, wanted)
    assert next(type(node.op) for node in parts.tail.nodes if node.inputs) is FixedSoftmax
    assert not any(isinstance(node.op, Permute) for node in parts.body.nodes)


def test_tflite_roundings_differ_where_the_second_one_decides() -> None:
    double, single = (network(FILES["conv_same"](), rounding)[0] for rounding in ("double", "single"))
    images = torch.rand(64, 6, 5, 3, generator=torch.Generator().manual_seed(1)) * 12 - 6
    differs = (double(images) - single(images)).abs()
    assert 0 < differs.count_nonzero() < differs.numel() // 10


def test_tflite_layers_are_named_after_the_tensors_that_they_make(tmp_path: Path) -> None:
    (tmp_path / "small.tflite").write_bytes(FILES["real_softmax"]().bytes())
    source = load_source(tmp_path / "small.tflite")
    assert [name for name, _ in source.model.named_children()][:2] == ["net_quantize_0", "net_fully_connected_1"]
    assert {node.location.module for node in source.capture().nodes} >= {"net_fully_connected_1.rescaled"}


def test_tflite_rounding_is_chosen_behind_the_file(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(FILES["dense"]().bytes())
    assert load_source(f"{path}:single").model.rounding == "single"
    assert load_source(f"{path}:single").name == "net_single"
    assert load_source(path).model.rounding == "double"
    with pytest.raises(InputError) as raised:
        load_source(f"{path}:even")
    assert str(raised.value) == f"'even' behind {path} is no way to read a .tflite file; it can be double or single"


def test_tflite_evaluation_of_other_weights_is_noticed() -> None:
    """The kernels read the file, and the graph is made of the module: a mistake in either is an error."""
    model, example = network(FILES["conv_same"]())
    weight = model.get_submodule("net_conv_2d_0.rescaled").bias
    weight += 3000
    with pytest.raises(ExactnessError, match=r"net_conv_2d_0\.rescaled.* first whose code differs"):
        capture_quantizers(model, example)


@needs_simulator
def test_tflite_network_equals_reference_in_rtl(tmp_path: Path) -> None:
    path = tmp_path / "dense.tflite"
    path.write_bytes(FILES["dense"]().bytes())
    model, example = load(path)
    build = nnhw.build(model, example, board="ulx3s_25f", out=tmp_path / "build", frames=2, stop_at="simulate")
    assert build.report["exactness"]["ir_rtl"] == 0
    np.testing.assert_array_equal(
        nnhw.reference(model, example)(example.numpy()), evaluator(model)(example.numpy()).result
    )


def test_softmax_of_the_graph_equals_the_kernel_for_all_distances() -> None:
    for factor in ((1 << 30, 20), (2037852061, 23), (1500000000, 26)):
        op = FixedSoftmax(0, *factor, -fixed_point.radius(5, factor[1]))
        codes = np.stack([np.array([127, 127 - d, 100, -128 + d // 2]) for d in range(256)])
        exps = {
            d: fixed_point.exp_of_negative(fixed_point.multiplied(d, factor, "double"), 5) for d in range(op.least, 1)
        }
        made = op.evaluate(codes)
        for row, shares in zip(codes.tolist(), made.tolist(), strict=True):
            powers = [exps.get(code - max(row), 0) for code in row]
            total = sum(fixed_point.halved(power, 12) for power in powers)
            head = 32 - total.bit_length()
            scale = fixed_point.inverse_of_one_plus((total << head) - (1 << 31))
            wanted = [
                max(0, min(fixed_point.halved(fixed_point.high_product(scale, p), 35 - head), 255)) for p in powers
            ]
            assert shares == wanted


def test_fixed_point_functions_are_those_of_real_numbers() -> None:
    for x in range(-(1 << 31) + 1, 1 << 31, 12_345_677):
        real = x / 2**27
        assert abs(fixed_point.logistic(x) / 2**31 - 1 / (1 + np.exp(-real))) < 1e-6
        assert abs(fixed_point.tanh(x) / 2**31 - np.tanh(real)) < 1e-6


def test_fixed_point_functions_are_those_of_the_kernels() -> None:
    numbers = [*np.random.default_rng(2).integers(-(1 << 31) + 1, 1 << 31, 2000).tolist(), 0, 1, -1, (1 << 31) - 1]
    assert curves.logistic(np.array(numbers)).tolist() == [fixed_point.logistic(x) for x in numbers]
    assert curves.tanh(np.array(numbers)).tolist() == [fixed_point.tanh(x) for x in numbers]


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize(
    ("kind", "scale", "zero", "options"),
    [
        ("LOGISTIC", 1 / 256, -128, {}),
        ("TANH", 1 / 128, 0, {}),
        ("LEAKY_RELU", 0.04, 5, {"Alpha": 0.1}),
        ("LEAKY_RELU", 0.2, 5, {"Alpha": 1.7}),
        ("HARD_SWISH", 0.04, -80, {}),
        ("HARD_SWISH", 0.3, 20, {}),
    ],
)
def test_functions_of_one_code_equal_their_kernels_for_all_codes(
    kind: str, scale: float, zero: int, options: dict[str, float], rounding: str
) -> None:
    for of_input in (0.003, 0.02, 0.05, 0.3):
        for at in (-128, -3, 127):
            file = File(1, 256, scale=of_input, zero=at)
            file.apply(kind, [file.input], (1, 256), scale, zero, **options)
            model, _ = network(file, rounding)
            numbers = ((np.arange(256.0) - 128 - at) * np.float64(np.float32(of_input))).reshape(1, 256)
            np.testing.assert_array_equal(model(torch.from_numpy(numbers)).numpy(), evaluator(model)(numbers).result)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(1 << 30, (1 << 31) - 1), st.integers(-31, 0), st.booleans())
def test_kernels_scale_as_the_definition_says(x: int, multiplier: int, exponent: int, double: bool) -> None:
    rounding = "double" if double else "single"
    made = kernels.scaled(np.array([x]), np.array(multiplier), np.array(exponent), rounding)
    assert made.tolist() == [fixed_point.multiplied(x, (multiplier, exponent), rounding)]


VALID = FILES["depthwise_separable"]().bytes()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(VALID)
    for place, value in changes:
        data[place] = value
    with suppress(NnhwError):
        TfliteModel(parse_model(bytes(data), "net.tflite"), "double")


@pytest.mark.parametrize("size", [0, 4, 8, 12, 100, 1000, len(VALID) - 4])
def test_cut_files_are_refused(size: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.tflite"
    path.write_bytes(VALID[:size])
    with pytest.raises(InputError, match=r"cut\.tflite (is no TFLite file|is damaged|has|states|names)"):
        load_source(path)


def test_reading_rejects_another_format(tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    path.write_bytes(b"PK\3\4" * 10)
    with pytest.raises(InputError) as raised:
        load_source(path)
    assert str(raised.value) == (
        "x.tflite is no TFLite file: such a file has the letters TFL3 behind its first four bytes, this one has "
        "b'PK\\x03\\x04' in 40 bytes; convert the model again"
    )


def test_graphs_of_other_forms_are_refused() -> None:
    file = FILES["dense"]()
    file.outputs = [file.outputs[0], file.operators[0][2][0]]
    assert "has 2 outputs, and an accelerator has one of each; cut the graph" in refusal(file)
    file = FILES["dense"]()
    file.tensors[file.operators[0][2][0]] = (*file.tensors[file.operators[0][2][0]][:5], True)
    assert "which keeps a state from one call to the next" in refusal(file)
    file = FILES["dense"]()
    file.operators.reverse()
    assert "before anything makes it; convert it again" in refusal(file)
    assert "makes the tensor" in refusal(_twice())
    batch = File(4, 12)
    batch.layer("FULLY_CONNECTED", batch.input, (3, 12), (4, 3))
    assert "the first axis must be a batch of 1; convert the model so" in refusal(batch)


def _twice() -> File:
    file = FILES["dense"]()
    file.operators.append(file.operators[0])
    return file


@pytest.mark.parametrize(
    ("type", "message"),
    [
        ("float32", "computes with real numbers from its input 'input' on; convert it with full integer quantization"),
        ("int16", "is of type INT16, and INT8 or FLOAT32 is needed"),
        (
            "uint8",
            "of type UINT8, and INT8 is needed; convert the model with full integer quantization by TensorFlow 2",
        ),
    ],
)
def test_networks_of_other_numbers_are_refused(type: str, message: str) -> None:
    file = File(1, 12, type=type, zero=100)
    file.layer("FULLY_CONNECTED", file.input, (3, 12), (1, 3), **({"type": "float32"} if type == "float32" else {}))
    assert message in refusal(file)


def test_resizing_of_other_than_images_is_refused_as_that() -> None:
    file = File(1, 12)
    x = file.layer("FULLY_CONNECTED", file.input, (4, 12), (1, 4), scale=0.05)
    file.apply("RESIZE_NEAREST_NEIGHBOR", [x, file.integers(2, 2)], (1, 8))
    assert "resizes [1, 4]; images [batch, height, width, channels] are supported" in refusal(file)
    corners = behind(
        "RESIZE_NEAREST_NEIGHBOR", shape=(1, 8, 8, 4), extra=[lambda f: f.integers(8, 8)], AlignCorners=True
    )
    assert "aligns corners; use align_corners=False" in refusal(corners)


def test_ends_that_count_from_starts_are_refused() -> None:
    """The option changes what STRIDED_SLICE takes: from 1, two elements, and not those up to 2."""
    ranges = [lambda f, row=row: f.integers(*row) for row in ((0, 1, 0, 0), (1, 2, 4, 4), (1, 1, 1, 1))]
    file = behind("STRIDED_SLICE", zero=-3, shape=(1, 1, 4, 4), extra=ranges, Offset=True)
    assert "counts its ends from its starts (offset); convert it with ends that count from the first" in refusal(file)


@pytest.mark.parametrize("kind", ["ADD", "MUL"])
def test_constants_with_more_axes_than_the_value_are_refused(kind: str) -> None:
    file = File(1, 12)
    x = file.layer("FULLY_CONNECTED", file.input, (4, 12), (1, 4), scale=0.05)
    file.apply(kind, [x, file.codes((1, 1, 1, 4))], (1, 1, 1, 4))
    assert "makes [1, 1, 1, 4] of [1, 4] and a constant of [1, 1, 1, 4]; the result needs the shape" in refusal(file)


def test_codes_of_computed_numbers_are_refused() -> None:
    """In float32, as TFLite has these numbers, others are half-way between two codes than in float64."""
    file = File(1, 12)
    x = file.layer("FULLY_CONNECTED", file.input, (4, 12), (1, 4), scale=0.05)
    x = file.apply("DEQUANTIZE", [x], (1, 4), type="float32")
    file.apply("QUANTIZE", [x], (1, 4), 0.07, 3)
    assert "QUANTIZE 'net/quantize_2' of net.tflite makes codes of the real numbers 'net/dequantize_1'" in refusal(file)


def test_operator_on_constants_alone_is_refused() -> None:
    file = File(1, 4)
    file.apply("ADD", [file.input, file.apply("RELU", [file.codes((1, 4))], (1, 4))], (1, 4))
    assert "RELU 'net/relu_0' of net.tflite reads constants alone; convert the model again" in refusal(file)


def test_all_problems_of_a_file_are_said_at_once() -> None:
    file = File(1, 4, 4, 2)
    x = file.apply("COS", [file.input], (1, 4, 4, 2))
    file.apply("SIN", [x], (1, 4, 4, 2))
    message = refusal(file)
    assert "COS 'net/cos_0' of net.tflite is not supported" in message
    assert "SIN 'net/sin_1' of net.tflite is not supported" in message


AXES = {
    "MEAN": (
        lambda: behind("MEAN", shape=(1, 1, 1, 4), extra=[lambda f: f.integers(1, 6)], KeepDims=True),
        "has the axis 6 of '",
    ),
    "CONCATENATION": (lambda: joined("CONCATENATION", Axis=7), "has the axis 7 of '"),
    "SPLIT": (lambda: split_file(-5), "has the axis -5 of '"),
}


@pytest.mark.parametrize("kind", AXES)
def test_axis_beyond_what_is_there_is_refused(kind: str) -> None:
    make, said = AXES[kind]
    message = refusal(make())
    assert said in message
    assert "which has 4 axes; use -4 to 3" in message
