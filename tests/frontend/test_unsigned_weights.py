"""Weights of 8 bits count exactly in ONNX Runtime whatever the processor: signed ones become unsigned in the file."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from nnhw.frontend.onnx.unsigned_weights import with_unsigned_weights

SCALES = {"xs": np.float32(1), "ws": np.float32(1 / 16384), "ys": np.float32(1)}
NAMES = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
RANGES = {np.uint8: (0, 255), np.int8: (-128, 127)}


def evaluated(
    op: str, constants: dict[str, np.ndarray], inputs: list[str], x: np.ndarray, rewritten: bool
) -> np.ndarray:
    """Return what ONNX Runtime makes of an operator, as it is or with unsigned weights."""
    initializers = {name: numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()}
    nodes = [helper.make_node(op, inputs, ["y"])]
    if rewritten:
        nodes = with_unsigned_weights(nodes, initializers)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = TensorProto.INT32 if op == "MatMulInteger" else kind
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", made, None)],
        list(initializers.values()),
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def extreme(dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers at the ends of a type's range, of which two products exceed 16 bits together."""
    return np.random.default_rng(3).choice(RANGES[dtype], shape).astype(dtype)


@pytest.mark.parametrize("zero", [True, False])
def test_sums_of_unsigned_activations_and_signed_weights_are_exact(zero: bool) -> None:
    x, w = extreme(np.uint8, (4, 64)), extreme(np.int8, (64, 8))
    constants = {"w": w} | ({"xz": np.uint8(7), "wz": np.int8(-3)} if zero else {})
    inputs = ["x", "w", "xz", "wz"] if zero else ["x", "w"]
    found = evaluated("MatMulInteger", constants, inputs, x, rewritten=True)
    wanted = (x.astype(np.int64) - 7 * zero) @ (w.astype(np.int64) + 3 * zero)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("op", ["QLinearConv", "QLinearMatMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_codes_of_signed_weights_are_exact(op: str, dtype: type) -> None:
    x, w = extreme(dtype, (4, 64)), extreme(np.int8, (64, 8))
    middle = 128 * (dtype is np.uint8)
    sums = (x.astype(np.int64) - middle) @ w.astype(np.int64)
    wanted = np.clip(np.rint(sums / 16384) + middle, *RANGES[dtype])
    constants = SCALES | {"xz": dtype(middle), "yz": dtype(middle), "w": w, "wz": np.int8(0)}
    if op == "QLinearConv":
        x, constants["w"] = x[:, :, None, None], w.T[:, :, None, None].copy()
    found = evaluated(op, constants, NAMES, x, rewritten=True)
    assert np.array_equal(found.reshape(4, 8), wanted)


def test_only_signed_weights_of_unsigned_activations_change() -> None:
    def types(activation: type, weight: type) -> set[int]:
        constants = {"xz": activation(0), "w": np.zeros((2, 2), weight), "wz": weight(0)}
        known = {name: numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()}
        (node,) = with_unsigned_weights([helper.make_node("QLinearMatMul", NAMES, ["y"])], known)
        return {known[node.input[place]].data_type for place in (3, 5)}

    assert types(np.uint8, np.int8) == types(np.uint8, np.uint8) == {TensorProto.UINT8}
    assert types(np.int8, np.int8) == {TensorProto.INT8}
    # Weights that other nodes make, and other operators, stay as they are.
    for node in (helper.make_node("QLinearMatMul", NAMES, ["y"]), helper.make_node("Add", ["x", "w"], ["y"])):
        assert with_unsigned_weights([node], {}) == [node]
