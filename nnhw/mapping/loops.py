"""Graphs with loops over the steps of a sequence: engines run one step, with memories that keep its states."""

from __future__ import annotations

from nnhw.errors import IrError, MappingError, raise_all
from nnhw.ir import Graph, OneStep, device_step

_IN_FRONT = (
    "its steps are computed from a whole image by the layers in front of it, but an accelerator of a loop gets one "
    "step at a time; build these layers and the loop as two models, and pass the results of the first, transposed to "
    "[batch, steps, features], to the second. nnhw.reference computes the whole model"
)


def step_of(body: Graph) -> OneStep:
    """Return what engines run of an integer graph: one step if its input is a sequence, else the graph itself.

    Raises
    ------
    MappingError: the initial value of a state is computed, what both directions need cannot be sent in one frame, or
        layers of whole images make the steps.
    """
    check_steps(body)
    if not body.inputs[0].type.is_sequence:
        return OneStep(body, (), body)
    try:
        return device_step(body).without_unread()
    except IrError as error:
        raise MappingError(f"{error}; nnhw.reference computes it, and no hardware is made of it") from None


def check_steps(body: Graph) -> None:
    """Raise MappingError where steps of a loop are computed from a whole image; see `refuse_loops`."""
    if not body.inputs[0].type.is_sequence:
        refuse_loops(body, _IN_FRONT)


def refuse_loops(body: Graph, why: str) -> None:
    """Raise MappingError, or a ProblemList of several, for the loops of an integer graph; return if it has none.

    Parameters
    ----------
    why: why no hardware is made of loops here, and what to do, for the message.
    """
    raise_all([MappingError(f"{loop}: {why}") for loop, _ in body.loops])
