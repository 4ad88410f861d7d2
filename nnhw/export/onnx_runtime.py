"""Exported models in ONNX Runtime. Importing this imports onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime

from nnhw.ir import Graph
from nnhw.ir.interpreter import joined


def run_file(content: bytes, graph: Graph, inputs: np.ndarray, optimized: bool = True) -> np.ndarray:
    """Return what ONNX Runtime computes of [N, *shape] with the file of a graph of one input.

    Several results are joined: [N, elements].

    Parameters
    ----------
    optimized: with all of its rewrites, as it runs by default.
    """
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3  # errors; it warns of initializers that it folds
    session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    node = graph.inputs[0]
    dtype = np.int64 if node.type.is_int else np.float64
    return joined(session.run(None, {node.name: inputs.astype(dtype)}))
