"""Runs exported ONNX models by ONNX Runtime, with and without its optimizations, and by ONNX's own reference."""

from __future__ import annotations

import numpy as np
from onnx.reference import ReferenceEvaluator

from nnhw.export.onnx import to_bytes, to_onnx
from nnhw.export.onnx_runtime import run_file
from nnhw.ir import Graph, run


def check_export(graph: Graph, inputs: np.ndarray, reference: bool = False) -> None:
    """Compare a graph with its export by `==`, dtypes included.

    Parameters
    ----------
    inputs: [N, *shape] of the graph's only input.
    reference: compare with ONNX's slow reference evaluator, too.
    """
    (expected,) = run(graph, inputs)
    model = to_onnx(graph)
    content = to_bytes(model)
    results = [run_file(content, graph, inputs, optimized) for optimized in (False, True)]
    if reference:
        dtype = np.int64 if graph.inputs[0].type.is_int else np.float64
        results += ReferenceEvaluator(model).run(None, {graph.inputs[0].name: inputs.astype(dtype)})
    assert len(results) == 2 + reference
    for result in results:
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert (result == expected).all()
