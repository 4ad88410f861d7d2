"""The mapper: the fastest foldings that fit a board, or the smallest that reach a rate."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from nnhw.accelerator import Accelerator
from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.errors import MappingError, NnhwError, raise_all
from nnhw.ir import Graph
from nnhw.mapping.assemble import assemble, least_interval
from nnhw.mapping.cost import cost
from nnhw.mapping.family import ICE40, Family
from nnhw.mapping.folding import Folding, foldings
from nnhw.mapping.layers import ChannelLayer, Layer, MatrixLayer
from nnhw.mapping.plans import Planner, cycle_share
from nnhw.mapping.reader import read_layers
from nnhw.mapping.resources import Cost
from nnhw.mapping.schedule import into_large_ram

MOST_ROUNDS = 5
_PRICES = (1.0, 3.0, 8.0, 0.3, 20.0, 60.0)
"""What a block RAM is worth, as multiples of the family's usual price, in the order in which they are tried."""
MOST_LOGIC_WORDS = 192
"""Words of a memory of weights that may be in logic from the beginning, in a family whose LUTs make good memories."""
BUSY = (0.2, 0.6, 0.9)
"""Shares of the slowest layer's cycles from which on layers get line buffers that they never wait for, if that fits."""
MOST_WAITS = 1.02
"""Interval as a multiple of the slowest engine's cycles, above which a mapping with larger line buffers is tried."""
MOST_RELAXED = 3
"""Layers whose line buffers are tried otherwise where engines wait: the busiest ones."""
MOST_TRIALS = 16
"""Accelerators that are tried for that."""
RELAXED = 1.04
"""Logic cells that they may take, as a multiple of those that a mapping may be estimated to take."""
FOLDED = ("pe", "channel_lanes", "row_lanes")


@dataclass(frozen=True)
class Budget:
    """What the engines of an accelerator may take, the link already subtracted."""

    lc: float
    ebr: int
    dsp: int = 0
    spram: int = 0


@dataclass(frozen=True)
class Candidate:
    """A folding with what it gives and takes."""

    folding: Folding
    cycles: int
    cost: Cost

    def beats(self, other: Candidate) -> bool:
        """Return whether this one is as good as another in everything."""
        mine, others = self.cost, other.cost
        return self.cycles <= other.cycles and mine.lc <= others.lc and mine.ebr <= others.ebr


