"""How TFLite files are read: each field once more by its place, what a file says twice, and what is no layer at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nnhw.errors import ExactnessError, InputError, ProblemList
from nnhw.frontend import load_source

pytest.importorskip("tflite", reason="needs tflite: pip install 'nnhw[tflite]'")
import tflite

from nnhw.frontend.tflite import evaluator, parse_model, parsing, second_reading
from nnhw.frontend.tflite.module import BUILDERS
from tests.frontend import tflite_models
from tests.frontend.tflite_cases import FILES, SAME, behind, conv, joined, network, refusal, split
from tests.frontend.tflite_models import File

DATA = Path(os.environ.get("NNHW_DATA", "/nonexistent"))


def needs(folder: str) -> pytest.MarkDecorator:
    """Skip a test where a folder of data is not there."""
    return pytest.mark.skipif(not (DATA / folder).is_dir(), reason=f"NNHW_DATA does not name a folder with {folder}")


class Coded(File):
    """A file whose operator codes stand in chosen fields."""

    fields: Callable[[int], tuple[int, int]]

    def _code(self, kind: str) -> int:
        old, new = type(self).fields(getattr(tflite.BuiltinOperator, kind))
        tflite.OperatorCodeStart(self.builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(self.builder, old)
        tflite.OperatorCodeAddBuiltinCode(self.builder, new)
        return tflite.OperatorCodeEnd(self.builder)  # type: ignore[no-any-return]


def coded(kind: str, fields: Callable[[int], tuple[int, int]]) -> File:
    """Return a file of one operator, whose number `fields` puts into the old field and the new."""
    file = type("Coded", (Coded,), {"fields": staticmethod(fields)})(1, 4)
    file.apply(kind, [file.input, file.codes((4,))], (1, 4))
    return file  # type: ignore[no-any-return]


FIELDS = {"old": lambda n: (n, 0), "new": lambda n: (0, n), "both": lambda n: (n, n)}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", sorted(BUILDERS))
def test_operator_code_is_read_from_either_field(kind: str, field: str) -> None:
    (operator,) = parse_model(coded(kind, FIELDS[field]).bytes(), "net.tflite").operators
    assert operator.kind == kind


def test_operator_code_beyond_the_old_field_is_read_from_the_new_one() -> None:
    (operator,) = parse_model(coded("GELU", lambda n: (127, n)).bytes(), "net.tflite").operators
    assert operator.kind == "GELU"


def test_difference_whose_code_is_in_the_new_field_alone_is_no_sum() -> None:
    results = {}
    for kind, field in (("SUB", "new"), ("SUB", "both"), ("ADD", "both")):
        model, _ = network(coded(kind, FIELDS[field]))
        results[kind, field] = evaluator(model)(np.linspace(-6, 6, 64).reshape(16, 4)).result
    np.testing.assert_array_equal(results["SUB", "new"], results["SUB", "both"])
    assert (results["SUB", "new"] != results["ADD", "both"]).any()


@pytest.mark.parametrize("fields", [(3, 41), (41, 3), (127, 41), (-1, 41), (41, -1)])
def test_reading_rejects_two_codes_of_one_operator(fields: tuple[int, int]) -> None:
    assert refusal(coded("SUB", lambda _: fields)) == (
        f"net.tflite states two codes for one operator, {fields[0]} in the old field and {fields[1]} in the new one; "
        f"convert it again"
    )


def test_reading_rejects_options_of_another_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tflite_models.OPTIONS, "SUB", "AddOptions")
    assert refusal(joined("SUB")) == (
        "net.tflite has the operator SUB 'net/sub_2' with AddOptions, the options of another operator; convert it again"
    )


def test_operator_without_options_has_those_of_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(tflite_models.OPTIONS, "ADD")
    monkeypatch.delitem(tflite_models.OPTIONS, "CONV_2D")
    read = parse_model(joined("ADD").bytes(), "net.tflite")
    assert read.operators[2].options == {"FusedActivationFunction": "NONE", "PotScaleInt16": True}
    assert read.operators[0].options["Padding"] == "SAME"
    assert "has the stride (0, 0) and the dilation (1, 1), which are at least 1" in refusal(joined("ADD"))


def test_reading_rejects_an_option_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(builder: Any) -> int:
        builder.PrependInt8Slot(5, 1, 0)
        return builder.EndObject()  # type: ignore[no-any-return]

    monkeypatch.setattr(tflite, "MulOptionsStart", lambda builder: builder.StartObject(6))
    monkeypatch.setattr(tflite, "MulOptionsEnd", end)
    assert refusal(FILES["mul_number"]()) == (
        "net.tflite has an operator MUL with option number 5, which nnhw does not know; convert the model with an "
        "older version of TensorFlow, or use a newer nnhw"
    )


@pytest.mark.parametrize("kind", ["CONV_2D", "TRANSPOSE_CONV"])
def test_padding_of_another_number_is_refused(kind: str) -> None:
    file = conv(**SAME) if kind == "CONV_2D" else FILES["transpose_conv_same"]()
    file.operators[0][3]["Padding"] = 7
    assert "has the padding number 7; SAME and VALID are supported" in refusal(file)


def test_both_readings_know_the_same_operators_and_options() -> None:
    assert {name for name, _, _ in second_reading._KINDS.values()} == set(parsing._OPTIONS) == set(BUILDERS)
    for number, (name, union, row) in second_reading._KINDS.items():
        table, fields = parsing._OPTIONS[name]
        assert number == getattr(tflite.BuiltinOperator, name)
        assert union == getattr(tflite.BuiltinOptions, table)
        assert {field.partition(":")[0] for field in row.split()} == set(fields)
    numbers = {name: value for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}
    assert {name: number for number, name in enumerate(second_reading._TYPES)} == numbers


ALL_FIELDS = [(kind, field) for kind, (_, fields) in sorted(parsing._OPTIONS.items()) for field in fields]


@pytest.mark.parametrize(("kind", "field"), ALL_FIELDS)
def test_each_option_that_is_read_wrongly_is_noticed(kind: str, field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the first reading gets another value than the file has."""
    table = parsing._OPTIONS[kind][0]
    file = File(1, 4)
    file.apply(kind, [file.input, file.codes((4,))], (1, 4))
    data = file.bytes()
    read = getattr(getattr(tflite, table), field)
    monkeypatch.setattr(getattr(tflite, table), field, lambda self: not read(self) if type(read(self)) is bool else 1)
    # Of fields whose value is 1 here, this is no other one.
    if field.startswith("Dilation"):
        monkeypatch.setattr(getattr(tflite, table), field, lambda self: 2)
    with pytest.raises(
        ExactnessError, match=rf"^net\.tflite: the file\.operators\[0\]\.options\.{field} is .* by the "
    ):
        parse_model(data, "net.tflite")


