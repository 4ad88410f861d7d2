"""Pass: everything between integers and the next code becomes steps, found by evaluation.

quantize(batch_norm(dequantize(sums)))             --> threshold(sums)
quantize(silu(dequantize(sums)))                   --> step_table(sums)
quantize(relu(add(dequantize(a), dequantize(b))))  --> threshold(weighted_sum(a, b))
"""

from __future__ import annotations

from nnhw.errors import NnhwError, raise_all
from nnhw.ir import Graph

from .bisection import find_steps
from .joins import find_joint_steps
from .regions import check_elementwise, find_region, quantizers
from .step_finder import replaced


def collapse_chains(graph: Graph, proofs: dict[str, str] | None = None) -> Graph:
    """Replace each region by an integer function that gives the same code for every integer of its range.

    Parameters
    ----------
    proofs: receives, by quantizer name, the proof that no step is missing.

    Raises
    ------
    LoweringError, or a ProblemList of all of them: a region has no such form, or gives NaN or infinity.
    """
    problems: list[NnhwError] = []
    for quantizer in quantizers(graph):
        try:
            region = find_region(graph, graph.node(quantizer.name))
            if region is None:
                continue
            check_elementwise(region)
            factors, steps = ((), find_steps(region)) if len(region.sources) == 1 else find_joint_steps(region)
            if proofs is not None:
                proofs[region.quantizer.name] = steps.proof
            graph = replaced(graph, region.quantizer, region.sources, factors, steps)
        except NnhwError as error:
            problems.append(error)
    raise_all(problems)
    return graph
