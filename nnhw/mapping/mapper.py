"""The mapper: the fastest foldings that fit a board, or the smallest that reach a rate."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf

from nnhw.accelerator import Accelerator
from nnhw.errors import DoesNotFitError, MappingError
from nnhw.families import ICE40, Cost, Family
from nnhw.ir import Graph
from nnhw.mapping.assemble import least_interval
from nnhw.mapping.budget import REMEDY, Budget, does_not_fit, fifos_do_not_fit
from nnhw.mapping.cost import accelerator_cost
from nnhw.mapping.design_space import Candidate, DesignSpace, smallest_within
from nnhw.mapping.folding import Folding
from nnhw.mapping.layer_needs import needs_of
from nnhw.mapping.least_weights import refuse_weights
from nnhw.mapping.loops import step_of
from nnhw.mapping.placement import PartMover
from nnhw.mapping.reader import read_layers
from nnhw.mapping.schedule import into_large_ram, into_registers, with_schedule
from nnhw.mapping.settling import settle
from nnhw.mapping.waits import waits, without_waits

LOGGER = logging.getLogger("nnhw.mapping")
MOST_ROUNDS = 5
"""Most times that the room for the layers is made smaller, before slower foldings are sought by bisection."""
LEAST_ROOM = 0.01
"""Where a mapping is too large, the next try leaves at least this share of the logic for FIFOs and converters."""
_PRICES = (1.0, 3.0, 8.0, 0.3, 20.0, 60.0)
"""Prices of a block RAM, as multiples of the family's usual price in logic cells, in the order of their trial."""
EXPECTED = 1.02
"""Foldings for slower intervals are tried only if the slowest ones are expected to take at most this multiple of each
resource: the expected cost leaves some room for error."""
CROWDED_EBR = 0.9
"""Share of the block RAMs above which a mapping with fewer is sought, see `Room.easy_ebr`."""
EASED_LC = 1.125
"""Most logic cells of a mapping with fewer block RAMs, as a multiple of those of the one that takes most block RAMs.
Measured on an ECP5-85F: a ResNet-8 of 8 bits became faster with 10 % more logic, a binary CNN much slower with 25 %."""
BUSY = (0.2, 0.6, 0.9)
"""Layers that take at least such a share of the interval get roomy line buffers, if that fits; tried in this order."""


def map_body(
    body: Graph,
    board_name: str,
    budget: Budget,
    *,
    family: Family = ICE40,
    target_interval: int | None = None,
    enough: int = 0,
    overrides: Mapping[str, Mapping[str, int]] | None = None,
    sequences: int = 1,
) -> Accelerator:
    """Map an integer graph on engines.

    Parameters
    ----------
    body: integer graph with one input and one output. If these are sequences, a frame of the accelerator is one step.
    board_name: name of the board, which is noted in the accelerator.
    budget: resources that the engines may take.
    family: device family.
    target_interval: cycles per frame that suffice: the smallest mapping that reaches them is returned. None: the
        fastest that fits.
    enough: without a `target_interval`, cycles per frame of which fewer are no better: the smallest mapping that takes
        no more is returned, or the fastest where none does.
    overrides: by layer name, fixed values of `pe`, `channel_lanes`, `row_lanes`, `hop`, `drain` or `logic_pe`.
    sequences: number of sequences of a recurrent network whose steps take turns. Engines that would wait for the state
        of the step before work on the other sequences meanwhile.

    Raises
    ------
    MappingError: a layer that no engine runs; a network that does not fit, with what is missing and what would fit;
        an override that names no layer or that the engine does not accept.
    """
    refuse_weights(read_layers(step_of(body).graph), budget, family)
    enough = 0 if target_interval else enough
    mapper = Mapper.of(body, board_name, family, overrides or {}, sequences, budget=budget, enough=enough)
    try:
        if enough:
            small = mapper.exact(budget, None, enough)
            if small.schedule.interval_cycles <= enough:
                return small
            mapper.frontiers = mapper.space.frontiers(overrides or {})
        return mapper.exact(budget, target_interval)
    except KeyboardInterrupt as stop:
        found = mapper.fitting
        # A mapping that is too slow is no answer to a rate.
        if found is not None and target_interval is not None and found.schedule.interval_cycles > target_interval:
            found = None
        return with_schedule(settle(found, stop))


