"""On which boards a network fits, with how many bits, and how fast it is there: each answer a real mapping."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnhw.boards import Board, list_boards, load_board
from nnhw.errors import InputError
from nnhw.flow.commands.inspection import captured_graph, load_model
from nnhw.flow.implementation.timing_closure import check_board_clock
from nnhw.flow.models.calibrate import Calibration, given_data
from nnhw.flow.options import Options
from nnhw.flow.tools.progress import Progress, SilentProgress, shown_progress
from nnhw.ir import Graph
from nnhw.notebook import facts_table

from .narrowing import BITS_MIN, NotNarrowedError, activations_of, narrowed, width_of, with_plain_activations
from .trials import FitTrial, LoweredVariant, Variant

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.export import ExportedProgram

WIDTHS = ((8, 8), (8, 4), (4, 8), (4, 4), (2, 4), (2, 2))
"""Bits of (weights, activations) that are tried when none are named, widest first; each is cut to the network's own."""


@dataclass(frozen=True, repr=False)
class Fits:
    """What `fit` found.

    Parameters
    ----------
    name: name of the model.
    trials: all trials, sorted by variant, and within a variant by the size of the board's device, smallest first.
    """

    name: str
    trials: tuple[FitTrial, ...]

    @property
    def fitting(self) -> tuple[FitTrial, ...]:
        """The trials that fit, the highest rate through link and engine first."""
        return tuple(sorted((one for one in self.trials if one.fits), key=lambda one: -one.rate))

    def __repr__(self) -> str:
        fitting = self.fitting
        best = f", the fastest on {fitting[0].board.name} with {fitting[0].rate:,.0f} images/s" if fitting else ""
        return f"<Fits of '{self.name}': {len(fitting)} of {len(self.trials)} fit{best}>"

    def _repr_html_(self) -> str:
        rows = {f"{one.board.name}, {one.variant}": _outcome(one) for one in self.trials}
        return facts_table(self.name, rows)


def fit(
    model: nn.Module | ExportedProgram,
    example_input: torch.Tensor,
    *,
    boards: Sequence[str] = (),
    widths: Sequence[tuple[int, int]] | None = None,
    style: str = "auto",
    fast_for: str = "link",
    clock_mhz: float | None = None,
    name: str | None = None,
    calibrate: Any = None,
    weight_bits: int = 8,
    act_bits: int = 8,
    progress: bool | Progress = True,
) -> Fits:
    """Map a network on boards, as it is and with fewer bits; nothing is built or trained.

    Parameters
    ----------
    example_input: one batch such as the model will see, shape [batch, ..].
    boards: names of boards; without any, one board for each device that nnhw knows.
    widths: bits of (weights, activations) to try; None: the network's own, and on boards where it does not fit, those
        of `WIDTHS` in turn until one fits. What a network of fewer bits takes is known without training it; its
        accuracy is not.
    style: `streaming`, `shared` or `auto`, as in `nnhw.build`.
    fast_for: `link` or `engine`, as in `nnhw.build`.
    clock_mhz: clock in MHz for which rates are computed; None: each board's usual one.
    name: name of the network; None: that of its class.
    calibrate: data with which a float model is quantized first; None: the model has quantizers.
    weight_bits, act_bits: 1 to 8, the widths of that quantization; only with `calibrate`.
    progress: as in `nnhw.build`.

    Raises
    ------
    NnhwError: what stands in the way of capturing or lowering the network as it is. Of other widths it is the reason
        why their trials do not fit.
    """
    from nnhw.frontend.source import Source
    from nnhw.model_files import identifier
    from nnhw.nn.given import class_name

    shown = shown_progress(progress)
    data = given_data(calibrate, None, None, weight_bits, act_bits)
    if data is not None:
        with shown.stage("quantize"):
            model = data.quantize(model, example_input, shown)
    named = identifier(name or class_name(model).lower())
    graph = captured_graph(Source(model, example_input, named), shown)
    return fit_graph(graph, boards, widths, _options(style, fast_for, clock_mhz), shown)


def fit_file(
    file: str,
    *,
    boards: Sequence[str] = (),
    widths: Sequence[str] = (),
    style: str = "auto",
    fast_for: str = "link",
    clock_mhz: float | None = None,
    calibration: Calibration | None = None,
    progress: Progress | None = None,
) -> Fits:
    """Map the model of a file on boards; see `fit`.

    Parameters
    ----------
    file: path of the model's file, as for `nnhw build`.
    widths: texts such as '4/8': bits of weights and of activations.
    """
    progress, wanted = progress or SilentProgress(), parse_widths(widths)
    options = _options(style, fast_for, clock_mhz)
    found = devices(boards)  # a wrong name is said before torch is imported
    for board, _ in found if boards else ():
        check_board_clock(board, options.clock_hz)
    # Captured once; every variant and every board starts from this graph.
    graph = captured_graph(load_model(file, calibration, progress), progress)
    return _fits(graph, found, wanted, options, progress)


