"""The partition of a model: which operation runs where, and why; as an object, as lines and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

PYTORCH = "PyTorch"


@dataclass(frozen=True)
class Placed:
    """One operation of the model, and where it runs.

    Parameters
    ----------
    node: its name in the traced graph.
    operation: such as 'linear'.
    place: its layer and line in the user's model, such as 'net.1' (model.py:12); empty if neither is known.
    part: the number of the accelerator's part that runs it; None if PyTorch does.
    why: the reason why PyTorch runs it; empty if the accelerator does.
    """

    node: str
    operation: str
    place: str
    part: int | None
    why: str = ""

    @property
    def where(self) -> str:
        """The name of what runs it, such as 'nnhw 0' or 'PyTorch'."""
        return PYTORCH if self.part is None else f"nnhw {self.part}"

    def __str__(self) -> str:
        named = f"{self.node}: {self.operation}" + (f" {self.place}" if self.place else "")
        return f"{self.where}: {named}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True)
class AcceleratedPart:
    """A part of the model that the accelerator runs.

    Parameters
    ----------
    number: from 0 on; the largest part is the first.
    layers: number of its layers with weights.
    i_shape, o_shape: of its input and output, without the batch.
    key: hash of all that its build depends on.
    folder: of its build.
    origin: 'built', 'found on disk', or 'open already'.
    board, style: it was mapped for these; 'streaming' or 'shared'.
    interval_cycles: clock cycles between two images, as the mapping predicts.
    """

    number: int
    layers: int
    i_shape: tuple[int, ...]
    o_shape: tuple[int, ...]
    key: str
    folder: Path
    origin: str
    board: str
    style: str
    interval_cycles: int

    def __str__(self) -> str:
        return (
            f"nnhw {self.number}: {self.layers} layers, {[*self.i_shape]} -> {[*self.o_shape]}, "
            f"{self.interval_cycles:,} cycles an image, style {self.style}, on {self.board} "
            f"({self.origin}: {self.folder})"
        )


@dataclass(frozen=True)
class GraphPartition:
    """Which operations of a traced graph run where.

    Parameters
    ----------
    rows: all operations that depend on the model's input, in the order of the graph.
    parts: those that the accelerator runs; empty if PyTorch runs all.
    note: why PyTorch runs all; empty if it does not.
    """

    rows: Sequence[Placed]
    parts: Sequence[AcceleratedPart]
    note: str = ""

    def accelerated(self) -> list[Placed]:
        """Return the operations that the accelerator runs."""
        return [row for row in self.rows if row.part is not None]

    def lines(self) -> list[str]:
        """Return the partition as text: the note, a line for each part, and a line for each operation."""
        return [*([self.note] if self.note else []), *map(str, self.parts), *map(str, self.rows)]

    def table(self) -> Table:
        """Return the partition as a table for a terminal."""
        from rich.table import Table
        from rich.text import Text

        title = self.note or "; ".join(map(str, self.parts))
        table = Table("node", "operation", "place", "runs on", "why", title=Text(title), title_justify="left")
        for row in self.rows:
            table.add_row(*map(Text, (row.node, row.operation, row.place, row.where, row.why)))
        return table

    def __str__(self) -> str:
        return "\n".join(self.lines())
