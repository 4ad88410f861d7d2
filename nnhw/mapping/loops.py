"""Graphs with loops over the steps of a sequence: what engines run of them in a frame, with memories of states."""

from __future__ import annotations

from nnhw.errors import IrError, MappingError, raise_all
from nnhw.ir import Graph, OneStep, device_step


def step_of(body: Graph) -> OneStep:
    """Return what engines run of an integer graph in a frame.

    It is one step if the graph's input is a sequence, all steps if layers compute them from a whole image, and the
    graph itself if it has no loops.

    Raises
    ------
    MappingError: the initial value of a state is computed, what both directions need cannot be sent in one frame, or
        the steps that layers compute are no vectors, or are read in both directions.
    """
    if not body.inputs[0].type.is_sequence and not any(node.op.along_steps for node in body.nodes):
        return OneStep(body, (), body)
    try:
        return device_step(body).without_unread()
    except IrError as error:
        raise MappingError(f"{error}; nnhw.reference computes it, and no hardware is made of it") from None


def refuse_loops(body: Graph, why: str) -> None:
    """Raise MappingError, or a ProblemList of several, for the loops of an integer graph; return if it has none.

    Parameters
    ----------
    why: why no hardware is made of loops here, and what to do, for the message.
    """
    raise_all([MappingError(f"{loop}: {why}") for loop, _ in body.loops])
