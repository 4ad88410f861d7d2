"""Pass: everything between an accumulator and the next code becomes thresholds, found by evaluation.

quantize(batch_norm(dequantize(sums))) --> threshold(sums)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnhw.errors import LoweringError, NnhwError, raise_all
from nnhw.ir import BIT, Graph, IntType, Node, TensorType, run
from nnhw.ir.ops import Constant, Threshold

from .chains import Chain, find_chain, quantizers, unique_name


@dataclass(frozen=True)
class Steps:
    """The integer function of one chain.

    Parameters
    ----------
    thresholds: int64 [channels, steps], each row sorted; see the op `threshold`.
    descending: bool [channels].
    """

    thresholds: np.ndarray
    descending: np.ndarray


def collapse_chains(graph: Graph) -> Graph:
    """Replace each chain by thresholds that give the same code for every accumulator of its range.

    Raises
    ------
    LoweringError, or ProblemList, for chains that are not monotone, join branches, or hold NaN or infinity.
    """
    problems: list[NnhwError] = []
    for quantizer in quantizers(graph):
        try:
            chain = find_chain(graph, graph.node(quantizer.name))
            if chain is not None:
                graph = _replaced(graph, chain, find_steps(chain))
        except NnhwError as error:
            problems.append(error)
    raise_all(problems)
    return graph


def find_steps(chain: Chain) -> Steps:
    """Find the accumulator at which each code begins, in all channels at once, by bisection.

    Exact: every op of the chain is monotone and so is its rounding; the steps found are then evaluated on both
    sides, as are both ends of the range.
    """
    _check_finite(chain)
    descending = chain.direction() < 0
    codes, sums = _indices(chain.codes), chain.source.type.int_dtype
    evaluate = chain.evaluator()
    wanted = np.arange(1, codes + 1)[:, np.newaxis]  # [steps, 1]: step s begins where the index reaches s
    low = np.full((codes, chain.channels), sums.low, dtype=np.int64)
    high = np.full_like(low, sums.high + 1)
    while (active := low < high).any():
        middle = (low + high) // 2
        index = _index_of(evaluate(np.minimum(middle, sums.high)), chain.codes)
        reached = np.where(descending, index < wanted, index >= wanted)
        high = np.where(active & reached, middle, high)
        low = np.where(active & ~reached, middle + 1, low)
    steps = Steps(np.sort(low, axis=0).T.copy(), descending)
    _certify(chain, steps)
    return steps


def _certify(chain: Chain, steps: Steps) -> None:
    """Compare thresholds and chain on both sides of every step and at both ends.

    Between two steps a monotone function is constant, so equality there is equality on the whole range.
    """
    sums = chain.source.type.int_dtype
    ends = np.broadcast_to(np.array([[sums.low], [sums.high]]), (2, chain.channels))
    points = np.concatenate([ends, steps.thresholds.T - 1, steps.thresholds.T]).clip(sums.low, sums.high)
    op = _op(chain.codes)
    wrong = op.evaluate(points, steps.thresholds, steps.descending) != chain.evaluator()(points)
    if wrong.any():
        channel = int(np.flatnonzero(wrong.any(axis=0))[0])
        raise LoweringError(
            f"{chain.quantizer}: the ops behind {chain.source} are not monotone in channel {channel}, although their "
            f"parameters say so; please report this model"
        )


def _check_finite(chain: Chain) -> None:
    """Look at every op's values at both ends of the range: between them a monotone function stays between."""
    sums = chain.source.type.int_dtype
    ends = np.broadcast_to(np.array([[sums.low], [sums.high]]), (2, chain.channels))
    flat = chain.flat()
    bad: dict[str, np.ndarray] = {}

    def observe(name: str, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            bad.setdefault(name, np.flatnonzero(~np.isfinite(values).all(axis=0)))

    try:
        run(flat, ends, observe)
    except NnhwError as error:  # NaN in front of the quantizer
        if not bad:
            raise LoweringError(f"{chain.quantizer}: {error}") from error
    if bad:
        name, channels = next(iter(bad.items()))
        listed = ", ".join(map(str, channels[:8])) + (", .." if len(channels) > 8 else "")
        raise LoweringError(
            f"{chain.graph.node(name)} gives NaN or infinity for sums of {chain.source} in {sums}, in channels "
            f"{listed}; check its parameters for NaN, infinity and division by zero"
        )


def _replaced(graph: Graph, chain: Chain, steps: Steps) -> Graph:
    quantizer, sums = chain.quantizer, chain.source.type.int_dtype
    names = [_free(graph, f"{quantizer.name}.thresholds"), _free(graph, f"{quantizer.name}.descending")]
    types = [
        TensorType(steps.thresholds.shape, IntType(sums.low, sums.high + 1)),
        TensorType(steps.descending.shape, BIT),
    ]
    constants = [Node(name, Constant(), (), type, quantizer.location) for name, type in zip(names, types, strict=True)]
    inputs = (chain.source.name, *names)
    node = Node(quantizer.name, _op(chain.codes), inputs, quantizer.type, quantizer.location)
    arrays = dict(zip(names, (steps.thresholds, steps.descending), strict=True))
    return graph.replace(quantizer.name, [*constants, node], arrays)


def _free(graph: Graph, name: str) -> str:
    return unique_name(graph, name) if name in graph else name


def _op(codes: IntType) -> Threshold:
    return Threshold(codes.low, codes.bipolar)


def _indices(codes: IntType) -> int:
    return 1 if codes.bipolar else codes.high - codes.low


def _index_of(values: np.ndarray, codes: IntType) -> np.ndarray:
    return (values > 0).astype(np.int64) if codes.bipolar else values - codes.low
