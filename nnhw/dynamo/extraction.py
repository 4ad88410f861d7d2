"""From a region of a graph to a model of its own: a module of one input, an example input, and a canonical text."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from nnhw.errors import CaptureError
from nnhw.frontend.source import Source
from nnhw.nn.frames import user_frame

from .node_values import Dependence, NodeValue, TracedGraph
from .operators import QUANTIZE, VALUE, layer_of
from .subgraphs import Subgraph

NAME = "part"
"""Name of the model that each part becomes."""
_IMAGES = 8
"""Images of the example input, on which a build compares PyTorch with the graph."""
_BEYOND = 1.25  # examples span so many times the range of the first quantizer, so that some saturate
_RESHAPES = ("view", "reshape", "expand")


@dataclass(frozen=True)
class Extracted:
    """A region as a model of its own.

    Parameters
    ----------
    source: its module, an example input, and the lines of the user's model that it is from.
    text: canonical: the same for the same computation, whatever the nodes' names and the batch are.
    constants: nodes of the parameters and buffers that are copied into it.
    """

    source: Source
    text: str
    constants: frozenset[fx.Node]


def extract(traced: TracedGraph, values: Mapping[fx.Node, NodeValue], region: Subgraph) -> Extracted:
    """Return a region as a model of its own, with copies of the parameters and buffers that it reads.

    Raises
    ------
    CaptureError: a size of its input, other than the batch, is not fixed.
    """
    sizes = region.source.meta[VALUE].shape
    if len(sizes) < 2 or not all(isinstance(size, int) for size in sizes[1:]):
        raise CaptureError(
            f"'{region.source.name}' has the shape {[*map(str, sizes)]}, but an accelerator needs one batch axis and "
            f"fixed sizes behind it; use torch.compile(.., dynamic=False), or make the sizes alike in front of it"
        )
    copier = _Copier(traced, values, region)
    model = _Part(fx.GraphModule(copier.root, copier.graph), copier.layers)
    source = Source(model, _example(traced, region), NAME, copier.lines, is_random=True)
    return Extracted(source, copier.text(), copier.constants)


class _Layer(nn.Module):
    """Stands for a layer of the user's model: operators that are traced inside of its call have the layer's name."""

    def forward(self, run: Callable[[], Any]) -> Any:
        return run()


class _Part(nn.Module):
    """A graph that is run node by node, each inside a call of the layer that it is from.

    Parameters
    ----------
    body: the graph.
    layers: paths of layers in the user's model, by the names of nodes.
    """

    def __init__(self, body: fx.GraphModule, layers: Mapping[str, str]) -> None:
        super().__init__()
        # Layers are submodules by the user's names: these members need names that the user has not chosen.
        self._nnhw_body = body
        self._nnhw_paths = dict(layers)
        for path in sorted(set(layers.values()) - {""}):
            _add(self, path)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, ..] --> [batch, ..]."""
        result: Tensor = _Runner(self).run(x)
        return result

    def nnhw_layer(self, name: str) -> nn.Module | None:
        """Return the submodule that stands for a node's layer; None if it has none."""
        path = self._nnhw_paths.get(name, "")
        try:
            return self.get_submodule(path) if path else None
        except AttributeError:
            return None


class _Runner(fx.Interpreter):
    def __init__(self, part: _Part) -> None:
        super().__init__(part._nnhw_body)
        self._part = part

    def run_node(self, n: fx.Node) -> Any:
        layer = self._part.nnhw_layer(n.name)
        return super().run_node(n) if layer is None else layer(lambda: super(_Runner, self).run_node(n))


def _add(part: nn.Module, path: str) -> None:
    """Add a layer at a path, and the layers around it."""
    for name in path.split("."):
        if name not in part._modules:
            if hasattr(part, name):  # such as "training", which is no layer: nodes inside of it have none either
                return
            part.add_module(name, _Layer())
        part = part.get_submodule(name)


