"""From a board and the user's wishes to what the mapper is asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.errors import MappingError
from nnhw.flow.options import Options
from nnhw.ir import Graph
from nnhw.mapping.cost import cost
from nnhw.mapping.family import FAMILIES, Family
from nnhw.mapping.mapper import MARGIN, Budget, map_body
from nnhw.mapping.resources import Cost

LINK_COST = {"ice40": Cost(lc=710, ebr=2), "ecp5": Cost(lc=600, ebr=2)}
"""UART, framing, CRC, identity, counters, reset, by family: measured, see `benchmarks/`."""


def map_on_board(body: Graph, board: Board, options: Options) -> tuple[Accelerator, dict[str, Any]]:
    """Map an integer graph on what a board leaves beside the link.

    Returns
    -------
    The accelerator, and what the report says of it.

    Raises
    ------
    MappingError: it does not fit, or not at the rate asked for.
    """
    link = LINK_COST[board.family]
    available = Budget(
        lc=board.resources.lc * MARGIN - link.lc,
        ebr=board.resources.ebr - link.ebr,
        dsp=board.resources.dsp,
    )
    family, interval = FAMILIES[board.family], target_interval(board, options)
    accelerator = map_body(
        body, board.name, available, family=family, target_interval=interval, overrides=options.overrides
    )
    if interval is not None and accelerator.schedule.interval_cycles > interval:
        raise MappingError(_too_slow(accelerator, board, options))
    return accelerator, {"resources": estimate(accelerator, family), "board": dataclasses.asdict(board)}


def target_interval(board: Board, options: Options) -> int | None:
    """Return the cycles a frame that suffice for the rate asked for, at the clock asked for or the usual one."""
    if options.target_fps is None:
        return None
    return max(1, int(_clock_hz(board, options) / options.target_fps))


def estimate(accelerator: Accelerator, family: Family) -> dict[str, int]:
    """Return the resources that an accelerator with its link is expected to take."""
    total = sum((cost(stage.config, family) for stage in accelerator.stages), LINK_COST[family.name])
    return {"lc": round(total.lc), "ebr": total.ebr, "spram": 0, "dsp": total.dsp}


def _clock_hz(board: Board, options: Options) -> float:
    return options.clock_hz or board.target_clock_hz


def _too_slow(accelerator: Accelerator, board: Board, options: Options) -> str:
    clock_hz, interval = _clock_hz(board, options), accelerator.schedule.interval_cycles
    return (
        f"--target-fps {options.target_fps:g} at {clock_hz / 1e6:g} MHz needs a frame every "
        f"{target_interval(board, options)} cycles, but the fastest mapping that fits '{board.name}' takes {interval}; "
        f"ask for {clock_hz / interval:.0f} or fewer, a higher --clock, or a larger board"
    )
