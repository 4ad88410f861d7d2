"""Tables for the terminal: the trials on boards, and the resources that each layer takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nnhw.errors import LayerNeed

from .advice import Advice
from .sweep import Fits
from .trials import FitTrial

LEGEND = (
    "W/A: bits of weights and activations, * those that the network has; engine/s, link/s: images a second that the "
    "engine computes at the clock in MHz, which place and route has still to reach, and that the link carries."
)


def render_fits(fits: Fits) -> RenderableType:
    """Return the table of `nnhw fit`, and below it why the network as it is does not fit."""
    return Group(trial_table(f"{fits.name}: mapped, not built", fits.trials), *map(Text, _remarks(fits)))


def render_advice(advice: Advice) -> RenderableType:
    """Return the table of what would fit where a network does not."""
    stopped = "" if advice.seconds is None else f" No other was tried after {advice.seconds:g} s; `nnhw fit` does."
    if not advice.trials:
        return Text(
            f"None of {advice.tried} other forms of this network fits, on this board or on another: it needs fewer "
            f"channels, smaller images or fewer layers.{stopped}"
        )
    table = trial_table(f"What would fit, of {advice.tried} that were mapped", advice.trials)
    remarks = [
        f"{LEGEND} Accuracy with fewer bits or other activations is known only when the model has them.{stopped}"
    ]
    remarks += [
        f"~: straight lines (hardtanh, hard sigmoid, ReLU) for {', '.join(one.variant.replaced)}."
        for one in advice.trials
        if one.variant.replaced
    ]
    return Group(table, *map(Text, remarks))


def trial_table(title: str, trials: Sequence[FitTrial]) -> Table:
    """Return a table with a row for each trial, grouped by board.

    W/A are bits of weights and activations, engine/s and link/s images per second.
    """
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("board", "W/A", "style"):
        table.add_column(name, no_wrap=True)
    for name in ("cycles", "MHz", "engine/s", "link/s", "fullest"):
        table.add_column(name, justify="right", no_wrap=True)
    # Grouped by board, while trials come variant by variant.
    boards = list(dict.fromkeys(one.board.name for one in trials))
    for name in boards:
        for one in (one for one in trials if one.board.name == name):
            table.add_row(name, _bits(one), *_outcome(one))
    return table


def render_needs(layers: Sequence[LayerNeed]) -> Table:
    """Return the table of what each layer takes at the least."""
    title = "What each layer takes at the least"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("layer", no_wrap=True)
    columns = ("LC", "DSP", "EBR", "for weights", "for requantization", "for maps")
    for name in columns:
        table.add_column(name, justify="right")
    for need in layers:
        rams = (need.ebr, need.weight_rams, need.step_rams, need.buffer_rams)
        table.add_row(need.name, f"{need.lc:,.0f}", f"{need.dsp:,}", *(f"{count:,}" for count in rams))
    table.add_section()
    total = [sum(getattr(need, name) for need in layers) for name in ("lc", "dsp", "ebr")]
    kinds = [sum(getattr(need, f"{name}_rams") for need in layers) for name in ("weight", "step", "buffer")]
    table.add_row("all", *(f"{count:,.0f}" for count in (*total, *kinds)))
    return table


def _bits(one: FitTrial) -> str:
    variant = one.variant
    return f"{variant.weight_bits}/{variant.act_bits}" + ("*" if variant.own else "~" if variant.replaced else "")


def _outcome(one: FitTrial) -> tuple[str, ...]:
    if not one.fits:
        # Too large: a larger board will do. Refused: no board runs it as it is.
        said = "too large" if one.supported else "refused"
        return ("-", f"[yellow]{said}[/]", f"{one.clock_hz / 1e6:g}", "-", "-", "-")
    name, share = one.fullest
    rates = (_short(one.engine), _short(one.link), f"{name.upper()} {share:.0%}")
    return (one.style, f"{one.cycles:,.0f}", f"{one.clock_hz / 1e6:g}", *rates)


def _short(rate: float) -> str:
    """Return a rate to three digits, such as 26.6 k."""
    for unit, sign in ((1e6, " M"), (1e3, " k")):
        if rate >= unit:
            # Three digits: two behind the point, less one for each digit more in front of it.
            return f"{rate / unit:.{2 - (rate >= 10 * unit) - (rate >= 100 * unit)}f}{sign}"
    return f"{rate:,.0f}"


def _remarks(fits: Fits) -> Iterator[str]:
    said: set[str] = set()
    for one in fits.trials:
        if one.alike and one.board.name not in said:
            said.add(one.board.name)
            yield f"{one.board.name} stands for {', '.join(one.alike)} as well: the same device."
    for one in fits.trials:
        if not one.fits and one.variant.own:
            yield f"{one.board.name}: {one.missing}"
    refused = {_bits(one): one.missing for one in fits.trials if not (one.fits or one.supported or one.variant.own)}
    for bits, missing in refused.items():
        yield f"{bits}: {missing}"
    yield LEGEND
    if any(not one.variant.own for one in fits.trials):
        yield "What fewer bits cost in accuracy is not known before the network is quantized or trained with them."
