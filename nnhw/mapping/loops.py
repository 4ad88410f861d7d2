"""Loops over the steps of a sequence, which no engine runs yet."""

from __future__ import annotations

from nnhw.errors import MappingError, raise_all
from nnhw.ir import Graph


def refuse_loops(body: Graph) -> None:
    """Raise MappingError, or MappingProblems, with the loops of an integer graph, if there are any."""
    raise_all(
        [
            MappingError(
                f"{loop}: recurrent networks are exported as C and interpreted; the mapping to hardware is not there "
                f"yet; use 'nnhw export c'"
            )
            for loop, _ in body.loops
        ]
    )
