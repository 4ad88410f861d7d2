"""The report of a build: what each stage found out, in one document. Its schema is `docs/report-schema.md`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import nnhw
from nnhw.accelerator import Accelerator
from nnhw.boards import Board
from nnhw.engines.timing import as_number
from nnhw.flow.array_work import peak, works
from nnhw.flow.verification.record_cycles import program_rows
from nnhw.links import BoardLink

SCHEMA_VERSION = 1
ANSWERS = ("torch_ir", "torch_gap", "torch_argmax", "torch_float64_ir", "torch_float64_gap", "torch_float64_argmax")
"""Names of the facts with which lowering compares PyTorch's results, in the model's precision and in float64."""
RESOURCES = ("lc", "ff", "ebr", "spram", "dsp")

Facts = Mapping[str, Mapping[str, Any]]


def make_report(facts: Facts, accelerator: Accelerator | None, board: Board) -> dict[str, Any]:
    """Put together the facts of all stages; entries of stages that have not run are None.

    Parameters
    ----------
    facts: content of `<stage>.json` of each stage that has run, by stage name.
    accelerator: the result of `map`; None where it has not run.

    Returns
    -------
    The content of `report.json`.
    """
    clock_hz = _get(facts, "build", "clock_hz")
    report: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "nnhw": nnhw.__version__,
        "model": _model(facts, accelerator),
        "board": {"name": board.name, "device": board.device},
        "exactness": _exactness(facts),
        "savings": _get(facts, "lower", "savings"),
        "cycles": _cycles(facts, accelerator),
        "resources": _resources(facts, dataclasses.asdict(board.resources)),
        "fmax_hz": _get(facts, "build", "fmax_hz"),
        "clock_hz": clock_hz,
        "clock_reason": _get(facts, "build", "clock_reason"),
        "seeds": _seeds(facts),
        "planned": _planned(accelerator, _get(facts, "map", "clock_hz")),
        **_rates(accelerator, clock_hz, _get(facts, "map", "clock_hz") or board.target_clock_hz, board),
        "style": _get(facts, "map", "style"),
        "layers": _layers(facts, accelerator),
        "program": _program(facts, accelerator),
        "utilization": _utilization(accelerator),
        "patched": _get(facts, "build", "patched"),
        "sensor": _sensor(facts, board),
        "tools": {name: version for stage in facts.values() for name, version in stage.get("tools", {}).items()},
    }
    return report


def link_rate(accelerator: Accelerator, link: BoardLink, clock_hz: float) -> float:
    """Return the images per second that pass a link, see `BoardLink.images_per_s`."""
    return link.images_per_s(accelerator.input_format.frame_bytes, accelerator.output_format.frame_bytes, clock_hz)


def host_rate(accelerator: Accelerator, link: BoardLink, clock_hz: float) -> float:
    """Return the images per second that the host gets: the rate of the slower of engine and link."""
    return min(clock_hz / float(accelerator.schedule.interval), link_rate(accelerator, link, clock_hz))


def _get(facts: Facts, stage: str, key: str) -> Any:
    return facts.get(stage, {}).get(key)


def _model(facts: Facts, accelerator: Accelerator | None) -> dict[str, Any]:
    return {
        "name": _get(facts, "capture", "name"),
        "hash": _get(facts, "lower", "hash"),
        "weight_bits": _get(facts, "lower", "weight_bits"),
        "products": sum(stage.products for stage in accelerator.stages) if accelerator else None,
        "accuracy": _get(facts, "capture", "accuracy"),
    }


def _exactness(facts: Facts) -> dict[str, Any]:
    """Return the numbers of samples compared, and of those whose results differ; for IR and hardware, 0 is required."""
    precision = _get(facts, "capture", "precision")
    return {
        "samples": _get(facts, "lower", "samples"),
        "precision": precision,
        "torch_ties": _ties(facts, precision),
        "torch_float64_ties": _ties(facts, "float64"),
        **{name: _get(facts, "lower", name) for name in ANSWERS},
        "rewrites": _get(facts, "capture", "rewrites"),
        "passes": _get(facts, "lower", "passes"),
        "proofs": _get(facts, "lower", "proofs"),
        "near_ties": _count(_get(facts, "lower", "near_ties")),
        "rtl_samples": _get(facts, "simulate", "samples"),
        "ir_rtl": _get(facts, "simulate", "mismatches"),
        "layers": _get(facts, "simulate", "layers"),
        "simulators": _get(facts, "simulate", "simulators"),
        "netlist_samples": _get(facts, "netlist", "samples"),
        "ir_netlist": _get(facts, "netlist", "mismatches"),
    }


def _ties(facts: Facts, precision: str | None) -> int | None:
    """Return the number of samples on which PyTorch, in a precision, gives another code because of rounding alone."""
    count: int | None = (_get(facts, "capture", "ties") or {}).get(precision)
    return count


def _sensor(facts: Facts, board: Board) -> dict[str, Any] | None:
    """Return which sensor feeds the network, and what differs from PyTorch with it; None: the link does."""
    front = _get(facts, "lower", "front")
    if board.sensor is None or front is None:
        return None
    names = ("frames", "codes", "labels", "lines")
    return {"input": board.sensor.kind, "front": front["kind"], **{name: _get(facts, "sense", name) for name in names}}


def _count(listed: Any) -> int | None:
    return None if listed is None else len(listed)


def _cycles(facts: Facts, accelerator: Accelerator | None) -> dict[str, Any]:
    schedule = accelerator.schedule if accelerator else None
    return {
        "interval": {
            "predicted": as_number(schedule.interval) if schedule else None,
            "simulated": _get(facts, "simulate", "interval_cycles"),
        },
        "latency": {
            "predicted": schedule.latency_cycles if schedule else None,
            "simulated": _get(facts, "simulate", "latency_cycles"),
        },
    }


def _resources(facts: Facts, available: Mapping[str, int]) -> dict[str, Any]:
    estimated = _get(facts, "map", "resources") or {}
    used = _get(facts, "build", "resources") or {}
    return {
        name: {"estimated": estimated.get(name), "used": used.get(name), "available": available.get(name, 0)}
        for name in RESOURCES
    }


def _seeds(facts: Facts) -> dict[str, float] | None:
    """Return Fmax in Hz by seed, for the place-and-route runs at the clock that the bitstream was placed for."""
    if "build" not in facts:
        return None
    build = facts["build"]
    placed_hz = build.get("placed_hz", build["clock_hz"])  # an older nnhw placed for each clock anew
    attempts = [attempt for attempt in build["attempts"] if attempt["clock_hz"] == placed_hz]
    return {str(attempt["seed"]): attempt["fmax_hz"] for attempt in attempts}


def _rates(accelerator: Accelerator | None, built_hz: float | None, planned_hz: float, board: Board) -> dict[str, Any]:
    """Return the rates of a build; before its clock is known, those of the links at the planned clock alone."""
    found = rates(accelerator, built_hz or planned_hz, board)
    return found if built_hz else {**found, "inferences_per_second": None}


def rates(accelerator: Accelerator | None, clock_hz: float, board: Board) -> dict[str, Any]:
    """Return latency, images (or steps) per second of the engine and of each link of a board, and what bounds the rate.

    Parameters
    ----------
    accelerator: None before `map` has run; its rates are then None.
    """
    i_bytes = accelerator.input_format.frame_bytes if accelerator else None
    o_bytes = accelerator.output_format.frame_bytes if accelerator else None
    engine = clock_hz / float(accelerator.schedule.interval) if accelerator else None
    links = [link.facts(i_bytes, o_bytes, clock_hz) for link in board.links]
    link = board.host_link.facts(i_bytes, o_bytes, clock_hz)
    return {
        "frame": "step" if accelerator and accelerator.input_format.headed else "image",
        "rounds": accelerator.rounds.count if accelerator and accelerator.rounds else 1,
        "latency_us": 1e6 * accelerator.schedule.latency_cycles / clock_hz if accelerator else None,
        "inferences_per_second": engine,
        "link": link,
        "links": [{**one, "bound": _bound(engine, one["inferences_per_second"])} for one in links],
        "bound": _bound(engine, link["inferences_per_second"]),
    }


def _bound(engine: float | None, link: float | None) -> str | None:
    """Return which of engine and link has the lower rate; None where one of them is not known."""
    return ("link" if link < engine else "engine") if engine is not None and link is not None else None


def _planned(accelerator: Accelerator | None, clock_hz: float | None) -> dict[str, float] | None:
    """Return the planned clock in Hz (asked for, else the board's usual one) and the engine's rate at it."""
    if accelerator is None or clock_hz is None:
        return None
    return {"clock_hz": clock_hz, "inferences_per_second": clock_hz / float(accelerator.schedule.interval)}


def _layers(facts: Facts, accelerator: Accelerator | None) -> list[dict[str, Any]]:
    if accelerator is None:
        return []
    accumulators = _get(facts, "lower", "accumulators") or {}
    interval = float(accelerator.schedule.interval)
    return [
        {
            "name": work.layer,
            "engine": work.engine,
            "pe": work.pe,
            "simd": work.simd,
            "cycles": work.cycles,
            "busy": work.busy,
            "products": work.products,
            "utilization": work.products / (work.lanes * interval),
            "weight_bits": work.weight_bits,
            "accumulator": accumulators.get(work.layer),
            "requantizer": work.requantizer,
        }
        for work in works(accelerator)
    ]


def _program(facts: Facts, accelerator: Accelerator | None) -> list[dict[str, Any]] | None:
    """Return the cycles of each part of the programs: counted in simulation where it has run, else predicted."""
    if accelerator is None or not accelerator.programs:
        return None
    counted: list[dict[str, Any]] | None = _get(facts, "simulate", "program")
    return program_rows(accelerator.programs) if counted is None else counted


def _utilization(accelerator: Accelerator | None) -> float | None:
    """Return the share of all arrays' multiplications in an interval that a frame needs, 0 to 1."""
    if accelerator is None:
        return None
    return float(sum(work.products for work in works(accelerator)) / peak(accelerator))