WRONG: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "shape": ("Tensor", "Shape", lambda self, axis: self.ShapeAsNumpy()[::-1][axis]),
    "type": ("Tensor", "Type", lambda self: tflite.TensorType.UINT8),
    "quantization.axis": ("QuantizationParameters", "QuantizedDimension", lambda self: 1),
    "quantization.scale": ("QuantizationParameters", "Scale", lambda self, place: 0.25),
    "quantization.zero_point": ("QuantizationParameters", "ZeroPoint", lambda self, place: 1),
    "data": ("Buffer", "DataAsNumpy", lambda self: np.full(self.DataLength(), 9, np.uint8)),
    "name": ("Tensor", "Name", lambda self: b"other"),
    "inputs": ("Operator", "Inputs", lambda self, place: self.InputsAsNumpy()[[1, 0][place]]),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_field_that_is_read_wrongly_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = File(1, 4, 4, 2)
    constant = file.tensor("constant", (1, 1, 1, 2), "int8", (0.03, 5, 0), np.array([3, -4]).reshape(1, 1, 1, 2))
    file.apply("ADD", [file.input, constant], (1, 4, 4, 2))
    table, method, wrong = WRONG[what]
    data = file.bytes()
    monkeypatch.setattr(getattr(tflite, table), method, wrong)
    message = (
        rf"^net\.tflite: the file.*\.{what.replace('.', chr(92) + '.')}.* is .* as read by the package tflite, but "
    )
    with pytest.raises(ExactnessError, match=message):
        parse_model(data, "net.tflite")


