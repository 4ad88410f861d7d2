"""The passes in their order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable

from nnhw.errors import InputError
from nnhw.ir import Graph, verify
from nnhw.ir.graph import inner_name, with_body

from .align_sums import align_sums
from .cancel_permutes import cancel_permutes
from .collapse_chains import collapse_chains
from .drop_unread import drop_unread
from .flatten_positions import flatten_positions
from .fold_constants import fold_constants
from .fold_fixed_channels import fold_fixed_channels
from .fold_mirrors import fold_mirrors
from .fold_permutes import fold_permutes
from .hoist_shapes import hoist_shapes
from .join_rescaled import join_rescaled
from .merge_gates import merge_gates
from .merge_parallel import merge_parallel
from .narrow_codes import narrow_codes
from .permute_input import permute_input
from .rows_first import rows_first
from .separate_padding import separate_padding
from .share_twins import share_twins
from .sink_extremes import sink_extremes
from .sink_integer_pooling import sink_integer_pooling
from .sink_shapes import sink_shapes
from .turn_products import turn_products

Pass = Callable[[Graph], Graph]
Observer = Callable[[str, Graph], None]

PIPELINE: dict[str, Pass] = {
    "separate_padding": separate_padding,
    # Reorderings and other shape ops leave the regions first: a region is evaluated per channel, so nothing in it may
    # move elements. They sink where that is exact, as codes are fewer bits to move; the rest is hoisted.
    "permute_input": permute_input,
    "sink_shapes": sink_shapes,
    "hoist_shapes": hoist_shapes,
    "cancel_permutes": cancel_permutes,
    # What joins several values is then made ready for `collapse_chains`, which evaluates what is left.
    "sink_extremes": sink_extremes,
    "align_sums": align_sums,
    "join_rescaled": join_rescaled,
    "flatten_positions": flatten_positions,
    "collapse_chains": collapse_chains,
    # From here on all is integers. Thresholds are there now, into which constants fold and behind which pools sink.
    "fold_constants": fold_constants,
    "sink_integer_pooling": sink_integer_pooling,
    "narrow_codes": narrow_codes,
    "fold_mirrors": fold_mirrors,
    "turn_products": turn_products,
    "fold_permutes": fold_permutes,
    "share_twins": share_twins,
    # Channels are folded in front of `drop_unread`, which removes them, and layers are merged behind it, as small as
    # they have become.
    "fold_fixed_channels": fold_fixed_channels,
    "drop_unread": drop_unread,
    "merge_parallel": merge_parallel,
    "merge_gates": merge_gates,
    "rows_first": rows_first,
}
_PROVING = (join_rescaled, collapse_chains)
"""Passes with a second argument, which receives the proofs of what they replace."""


def lower(
    graph: Graph,
    stop_after: str | None = None,
    observe: Observer | None = None,
    proofs: dict[str, str] | None = None,
) -> Graph:
    """Lower a captured graph: run the passes in order, with `verify` in front of and behind each.

    Each pass is also run on the bodies of loops.

    Parameters
    ----------
    stop_after: name of the last pass to run; None: run all.
    observe: called with (name, graph) after each pass.
    proofs: receives, by quantizer name, the proof that `collapse_chains` or `join_rescaled` found all steps.

    Raises: InputError for a pass that does not exist; errors of the passes.
    """
    if stop_after is not None and stop_after not in PIPELINE:
        raise InputError(f"there is no pass '{stop_after}'; the passes are {', '.join(PIPELINE)}")
    graph = verify(graph)
    for name, apply in PIPELINE.items():
        graph = _applied(apply, graph, proofs)
        if observe is not None:
            observe(name, graph)
        if name == stop_after:
            break
    return graph


def _applied(apply: Pass, graph: Graph, proofs: dict[str, str] | None) -> Graph:
    """Run a pass on a graph, then on the body of each loop in it; passes themselves do not look into bodies."""
    proving = next((one for one in _PROVING if one is apply), None)
    graph = verify(proving(graph, proofs) if proving else apply(graph), graph)
    for loop, scan in graph.loops:
        found: dict[str, str] = {}
        body = _applied(apply, scan.body, found)
        if body is not scan.body:
            graph = verify(with_body(graph, loop.name, body), graph)
        if proofs is not None:
            proofs.update({inner_name(loop.name, name): proof for name, proof in found.items()})
    return graph
