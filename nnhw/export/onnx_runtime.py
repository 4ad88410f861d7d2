"""Running exported models in ONNX Runtime. This module imports onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime

from nnhw.ir import Graph
from nnhw.ir.interpreter import joined


def run_file(content: bytes, graph: Graph, inputs: np.ndarray, optimized: bool = True) -> np.ndarray:
    """Return the results [N, *shape] that ONNX Runtime computes with an exported model of one input.

    Several results are joined: [N, elements].

    Parameters
    ----------
    content: the file of the model.
    graph: the graph that it was exported from.
    inputs: [N, *shape].
    optimized: with all optimizations of ONNX Runtime, as it runs by default.
    """
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3  # errors; it warns of initializers that it folds
    session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    node = graph.inputs[0]
    dtype = np.int64 if node.type.is_int else np.float64
    return joined(session.run(None, {node.name: inputs.astype(dtype)}))
