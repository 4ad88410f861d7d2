"""Tables for the terminal: the trials on boards, and the resources that each layer takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from nnhw.boards import Board
from nnhw.errors import LayerNeed
from nnhw.flow.tools.tables import NumberTable

from .advice import Advice
from .sweep import Fits
from .trials import FitTrial, Variant

LEGEND = (
    "W/A: bits of weights and activations, * those that the network has. engine/s: images per second at the estimated "
    "clock, which place and route may not reach: {clocks}. link/s: images per second that the link can carry."
)


def render_fits(fits: Fits) -> RenderableType:
    """Return the table of `nnhw fit`, and below it why the network as it is does not fit."""
    return Group(trial_table(f"{fits.name}: mapped, not built", fits.trials), *map(Text, _remarks(fits)))


def render_advice(advice: Advice) -> RenderableType:
    """Return the table of what would fit where a network does not."""
    untried = f" Not tried, as time was over: {_named(advice.untried)}; `nnhw fit` does." if advice.untried else ""
    tried = [(one.board, one.variant) for one in advice.tried]
    if not advice.trials:
        said = f"Tried without success: {_named(tried)}. " if tried else ""
        return Text(f"{said}Use fewer channels, smaller images or fewer layers.{untried}")
    table = trial_table(f"What would fit, of {len(advice.tried)} that were mapped", advice.trials)
    unknown = "Accuracy with fewer bits or other activations is known only when the model has them."
    remarks = [f"{_legend(advice.trials)} {unknown}{untried}"]
    remarks += [
        f"~: straight lines (hardtanh, hard sigmoid, ReLU) for {', '.join(one.variant.replaced)}."
        for one in advice.trials
        if one.variant.replaced
    ]
    return Group(table, *map(Text, remarks))


def _named(forms: Sequence[tuple[Board, Variant]]) -> str:
    """Return boards with the bits of the forms, such as 'icebreaker at 4/8, 4/4 bits; ulx3s_85f at 8/8 bits'."""
    bits: dict[str, dict[str, None]] = {}
    for board, variant in forms:
        bits.setdefault(board.name, {})[_bits(variant).rstrip("*")] = None
    return "; ".join(f"{name} at {', '.join(found)} bits" for name, found in bits.items())


def trial_table(title: str, trials: Sequence[FitTrial]) -> NumberTable:
    """Return a table with a row for each trial, grouped by board.

    W/A are bits of weights and activations, engine/s and link/s images per second.
    """
    columns = ("board", "W/A", "style", "cycles", "latency", "engine/s", "link/s", "fullest")
    table = NumberTable(title, *columns, texts=("style",))
    # Grouped by board, while trials come variant by variant.
    boards = list(dict.fromkeys(one.board.name for one in trials))
    for name in boards:
        for one in (one for one in trials if one.board.name == name):
            table.row(name, _bits(one.variant), *_outcome(one))
    return table


def render_needs(layers: Sequence[LayerNeed]) -> NumberTable:
    """Return the table of what each layer takes at the least."""
    columns = ("layer", "LC", "DSP", "EBR", "for weights", "for requantization", "for maps")
    table = NumberTable("What each layer takes at the least", *columns)
    for need in layers:
        rams = (need.ebr, need.weight_rams, need.step_rams, need.buffer_rams)
        table.row(need.name, f"{need.lc:,.0f}", f"{need.dsp:,}", *(f"{count:,}" for count in rams))
    table.section()
    total = [sum(getattr(need, name) for need in layers) for name in ("lc", "dsp", "ebr")]
    kinds = [sum(getattr(need, f"{name}_rams") for need in layers) for name in ("weight", "step", "buffer")]
    table.row("all", *(f"{count:,.0f}" for count in (*total, *kinds)))
    return table


def _bits(variant: Variant) -> str:
    return f"{variant.weight_bits}/{variant.act_bits}" + ("*" if variant.own else "~" if variant.replaced else "")


def _outcome(one: FitTrial) -> tuple[str | Text, ...]:
    if not one.fits:
        # Too large: a larger board will do. Refused: no board runs it as it is.
        said = "too large" if one.supported else "refused"
        return (Text(said, "yellow"), "-", "-", "-", "-", "-")
    name, share = one.fullest
    rates = (_time(one.latency_us), _short(one.engine), _short(one.link), f"{name.upper()} {share:.0%}")
    return (one.style, f"{one.cycles:,.0f}", *rates)


def _legend(trials: Sequence[FitTrial]) -> str:
    """Return what the columns mean, with the clock of each board."""
    clocks: dict[float, dict[str, None]] = {}
    for one in trials:
        clocks.setdefault(one.clock_hz, {})[one.board.name] = None
    said = "; ".join(f"{clock / 1e6:g} MHz on {', '.join(boards)}" for clock, boards in sorted(clocks.items()))
    return LEGEND.format(clocks=said)


def _time(microseconds: float) -> str:
    """Return a time to three digits, such as 26.6 us."""
    for unit, name in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= unit:
            return f"{_short(microseconds / unit)} {name}"
    return f"{_short(microseconds)} us"


def _short(rate: float) -> str:
    """Return a rate to three digits, such as 26.6 k."""
    for unit, sign in ((1e6, " M"), (1e3, " k")):
        if rate >= unit:
            # Three digits: two behind the point, less one for each digit more in front of it.
            return f"{rate / unit:.{2 - (rate >= 10 * unit) - (rate >= 100 * unit)}f}{sign}"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _reasons(unfit: Sequence[FitTrial]) -> Iterator[str]:
    """Yield why a network does not fit: each reason once, and of boards that are too small only that of the largest."""
    refused: dict[str, list[str]] = {}
    for one in unfit:
        if not one.supported:
            refused.setdefault(one.missing, []).append(one.board.name)
    for missing, names in refused.items():
        yield f"{', '.join(names)}: {missing}"
    small = sorted((one for one in unfit if one.supported), key=lambda one: one.board.resources.lc)
    if small:
        yield f"{small[-1].board.name}: {small[-1].missing}"
    if small[:-1]:
        others = ", ".join(one.board.name for one in small[:-1])
        yield f"{others}: smaller boards, also too small; `nnhw fit --board NAME` shows what a board lacks."


def _remarks(fits: Fits) -> Iterator[str]:
    said: set[str] = set()
    for one in fits.trials:
        if one.alike and one.board.name not in said:
            said.add(one.board.name)
            yield f"{one.board.name} stands for {', '.join(one.alike)} as well: the same device."
    yield from _reasons([one for one in fits.trials if not one.fits and one.variant.own])
    refused = {
        _bits(one.variant): one.missing for one in fits.trials if not (one.fits or one.supported or one.variant.own)
    }
    for bits, missing in refused.items():
        yield f"{bits}: {missing}"
    yield _legend(fits.trials)
    if any(not one.variant.own for one in fits.trials):
        yield "What fewer bits cost in accuracy is not known before the network is quantized or trained with them."