def test_an_operator_that_is_read_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing._Reader, "_code", lambda self, entry: tflite.BuiltinOperator.RELU6)
    file = File(1, 4)
    file.apply("RELU", [file.input], (1, 4))
    with pytest.raises(ExactnessError) as raised:
        parse_model(file.bytes(), "net.tflite")
    assert str(raised.value) == (
        "net.tflite: the file.operators[0].kind is RELU6 as read by the package tflite, but RELU as read from "
        "the positions of the fields; this is a bug in nnhw or in that package, please report the file"
    )


def _depthwise(**options: Any) -> File:
    file = File(1, 4, 4, 2)
    file.layer("DEPTHWISE_CONV_2D", file.input, (1, 3, 3, 4), (1, 4, 4, 4), **SAME, **options)
    return file


def _dense(shape: tuple[int, ...], **options: Any) -> File:
    file = File(1, 3, 4)
    file.layer("FULLY_CONNECTED", file.input, (5, 4), shape, **options)
    return file


def _reshaped(*shape: int) -> File:
    file = File(1, 4, 3)
    file.apply("RESHAPE", [file.input, file.integers(*shape)], (1, 12))
    return file


def _transposed(padding: str) -> File:
    file = FILES[f"transpose_conv_{padding.lower()}"]()
    file.operators[0][3]["Padding"] = {"SAME": "VALID", "VALID": "SAME"}[padding]
    return file


def _split(**options: Any) -> File:
    file = split()
    file.operators[0][3].update(options)
    return file


def _uneven_split() -> File:
    file = File(1, 4, 4, 4)
    parts = [file.tensor(f"part_{k}", (1, 4, 4, size)) for k, size in enumerate((2, 1))]
    file.operators.append(("SPLIT", [file.integers(3), file.input], parts, {"NumSplits": 2}))
    file.outputs = [parts[0]]
    return file


def _sliced(shape: tuple[int, ...], **options: Any) -> File:
    rows = ((0, 1, 0, 0), (1, 2, 4, 4), (1, 1, 1, 1))
    return behind("STRIDED_SLICE", shape=shape, extra=[lambda f, row=row: f.integers(*row) for row in rows], **options)


def _of_other_shape(kind: str) -> File:
    file = File(1, 12)
    inputs = [file.input, file.codes((1,), 0.05, -3)] if kind in ("ADD", "MAXIMUM") else [file.input]
    options = {"Beta": 1.0} if kind == "SOFTMAX" else {}
    file.apply(kind, inputs, (1, 6), *((1 / 256, -128) if kind in ("SOFTMAX", "LOGISTIC") else ()), **options)
    return file


MEAN = {"extra": [lambda f: f.integers(1, 2)], "scale": 0.03}
TWICE: dict[str, tuple[Callable[[], File], str]] = {
    "depth multiplier": (
        lambda: _depthwise(DepthMultiplier=3),
        "states a depth multiplier of 3, but makes 4 channels of 2; convert it again",
    ),
    "axes that are kept": (lambda: _dense((1, 3, 5)), "where rows of an image become images; keep its axes"),
    "axes of a dense layer": (
        lambda: _dense((1, 5, 3), KeepNumDims=True),
        "gives the shape [3, 5], but the file states [5, 3]; convert the model again",
    ),
    "reshape": (lambda: _reshaped(1, 11), "asks for the shape [1, 11], but makes [1, 12]; convert the model again"),
    "axes of a reshape": (lambda: _reshaped(-1), "asks for the shape [-1], but makes [1, 12]; convert the model again"),
    "padding of SAME": (
        lambda: _transposed("SAME"),
        "makes 8 of 4 with a kernel of 3, stride 2 and padding VALID; convert it again",
    ),
    "padding of VALID": (
        lambda: _transposed("VALID"),
        "makes 9 of 4 with a kernel of 3, stride 2 and padding SAME; convert it again",
    ),
    "parts": (
        lambda: _split(NumSplits=4),
        "splits [1, 4, 4, 4] along axis 3 into 4 parts, and has 2 results; it needs one result for each of the equal",
    ),
    "shapes of parts": (_uneven_split, "gives parts of shape [1, 4, 4, 2], but the file states [1, 4, 4, 1]"),
    "axes of a mean": (
        lambda: behind("MEAN", shape=(1, 1, 1, 4), **MEAN),
        "gives the shape [4], but the file states [1, 1, 4]; convert the model again",
    ),
    "axes of a slice": (
        lambda: _sliced((1, 1, 4, 4), ShrinkAxisMask=2),
        "gives the shape [4, 4], but the file states [1, 4, 4]; convert the model again",
    ),
    **{
        f"elements of {kind}": (
            lambda kind=kind: _of_other_shape(kind),
            "gives the shape [12], but the file states [6]",
        )
        for kind in ("RELU", "SOFTMAX", "LOGISTIC", "MAXIMUM", "QUANTIZE")
    },
    "elements of ADD": (lambda: _of_other_shape("ADD"), "the result needs the shape of the computed value"),
}


