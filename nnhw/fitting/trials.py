"""Forms of a network, and mapping one on a board: the resources it takes and its rate, or why it does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from nnhw.boards import Board
from nnhw.errors import DoesNotFitError, LoweringError, MappingError, NnhwError, ProblemList, first_of
from nnhw.flow.board_budget import map_on_board
from nnhw.flow.options import Options
from nnhw.flow.report import RESOURCES, link_rate
from nnhw.flow.tools.progress import Progress, noted
from nnhw.ir import Graph
from nnhw.passes import lower, split

from .narrowing import NotNarrowedError


@dataclass(frozen=True)
class Variant:
    """A form of the network that is mapped.

    Parameters
    ----------
    weight_bits, act_bits: bits of the widest weights, and of the widest codes between layers.
    replaced: names of the activations that were replaced by piecewise linear functions.
    own: whether this is the network as it was given.
    """

    weight_bits: int
    act_bits: int
    replaced: tuple[str, ...] = ()
    own: bool = False

    def __str__(self) -> str:
        widths = f"{self.weight_bits}-bit weights, {self.act_bits}-bit activations"
        return widths + (f", straight lines for {', '.join(self.replaced)}" if self.replaced else "")


@dataclass(frozen=True)
class FitTrial:
    """The result of mapping a variant on a board.

    Parameters
    ----------
    board: the board; it also stands for others with the same device.
    alike: names of those other boards.
    style: `streaming` or `shared`; empty if it does not fit.
    cycles: clock cycles from one frame to the next; 0 if it does not fit.
    latency_cycles: clock cycles from a frame's first byte to the last one of its result; 0 if it does not fit.
    clock_hz: the clock for which rates are computed, in Hz.
    link: images per second that the board's link carries; 0 if it does not fit.
    resources: estimated resources by name, such as `lc` and `ebr`, with the link.
    missing: why it does not fit; empty if it fits.
    supported: whether it fits or is only too large; False: the network has something that cannot be mapped.
    """

    board: Board
    alike: tuple[str, ...]
    variant: Variant
    style: str
    cycles: float
    latency_cycles: int
    clock_hz: float
    link: float
    resources: Mapping[str, int]
    missing: str = ""
    supported: bool = True

    def __str__(self) -> str:
        if not self.fits:
            return f"{self.board.name}, {self.variant}: {'does not fit' if self.supported else 'refused'}"
        rates = f"engine {self.engine:,.0f}, link {self.link:,.0f} images/s"
        return f"{self.board.name}, {self.variant}: fits, {self.style}, {rates}"

    @property
    def fits(self) -> bool:
        """Whether it was mapped."""
        return not self.missing

    @property
    def engine(self) -> float:
        """Images per second that the engine computes at the clock; 0 if it does not fit."""
        return self.clock_hz / self.cycles if self.cycles else 0.0

    @property
    def latency_us(self) -> float:
        """Microseconds from a frame's first byte to the last one of its result, at the clock; 0 if it does not fit."""
        return 1e6 * self.latency_cycles / self.clock_hz

    @property
    def rate(self) -> float:
        """Images per second from host to result: the slower of engine and link."""
        return min(self.engine, self.link)

    @property
    def fullest(self) -> tuple[str, float]:
        """The resource of which the largest share is taken, and that share."""
        has = {name: getattr(self.board.resources, name) for name in RESOURCES}
        # Resources that the board does not have at all are left out.
        shares = {name: self.resources.get(name, 0) / count for name, count in has.items() if count}
        return max(shares.items(), key=lambda item: item[1])


@dataclass(frozen=True, eq=False)
class LoweredVariant:
    """A variant's graph, which is lowered once for all boards.

    Parameters
    ----------
    graph: captured, not lowered yet; or why the network has no such form.
    """

    variant: Variant
    graph: Graph | NotNarrowedError
    progress: Progress

    @cached_property
    def body(self) -> Graph | NnhwError:
        """The integer graph: the part that runs on the device; or why this form has none.

        Raises
        ------
        NnhwError: what stands in the way of lowering the network as it is.
        """
        if not isinstance(self.graph, Graph):
            return self.graph
        with self.progress.stage(f"lower, {self.variant}"):
            try:
                return split(lower(self.graph)).body
            # Returned, so that no other board lowers it again.
            except (LoweringError, ProblemList) as error:
                if self.variant.own:
                    raise
                return error

    def attempt(self, board: Board, alike: tuple[str, ...], options: Options) -> FitTrial:
        """Return what comes of mapping this form on a board; see `attempt`."""
        # In front of the stage that maps it, so that both are shown one after the other.
        body = self.body
        if not isinstance(body, Graph):
            return failed(body, self.variant, board, alike, options.clock_hz or board.target_clock_hz)
        with self.progress.stage(f"map on {board.name}, {self.variant}"), noted("nnhw.mapping", self.progress):
            trial = attempt(body, self.variant, board, alike, options)
        self.progress.note(str(trial))
        return trial


def attempt(body: Graph, variant: Variant, board: Board, alike: tuple[str, ...], options: Options) -> FitTrial:
    """Return what comes of mapping an integer graph on a board.

    Raises
    ------
    NnhwError: any error but a MappingError, which becomes the trial's `missing`.
    """
    clock_hz = options.clock_hz or board.target_clock_hz
    try:
        # The mapping that a build makes, so that a yes here is kept there.
        mapped, facts = map_on_board(body, board, options)
    except MappingError as error:
        return failed(error, variant, board, alike, clock_hz)
    accelerator = mapped.accelerator
    return FitTrial(
        board=board,
        alike=alike,
        variant=variant,
        style=mapped.style,
        cycles=float(accelerator.schedule.interval),
        latency_cycles=accelerator.schedule.latency_cycles,
        clock_hz=clock_hz,
        link=link_rate(accelerator, board.host_link, clock_hz),
        resources=facts["resources"],
    )


def failed(error: NnhwError, variant: Variant, board: Board, alike: tuple[str, ...], clock_hz: float) -> FitTrial:
    """Return the trial of a network that cannot be lowered or mapped."""
    supported = isinstance(error, DoesNotFitError)
    return FitTrial(board, alike, variant, "", 0.0, 0, clock_hz, 0.0, {}, missing=first_of(error), supported=supported)
