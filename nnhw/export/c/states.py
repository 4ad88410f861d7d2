"""States of a recurrent network in C: a struct of the caller, which each step reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnhw.ir.steps import State

from .c_text import comment, indented, table
from .plan import FilePlan
from .value_storage import Storage


class StateStruct:
    """The struct `NAME_state`, with a field for each state in the layout in which layers store values."""

    def __init__(self, plan: FilePlan, states: Sequence[State]) -> None:
        self.plan, self.states = plan, states

    @property
    def about(self) -> str:
        """End of the comment in front of the function that runs the network."""
        return "; it computes one step, with the states of the steps in front of it" if self.states else ""

    def ctype(self, state: State) -> str:
        """Return the C type of a state's elements."""
        return self._storage(state).ctype

    def declarations(self, prefix: str) -> list[str]:
        """Return the declarations of the struct and of its reset function; empty for a network without states."""
        if not self.states:
            return []
        fields = [f"{self.ctype(state)} {self._field(state)}[{self._size(state)}];" for state in self.states]
        return [
            comment("What one step hands to the next one; copy it to go on from here later."),
            "typedef struct {",
            *indented(fields),
            f"}} {prefix}_state;",
            "",
            comment("In front of the first step of each sequence."),
            f"{self._reset_head(prefix)};",
            "",
        ]

    def reset(self, prefix: str) -> list[str]:
        """Return the function that sets the states to their start."""
        if not self.states:
            return []
        lines = []
        for number, state in enumerate(self.states):
            # Maps lie in memory pixel by pixel, as in `Storage.of`.
            start = state.start.transpose(1, 2, 0) if state.start.ndim == 3 else state.start
            field = f"state->{self._field(state)}"
            if not start.any():
                lines.append(f"memset({field}, 0, sizeof {field});")
                continue
            name, ctype = f"start_{number}", self.ctype(state)
            lines += table(ctype, name, start)
            lines.append(f"memcpy({field}, {name}, sizeof {field});")
        return ["", self._reset_head(prefix), "{", *indented(lines), "}"]

    def kept(self, address: Callable[[State], str]) -> list[str]:
        """Return the lines behind the layers that copy the next states into the struct."""
        # A next state that is the old value of another state is saved first: copying in place could overwrite it.
        moved = [state for state in self.states if self.plan.values[state.made].buffer.startswith("state ")]
        moved = [state for state in moved if state.made != state.given]
        lines = []
        for state in moved:
            name = f"next_{self._field(state)}"
            lines.append(f"{self.ctype(state)} {name}[{self._size(state)}];")
            lines.append(f"memcpy({name}, {address(state)}, sizeof {name});")
        for state in self.states:
            if state.made == state.given:
                continue
            source = f"next_{self._field(state)}" if state in moved else address(state)
            field = f"state->{self._field(state)}"
            lines.append(f"memcpy({field}, {source}, sizeof {field});")
        return lines

    def _storage(self, state: State) -> Storage:
        return self.plan.values[state.given].storage

    def _field(self, state: State) -> str:
        return self.plan.states[state.given]

    def _size(self, state: State) -> int:
        return state.start.size

    def _reset_head(self, prefix: str) -> str:
        return f"void {prefix}_reset({prefix}_state *state)"