@pytest.mark.parametrize("what", TWICE)
def test_what_a_file_says_twice_is_compared(what: str) -> None:
    make, said = TWICE[what]
    assert said in refusal(make())


def _conv_with_axes(weights: int, bias: int | None) -> File:
    """Return a convolution whose scales of weights and bias name axes."""
    file = conv(**SAME)
    for index, axis in ((1, weights), (2, bias)):
        if axis is not None:
            scales, zeros = file.tensors[1][4][:2]  # type: ignore[index]
            file.tensors[index] = (*file.tensors[index][:4], (scales, zeros, axis), file.tensors[index][5])
    return file


@pytest.mark.parametrize("axis", [0, 3, -1])
def test_axis_of_a_bias_is_not_read(axis: int) -> None:
    """Kernels do not read it: files of TFLite Micro have that of the weights, 3 for a depthwise layer."""
    given, plain = (network(_conv_with_axes(0, of_bias)) for of_bias in (axis, None))
    results = [evaluator(model)(example.numpy()).result for model, example in (given, plain)]
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(given[0](given[1]).numpy(), results[0])


@pytest.mark.parametrize("axis", [1, 3, 4, -1])
def test_axis_of_weights_is_read(axis: int) -> None:
    assert (
        f"has 4 scales along axis {axis} of its weights [4, 3, 3, 3], and needs 4 along axis 0; convert the model again"
    ) in refusal(_conv_with_axes(axis, None))


def test_scales_for_no_axis_are_refused() -> None:
    file = conv(**SAME)
    file.tensors[1] = (*file.tensors[1][:4], ([0.1] * 7, [0] * 7, 0), False)
    assert refusal(file) == (
        "net.tflite has 7 scales and 7 zero points for the tensor 'weights_1' of shape [4, 3, 3, 3]; one is needed, or "
        "one for each index of an axis"
    )


def _beyond(kind: str) -> File:
    """Return an operator behind a layer, as the format has it: what it reads is made by nothing."""
    file = File(1, 4)
    x = file.layer("FULLY_CONNECTED", file.input, (4, 4), (1, 4), scale=0.05)
    file.apply(kind, [x, file.tensor("state", (1, 4), variable=True), file.tensor("scratch", (9,), "uint8")], (1, 4))
    return file


