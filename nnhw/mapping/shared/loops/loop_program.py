"""The program of one step of a loop: records of a shared engine, whose memory keeps the states from step to step.

The terms of a sum are added by records one after the other, each of which leaves its sums in the lanes. Two stored
values are multiplied by a record whose row of weights another record has stored. At the beginning of a step each state
is multiplied by 0 or 1: by 0 in the first step of a sequence, which the first code of the input says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nnhw.engines.requantize import RankedSteps
from nnhw.engines.shared import ArrayConfig, Compute, Emit, Fill, SharedConfig, make_loops
from nnhw.engines.shared.cycles import needed_gap
from nnhw.engines.shared.program import load_words
from nnhw.engines.shared.records import Record, record_words
from nnhw.errors import MappingError
from nnhw.ir import IntType, OneStep
from nnhw.mapping.common_steps import NoCommonStepsError
from nnhw.mapping.shared.loops.terms import STORED_BITS, DenseTerm, ScaledTerm, StepValue, View, read_step
from nnhw.mapping.shared.program.lines import Line, at_shift, fit_lines, fit_ranked, identity, signed_bits
from nnhw.mapping.shared.program.row_tasks import dense_rows

HEAD = "head"
"""Name of the stored code that says whether a step is the first one of its sequence."""
CODES = IntType(-(1 << (STORED_BITS - 1)), (1 << (STORED_BITS - 1)) - 1)
"""Type of stored codes."""
NOWHERE = (0, 0, 0)
"""Stride of a loop that reads the same word again."""


def zero_of(name: str, element: IntType) -> int:
    """Return the code that is stored as 0. Raises: MappingError if codes have more bits than are stored."""
    for zero in (0, -CODES.low, element.low - CODES.low):
        if CODES.low <= element.low - zero and element.high - zero <= CODES.high:
            return zero
    raise MappingError(
        f"value '{name}' has the codes {element.low}..{element.high}, a shared engine stores {STORED_BITS} bits in a "
        f"loop",
        "use fewer bits, or --style streaming",
    )


@dataclass(frozen=True, eq=False)
class StoredSum:
    """A sum of terms of stored codes.

    Parameters
    ----------
    dense: matrices with what they are multiplied with.
    scaled: factors of stored codes, by view. products: (left, right, factor), the left one complemented if it is
        negative.
    offset: int64 [channels], what the model's sum has more than that of the stored codes.
    """

    dense: tuple[DenseTerm, ...]
    scaled: Mapping[View, int]
    products: tuple[tuple[View, View, int], ...]
    offset: np.ndarray

    @classmethod
    def of(cls, value: StepValue, zeros: Mapping[str, int]) -> StoredSum:
        """Return the sum of the terms of a value; `zeros` are the codes that are stored as 0."""
        scaled, offset = dict[View, int](), np.zeros(value.channels, np.int64)
        dense, products = [], []

        def add(view: View, factor: int) -> None:
            scaled[view] = scaled.get(view, 0) + factor

        for term in value.terms:
            if isinstance(term, DenseTerm):
                dense.append(term)
                offset = offset + zeros[term.view.value] * term.weights.sum(axis=1)
            elif isinstance(term, ScaledTerm):
                add(term.view, term.factor)
                offset = offset + term.factor * zeros[term.view.value]
            else:
                left, right = zeros[term.left.value], zeros[term.right.value]
                # (l + zl) * (r + zr) of stored codes l, r and their zeros: the mixed terms are multiples of one code
                # each.
                add(term.left, term.factor * right)
                add(term.right, term.factor * left)
                offset = offset + term.factor * left * right
                products.append((term.left, term.right, term.factor))
                # -a * b is (~a + 1) * b: the complement of a code is a code, its negative need not be.
                add(term.right, max(-term.factor, 0))
        return cls(tuple(dense), {view: one for view, one in scaled.items() if one}, tuple(products), offset)


@dataclass(frozen=True, eq=False)
class LoopPlan:
    """What a step computes and keeps, without an array.

    Parameters
    ----------
    step: the step.
    values: its values.
    """

    step: OneStep
    values: tuple[StepValue, ...]

    @classmethod
    def of(cls, step: OneStep) -> LoopPlan:
        """Return the plan of a step. Raises: MappingError if a shared engine does not run it."""
        return cls(step, read_step(step))

    @cached_property
    def elements(self) -> dict[str, IntType]:
        """Types of what is stored, by name."""
        found = {node.name: node.type.int_dtype for node in self.step.graph.inputs}
        return found | {value.node: value.element for value in self.values if value.function is not None}

    @cached_property
    def channels(self) -> dict[str, int]:
        """Channels of what is stored, by name."""
        found = {node.name: node.type.size for node in self.step.graph.inputs}
        return found | {value.node: value.channels for value in self.values if value.function is not None}

    @cached_property
    def zeros(self) -> dict[str, int]:
        """Codes that are stored as 0, by name."""
        return {name: zero_of(name, element) for name, element in self.elements.items()}

    @cached_property
    def sums(self) -> dict[str, StoredSum]:
        """The sum of each value."""
        return {value.node: StoredSum.of(value, self.zeros) for value in self.values}

    @cached_property
    def lines(self) -> dict[str, tuple[Line, ...]]:
        """The lines of each value that is stored, from sums of stored codes to stored codes."""
        found = {}
        for value in self.values:
            if value.function is not None:
                lines = fit_lines(value.function, value.sums) or _ranked(value)
                offset, zero = self.sums[value.node].offset, self.zeros[value.node]
                found[value.node] = tuple(line.stored(offset, zero) for line in lines)
        return found

    @property
    def functions(self) -> tuple[RankedSteps, ...]:
        """Step functions of values, in their order."""
        firsts = (lines[0].ranked for lines in self.lines.values())
        return tuple(ranked for ranked in firsts if ranked is not None)

    def sum_bits(self, value: StepValue) -> int:
        """Return the bits of the sum of a value's stored codes."""
        offset = self.sums[value.node].offset
        return signed_bits(np.array([value.sums.low - int(offset.max()), value.sums.high - int(offset.min())]))

    @property
    def result(self) -> StepValue:
        """The value that leaves."""
        name = self.step.graph.outputs[0]
        by_name = {value.node: value for value in self.values}
        while name not in by_name:
            (name,) = self.step.graph.node(name).inputs
        return by_name[name]


