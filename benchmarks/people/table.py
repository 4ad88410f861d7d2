"""The page of the docs that shows what becomes of the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TITLES = {"icebreaker": "UP5K", "ice40_hx8k_b_evn": "HX8K", "ulx3s_25f": "ECP5-25F", "ulx3s_85f": "ECP5-85F"}
"""Boards --> their devices, as the columns are called."""
FRONT = ("quantize", "capture", "lower")
AIMS = {"ulx3s_85f": (300_000, 90), "icebreaker": (60_000, 75)}
"""Board --> networks of fewer weights than these, without attention or recurrence, and how many percent should map."""

HEAD = """# Networks that people bring

What becomes of {count} models as tutorials and model zoos write them: the float ones go through `nnhw.quantize` at
8 bits with random data, the others are written with `nnhw.nn`; weights are random. Their code is in
`benchmarks/people`. This page is written by `python -m benchmarks people`, from `benchmarks/results/people.json`; each
step has a limit of CPU seconds there ("time" where it had no answer).

In the columns of the boards stand cycles from image to image and, behind them, what bounds the rate at the board's
usual clock: an engine, or the link to the host. Nothing of it was placed and routed. `-` means that a step in front
was refused, an empty cell that it was not run.
"""


def page(document: Mapping[str, Any]) -> str:
    """Return the page, as Markdown."""
    rows = document["models"]
    lines = [HEAD.format(count=len(rows)), *_summary(rows), "", *_table(rows), "", *_refusals(rows)]
    return "\n".join(lines).rstrip() + "\n"


def _summary(rows: Mapping[str, Any]) -> list[str]:
    lines = ["| board | mapped | refused | time | traceback | not run | aim |", "|---|---|---|---|---|---|---|"]
    for board, title in TITLES.items():
        outcomes = [row["boards"].get(board, {}).get("outcome", "not run") for row in rows.values() if _lowered(row)]
        counts = [outcomes.count(kind) for kind in ("done", "refused", "time", "traceback", "not run")]
        lines.append(f"| {title} | {' | '.join(map(str, counts))} | {_aim(rows, board)} |")
    front = [_ended(row) for row in rows.values()]
    counts = [front.count(kind) for kind in ("done", "refused", "time", "traceback")]
    lines.append(f"\nUp to the integer graph: {counts[0]} of {len(rows)}, {counts[1]} refused, {counts[2]} without an ")
    lines[-1] += f"answer in time, {counts[3]} tracebacks."
    return lines


def _aim(rows: Mapping[str, Any], board: str) -> str:
    """Return how many of the networks that should map do."""
    if board not in AIMS:
        return ""
    most, percentage = AIMS[board]
    small = [row for row in rows.values() if not row["steps"] and row.get("weights", most) < most]
    ran = [row for row in small if board in row["boards"] or not _lowered(row)]
    mapped = sum(row["boards"].get(board, {}).get("outcome") == "done" for row in ran)
    return f"{mapped} of {len(ran)} with fewer than {most:,} weights; {percentage} % wanted"


def _lowered(row: Mapping[str, Any]) -> bool:
    return bool(_ended(row) == "done")


def _ended(row: Mapping[str, Any]) -> str:
    """Return the outcome of the last step in front of mapping that ran."""
    return str([row[step]["outcome"] for step in FRONT if step in row][-1])


def _table(rows: Mapping[str, Any]) -> list[str]:
    head = ["model", "image", "weights", "quantize, capture, lower", *TITLES.values()]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, row in rows.items():
        steps = [row[step] for step in FRONT if step in row]
        seconds = sum(step["cpu_s"] for step in steps)
        front = f"{seconds:.1f} s" if _lowered(row) else f"{_ended(row)} after {seconds:.1f} s"
        shape = " x ".join(map(str, row["shape"]))
        cells = [_cell(row["boards"].get(board)) if _lowered(row) else "-" for board in TITLES]
        weights = f"{row['weights']:,}" if "weights" in row else ""
        lines.append(f"| {' | '.join([f'`{name}`', shape, weights, front, *cells])} |")
    return lines


def _cell(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return ""
    if result["outcome"] != "done":
        return f"{result['outcome']}, {result['cpu_s']:.0f} s"
    return f"{result['cycles']:,} ({result['bound']}), {result['cpu_s']:.0f} s"


def _refusals(rows: Mapping[str, Any]) -> list[str]:
    """Return the first line of what each refusal says."""
    lines = ["## What refusals say", ""]
    for name, row in rows.items():
        results = {step: row[step] for step in FRONT if step in row}
        results |= {TITLES[board]: one for board, one in row["boards"].items() if _lowered(row) and board in TITLES}
        for where, result in results.items():
            if "message" in result:
                lines.append(f"- `{name}`, {where}: {result['message'].splitlines()[0]}")
    return lines if len(lines) > 2 else []
