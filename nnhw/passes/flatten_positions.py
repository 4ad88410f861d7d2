"""Pass: a region with constants that differ from position to position becomes one of a list of channels.

quantize(add(dequantize(sums), table)) --> reshape(quantize(add(dequantize(reshape(sums)), list)))

Each element is a channel of its own then, with steps of its own.
"""

from __future__ import annotations

import numpy as np

from nnhw.errors import LoweringError
from nnhw.ir import Graph, Node
from nnhw.ir.ops import Permute, Reshape
from nnhw.ir.ops.elementwise import Binary

from .edit import SHAPE_OPS, Edit, is_channel_list, sole_names
from .regions import Region, find_region, quantizers

_MAP_RANK = 3
"""Axes of a map: channels, rows, columns."""
_CHANNELS_LAST, _CHANNELS_FIRST = (1, 2, 0), (2, 0, 1)
"""Permutations of a map's axes. Maps stream pixel by pixel, channels innermost: a list in this order moves nothing."""


def flatten_positions(graph: Graph) -> Graph:
    """Make a list of the elements of each region that has such constants, in the order in which maps stream.

    Exact: operators of elements do not know where they are.
    """
    for quantizer in quantizers(graph):
        try:
            region = find_region(graph, graph.node(quantizer.name))
        except LoweringError:
            continue  # a later pass says what is wrong
        if region is not None and _is_flat(region) and _differs(region):
            graph = _flattened(graph, region)
    return graph


def _is_flat(region: Region) -> bool:
    """Return whether all values of a region are of one shape, and only elements meet."""
    shape = region.quantizer.type.shape
    plain = not any(isinstance(node.op, SHAPE_OPS) or node.op.along_steps for node in region.nodes)
    return len(shape) > 1 and plain and {node.type.shape for node in (*region.sources, *region.nodes)} == {shape}


def _differs(region: Region) -> bool:
    """Return whether there is a table among the operands of an addition, a product or the like."""
    return any(
        isinstance(node.op, Binary) and not _is_of_channels(region, node, region.graph.constants[name])
        for node in region.nodes
        for name in node.inputs
        if name in region.graph.constants
    )


def _is_of_channels(region: Region, node: Node, constant: np.ndarray) -> bool:
    try:
        region.per_channel(node, constant)
    except LoweringError:
        return False
    return True


def _flattened(graph: Graph, region: Region) -> Graph:
    quantizer, shape = region.quantizer, region.quantizer.type.shape
    edit = Edit(graph, sole_names(graph, (), quantizer))
    names: dict[str, str] = {}
    for source in region.sources:
        turned = source.name
        if len(shape) == _MAP_RANK:
            turned = edit.add(source, Permute(_CHANNELS_LAST), [turned], f"{source.name}.turned")
        names[source.name] = edit.add(source, Reshape((source.type.size,)), [turned], f"{source.name}.list")
    for node in region.nodes:
        inputs = [_operand(graph, edit, names, node, name) for name in node.inputs]
        names[node.name] = edit.add(node, node.op, inputs, f"{node.name}.list")
    if len(shape) != _MAP_RANK:
        edit.add(quantizer, Reshape(shape), [names[quantizer.name]], quantizer.name)
        return edit.apply(quantizer.name)
    turned = edit.add(quantizer, Reshape((*shape[1:], shape[0])), [names[quantizer.name]], f"{quantizer.name}.turned")
    edit.add(quantizer, Permute(_CHANNELS_FIRST), [turned], quantizer.name)
    return edit.apply(quantizer.name)


def _operand(graph: Graph, edit: Edit, names: dict[str, str], node: Node, name: str) -> str:
    """Return the operand of a node on lists: a value of the region, or a constant as a list."""
    if name not in graph.constants:
        return names[name]
    array, shape = graph.constants[name], node.type.shape
    if array.size > 1:
        if is_channel_list(node.op) and array.ndim == 1:
            array = array.reshape(-1, *[1] * (len(shape) - 1))
        whole = np.broadcast_to(array, shape)
        whole = whole.transpose(_CHANNELS_LAST) if len(shape) == _MAP_RANK else whole
        array = whole.reshape(-1)
    return edit.constant(f"{name}.list", array, None)