def _narrow(weights: np.ndarray) -> np.ndarray:
    """Return matrices of narrow weights, int64 [n, outputs, inputs], that add up to one: sums may take multiples."""
    found, left = list[np.ndarray](), weights
    # A multiple of a weight, as where a sum is added twice, may be wider than the weights of the array.
    while not found or left.any():
        found.append(np.clip(left, CODES.low, CODES.high))
        left = left - found[-1]
    return np.stack(found)


def _ranked(value: StepValue) -> tuple[Line, ...]:
    assert value.function is not None
    try:
        return (fit_ranked(value.function, value.sums),)
    except NoCommonStepsError as error:
        raise MappingError(
            f"layer {value.where}: the function behind its sums is no line in each channel, nor a line in front of "
            f"steps that all channels share, which is what a shared engine has: {error}",
            "use --style streaming",
        ) from error


def compile_loop(plan: LoopPlan, array: ArrayConfig) -> SharedConfig:
    """Return the program of a step.

    Raises
    ------
    MappingError: it exceeds a limit of the array.
    """
    # How many words a record has does not depend on addresses.
    # Written twice: the first time to count words, the second time with addresses.
    sizes = _Writer(plan, array, {}, {})
    sizes.write()
    place, rows = load_words(plan.functions, array), dict[object, int]()
    for record, key in zip(sizes.records, sizes.keys, strict=True):
        place += record_words(record, array)
        if key is not None:
            # The row is the last thing in its record.
            rows[key] = place - array.channelwise_words
    places = {}
    for name, channels in {HEAD: 1, **plan.channels}.items():
        places[name] = place
        place += array.chunks(channels)
    if place > array.words:
        raise MappingError(
            f"the program of a step and its values need {place} words of {array.word_bits} bits, the memory has "
            f"{array.words}",
            "use fewer weights, or a larger board",
        )
    writer = _Writer(plan, array, places, rows)
    writer.write()
    return SharedConfig(array, tuple(writer.records), plan.functions)