STATES, DEVICES = "docs/tflite.md, 'Networks with a state'", "docs/tflite.md, 'Files for another device'"
BEYOND = {
    "SVDF": "keeps the frames of earlier calls in the state of a filter over time (SVDF 'net/svdf_1'); write that "
    f"filter as a convolution over the whole window of frames, and convert again ({STATES})",
    "VAR_HANDLE": "keeps a state in variables from one call to the next (VAR_HANDLE 'net/var_handle_1'); an "
    "accelerator built from a TFLite file keeps nothing from one image to the next: convert the model before it is "
    f"made streaming, so that one call gets the whole window ({STATES})",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "has recurrent layers, which keep a state from one step to the next "
    "(UNIDIRECTIONAL_SEQUENCE_LSTM 'net/unidirectional_sequence_lstm_1'); write the network in PyTorch with "
    "nnhw.nn.QuantLSTM, QuantGRU or QuantRNN, which are supported (docs/sequences.md)",
    "WHILE": "has loops or branches, whose bodies are graphs of their own (WHILE 'net/while_1'); unroll them before it "
    "is converted, or write a recurrent network in PyTorch (docs/sequences.md)",
    "ethos-u": "was compiled for an Arm Ethos-U: its layers are commands of that device (CUSTOM (ethos-u) "
    f"'net/ethos-u_1'); use the .tflite file that was the input of vela ({DEVICES})",
    "edgetpu-custom-op": "was compiled for a Coral Edge TPU: its layers are commands of that device (CUSTOM "
    f"(edgetpu-custom-op) 'net/edgetpu-custom-op_1'); use the .tflite file that was the input of edgetpu_compiler "
    f"({DEVICES})",
    "FlexErf": "has TensorFlow operators, which are not part of TFLite (CUSTOM (FlexErf) 'net/flexerf_1'); "
    "convert it with TFLITE_BUILTINS_INT8 alone, without SELECT_TF_OPS (docs/tflite.md, 'From Keras and QKeras')",
}


@pytest.mark.parametrize("kind", BEYOND)
def test_operators_that_are_no_layers_are_refused_with_what_they_mean(kind: str) -> None:
    assert refusal(_beyond(kind)) == f"net.tflite {BEYOND[kind]}"


def test_headings_that_messages_name_are_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tflite.md").read_text(encoding="utf-8")
    for said in BEYOND.values():
        if "docs/tflite.md" in said:
            assert f"\n## {said.rpartition(', ')[2][1:-2]}\n" in page


def test_all_operators_that_are_no_layers_are_said_at_once() -> None:
    file = _beyond("SVDF")
    for _ in range(5):
        file.apply("VAR_HANDLE", [file.outputs[0]], (1, 4))
    with pytest.raises(ProblemList) as raised:
        parse_model(file.bytes(), "net.tflite")
    message = str(raised.value)
    assert "SVDF 'net/svdf_1'" in message
    assert (
        "VAR_HANDLE 'net/var_handle_2', VAR_HANDLE 'net/var_handle_3', VAR_HANDLE 'net/var_handle_4' and 2 more"
        in message
    )


@needs("microwakeword")
@pytest.mark.parametrize("name", ["alexa", "hey_jarvis", "hey_mycroft", "okay_nabu"])
def test_wakeword_networks_with_variables_are_refused_by_their_operators(name: str) -> None:
    with pytest.raises(InputError) as raised:
        load_source(DATA / "microwakeword" / f"{name}.tflite")
    assert str(raised.value).startswith(
        f"{name}.tflite keeps a state in variables from one call to the next (CALL_ONCE, VAR_HANDLE 'stream"
    )


@needs("mlperf_tiny")
@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model", "str_ww_ref_model"])
def test_codes_of_mlperf_tiny_are_those_of_another_evaluator(name: str, rounding: str) -> None:
    """Golden codes are those in front of the softmax, and of the autoencoder its result."""
    with np.load(DATA / "mlperf_tiny" / f"golden_{name}.npz", allow_pickle=False) as stored:
        images, wanted = stored["x"][:4], stored[f"codes_{rounding}"][:4]
    source = load_source(f"{DATA / 'mlperf_tiny' / name}.tflite:{rounding}")
    file = source.model.file
    given = file.tensors[file.input]
    codes: dict[int, np.ndarray] = {}
    model = source.model
    for operator in file.operators:
        index = operator.outputs[0]
        model.layer(operator).register_forward_hook(
            lambda layer, x, made, index=index: codes.update({index: made.numpy()})
        )
    model(torch.from_numpy((images.astype(np.float64) - given.zero_point) * given.scale))
    last = file.operators[-1]
    index = last.inputs[0] if last.kind == "SOFTMAX" else last.outputs[0]
    np.testing.assert_array_equal(codes[index] + file.tensors[index].zero_point, wanted)