class _Copier:
    """Copies a region into a graph of its own, and writes its canonical text on the way."""

    def __init__(self, traced: TracedGraph, values: Mapping[fx.Node, NodeValue], region: Subgraph) -> None:
        self.graph, self.root = fx.Graph(), nn.Module()
        self.layers: dict[str, str] = {}
        self.lines: dict[str, tuple[str, int]] = {}
        self._traced, self._values = traced, values
        self._batch = region.source.meta[VALUE].shape[0]
        self._lines_of_text: list[str] = []
        self._numbers: dict[fx.Node, int] = {}
        # Names and numbers of the user's graph stay out of the text, so that equal parts of two models have one build.
        x = self.graph.placeholder("x")
        self._copies: dict[fx.Node, fx.Node] = {region.source: x}
        self._note(x, f"{list(map(int, region.source.meta[VALUE].shape[1:]))} {region.source.meta[VALUE].dtype}")
        self._size = self.graph.call_method("size", (x, 0))
        self._note(self._size, "size")
        for node in region.nodes:
            self._copy(node)
        self.graph.output(self._copies[region.output])
        # It is added for nodes that read the size of the batch: none did.
        if not self._size.users:
            self.graph.erase_node(self._size)

    def text(self) -> str:
        """Return the canonical text of the region: a line for each node."""
        return "\n".join(self._lines_of_text)

    @property
    def constants(self) -> frozenset[fx.Node]:
        """The nodes of the parameters and buffers that were copied."""
        return frozenset(self._copies.keys() & self._traced.constants.keys())

    def _note(self, copy: fx.Node, text: str) -> None:
        self._numbers[copy] = len(self._numbers)
        self._lines_of_text.append(f"%{self._numbers[copy]} = {text}")

    def _of(self, node: fx.Node) -> fx.Node:
        """Return the copy of a node that the region reads; it is made if there is none."""
        if node in self._copies:
            return self._copies[node]
        if node in self._traced.constants:
            self._copies[node] = self._constant(node)
        elif self._values[node].kind is Dependence.SIZE and node.meta[VALUE] == self._batch:
            return self._size
        elif node.op == "placeholder":
            raise CaptureError(f"it depends on '{node.name}', a size that changes from call to call")
        else:
            self._copy(node)
        return self._copies[node]

    def _constant(self, node: fx.Node) -> fx.Node:
        tensor, name = self._traced.constants[node], _buffer_name(node, self.root)
        # A copy: the user may go on to train, and the build must be that of this moment.
        kept = tensor.detach().cpu().clone()
        self.root.register_buffer(name, kept)
        copy = self.graph.get_attr(name)
        self._note(copy, f"{list(kept.shape)} {kept.dtype} {_hash(kept)}")
        return copy

    def _copy(self, node: fx.Node) -> None:
        """Copy a node, after all that it reads."""
        for one in node.all_input_nodes:
            self._of(one)
        copy = self.graph.node_copy(node, self._of)
        # Dynamo may have traced with the number of images as a plain number.
        copy.args = _batched(copy, self._batch, self._size)
        copy.meta = {}
        self._copies[node] = copy
        self._note(copy, self._described(copy))
        path = layer_of(node)
        if path:
            self.layers[copy.name] = path
        if frame := user_frame(node):
            self.lines.setdefault(path, frame)

    def _described(self, copy: fx.Node) -> str:
        """Return a node as text, with numbers of nodes in place of names."""
        numbers = fx.map_arg((copy.args, copy.kwargs), lambda one: f"%{self._numbers[one]}")
        target = copy.target
        if not isinstance(target, str):
            target = f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}"
        return f"{copy.op} {target} {numbers}"


def _batched(copy: fx.Node, batch: Any, size: fx.Node) -> tuple[Any, ...]:
    """Return a node's arguments; those of a reshape have the node `size` for the number of images of the trace."""
    name = copy.target if isinstance(copy.target, str) else getattr(copy.target, "__name__", "")
    if name not in _RESHAPES or len(copy.args) < 2 or not isinstance(batch, int):
        return copy.args
    first, *rest = copy.args[1:]
    if isinstance(first, list | tuple | torch.Size) and first and first[0] == batch:
        return (copy.args[0], (size, *first[1:]), *rest)
    return (copy.args[0], size, *rest) if first == batch and isinstance(first, int) else copy.args


def _buffer_name(node: fx.Node, root: nn.Module) -> str:
    """Return an unused name for a constant: made from the parameter's path, as far as the node's name tells it."""
    path = re.sub(r"_(modules|parameters|buffers)_", ".", node.name).strip("._")
    name = re.sub(r"\W+", "_", path.partition(".")[2] or path).strip("_") or "constant"
    taken = set(dict(root.named_buffers()))
    return next(one for one in (name, *(f"{name}_{number}" for number in range(len(taken) + 1))) if one not in taken)


def _hash(tensor: Tensor) -> str:
    # Flattened, as a tensor without axes cannot be viewed as bytes.
    return hashlib.sha256(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()


def _example(traced: TracedGraph, region: Subgraph) -> Tensor:
    """Return random inputs [8, *shape] over the range of the quantizers that read them; the same in each process."""
    low, high = zip(*_ranges(traced, region), strict=True)
    value = region.source.meta[VALUE]
    generator = torch.Generator().manual_seed(1)
    images = torch.rand((_IMAGES, *map(int, value.shape[1:])), generator=generator, dtype=torch.float64)
    return (min(low) + images * (max(high) - min(low))).mul(_BEYOND).to(value.dtype)


def _ranges(traced: TracedGraph, region: Subgraph) -> Iterator[tuple[float, float]]:
    """Yield the least and the greatest number that each quantizer of the source represents."""
    for node in region.nodes:
        if QUANTIZE in traced.operators(node).names and region.source in node.all_input_nodes:
            scale, zero = (traced.constants.get(one) for one in node.args[1:3])  # type: ignore[arg-type]
            # A scale that is not found yet, such as of an observer, cannot say a range; any other error comes later.
            step = 1.0 if scale is None or not bool(torch.isfinite(scale).all()) else float(scale.max())
            offset = 0.0 if zero is None else float(zero.max())
            low, high = float(node.args[3]), float(node.args[4])  # type: ignore[arg-type]
            yield (low - offset) * step, (high - offset) * step
