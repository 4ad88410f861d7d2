"""From a board and a user's options to the budget and the rate for which the mapper is called."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any

from nnhw.accelerator import Accelerator, EngineConfig
from nnhw.boards import Board
from nnhw.engines.network import stepped_by
from nnhw.errors import DoesNotFitError, LoweringError, MappingError
from nnhw.families import FAMILIES, Cost, Family
from nnhw.families.parts import Inventory, luts, state
from nnhw.families.prices import PartRow
from nnhw.flow.options import Options
from nnhw.flow.style import PROGRAM_LC, Mapped, map_in_style
from nnhw.flow.virtual.stepping import compiled_network
from nnhw.ir import Graph
from nnhw.mapping.budget import Budget
from nnhw.mapping.cost import packing_cost, parts
from nnhw.mapping.least_weights import refuse_graph
from nnhw.mapping.shared.compile import Compiled
from nnhw.mapping.shared.search.array_cost import array_parts
from nnhw.passes import lower, split


def map_on_board(
    body: Graph, board: Board, options: Options, beside: Cost | None = None
) -> tuple[Mapped, dict[str, Any]]:
    """Map an integer graph onto what a board leaves beside the link.

    Parameters
    ----------
    beside: what stands beside the engines in place of the link; None: the link.

    Returns
    -------
    The mapped network, and the facts of the stage `map` for the report.

    Raises
    ------
    MappingError: it does not fit, or not at the rate asked for.
    """
    family = FAMILIES[board.family]
    with stepped_by(compiled_network), _without_collector():
        mapped = _map_at_rate(body, board, available(board, beside), family, options)
    accelerator = mapped.accelerator
    facts = {"resources": estimate(accelerator, board, beside), "board": dataclasses.asdict(board)}
    return mapped, facts | {"style": style_of(mapped), "clock_hz": _clock_hz(board, options)}


def refuse_on_board(graph: Graph, board: Board) -> None:
    """Refuse a captured graph whose weights are far too many for a board; comparing it with its model takes longer.

    Raises
    ------
    DoesNotFitError: engines of no style hold the weights that are left after all passes.
    """
    budget, family = available(board), FAMILIES[board.family]
    try:
        refuse_graph(graph, budget, family)
    except DoesNotFitError:
        # Channels that are pruned, or never change, are left out by passes.
        with suppress(LoweringError):  # which the stage `lower` explains
            refuse_graph(split(lower(graph)).body, budget, family)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the search for cycles of references, which would take a tenth of the time.

    The search of a mapping makes hundreds of thousands of objects and no cycles: memory grows no more without it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def available(board: Board, beside: Cost | None = None) -> Budget:
    """Return the resources of a board that are left for engines beside the link, or what stands in its place."""
    family = FAMILIES[board.family]
    room = family.room
    beside = room.link_of(board.link) if beside is None else beside
    return Budget(
        lc=board.resources.lc * room.usable - beside.lc,
        ebr=board.resources.ebr - beside.ebr - room.spare_ebr,
        dsp=board.resources.dsp - beside.dsp,
        spram=board.resources.spram,
        # A board states no flip-flops where each logic cell has one: then the limit of logic cells is theirs.
        ff=board.resources.ff * room.usable_ff - beside.ff if board.resources.ff else inf,
        large_device=family.is_large(board.device),
    )


def _map_at_rate(body: Graph, board: Board, budget: Budget, family: Family, options: Options) -> Mapped:
    """Return a mapping that reaches the rate asked for; where none was, the one of `Options.fast_for`.

    Raises
    ------
    MappingError: it does not fit, or no mapping that fits is fast enough; the message has the rate of the fastest.
    """
    interval = target_interval(board, options)
    if interval is not None:
        with suppress(MappingError):  # at this rate; the fastest may fit all the same
            mapped = map_in_style(body, board, budget, family, options, interval)
            if mapped.interval <= interval:
                return mapped
        options = dataclasses.replace(options, fast_for="engine")
    fastest = map_in_style(body, board, budget, family, options, None)
    if interval is not None and fastest.interval > interval:
        raise DoesNotFitError(_too_slow(fastest.accelerator, board, options))
    return fastest


def style_of(mapped: Mapped) -> dict[str, Any]:
    """Return the report's entry of the style: its name, why it was chosen, the memory map, and the fused layers."""
    turns = [fusion.title(compiled.network) for compiled in mapped.compiled for fusion in compiled.fusions]
    return {"name": mapped.style, "why": mapped.why, "memory": memory_map(mapped), "turns": turns}