class Mapper:
    """Searches the foldings of the layers of one network.

    Parameters
    ----------
    layers: each behind those that it reads.
    """

    def __init__(self, body: Graph, layers: Sequence[Layer], budget: Budget, family: Family) -> None:
        self.body = body
        self.layers = layers
        self.budget = budget
        self.family = family
        source = body.inputs[0]
        self.planner = Planner(layers, (source.name, source.type.int_dtype), family)

    def candidate(self, layer: Layer, folding: Folding) -> Candidate:
        """Return what a folding gives and takes. Raises: MappingError if an engine does not accept it."""
        plan = self.planner.plan(layer, folding)
        return Candidate(folding, plan.cycles, plan.cost(self.family))

    def choices(self, layer: Layer) -> Iterator[Folding]:
        """Yield the foldings of a layer; where LUTs make good memories, with small memories in them, too."""
        for folding in foldings(layer):
            yield folding
            if not self.family.lut_ram_words:
                continue
            yield replace(folding, lut_buffer=True)
            if isinstance(layer, MatrixLayer) and not folding.logic_tails:
                beats = layer.weights.size // (folding.pe * folding.simd)
                if 1 < beats <= MOST_LOGIC_WORDS:
                    yield replace(folding, logic_pe=folding.pe)
                    yield replace(folding, logic_pe=folding.pe, lut_buffer=True)

    def candidates(self, layer: Layer, choices: Iterable[Folding]) -> list[Candidate]:
        """Return the candidates of a layer that no other one beats in cycles, logic and block RAM, fastest first.

        Raises: MappingError of the last folding, if an engine accepts none.
        """
        found: list[Candidate] = []
        refused: MappingError | None = None
        for folding in choices:
            try:
                found.append(self.candidate(layer, folding))
            except MappingError as error:
                refused = error
        if not found and refused is not None:
            raise refused
        found.sort(key=lambda item: (item.cycles, item.cost.lc, item.cost.ebr))
        kept: list[Candidate] = []
        for item in found:
            if not any(other.beats(item) for other in kept):
                kept.append(item)
        return kept

    def place_buffers(self, chosen: Sequence[Folding], interval: int) -> list[Folding]:
        """Move line buffers to large RAM until the block RAMs suffice, those first that save most of them for each.

        Parameters
        ----------
        interval: cycles of a frame that no layer may exceed; a large RAM has a single port, which costs some.
        """
        placed, moves = list(chosen), []
        pairs = list(zip(self.layers, placed, strict=True))
        over = sum(self.candidate(layer, folding).cost.ebr for layer, folding in pairs) - self.budget.ebr
        if over <= 0 or not self.budget.spram:
            return placed
        for index, (layer, folding) in enumerate(pairs):
            try:
                after = self.candidate(layer, replace(folding, large=True))
            except MappingError:
                continue
            saved = self.candidate(layer, folding).cost.ebr - after.cost.ebr
            if saved > 0 and after.cycles <= interval:
                moves.append((-saved / after.cost.spram, index, saved, after))
        left = self.budget.spram
        for _, index, saved, after in sorted(moves, key=lambda move: move[:2]):
            if over > 0 and after.cost.spram <= left:
                placed[index] = after.folding
                over, left = over - saved, left - after.cost.spram
        return placed

    def place_weights(self, chosen: Sequence[Folding]) -> tuple[list[Folding], Cost]:
        """Move weights and scalings from block RAM to logic, cheapest first, until the block RAMs suffice.

        Returns
        -------
        The foldings with their `logic_pe` and `lean_scaler`, and their cost (which may still exceed the budget).
        """
        placed = list(chosen)
        costs = [self.candidate(layer, folding).cost for layer, folding in zip(self.layers, placed, strict=True)]
        while sum(item.ebr for item in costs) > self.budget.ebr:
            moves = []
            for index, (layer, folding) in enumerate(zip(self.layers, placed, strict=True)):
                for way in self._into_logic(layer, folding):
                    found = self._first_saving(layer, way, costs[index])
                    moves += [(price, index, moved, after) for price, moved, after in found]
            if not moves:
                break
            _, index, moved, after = min(moves, key=lambda move: move[:2])
            placed[index], costs[index] = moved, after
        return placed, sum(costs, Cost())

    def place_products(self, chosen: Sequence[Folding], taken: Cost) -> tuple[list[Folding], Cost]:
        """Move products and scalings from logic to DSP blocks, as many as there are, where each saves most logic.

        Returns
        -------
        The foldings with their `dsp_pe` and `dsp_scaler`, and their cost.
        """
        placed, left = list(chosen), self.budget.dsp
        moves = []
        for index, (layer, folding) in enumerate(zip(self.layers, placed, strict=True)):
            before = self.candidate(layer, folding).cost
            for kind, moved in self._into_dsp(layer, folding):
                after = self.candidate(layer, moved).cost
                blocks, saved = after.dsp - before.dsp, before.lc - after.lc
                if blocks > 0 and saved > 0:
                    moves.append((-saved / blocks, index, kind, blocks))
        for _, index, kind, blocks in sorted(moves):
            if kind == "dsp_scaler" and blocks <= left:
                placed[index] = replace(placed[index], dsp_scaler=True)
                left -= blocks
            elif kind == "dsp_pe":
                cells = min(placed[index].pe, left // blocks)
                placed[index] = replace(placed[index], dsp_pe=cells)
                left -= cells * blocks
        if left == self.budget.dsp:
            return placed, taken
        pairs = zip(self.layers, placed, strict=True)
        return placed, sum((self.candidate(layer, folding).cost for layer, folding in pairs), Cost())

    def place_thresholds(self, chosen: Sequence[Folding], taken: Cost) -> list[Folding]:
        """Move thresholds from logic to the block RAMs that are left, where that saves most logic."""
        placed, left = list(chosen), self.budget.ebr - taken.ebr
        while True:
            moves = []
            for index, (layer, folding) in enumerate(zip(self.layers, placed, strict=True)):
                if layer.function is None or not folding.logic_thresholds:
                    continue
                moved = replace(folding, logic_thresholds=False)
                before, after = self.candidate(layer, folding).cost, self.candidate(layer, moved).cost
                more = after.ebr - before.ebr
                if 0 < more <= left and before.lc - after.lc >= self.family.block_ram_lc * more:
                    moves.append(((after.lc - before.lc) / more, index, moved, more))
            if not moves:
                return placed
            _, index, moved, more = min(moves, key=lambda move: move[:2])
            placed[index], left = moved, left - more

    def fastest(
        self, frontiers: Sequence[Sequence[Candidate]], intervals: Sequence[int], busy: float | None = None
    ) -> tuple[list[Folding], Cost]:
        """Return the foldings of the first interval that fits, and their cost; a longer one never costs more.

        Parameters
        ----------
        busy: see `within`; None: line buffers become roomy where that fits at the same interval.
        """
        results: dict[int, tuple[list[Folding], Cost]] = {}

        def fits(interval: int) -> bool:
            results[interval] = self.within(frontiers, interval, busy)
            return not _excess(results[interval][1], self.budget)

        index = bisect_left(intervals, True, key=fits)
        if index < len(intervals) and fits(intervals[index]):
            interval, thrifty = intervals[index], self.family.lut_ram_words > 0
            roomy = (self.within(frontiers, interval, share, thrifty) for share in BUSY if busy is None)
            least = self.within(frontiers, interval, busy, thrifty) if thrifty else results[interval]
            return next((found for found in roomy if not _excess(found[1], self.budget)), least)
        raise MappingError(_does_not_fit(self.layers, intervals[-1], results[intervals[-1]][1], self.budget))

    def within(
        self, frontiers: Sequence[Sequence[Candidate]], interval: int, busy: float | None = None, thrifty: bool = False
    ) -> tuple[list[Folding], Cost]:
        """Return the smallest foldings that take at most `interval` cycles, and their cost.

        Block RAM is weighed against logic at one price after another, until both suffice.

        Parameters
        ----------
        busy: share of the interval from which on layers get roomy line buffers; None: none does.
        thrifty: all prices are tried, for the fewest logic cells.
        """
        best: tuple[float, list[Folding], Cost] | None = None
        for price in _PRICES:
            chosen = smallest_within(frontiers, interval, self.family.block_ram_lc * price)
            roomy = [self._may_be_roomy(item, busy, interval) for item in chosen]
            started = [replace(item.folding, roomy=room) for item, room in zip(chosen, roomy, strict=True)]
            placed, taken = self.place_products(*self.place_weights(self.place_buffers(started, interval)))
            over = max(0.0, taken.lc - self.budget.lc) + self.family.block_ram_lc * max(0, taken.ebr - self.budget.ebr)
            if best is None or (over, taken.lc) < (best[0], best[2].lc):
                best = over, placed, taken
            if not over and not thrifty:
                break
        assert best is not None
        return best[1], best[2]

    def _may_be_roomy(self, item: Candidate, busy: float | None, interval: int) -> bool:
        """Return whether a layer gets a roomy line buffer; in LUTs there is no room."""
        return busy is not None and item.cycles >= busy * interval and not item.folding.lut_buffer

    def _into_dsp(self, layer: Layer, folding: Folding) -> Iterable[tuple[str, Folding]]:
        """Yield what could be moved to DSP blocks: one cell's products, the scaling of sums."""
        if isinstance(layer, MatrixLayer | ChannelLayer) and layer.weight is not None:
            if LaneArithmetic(layer.activation, layer.weight).can_use_dsp:
                yield "dsp_pe", replace(folding, dsp_pe=1)
        if layer.function is not None:
            yield "dsp_scaler", replace(folding, dsp_scaler=True)

    def _into_logic(self, layer: Layer, folding: Folding) -> Iterable[list[Folding]]:
        """Yield the ways to take fewer block RAMs: more and more weights as constants in logic; a lean scaling."""
        if isinstance(layer, MatrixLayer):
            yield [replace(folding, logic_pe=count) for count in range(folding.logic_pe + 1, folding.pe + 1)]
        elif layer.products and not folding.logic_pe:
            yield [replace(folding, logic_pe=1)]
        if self.family.lut_ram_words and not folding.lut_buffer and not folding.large:
            yield [replace(folding, lut_buffer=True)]
        if layer.function is not None and not folding.lean_scaler:
            yield [replace(folding, lean_scaler=True)]

    def _first_saving(self, layer: Layer, way: Iterable[Folding], before: Cost) -> list[tuple[float, Folding, Cost]]:
        """Return (logic cells for each block RAM, folding, cost) of the first folding that saves block RAMs, if any."""
        for moved in way:
            try:
                after = self.candidate(layer, moved).cost
            except MappingError:  # no line buffer of that kind
                continue
            saved = before.ebr - after.ebr
            if saved > 0:
                return [((after.lc - before.lc) / saved, moved, after)]
        return []


def map_body(
    body: Graph,
    board_name: str,
    budget: Budget,
    *,
    family: Family = ICE40,
    target_interval: int | None = None,
    overrides: Mapping[str, Mapping[str, int]] | None = None,
) -> Accelerator:
    """Map an integer graph on engines.

    Parameters
    ----------
    body: one integer input, one integer output.
    board_name: for the record.
    budget: what the engines may take.
    family: of the device.
    target_interval: cycles a frame that suffice; the smallest mapping that reaches them is taken. None: the
        fastest that fits.
    overrides: for a layer's name, any of `pe`, `channel_lanes`, `row_lanes`, `hop`, `drain`, `logic_pe`.

    Raises
    ------
    MappingError: a layer that no engine runs; a network that does not fit, with what is missing and what would fit;
        an override that names no layer or that the engine does not accept.
    """
    layers = read_layers(body)
    _check_names(layers, overrides or {})
    mapper = Mapper(body, layers, budget, family)
    frontiers = _frontiers(mapper, overrides or {})
    slowest = max(min(candidate.cycles for candidate in candidates) for candidates in frontiers)
    fastest = max(slowest, least_interval(body))
    intervals = sorted({candidate.cycles for candidates in frontiers for candidate in candidates})
    intervals = [fastest, *(interval for interval in intervals if interval > fastest)]
    if budget.spram:
        intervals.append(2 * intervals[-1])  # a line buffer in large RAM is not read and written in the same cycle
    if target_interval is not None:
        reach = [interval for interval in intervals if interval <= target_interval]
        intervals = reach[-1:] or intervals[:1]
    found = _first_that_fits(mapper, frontiers, intervals, board_name)
    interval = found.schedule.interval_cycles
    if _total(found, family).spram:
        # Large RAM is far from most of the logic, and has one port: it is taken for nothing but speed or room.
        mapper.budget = replace(budget, spram=0)
        with suppress(MappingError):
            plain = _first_that_fits(mapper, frontiers, [one for one in intervals if one <= interval], board_name)
            if plain.schedule.interval_cycles <= interval:
                return plain
        mapper.budget = budget
    shorter = [choice for choice in intervals if choice < interval]
    if not shorter or not _waits(found):
        return found
    # Engines wait for line buffers that are too small, or for the port of one in large RAM: with larger ones, or none
    # in large RAM, slower foldings may be the faster ones.
    choices = [found]
    for other, busy in ((budget, BUSY[0]), (replace(budget, spram=0), None)):
        if other == budget or _total(found, family).spram:
            mapper.budget = other
            with suppress(MappingError):
                choices.append(_first_that_fits(mapper, frontiers, shorter, board_name, busy))
    return min(choices, key=lambda choice: choice.schedule.interval_cycles)


def _first_that_fits(
    mapper: Mapper,
    frontiers: Sequence[Sequence[Candidate]],
    intervals: Sequence[int],
    board_name: str,
    busy: float | None = None,
) -> Accelerator:
    """Return the accelerator at the first interval at which it fits with everything that stands between the layers."""
    budget = mapper.budget
    for _ in range(MOST_ROUNDS):
        placed, taken = mapper.fastest(frontiers, intervals, busy)
        placed = mapper.place_thresholds(placed, taken)
        plans = [mapper.planner.plan(layer, folding) for layer, folding in zip(mapper.layers, placed, strict=True)]
        accelerator = assemble(mapper.layers, plans, mapper.body, board_name, mapper.family)
        total = _total(accelerator, mapper.family)
        if budget.ebr < total.ebr and total.spram < budget.spram:
            over, left = total.ebr - budget.ebr, budget.spram - total.spram
            accelerator = into_large_ram(accelerator, over, left, mapper.family)
            total = _total(accelerator, mapper.family)
        if total.ebr <= budget.ebr:
            return _without_waits(mapper, placed, accelerator, replace(budget, lc=max(budget.lc, total.lc)))
        # FIFOs and what else stands between layers is known only now: leave room for it, and try again.
        mapper.budget = replace(mapper.budget, ebr=mapper.budget.ebr - (total.ebr - budget.ebr))
    raise MappingError(
        f"the network does not fit: the FIFOs of its branches need {total.ebr - budget.ebr} block RAMs more than the "
        "board leaves; use fewer channels or fewer bits, a slower --target-fps, or a board with more resources "
        "('nnhw boards')"
    )


def _without_waits(mapper: Mapper, placed: Sequence[Folding], found: Accelerator, budget: Budget) -> Accelerator:
    """Return the accelerator with other line buffers for its busiest layers, where engines wait and that helps."""
    if not _waits(found):
        return found
    family, best = mapper.family, found
    for trial in _other_buffers(mapper, placed, budget)[:MOST_TRIALS]:
        plans = [mapper.planner.plan(layer, folding) for layer, folding in zip(mapper.layers, trial, strict=True)]
        accelerator = assemble(mapper.layers, plans, mapper.body, found.board, family)
        fits = not _excess(_total(accelerator, family), replace(budget, lc=RELAXED * budget.lc))
        if fits and accelerator.schedule.interval_cycles < best.schedule.interval_cycles:
            best = accelerator
            if not _waits(best):
                break
    return best


def _waits(found: Accelerator) -> bool:
    """Return whether the slowest engine waits for others."""
    slowest = max(cycle_share(stage.config) for stage in found.stages)
    return found.schedule.interval_cycles > MOST_WAITS * slowest


def _other_buffers(mapper: Mapper, placed: Sequence[Folding], budget: Budget) -> list[list[Folding]]:
    """Return the foldings with roomy line buffers, or ones in large RAM, for the busiest layers; the cheapest first."""
    rows = [{folding: mapper.candidate(layer, folding)} for layer, folding in zip(mapper.layers, placed, strict=True)]
    slowest = max(row[folding].cycles for row, folding in zip(rows, placed, strict=True))
    busiest = sorted(range(len(rows)), key=lambda index: (-rows[index][placed[index]].cycles, index))[:MOST_RELAXED]
    for index in busiest:
        for other in (replace(placed[index], roomy=True), replace(placed[index], large=True)):
            with suppress(MappingError):
                candidate = mapper.candidate(mapper.layers[index], other)
                if candidate.cycles <= slowest and candidate.cost != rows[index][placed[index]].cost:
                    rows[index][other] = candidate
    trials = []
    for choice in product(*rows):
        total = sum((row[folding].cost for row, folding in zip(rows, choice, strict=True)), Cost())
        if list(choice) != list(placed) and not _excess(total, replace(budget, lc=RELAXED * budget.lc)):
            trials.append((mapper.family.weight(total.lc, total.ebr, total.dsp), list(choice)))
    return [choice for _, choice in sorted(trials, key=lambda trial: trial[0])]


def _total(accelerator: Accelerator, family: Family) -> Cost:
    """Return what all engines take."""
    return sum((cost(stage.config, family) for stage in accelerator.stages), Cost())


def smallest_within(frontiers: Sequence[Sequence[Candidate]], interval: int, block_ram_lc: float) -> list[Candidate]:
    """Return the smallest candidate of each layer that takes at most `interval` cycles; there must be one.

    Parameters
    ----------
    block_ram_lc: logic cells that a block RAM is worth.
    """
    return [
        min(
            (candidate for candidate in candidates if candidate.cycles <= interval),
            key=lambda candidate: (candidate.cost.lc + block_ram_lc * candidate.cost.ebr, candidate.cycles),
        )
        for candidates in frontiers
    ]


def _frontiers(mapper: Mapper, overrides: Mapping[str, Mapping[str, int]]) -> list[list[Candidate]]:
    """Return the candidates of every layer. Raises: all layers that no engine accepts, at once."""
    found: list[list[Candidate]] = []
    problems: list[NnhwError] = []
    for layer in mapper.layers:
        try:
            override = overrides.get(layer.name)
            found.append(
                _overridden(mapper, layer, override) if override else mapper.candidates(layer, mapper.choices(layer))
            )
        except MappingError as error:
            problems.append(error)
    raise_all(problems)
    return found


def _does_not_fit(layers: Sequence[Layer], interval: int, taken: Cost, budget: Budget) -> str:
    return (
        f"the network does not fit: its smallest mapping at {interval} cycles a frame takes "
        f"{taken.lc:.0f} logic cells and {taken.ebr} block RAMs, "
        f"but the board leaves {budget.lc:.0f} and {budget.ebr} to the engines "
        f"({_excess(taken, budget)}); {_remedy(layers, taken, budget)}"
    )


def _excess(taken: Cost, budget: Budget) -> str:
    """Say by how much a mapping is too large; nothing where it fits."""
    parts = []
    if taken.lc > budget.lc:
        parts.append(f"{taken.lc - budget.lc:.0f} logic cells too many")
    if taken.ebr > budget.ebr:
        parts.append(f"{taken.ebr - budget.ebr} block RAMs too many")
    if taken.dsp > budget.dsp:
        parts.append(f"{taken.dsp - budget.dsp} DSP blocks too many")
    if taken.spram > budget.spram:
        parts.append(f"{taken.spram - budget.spram} large RAMs too many")
    return " and ".join(parts)


def _remedy(layers: Sequence[Layer], taken: Cost, budget: Budget) -> str:
    """Say what would fit: the share that the largest layer must shrink by, or a board."""
    matrices = [layer for layer in layers if isinstance(layer, MatrixLayer)]
    share = min(1.0, budget.lc / taken.lc if taken.lc else 1.0, budget.ebr / taken.ebr if taken.ebr else 1.0)
    advice = (
        f"about {share:.0%} of the network's present size would fit: use fewer channels or fewer bits, a slower "
        "--target-fps, or a board with more resources ('nnhw boards')"
    )
    if not matrices:
        return advice
    largest = max(matrices, key=lambda layer: layer.weights.size * layer.weight.bits)
    bits = largest.weights.size * largest.weight.bits
    return f"the largest layer is {largest.where} with {bits} weight bits; {advice}"


def _check_names(layers: Sequence[Layer], overrides: Mapping[str, Mapping[str, int]]) -> None:
    unknown = sorted(set(overrides) - {layer.name for layer in layers})
    if unknown:
        names = ", ".join(f"'{layer.name}'" for layer in layers)
        raise MappingError(
            f"the overrides name layer '{unknown[0]}', which the model does not have; its layers are {names}"
        )


def _overridden(mapper: Mapper, layer: Layer, override: Mapping[str, int]) -> list[Candidate]:
    """Return the candidates of a layer that agree with an override."""
    free = {item.name for item in fields(Folding)}
    wrong = sorted(set(override) - free)
    if wrong:
        raise MappingError(f"layer {layer.where} is overridden with '{wrong[0]}'; known are {', '.join(sorted(free))}")
    folded = {key: value for key, value in override.items() if key in FOLDED}
    rest: dict[str, Any] = {key: value for key, value in override.items() if key not in FOLDED}
    agreeing = [item for item in foldings(layer) if all(getattr(item, key) == value for key, value in folded.items())]
    if not agreeing:
        raise MappingError(f"layer {layer.where} cannot be folded as {dict(override)}: {_divisors_of(layer)}")
    return sorted((mapper.candidate(layer, replace(item, **rest)) for item in agreeing), key=lambda item: item.cycles)


def _divisors_of(layer: Layer) -> str:
    if not isinstance(layer, MatrixLayer):
        return f"channel_lanes must divide its {layer.shape[0]} channels"
    outputs, channels, rows, _ = layer.weights.shape
    return (
        f"pe must divide its {outputs // layer.groups} outputs, channel_lanes its {channels} channels, "
        f"row_lanes be 1 or {rows}"
    )
