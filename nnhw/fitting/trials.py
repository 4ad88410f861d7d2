"""One network on one board, mapped: what it takes and how fast it is, or what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nnhw.boards import Board
from nnhw.errors import DoesNotFitError, LoweringError, MappingError, first_of
from nnhw.flow.budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.report import RESOURCES, link_rate
from nnhw.ir import Graph


@dataclass(frozen=True)
class Variant:
    """A form of the network.

    Parameters
    ----------
    weight_bits, act_bits: of the widest weights, and of the widest codes between layers.
    replaced: activations that gave way to straight lines.
    own: it is the network as it was given.
    """

    weight_bits: int
    act_bits: int
    replaced: tuple[str, ...] = ()
    own: bool = False

    def __str__(self) -> str:
        widths = f"{self.weight_bits}-bit weights, {self.act_bits}-bit activations"
        return widths + (f", straight lines for {', '.join(self.replaced)}" if self.replaced else "")


@dataclass(frozen=True)
class Trial:
    """What came of mapping a variant on a board.

    Parameters
    ----------
    board: the first of those that have this device.
    alike: names of the other boards with the same device.
    style: `streaming` or `shared`; empty where it does not fit.
    cycles: from frame to frame; 0 where it does not fit.
    clock_hz: for which rates are said.
    link: images a second that the board's link carries; 0 where it does not fit.
    resources: estimated, by name.
    missing: why it does not fit; empty where it does.
    fits: it was mapped.
    supported: it fits, or would if it were smaller.
    """

    board: Board
    alike: tuple[str, ...]
    variant: Variant
    style: str
    cycles: float
    clock_hz: float
    link: float
    resources: Mapping[str, int]
    missing: str = ""
    supported: bool = True

    @property
    def fits(self) -> bool:
        """Whether it was mapped."""
        return not self.missing

    @property
    def engine(self) -> float:
        """Images a second that the engine computes at the clock; 0 where it does not fit."""
        return self.clock_hz / self.cycles if self.cycles else 0.0

    @property
    def rate(self) -> float:
        """Images a second from host to result."""
        return min(self.engine, self.link)

    @property
    def fullest(self) -> tuple[str, float]:
        """The resource of which the largest share is taken, and that share."""
        has = {name: getattr(self.board.resources, name) for name in RESOURCES}
        shares = {name: self.resources.get(name, 0) / count for name, count in has.items() if count}
        return max(shares.items(), key=lambda item: item[1])


def attempt(body: Graph, variant: Variant, board: Board, alike: tuple[str, ...], options: Options) -> Trial:
    """Return what comes of mapping an integer graph on a board.

    Raises
    ------
    NnhwError: but for what says that the network cannot be mapped.
    """
    clock_hz = options.clock_hz or board.target_clock_hz
    try:
        mapped, facts = map_on_board(body, board, options)
    except MappingError as error:
        return failed(error, variant, board, alike, clock_hz)
    accelerator = mapped.accelerator
    return Trial(
        board=board,
        alike=alike,
        variant=variant,
        style=mapped.style,
        cycles=float(accelerator.schedule.interval),
        clock_hz=clock_hz,
        link=link_rate(accelerator, board.host_link, clock_hz),
        resources=facts["resources"],
    )


def failed(
    error: MappingError | LoweringError, variant: Variant, board: Board, alike: tuple[str, ...], clock_hz: float
) -> Trial:
    """Return the trial of a network that cannot be mapped."""
    supported = isinstance(error, DoesNotFitError)
    return Trial(board, alike, variant, "", 0.0, clock_hz, 0.0, {}, missing=first_of(error), supported=supported)
