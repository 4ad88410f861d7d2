"""Cutting a network in three: layers in front and behind get streaming engines, those between share an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from nnhw.ir import Graph, extract
from nnhw.mapping.layers import Layer
from nnhw.mapping.reader import read_layers


@dataclass(frozen=True)
class Partition:
    """A network in up to three parts.

    Parameters
    ----------
    front: graph of the layers in front of the shared engine; None: there are none.
    shared: graph of the layers that share an engine.
    behind: graph of the layers behind it; None: there are none.
    counts: numbers of layers in front and behind.
    """

    front: Graph | None
    shared: Graph
    behind: Graph | None
    counts: tuple[int, int]

    @property
    def title(self) -> str:
        """A description for the report."""
        places = zip(self.counts, ("in front of it", "behind it"), strict=True)
        named = [f"{count} layer{'s' if count > 1 else ''} {place}" for count, place in places if count]
        return ", ".join(named) or "all layers on it"


def partitions(
    body: Graph, most: int, behind: int = 0, may_fit: Callable[[Sequence[Layer]], bool] = lambda _: True
) -> Iterator[Partition]:
    """Yield the partitions of a network with no layer in front, with one, and so on, where it can be cut.

    It can be cut where a single value passes from one part to the next.

    Parameters
    ----------
    most: most layers in front.
    behind: number of layers behind, in all partitions; if the network cannot be cut there, none is yielded.
    may_fit: whether layers may fit on a shared engine; partitions with others are left out.
    """
    layers, (source,) = read_layers(body), body.inputs
    end = len(layers) - behind
    if behind and not is_cut(layers, end, body):
        return
    # The same for all partitions, as only what is in front differs.
    tail = extract(body, f"{body.name}_behind", (layers[end - 1].node,), body.outputs) if behind else None
    outputs = (layers[end - 1].node,) if behind else body.outputs
    for count in range(min(most, end - 1) + 1):
        if not may_fit(layers[count:end]):
            continue
        if not count:
            shared = extract(body, body.name, (source.name,), outputs) if behind else body
            yield Partition(None, shared, tail, (0, behind))
        elif is_cut(layers, count, body):
            node = layers[count - 1].node
            front = extract(body, f"{body.name}_front", (source.name,), (node,))
            yield Partition(front, extract(body, body.name, (node,), outputs), tail, (count, behind))


def is_cut(layers: Sequence[Layer], count: int, body: Graph) -> bool:
    """Return whether the layers from `count` on read, of those in front, only the codes of the last one."""
    if not 0 < count < len(layers) or layers[count - 1].function is None or layers[count - 1].node not in body:
        return False
    # Layers behind the cut may also read one another.
    apart = {layer.node for layer in layers[count - 1 :]}
    return all(name in apart for layer in layers[count:] for name in layer.inputs)
