"""The style of a network: an engine for each layer, or a shared engine that runs them all; which, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.errors import DoesNotFitError, MappingError, MappingProblems, ProblemList, cause_of, first_of
from nnhw.families import Family
from nnhw.flow.options import Options
from nnhw.flow.report import link_rate
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.loops import refuse_loops, step_of
from nnhw.mapping.mapper import map_body
from nnhw.mapping.settling import settle
from nnhw.mapping.shared.compile import Compiled
from nnhw.mapping.shared.loops.loop_accelerator import map_loop
from nnhw.mapping.shared.search.arrays import least_cycles
from nnhw.mapping.shared.shared_accelerator import map_program, map_shared

LINK_MARGIN = 1.25
"""By what factor streaming engines are faster than the link: place and route may miss the board's usual clock by a
fifth, and the host sees no fewer images then."""
PROGRAM_LC = 215
"""Extra logic cells of a link that loads programs from the host and from flash; measured on the UP5K."""


@dataclass(frozen=True)
class Mapped:
    """A mapped network.

    Parameters
    ----------
    style: `streaming` or `shared`.
    why: why this style was chosen, for the report.
    compiled: the programs of shared engines; empty with style `streaming`.
    """

    accelerator: Accelerator
    style: str
    why: str
    compiled: tuple[Compiled, ...] = ()

    @property
    def interval(self) -> int:
        """Cycles from one frame to the next."""
        return self.accelerator.schedule.interval_cycles


def map_in_style(
    body: Graph, board: Board, budget: Budget, family: Family, options: Options, interval: int | None
) -> Mapped:
    """Map a network in the style that was asked for, or in the faster one.

    Parameters
    ----------
    interval: cycles per frame that are enough; None: as few as possible.

    Raises
    ------
    MappingError: it does not fit (with `auto`: in neither style); several sequences were asked for and it has no loop,
        or a shared engine keeps states of one alone.
    """
    if options.sequences > 1 and not body.inputs[0].type.is_sequence:
        raise MappingError(
            f"--sequences {options.sequences} is of recurrent networks, and '{body.name}' keeps no state from one "
            "image to the next; leave it out"
        )
    if body.inputs[0].type.is_sequence:
        return _sequence(body, board, budget, family, options, interval)
    if body.loops:
        return _behind_layers(body, board, budget, family, options, interval)
    if options.array is not None:
        accelerator, compiled = map_program(body, board.name, options.array)
        return Mapped(accelerator, "shared", "the array of another build was asked for", (compiled,))
    if options.style == "streaming" or options.overrides:
        why = "foldings were given" if options.overrides else "it was asked for"
        return _streaming(body, board, budget, family, options, interval, why)
    if options.style == "shared":
        return _shared(body, board, budget, family, "it was asked for", reusable=options.reusable)
    try:
        mapped = _streaming(body, board, budget, family, options, interval, "")
    except MappingError as error:
        return _instead(body, board, budget, family, options, interval, error)
    return _faster(mapped, body, board, budget, family, options, interval)


def _sequence(
    body: Graph, board: Board, budget: Budget, family: Family, options: Options, interval: int | None
) -> Mapped:
    """Map a network with loops: on an engine for each layer, around the memories of states, or as a program.

    A program of a loop computes a row of products at a time, so it is the way of networks that fit in no other.
    """
    if options.array is not None:
        refuse_loops(body, "no program of a loop is made for the array of another build; leave out '--array'")
    shared = options.style == "shared"
    if shared and options.sequences > 1:
        refuse_loops(body, "a shared engine keeps the states of one sequence; leave out '--sequences'")
    if shared:
        return _loop(body, board, budget, family, "it was asked for")
    why = "foldings were given" if options.overrides else "a shared engine takes more cycles for a step"
    try:
        return _streaming(body, board, budget, family, options, interval, why)
    except DoesNotFitError as error:
        if options.style == "streaming" or options.overrides or options.sequences > 1:
            raise
        try:
            return _loop(body, board, budget, family, f"with an engine for each layer, {first_of(error)}")
        except MappingError as other:
            raise DoesNotFitError(_in_no_style(error, other), error.remedy, error.layers) from None


def _behind_layers(
    body: Graph, board: Board, budget: Budget, family: Family, options: Options, interval: int | None
) -> Mapped:
    """Map a network whose loops get their steps from layers: on an engine for each layer alone."""
    if options.style == "shared" or options.array is not None:
        refuse_loops(
            body,
            "layers compute its steps from a whole image, and a program of a shared engine gets one step at a time; "
            "use '--style streaming', or build these layers and the loop as two models",
        )
    why = "foldings were given" if options.overrides else "a shared engine runs no loop behind layers of whole images"
    return _streaming(body, board, budget, family, options, interval, why)


def _loop(body: Graph, board: Board, budget: Budget, family: Family, why: str) -> Mapped:
    return Mapped(map_loop(body, board.name, left_to_shared(board, budget, family), family), "shared", why)


def _streaming(
    body: Graph, board: Board, budget: Budget, family: Family, options: Options, interval: int | None, why: str
) -> Mapped:
    enough = 0
    if interval is None and options.fast_for == "link":
        enough = int(_least_of_link(body, board, options) / LINK_MARGIN)
    accelerator = map_body(
        body,
        board.name,
        budget,
        family=family,
        target_interval=interval,
        enough=enough,
        overrides=options.overrides,
        sequences=options.sequences,
    )
    if why and accelerator.schedule.interval_cycles <= enough:
        why += f"; {enough:,} cycles per frame keep up with the link, so no faster engines were tried"
    return Mapped(accelerator, "streaming", why)


def _shared(
    body: Graph,
    board: Board,
    budget: Budget,
    family: Family,
    why: str,
    most: int | None = None,
    reusable: bool = False,
    enough: int = 0,
) -> Mapped:
    found = map_shared(body, board.name, left_to_shared(board, budget, family), family, most, reusable, enough)
    best, *others = found
    slower = "; ".join(f"{mapping.title}: {mapping.cycles:,}" for mapping in others)
    way = f"{best.title}: {best.cycles:,} cycles a frame{f' ({slower})' if slower else ''}"
    if best.cycles <= enough:
        way += f", where {enough:,} are enough for the link or the rate asked for, so that no faster one was sought"
    return Mapped(best.accelerator, "shared", f"{why}; {way}" if why else way, best.programs)


def left_to_shared(board: Board, budget: Budget, family: Family) -> Budget:
    """Return the part of a board's budget that shared engines may take.

    Parameters
    ----------
    budget: what the board leaves beside the link, see `nnhw.flow.board_budget.available`.
    """
    # The budget was made with the share of logic cells that is usable for streaming engines: take off the difference.
    reserved = board.resources.lc * (family.room.usable - family.room.usable_shared)
    return replace(budget, lc=budget.lc - PROGRAM_LC - reserved, ff=budget.ff - PROGRAM_LC)


def _instead(
    body: Graph,
    board: Board,
    budget: Budget,
    family: Family,
    options: Options,
    interval: int | None,
    reason: MappingError,
) -> Mapped:
    """Return a network on a shared engine because its layers do not fit on engines of their own."""
    why = f"with an engine for each layer, {first_of(reason)}"
    try:
        return _shared(body, board, budget, family, why, enough=interval or _least_of_link(body, board, options))
    except MappingError as error:
        # A list of problems stays one, so that each of them is shown to the user.
        if isinstance(reason, ProblemList):
            shared = MappingError(f"on a shared engine (--style shared): {cause_of(error)}")
            raise MappingProblems([*reason.problems, shared]) from None
        said = _in_no_style(reason, error)
        if isinstance(reason, DoesNotFitError):
            raise DoesNotFitError(said, reason.remedy, reason.layers) from None
        raise MappingError(said, reason.remedy) from None


def _in_no_style(streaming: MappingError, shared: MappingError) -> str:
    """Return why a network is mapped in neither style.

    What would help with a shared engine is left out: it often is the other style, which has failed.
    """
    return f"{streaming.cause}. On a shared engine (--style shared): {cause_of(shared)}"


def _least_of_link(body: Graph, board: Board, options: Options) -> int:
    """Return the fewest cycles in which the link passes a frame; to the host, an engine that takes no more is as fast.

    Codes are counted with their own bits, as engines in front of a shared one read them, and no sum with more than a
    byte: so no mapping's frames have fewer bytes.
    """
    clock_hz = options.clock_hz or board.target_clock_hz
    # Of sequences a frame is a step; states, the other inputs and outputs of a step, stay on the device.
    step = step_of(body)
    source, result = step.graph.inputs[0].type, step.graph.output_nodes[0].type
    taken = -(-source.size * source.int_dtype.bits // 8)
    given = -(-result.size * min(result.int_dtype.bits, 8) // 8)
    if body.inputs[0].type.is_sequence and not body.output_nodes[0].type.is_sequence:
        given = 0  # sent behind the last step alone
    return int(clock_hz / board.host_link.images_per_s(taken, given, clock_hz))


def _faster(
    streaming: Mapped,
    body: Graph,
    board: Board,
    budget: Budget,
    family: Family,
    options: Options,
    interval: int | None,
) -> Mapped:
    """Return the style with the higher rate for the host, or `streaming` without a search where it is good enough.

    The host gets the rate of the slower of engine and link. A shared engine reads one byte for each code of the input,
    a streaming one only the bits of the codes. So where the link holds up the streaming engine, no shared engine gives
    the host more.
    """
    cycles = f"an engine for each layer takes {streaming.interval:,} cycles a frame"
    products = sum(stage.products for stage in streaming.accelerator.stages)
    least = least_cycles(products, budget, family)
    enough = interval is not None and streaming.interval <= interval
    clock_hz = options.clock_hz or board.target_clock_hz
    link = link_rate(streaming.accelerator, board.host_link, clock_hz)
    if enough or streaming.interval <= least or link <= clock_hz / streaming.interval:
        than = "as many as were asked for" if enough else f"a shared one could not take fewer than {least:,}"
        if not enough and streaming.interval > least:
            speed = board.host_link.rate_text(clock_hz)
            than = (
                f"at {clock_hz / 1e6:g} MHz that is faster than the link at {speed}, which brings "
                f"{link:,.0f} images a second, so with another engine the host would see no more"
            )
        return Mapped(streaming.accelerator, "streaming", f"{cycles}; {than}")
    try:
        least = interval or _least_of_link(body, board, options)
        shared = _shared(body, board, budget, family, "", streaming.interval, enough=least)
    except MappingError as error:
        return Mapped(streaming.accelerator, "streaming", f"{cycles}; on a shared one, {first_of(error)}")
    except KeyboardInterrupt as stop:
        found = settle(streaming.accelerator, stop)
        return Mapped(found, "streaming", f"{cycles}; the search for a shared one was interrupted")
    why = f"{cycles}; with a shared one, {shared.why}"
    seen = [
        min(clock_hz / each.interval, link_rate(each.accelerator, board.host_link, clock_hz))
        for each in (streaming, shared)
    ]
    # Where the link makes both equally fast for the host, the engine with fewer cycles is taken.
    best = streaming if (seen[0], -streaming.interval) >= (seen[1], -shared.interval) else shared
    if (best is shared) != (shared.interval < streaming.interval):
        why += (
            f"; but the host sees {seen[0]:,.0f} images a second with the one and {seen[1]:,.0f} with the other, "
            f"through the link at {board.host_link.rate_text(clock_hz)}"
        )
    return Mapped(best.accelerator, best.style, why, best.compiled)
