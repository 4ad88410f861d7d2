"""Loops over the steps of a sequence: what engines run is one step, around the memories of its states."""

from __future__ import annotations

from nnhw.errors import IrError, MappingError, raise_all
from nnhw.ir import Graph, OneStep, one_step


def step_of(body: Graph) -> OneStep:
    """Return what engines run: one step of an integer graph of sequences; any other graph as it is.

    Raises
    ------
    MappingError: it needs a whole sequence at once, or a state begins as a computed value.
    """
    if not body.inputs[0].type.is_sequence:
        return OneStep(body, (), body)
    try:
        return one_step(body).without_unread()
    except IrError as error:
        raise MappingError(f"{error}; it runs in 'nnhw run --link model', and no hardware is made of it") from None


def refuse_loops(body: Graph, why: str) -> None:
    """Raise MappingError, or MappingProblems, with the loops of an integer graph, if there are any.

    Parameters
    ----------
    why: no hardware is made of them, and what to do.
    """
    raise_all([MappingError(f"{loop}: {why}") for loop, _ in body.loops])