def fit_graph(
    graph: Graph,
    boards: Sequence[str],
    widths: Sequence[tuple[int, int]] | None,
    options: Options,
    progress: Progress,
) -> Fits:
    """Map a captured graph on boards; see `fit`."""
    return _fits(graph, devices(boards), widths, options, progress)


def parse_widths(texts: Sequence[str]) -> list[tuple[int, int]] | None:
    """Parse texts such as '4/8' to pairs of bits of weights and activations; None if there are no texts.

    Raises: InputError for a text of another form.
    """
    found = []
    for text in texts:
        parts = text.split("/")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            raise InputError(f"--widths takes bits of weights and activations, such as 4/8, got '{text}'")
        found.append((int(parts[0]), int(parts[1])))
    return found or None


def devices(names: Sequence[str]) -> list[tuple[Board, tuple[str, ...]]]:
    """Return boards, each with the names of the other boards that have the same device; the smallest device first.

    Parameters
    ----------
    names: boards to return, in this order and without others beside them; if empty, one board for each device.
    """
    if names:
        return [(load_board(name), ()) for name in dict.fromkeys(names)]
    groups: dict[object, list[Board]] = {}
    for board in list_boards():
        # Mapping sees nothing of a board but its family and resources, so one of a group stands for all.
        groups.setdefault((board.family, board.resources), []).append(board)
    ordered = sorted(groups.values(), key=lambda group: group[0].resources.lc)
    return [(group[0], tuple(board.name for board in group[1:])) for group in ordered]


def variants(
    graph: Graph, widths: Iterable[tuple[int, int]] | None
) -> Iterator[tuple[Variant, Graph | NotNarrowedError]]:
    """Yield a captured graph as it is, then with fewer bits, or why it has no form of so few bits.

    Raises
    ------
    InputError: widths below `BITS_MIN` or above those of the network.
    """
    own = width_of(graph)
    yield Variant(*own, own=True), graph
    for pair in narrower_widths(graph) if widths is None else dict.fromkeys(_checked(widths, own)):
        if pair != own:
            yield variant_of(graph, pair)


def narrower_widths(graph: Graph) -> list[tuple[int, int]]:
    """Return `WIDTHS`, each cut to the network's own bits of (weights, activations), without those bits themselves."""
    own = width_of(graph)
    cut = dict.fromkeys((min(weight_bits, own[0]), min(act_bits, own[1])) for weight_bits, act_bits in WIDTHS)
    return [pair for pair in cut if pair != own]


def variant_of(graph: Graph, widths: tuple[int, int]) -> tuple[Variant, Graph | NotNarrowedError]:
    """Return a captured graph with fewer bits, or why it has no such form."""
    try:
        return Variant(*widths), narrowed(graph, *widths)
    except NotNarrowedError as error:
        return Variant(*widths), error


def plain_variant(graph: Graph) -> tuple[Variant, Graph] | None:
    """Return a captured graph with piecewise linear activations; None if it has no other activations."""
    replaced = activations_of(graph)
    return (Variant(*width_of(graph), replaced=replaced), with_plain_activations(graph)) if replaced else None


def _checked(widths: Iterable[tuple[int, int]], own: tuple[int, int]) -> Iterator[tuple[int, int]]:
    for weight_bits, act_bits in widths:
        for what, bits, most in (("weights", weight_bits, own[0]), ("activations", act_bits, own[1])):
            # A network of one bit stays as it is: `min(BITS_MIN, most)`.
            if not isinstance(bits, int) or isinstance(bits, bool) or bits > most or bits < min(BITS_MIN, most):
                raise InputError(
                    f"widths {weight_bits}/{act_bits} are not possible: {what} of this network have {most} bits, and "
                    f"can be made narrower down to {min(BITS_MIN, most)}; more bits need other quantizers"
                )
        yield weight_bits, act_bits


def _options(style: str, fast_for: str, clock_mhz: float | None) -> Options:
    return Options(style=style, fast_for=fast_for, clock_hz=None if clock_mhz is None else clock_mhz * 1e6)


def _fits(
    graph: Graph,
    boards: Sequence[tuple[Board, tuple[str, ...]]],
    widths: Iterable[tuple[int, int]] | None,
    options: Options,
    progress: Progress,
) -> Fits:
    trials: list[FitTrial] = []
    for variant, captured in variants(graph, widths):
        if widths is None and isinstance(captured, NotNarrowedError):
            progress.note(f"fewer bits were not tried: {captured}")
            break
        # Unless widths were named, fewer bits are tried only where the network as it is does not fit.
        fitting = {one.board.name for one in trials if one.fits and widths is None}
        form = LoweredVariant(variant, captured, progress)
        trials += [form.attempt(board, alike, options) for board, alike in boards if board.name not in fitting]
    return Fits(graph.name, tuple(trials))


def _outcome(one: FitTrial) -> str:
    return f"{one.rate:,.0f} images/s ({one.style})" if one.fits else "does not fit"