def memory_map(mapped: Mapped) -> list[dict[str, Any]] | None:
    """Return the memory map of the shared engines: each value by address, with the layers that write and read it.

    Returns
    -------
    A row for each value, addresses and sizes in memory words; None without shared engines.
    """
    found = [row for number, compiled in enumerate(mapped.compiled, 1) for row in _memory(compiled, number)]
    return found or None


def _memory(compiled: Compiled, engine: int) -> list[dict[str, Any]]:
    plan, tasks = compiled.plan, compiled.network.tasks
    start = compiled.program_words
    rows: list[dict[str, Any]] = [{"name": "program and weights", "first": 0, "words": start, "from": "", "until": ""}]
    for life in plan.lives:
        until = tasks[life.dies].name if life.dies < len(tasks) else "output"
        born = tasks[life.born].name if life.born >= 0 else "input"
        place = start + plan.places[life.name]
        rows.append({"name": life.name, "first": place, "words": life.words, "from": born, "until": until})
    return [{"engine": engine, **row} for row in sorted(rows, key=lambda row: row["first"])]


def target_interval(board: Board, options: Options) -> int | None:
    """Return the cycles per frame at the rate asked for, with the clock asked for, else the board's usual one."""
    if options.target_fps is None:
        return None
    return max(1, int(_clock_hz(board, options) / options.target_fps))


def estimate(accelerator: Accelerator, board: Board, beside: Cost | None = None) -> dict[str, int]:
    """Return the resources that an accelerator with the link of a board is expected to take, by name of the resource.

    Shared engines keep their memory in SPRAM where the board has it, else in block RAM.

    Parameters
    ----------
    beside: what stands beside the engines in place of the link; None: the link.
    """
    family, spram = FAMILIES[board.family], board.resources.spram > 0
    link = family.room.link_of(board.link) if beside is None else beside
    if accelerator.programs:
        link += family.price(luts(PROGRAM_LC) + state(PROGRAM_LC))
    link += packing_cost(accelerator, family)
    total = sum((family.price(_parts(stage.config, spram)) for stage in accelerator.stages), link)
    return {"lc": round(total.lc), "ff": round(total.ff), "ebr": total.ebr, "spram": total.spram, "dsp": total.dsp}


def engine_parts(accelerator: Accelerator, board: Board) -> dict[str, list[PartRow]]:
    """Return what each engine of an accelerator is made of, by name, those parts first that take most logic."""
    prices, spram = FAMILIES[board.family].prices, board.resources.spram > 0
    return {stage.name: prices.rows(_parts(stage.config, spram)) for stage in accelerator.stages}


def _parts(config: EngineConfig, spram: bool) -> Inventory:
    """List the parts of an engine."""
    return parts(config) if config.program is None else array_parts(config.program.array, spram)


def _clock_hz(board: Board, options: Options) -> float:
    return options.clock_hz or board.target_clock_hz


def _too_slow(accelerator: Accelerator, board: Board, options: Options) -> str:
    clock_hz, interval = _clock_hz(board, options), accelerator.schedule.interval_cycles
    assert options.target_fps is not None
    return (
        f"--target-fps {options.target_fps:g} at {clock_hz / 1e6:g} MHz leaves {clock_hz / options.target_fps:.4g} "
        f"cycles per frame, but the fastest mapping that fits '{board.name}' takes {interval}; ask for "
        f"{int(clock_hz / interval)} or fewer, a higher --clock, or a larger board"
    )