def _best(mapper: Mapper, budget: Budget, intervals: Sequence[int]) -> Accelerator:
    """Return the accelerator that a mapper chooses; its schedule may be an estimate.

    Parameters
    ----------
    intervals: to try, see `Mapper.intervals`.
    """
    found = mapper.first_that_fits(budget, intervals)
    interval = found.schedule.interval_cycles
    takes_large_ram = accelerator_cost(found, mapper.space.family).spram > 0
    plain_budget = replace(budget, spram=0)
    if takes_large_ram:
        # Large RAM is far from most of the logic, and has one port: it is taken for nothing but speed or room.
        with suppress(MappingError):
            # Only intervals that are no longer: else large RAM has bought speed.
            plain = mapper.first_that_fits(plain_budget, [one for one in intervals if one <= interval])
            if plain.schedule.interval_cycles <= interval:
                return plain
    shorter = [choice for choice in intervals if choice < interval]
    # Where nothing waits, the interval is that of the slowest engine, and shorter ones have failed.
    if not shorter or not waits(found):
        return found
    # Engines wait for line buffers that are too small, or for the port of one in large RAM: with larger ones, or none
    # in large RAM, slower foldings may be the faster ones.
    choices = [found]
    for other, busy in ((budget, BUSY[0]), (plain_budget, None)):
        if other == budget or takes_large_ram:
            with suppress(MappingError):
                choices.append(mapper.first_that_fits(other, shorter, busy))
    return min(choices, key=lambda choice: choice.schedule.interval_cycles)