@dataclass(eq=False)
class _Writer:
    """Writes the records of a step.

    Parameters
    ----------
    places: address of each value. rows: addresses of rows of weights that records store, by their keys.
    """

    plan: LoopPlan
    array: ArrayConfig
    places: Mapping[str, int]
    rows: Mapping[object, int]
    records: list[Record] = field(default_factory=list)
    keys: list[object] = field(default_factory=list)

    def write(self) -> None:
        """Write all records: the input, the states, the values in their order, the result."""
        plan, source = self.plan, self.plan.step.graph.inputs[0]
        self._add(Fill(self._place(View(HEAD)), 1, 1, False, source.name))
        flip = plan.zeros[source.name] == -CODES.low
        self._add(Fill(self._place(View(source.name)), 1, plan.channels[source.name], flip, source.name))
        for state in plan.step.states:
            self._state(state.given, state.made, state.start.reshape(-1) - plan.zeros[state.given])
        function = 0
        for value in plan.values:
            ranked = value.function is not None and plan.lines[value.node][0].ranked is not None
            for granule in range(-(-value.channels // self.array.lanes)):
                self._value(value, granule, function if ranked else None)
            function += ranked
        result = plan.result
        if result.function is not None:
            flip = plan.zeros[result.node] == -CODES.low
            self._add(Emit(self._place(View(result.node)), 1, result.channels, flip, result.node))

    def _add(self, record: Record, key: object = None) -> None:
        self.records.append(record)
        self.keys.append(key)

    def _place(self, view: View, granule: int = 0) -> int:
        """Return the address of a granule of a view."""
        if view.first % self.array.lanes:
            raise MappingError(
                f"channel {view.first} of '{view.value}' is multiplied, and a shared engine with {self.array.lanes} "
                f"lanes multiplies from a multiple of them on",
                "use --style streaming",
            )
        return self.places.get(view.value, 0) + view.first // self.array.lanes + granule

    def _state(self, given: str, made: str, start: np.ndarray) -> None:
        """Write a state as it is when a step begins: as the step before made it, or as it begins."""
        lanes, channels = self.array.lanes, self.plan.channels[given]
        granules = -(-channels // lanes)
        at_once = granules if not start.any() and channels % lanes == 0 else 1
        for granule in range(0, granules, at_once):
            key: object = ("keep", given, granule)
            # 1 less the head, in each lane: 0 in the first step of a sequence, which the head says by 1.
            none = np.zeros(lanes, np.int64)
            kept = Line(none + 1, none + 1, 0, CODES.low, CODES.high, slack=none)
            dense = DenseTerm(View(HEAD), np.full((lanes, 1), -1, np.int64))
            self._finish(self._dense(dense, 0), given, "", (0, lanes), (kept,), self.rows.get(key, 0))
            count = min(lanes, channels - granule * lanes)
            # A state that begins as zeros needs nothing added to it.
            if start.any():
                weights = np.zeros((lanes, 1), np.int64)
                weights[:count, 0] = start[granule * lanes :][:count]
                self._add(replace(self._dense(DenseTerm(View(HEAD), weights), 0), layer=given, partial=True))
            record = self._channelwise(View(made), granule, 1, None, key, at_once)
            # All granules at once where they have the same row.
            covered = (granule * lanes, count if at_once == 1 else channels)
            line = (identity(1, CODES),)
            self._finish(record, given, given, covered, line, self._place(View(given), granule), key=key)

    def _value(self, value: StepValue, granule: int, function: int | None) -> None:
        """Write the records of a granule of a value: all but the last leave their sums in the lanes."""
        lanes, total = self.array.lanes, self.plan.sums[value.node]
        channels = (granule * lanes, min(lanes, value.channels - granule * lanes))
        parts = list[tuple[Compute, object]]()
        for number, (left, right, factor) in enumerate(total.products):
            row = (value.node, granule, number)
            line, node = identity(1, CODES), left.value if not left.first else ""
            if factor < 0:
                none = np.zeros(1, np.int64)
                line, node = Line(none - 1, none - 1, 0, CODES.low, CODES.high, slack=none), ""
            copy = self._channelwise(left, granule, 1, 1)
            self._finish(copy, value.layer, node, channels, (line,), self.rows.get(row, 0), left.value)
            parts.append((self._channelwise(right, granule, abs(factor), None, row), row))
        for view, factor in total.scaled.items():
            parts += [(self._channelwise(view, granule, repeats, weight), None) for repeats, weight in _taps(factor)]
        parts += [(self._dense(dense, granule), None) for dense in total.dense]
        if not parts:
            raise MappingError(f"layer {value.where} adds nothing", "use --style streaming")
        share = value.products * channels[1] // value.channels
        for record, key in parts[:-1]:
            self._add(replace(record, layer=value.layer, node=value.node, channels=channels, partial=True), key)
        last, key = parts[-1]
        last = replace(last, products=share)
        if value.function is None:
            raw = -(-self.plan.sum_bits(value) // 8)
            self._add(replace(last, layer=value.layer, node=value.node, channels=channels, raw=raw), key)
            return
        lines = self.plan.lines[value.node]
        place = self._place(View(value.node), granule)
        self._finish(last, value.layer, value.node, channels, lines, place, key=key, function=function)

    def _finish(
        self,
        record: Compute,
        layer: str,
        node: str,
        channels: tuple[int, int],
        lines: tuple[Line, ...],
        target: int,
        stored: str = "",
        key: object = None,
        function: int | None = None,
    ) -> None:
        """Add a record that stores codes.

        Parameters
        ----------
        node: name of the IR value; empty if it is none.
        channels: (first, number) of its channels. target: address of the first word that is stored.
        stored: name of the value that gives the stored zero; empty: `node`.
        key: of its own row of weights. function: index of the steps behind its line.
        """
        array, lanes = self.array, self.array.lanes
        shift = next(index for index, one in enumerate(array.shifts) if one >= lines[0].shift)
        line = at_shift(lines, array.shifts[shift])
        rows = slice(channels[0], channels[0] + min(channels[1], lanes))
        constants = np.zeros((2, lanes), np.int64)
        for own, values in zip(constants, (line.factor, line.addend), strict=True):
            own[: rows.stop - rows.start] = np.broadcast_to(values, max(len(values), rows.stop))[rows]
        self._add(
            replace(
                record,
                layer=layer,
                node=node,
                channels=channels,
                factor=constants[0],
                addend=constants[1],
                shift=shift,
                even=line.even,
                parity=line.parity,
                low=line.low,
                high=line.high,
                function=function,
                target=target,
                target_step=1,
                zero=self.plan.zeros.get(stored or node, 0),
            ),
            key,
        )

    def _dense(self, term: DenseTerm, granule: int) -> Compute:
        """Return a record that multiplies a granule's rows of a matrix with a stored value."""
        array, (word, place) = self.array, divmod(term.view.first, self.array.codes_per_word)
        used = place + term.weights.shape[1]
        words = -(-used // array.codes_per_word)
        steps = array.steps_per_word if words > 1 else -(-used // array.simd)
        first = granule * array.lanes
        count = min(array.lanes, len(term.weights) - first)
        # The value is read again for each of the matrices that add up to this one, as if it were another tap.
        taps = np.moveaxis(_narrow(term.weights), 0, 2)[..., None]
        rows = dense_rows(taps, [place] * count, first, words, steps, array)
        start = self.places.get(term.view.value, 0) + word
        counts = (words, taps.shape[2], 1, 1, 1, 1, 1)
        return self._record(start, counts, ((1, 0, 0),), rows, steps=steps, streamed=True)

    def _channelwise(
        self, view: View, granule: int, repeats: int, weight: int | None, key: object = None, granules: int = 1
    ) -> Compute:
        """Return a record that multiplies each channel of a granule with a number, or with its own row of weights.

        Parameters
        ----------
        repeats: how often it does. weight: the number; None: it has a row of its own, with this key.
        granules: granules that it stores, one after the other.
        """
        rows = np.zeros((1, self.array.lanes, self.array.simd), np.int64)
        rows[0, :, 0] = weight or 0
        own = self.rows.get(key, 0) if weight is None else None
        strides = (NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, (1, 0, 0))
        counts = (1, repeats, 1, 1, 1, granules, 1)
        start = self._place(view, granule)
        return self._record(start, counts, strides, rows, channelwise=True, hold=True, own_row=own)

    def _record(
        self,
        start: int,
        counts: tuple[int, ...],
        strides: Sequence[tuple[int, int, int]],
        rows: np.ndarray,
        steps: int = 1,
        streamed: bool = False,
        channelwise: bool = False,
        hold: bool = False,
        own_row: int | None = None,
    ) -> Compute:
        return Compute(
            layer="",
            node="",
            channels=(0, self.array.lanes),
            start=start,
            row=0,
            column=0,
            height=1,
            width=1,
            border=0,
            loops=make_loops(counts, [*strides, *[NOWHERE] * (len(counts) - len(strides))]),
            weights=rows,
            factor=None,
            addend=None,
            channelwise=channelwise,
            steps=steps,
            hold=hold,
            streamed=streamed,
            gap=needed_gap(counts[0] * counts[1], steps, 1, self.array),
            own_row=own_row,
        )


def _taps(factor: int) -> list[tuple[int, int]]:
    """Return (repeats, weight) of records that add a multiple of a value."""
    most = CODES.high
    # One record with equal taps, if the factor is a multiple of a weight; else one more with the rest.
    for repeats in range(1, most + 1):
        if factor % repeats == 0 and CODES.low <= factor // repeats <= most:
            return [(repeats, factor // repeats)]
    sign = 1 if factor > 0 else -1
    times, rest = divmod(abs(factor), most)
    if times > most:
        raise MappingError(f"a value is added {factor} times, too often for a shared engine", "use --style streaming")
    return [(times, sign * most), *([(1, sign * rest)] if rest else [])]