class Mapper:
    """Searches the design space of one network.

    Parameters
    ----------
    space: design space of the network.
    frontiers: the candidates of each layer, fastest first.
    board_name: name of the board, which is noted in the accelerator.
    fitting: the fastest accelerator so far that fits; None: none was found yet.
    """

    fitting: Accelerator | None = None

    def __init__(self, space: DesignSpace, frontiers: Sequence[Sequence[Candidate]], board_name: str) -> None:
        self.space = space
        self.frontiers = frontiers
        self.board_name = board_name

    @classmethod
    def of(
        cls,
        body: Graph,
        board_name: str,
        family: Family,
        overrides: Mapping[str, Mapping[str, int]],
        sequences: int = 1,
        rough: bool = False,
        budget: Budget | None = None,
        enough: int = 0,
    ) -> Mapper:
        """Return the mapper of an integer graph; see `map_body` and, for `rough`, `DesignSpace`.

        Parameters
        ----------
        budget: of a network of many layers, whose first ones alone exceed it, the others are not looked at. Without
            one, the device is not a large one.
        enough: see `DesignSpace.frontiers`.

        Raises
        ------
        MappingError: a layer that no engine runs. DoesNotFitError: the first layers exceed the budget.
        """
        large = budget is not None and budget.large_device
        space = DesignSpace(body, read_layers(step_of(body).graph), family, sequences, rough, large)

        def check(frontiers: list[list[Candidate]]) -> None:
            if budget is not None:
                cls(space.beginning(len(frontiers)), frontiers, board_name).refuse(budget, len(space.layers))

        return cls(space, space.frontiers(overrides, check, enough), board_name)

    def refuse(self, budget: Budget, count: int) -> None:
        """Raise DoesNotFitError if these layers, which are the first of `count` ones, exceed a budget at any rate."""
        interval = self.intervals(budget, None)[-1]
        placed, taken = self.within(budget, interval)
        if budget.excess(taken):
            raise self._too_large(placed, interval, taken, budget, count)

    def _too_large(
        self, placed: Sequence[Folding], interval: int, taken: Cost, budget: Budget, count: int | None = None
    ) -> DoesNotFitError:
        """Return the error that the smallest foldings exceed a budget, with what each layer takes."""
        ram_bits = self.space.family.block_ram.bits
        cause, remedy = does_not_fit(self.space.layers, interval, taken, budget, ram_bits, count)
        return DoesNotFitError(cause, remedy, needs_of(self.space, placed))

    def best(self, budget: Budget, target_interval: int | None) -> Accelerator:
        """Return the accelerator that `map_body` returns. Raises: MappingError: the network does not fit."""
        return with_schedule(self.about(budget, target_interval))

    def exact(self, budget: Budget, target_interval: int | None, enough: int = 0) -> Accelerator:
        """Return the same accelerator as `best`, with fewer block RAMs where they are scarce. Raises: MappingError.

        Parameters
        ----------
        enough: intervals that are shorter than the longest one up to this are not tried.
        """
        intervals = self.intervals(budget, target_interval)
        needless = max(0, sum(interval <= enough for interval in intervals) - 1)
        found = self._reaching(target_interval, budget, _best(self, budget, intervals[needless:]))
        return with_schedule(self.eased(found, budget, intervals[needless:]))

    def about(self, budget: Budget, target_interval: int | None) -> Accelerator:
        """Return the same accelerator as `best`; its schedule may be an estimate. Raises: MappingError."""
        return self._reaching(target_interval, budget, _best(self, budget, self.intervals(budget, target_interval)))

    def _reaching(self, target: int | None, budget: Budget, found: Accelerator) -> Accelerator:
        """Return the smallest accelerator of a loop that reaches an interval; the fastest one if none does.

        Engines of a loop wait for one another, so each of them has to be faster than the target.

        Parameters
        ----------
        found: that whose slowest engine reaches it.
        """
        if target is None or not self.space.step.states:
            return found
        tried = {0: found}

        def reaches(index: int) -> bool:
            if index not in tried:
                with suppress(MappingError):
                    tried[index] = _best(self, budget, self.intervals(budget, choices[index]))
            # What does not fit is no reason to try faster ones.
            return index not in tried or tried[index].schedule.interval_cycles <= target

        # The first one is that of `found`.
        choices = [one for one in self.intervals(budget, None) if one <= target][::-1] or [0]
        index = bisect_left(range(len(choices)), True, key=reaches)
        return tried.get(index) or min(tried.values(), key=lambda one: one.schedule.interval_cycles)

    def intervals(self, budget: Budget, target: int | None) -> list[int]:
        """Return the intervals to try, in cycles per frame, ascending.

        Parameters
        ----------
        target: an interval that suffices, or None; see `map_body`.
        """
        # Between the cycles of two candidates, the choice of foldings does not change.
        slowest = max(min(candidate.cycles for candidate in candidates) for candidates in self.frontiers)
        # Engines that are faster than the beats of the input would only wait for them.
        fastest = max(slowest, least_interval(self.space.step.graph))
        given = sorted({candidate.cycles for candidates in self.frontiers for candidate in candidates})
        intervals = [fastest, *(interval for interval in given if interval > fastest)]
        if budget.spram:
            # A line buffer in large RAM cannot be read and written in the same cycle.
            intervals.append(2 * intervals[-1])
        if target is None:
            return intervals
        return [interval for interval in intervals if interval <= target][-1:] or intervals[:1]

    def first_that_fits(self, budget: Budget, intervals: Sequence[int], busy: float | None = None) -> Accelerator:
        """Return the accelerator at the shortest interval at which it fits with its FIFOs and converters.

        Parameters
        ----------
        intervals: cycles per frame to try, ascending.
        busy: see `within`; None: line buffers become roomy if that fits at the same interval.

        Raises
        ------
        MappingError: it fits at none of them.
        """
        family, left, failed = self.space.family, budget, 0
        stretched = replace(budget, lc=family.room.stretch * budget.lc, ff=family.room.stretch * budget.ff)
        placed, total = list[Folding](), Cost()
        for _ in range(MOST_ROUNDS):
            try:
                placed = PartMover(self.space, left).thresholds(*self.fastest(left, intervals, busy))
            except MappingError:
                if not placed:
                    raise
                # The layers alone fit, as a round before has shown.
                break
            slowest = self._slowest(placed)
            known = self.space.expected_cost(placed, movable=budget.spram > 0)
            if known is None or _fits(known, stretched):
                accelerator, total = self._assembled(placed, budget)
                if _fits(total, stretched):
                    # Foldings between the ones that failed and these may fit, too: they need fewer FIFOs than those.
                    between = [interval for interval in intervals if failed < interval < slowest] if failed else []
                    sooner = self._slower_that_fits(budget, left, stretched, between, busy)
                    return without_waits(self.space, *(sooner or (placed, accelerator)), stretched)
            else:
                total = known
            failed = slowest
            # FIFOs and what else stands between layers is known only now: leave room for it, and try again.
            left = left.without(
                Cost(
                    _room(total.lc - stretched.lc, budget.lc),
                    max(0, total.ebr - budget.ebr),
                    ff=_room(total.ff - stretched.ff, budget.ff),
                )
            )
        if (slower := self._slower_that_fits(budget, left, stretched, intervals, busy)) is not None:
            return without_waits(self.space, *slower, stretched)
        accelerator, total = self._assembled(placed, budget)
        if _fits(total, stretched):
            return without_waits(self.space, placed, accelerator, stretched)
        needs = needs_of(self.space, placed, accelerator)
        raise DoesNotFitError(fifos_do_not_fit(accelerator, stretched.excess(total)), REMEDY, needs)

    def eased(self, found: Accelerator, budget: Budget, intervals: Sequence[int]) -> Accelerator:
        """Return an accelerator as fast as one that takes most block RAMs, but with fewer, if there is logic for it.

        Parameters
        ----------
        intervals: those that were tried for it, in cycles per frame, ascending.
        """
        family, interval = self.space.family, found.schedule.interval_cycles
        taken = accelerator_cost(found, family)
        if taken.ebr <= CROWDED_EBR * budget.ebr:
            return found
        same = [choice for choice in intervals if choice <= interval][-1:]
        shares = {family.room.easy_ebr, (1 + family.room.easy_ebr) / 2} - {1.0} if same else ()
        for share in sorted(shares):
            with suppress(MappingError):
                other = self.first_that_fits(replace(budget, ebr=int(share * budget.ebr)), same)
                less = accelerator_cost(other, family)
                # Not where logic gets as scarce instead, nor where each block RAM less takes too much of it.
                is_easier = _fullest(less, budget) < _fullest(taken, budget) and less.lc <= EASED_LC * taken.lc
                if other.schedule.interval_cycles <= interval and is_easier:
                    return other
        return found

    def _slowest(self, placed: Sequence[Folding]) -> int:
        """Return the cycles of the slowest layer, with the folding given for each."""
        pairs = zip(self.space.layers, placed, strict=True)
        return max(self.space.candidate(layer, folding).cycles for layer, folding in pairs)

    def _assembled(self, placed: Sequence[Folding], budget: Budget) -> tuple[Accelerator, Cost]:
        """Return the accelerator of foldings and its cost; FIFOs leave block RAM where there is too little of it.

        They go to large RAM first, then to registers; the other way round if that does not suffice.
        """
        family, accelerator = self.space.family, self.space.accelerator(placed, self.board_name)

        def in_large_ram(found: Accelerator) -> Accelerator:
            total = accelerator_cost(found, family)
            return into_large_ram(found, total.ebr - budget.ebr, budget.spram - total.spram, family)

        def in_registers(found: Accelerator) -> Accelerator:
            return into_registers(found, accelerator_cost(found, family).ebr - budget.ebr, family)

        total = accelerator_cost(accelerator, family)
        stretched = replace(budget, lc=family.room.stretch * budget.lc, ff=family.room.stretch * budget.ff)
        if total.ebr > budget.ebr:
            moved = in_registers(in_large_ram(accelerator))
            fits = _fits(accelerator_cost(moved, family), stretched)
            accelerator = moved if fits else in_large_ram(in_registers(accelerator))
            total = accelerator_cost(accelerator, family)
        best = self.fitting.schedule.interval_cycles if self.fitting is not None else inf
        if _fits(total, stretched) and accelerator.schedule.interval_cycles < best:
            self.fitting = accelerator
        LOGGER.info(
            "an engine for each layer: %s cycles a frame with %s logic cells and %s block RAMs",
            *(f"{count:,.0f}" for count in (accelerator.schedule.interval_cycles, total.lc, total.ebr)),
        )
        return accelerator, total

    def _slower_that_fits(
        self, budget: Budget, left: Budget, stretched: Budget, intervals: Sequence[int], busy: float | None
    ) -> tuple[list[Folding], Accelerator] | None:
        """Return the foldings and the accelerator of the shortest interval that fits with FIFOs; None if none fits.

        `first_that_fits` has tried the layers with less and less room. Here each interval has its smallest foldings,
        even if they exceed that room: slower foldings need fewer FIFOs, so the whole may fit all the same.

        Parameters
        ----------
        left: the part of the budget for the layers that was tried last.
        """
        found: dict[int, tuple[list[Folding], Accelerator]] = {}

        def placed_at(interval: int) -> list[Folding]:
            return PartMover(self.space, left).thresholds(*self.within(left, interval, busy))

        def is_expected(interval: int, room: Budget = stretched) -> bool:
            expected = self.space.expected_cost(placed_at(interval), movable=budget.spram > 0)
            return expected is None or _fits(expected, room)

        def fits(interval: int) -> bool:
            placed = placed_at(interval)
            accelerator, total = self._assembled(placed, budget)
            found[interval] = placed, accelerator
            return _fits(total, stretched)

        # That of the longest interval takes longest, and few networks have one that is cheaper than expected.
        about = replace(stretched, **{name: EXPECTED * getattr(stretched, name) for name in ("lc", "ff", "ebr")})
        if not intervals or not is_expected(intervals[-1], about) or not fits(intervals[-1]):
            return None
        # Schedules take long where branches join: most intervals are ruled out without them.
        likely = intervals[bisect_left(intervals[:-1], True, key=is_expected) :]
        # An estimate may be too low: then the true costs are searched, from there on.
        if fits(likely[0]):
            return found[likely[0]]
        return found[likely[bisect_left(likely, True, lo=1, key=fits)]]

    def fastest(
        self, budget: Budget, intervals: Sequence[int], busy: float | None = None
    ) -> tuple[list[Folding], Cost]:
        """Return the foldings of the shortest interval that fits, and their cost, without FIFOs and converters.

        It is found by bisection, as foldings for a longer interval never cost more.

        Parameters
        ----------
        busy: see `within`; None: line buffers become roomy if that fits at the same interval.
        """
        results: dict[int, tuple[list[Folding], Cost]] = {}

        def fits(interval: int) -> bool:
            results[interval] = self.within(budget, interval, busy)
            return not budget.excess(results[interval][1])

        # `fits` keeps all results, of which that of the chosen interval is returned, or that of the longest one named.
        index = bisect_left(intervals, True, key=fits)
        if index < len(intervals) and fits(intervals[index]):
            # Where memories may be in LUTs, the first price that fits need not be the one with the fewest logic cells.
            interval, thrifty = intervals[index], self.space.family.lut_ram.words > 0
            roomy = (self.within(budget, interval, share, thrifty) for share in BUSY if busy is None)
            least = self.within(budget, interval, busy, thrifty) if thrifty else results[interval]
            return next((found for found in roomy if not budget.excess(found[1])), least)
        smallest, taken = results[intervals[-1]]
        raise self._too_large(smallest, intervals[-1], taken, budget)

    def within(
        self, budget: Budget, interval: int, busy: float | None = None, thrifty: bool = False
    ) -> tuple[list[Folding], Cost]:
        """Return the smallest foldings of at most `interval` cycles, and their cost, which may exceed the budget.

        Block RAM is weighed against logic at one price after another, until both suffice.

        Parameters
        ----------
        busy: layers that take at least this share of the interval get roomy line buffers; None: no layer does.
        thrifty: whether to try all prices, for the fewest logic cells.
        """
        block_ram_lc, placement = self.space.family.block_ram_lc, PartMover(self.space, budget)
        best: tuple[float, list[Folding], Cost] | None = None
        for price in _PRICES:
            chosen = smallest_within(self.frontiers, interval, block_ram_lc * price)
            roomy = [self._may_be_roomy(item, busy, interval) for item in chosen]
            started = [replace(item.folding, roomy=room) for item, room in zip(chosen, roomy, strict=True)]
            placed, taken = placement.products(*placement.weights(placement.buffers(started, interval)))
            over = max(0.0, taken.lc - budget.lc, taken.ff - budget.ff)
            over += block_ram_lc * max(0, taken.ebr - budget.ebr)
            if best is None or (over, taken.lc) < (best[0], best[2].lc):
                best = over, placed, taken
            if not over and not thrifty:
                break
        assert best is not None
        return best[1], best[2]

    @staticmethod
    def _may_be_roomy(item: Candidate, busy: float | None, interval: int) -> bool:
        """Return whether a layer gets a roomy line buffer; one in LUTs stays small."""
        return busy is not None and item.cycles >= busy * interval and not item.folding.lut_buffer


def _fits(total: Cost, stretched: Budget) -> bool:
    """Return whether a whole accelerator fits; DSP blocks and large RAMs were never taken beyond what there is."""
    return not stretched.excess(replace(total, dsp=0, spram=0))


def _fullest(total: Cost, budget: Budget) -> float:
    """Return the share of the resource that is used most: logic cells, flip-flops or block RAMs."""
    return max(total.lc / budget.lc, total.ff / budget.ff, total.ebr / budget.ebr if budget.ebr else 0.0)


def _room(missing: float, given: float) -> float:
    """Return by how much to reduce the room for the next try, if `missing` resources were too many; else 0."""
    return max(missing, LEAST_ROOM * given) if missing > 0 else 0.0
