"""The design space of a network: the foldings of its layers, each with its cycles and its cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import inf
from typing import Any

from nnhw.accelerator import Accelerator, EngineConfig
from nnhw.errors import MappingError, NnhwError, raise_all
from nnhw.families import Cost, Family
from nnhw.ir import Graph
from nnhw.mapping.assemble import assemble, streamed, unscheduled_cost
from nnhw.mapping.folding import Folding, foldings
from nnhw.mapping.inputs import read_bytes
from nnhw.mapping.layers import Layer, MatrixLayer
from nnhw.mapping.loops import step_of
from nnhw.mapping.plans import LayerPlan, Planner
from nnhw.mapping.schedule import Fitted

FEW_LAYERS = 16
"""A network of more layers is looked at after so many of them, after twice as many, and so on, up to three quarters."""
FEW_PRODUCTS = 64
"""Foldings of so many products per cycle are always tried: as constants in logic, weights of small layers are cheap."""
SPARE_PRODUCTS = 8
"""Of products per cycle, so many times those that a rate needs are tried: more lanes take more logic, but may take
fewer block RAMs."""
FOLDED = ("pe", "channel_lanes", "row_lanes")
"""Fields that `foldings` enumerates: an override of one of them selects foldings; any other is set in each folding."""


@dataclass(frozen=True)
class Candidate:
    """A folding of a layer.

    Parameters
    ----------
    folding: the choices.
    cycles: that the layer's slowest engine takes for a frame.
    cost: of all engines of the layer.
    """

    folding: Folding
    cycles: int
    cost: Cost

    def beats(self, other: Candidate) -> bool:
        """Return whether this one is at least as good as another in cycles, logic cells and block RAMs."""
        mine, others = self.cost, other.cost
        return self.cycles <= other.cycles and mine.lc <= others.lc and mine.ebr <= others.ebr


class DesignSpace:
    """The possible engines of one network, with their cycles and costs; results are cached.

    Parameters
    ----------
    body: the integer graph; `step` is the part of it that the engines compute in a frame.
    layers: the layers of that part, each behind those that it reads.
    family: device family.
    sequences: number of sequences of a recurrent network whose steps take turns.
    rough: whether the schedules of its accelerators may be rough, see `StreamNetwork.estimate`.
    large_device: see `Budget`.

    Raises: MappingError if a next state is a sum without a quantizer.
    """

    def __init__(
        self,
        body: Graph,
        layers: Sequence[Layer],
        family: Family,
        sequences: int = 1,
        rough: bool = False,
        large_device: bool = False,
    ) -> None:
        self.body = body
        self.sequences = sequences
        self.rough = rough
        self.large_device = large_device
        self.step = step_of(body)
        self.family = family
        source, *states = [(node.name, node.type.int_dtype) for node in self.step.graph.inputs]
        self.layers = read_bytes(layers, *source, self.step.graph.inputs[0].type.shape)
        self._planner = Planner(self.layers, source, family, states)
        self._made: dict[tuple[str, Folding], Candidate] = {}
        self._accelerators: dict[tuple[Folding | str, ...], Accelerator] = {}
        self._fitted: dict[bytes, Fitted] = {}
        self._depths: dict[str, Fraction] = {}  # of the FIFOs of the accelerator that was made last, in frames
        for (state, kind), made in zip(states, self.step.graph.outputs[1:], strict=True):
            if not self._planner.encodings.is_plain(streamed(self.layers, self.step.graph, made), kind):
                raise MappingError(
                    f"state '{state}': its next value '{made}' is a sum, which its engine gives in a form of its "
                    "own; put a quantizer behind it"
                )

    def candidate(self, layer: Layer, folding: Folding) -> Candidate:
        """Return the candidate of a layer's folding. Raises: MappingError if an engine does not accept it."""
        key = layer.name, folding
        if key not in self._made:
            plan = self._planner.plan(layer, folding)
            self._made[key] = Candidate(folding, plan.cycles, self._planner.cost(plan))
        return self._made[key]

    def costs(self, placed: Sequence[Folding]) -> list[Cost]:
        """Return the cost of each layer with the folding given for it."""
        return [self.candidate(layer, folding).cost for layer, folding in zip(self.layers, placed, strict=True)]

    def engines(self, layer: Layer, folding: Folding) -> list[EngineConfig]:
        """Return the engines of a folded layer, in stream order. Raises: MappingError."""
        return self._planner.plan(layer, folding).configs

    def accelerator(self, placed: Sequence[Folding], board_name: str) -> Accelerator:
        """Return the accelerator of all layers, with the folding given for each. Raises: MappingError.

        The search comes back to foldings that it has seen, and depths of FIFOs take seconds where branches join.
        """
        key: tuple[Folding | str, ...] = (*placed, board_name)
        if key not in self._accelerators:
            made = assemble(
                self.layers,
                self._plans(placed),
                self.step,
                board_name,
                self.family,
                self.sequences,
                self.rough,
                self.large_device,
                self._fitted,
            )
            self._accelerators[key] = made
            fifos = ((stage.name, stage.config.fifo) for stage in made.stages)
            # In frames rather than beats, which depend on the lanes.
            self._depths = {name: Fraction(fifo.depth, fifo.beats) for name, fifo in fifos if fifo is not None}
        return self._accelerators[key]

    def expected_cost(self, placed: Sequence[Folding], movable: bool = False) -> Cost | None:
        """Return the cost of that accelerator without scheduling it; None if it is not known.

        It is exact if no branches join. Else it is an estimate, with FIFOs as deep as in the accelerator that was made
        last; so it is not known before there is one.

        Parameters
        ----------
        movable: whether FIFOs may move to large RAM, so that with one in it the cost is not known.
        """
        # Which FIFOs a loop keeps is only known with its schedule.
        joins = any(len(layer.inputs) > 1 for layer in self.layers)
        if self.step.states or (joins and not self._accelerators):
            return None
        plans = self._plans(placed)
        return unscheduled_cost(
            self.layers, plans, self.step, self.family, self.sequences, self._depths, movable, self.large_device
        )

    def _plans(self, placed: Sequence[Folding]) -> list[LayerPlan]:
        return [self._planner.plan(layer, folding) for layer, folding in zip(self.layers, placed, strict=True)]

    def beginning(self, count: int) -> DesignSpace:
        """Return the design space of the first layers alone, which shares all results with this one."""
        # A shallow copy, so that the caches are the same objects.
        part = copy(self)
        part.layers = self.layers[:count]
        return part

    def frontiers(
        self,
        overrides: Mapping[str, Mapping[str, int]],
        check: Callable[[list[list[Candidate]]], None] = lambda _: None,
        enough: int = 0,
    ) -> list[list[Candidate]]:
        """Return the candidates of every layer, the fastest first.

        Parameters
        ----------
        overrides: by layer name, fields of its foldings that are fixed; see `map_body`.
        check: called with the candidates of the first layers, now and then, if there are many layers.
        enough: cycles of a frame of which fewer are no better: foldings with many more products per cycle than these
            need are left out. 0: none are.

        Raises
        ------
        MappingError: an override names no layer. ProblemList or MappingError: layers that no engine accepts.
        """
        self._check_names(overrides)
        found: list[list[Candidate]] = []
        problems: list[NnhwError] = []
        most = len(self.layers) * 3 // 4
        counts = [FEW_LAYERS << times for times in range((most // FEW_LAYERS).bit_length())]
        # All layers that no engine runs are named at once.
        for layer in self.layers:
            try:
                override = overrides.get(layer.name)
                found.append(self._overridden(layer, override) if override else self._frontier(layer, enough))
            except MappingError as error:
                problems.append(error)
            if not problems and len(found) in counts:
                check(found)
        raise_all(problems)
        return found

    def _frontier(self, layer: Layer, enough: int) -> list[Candidate]:
        """Return the candidates of a layer that no other one beats in cycles, logic and block RAM, fastest first.

        Parameters
        ----------
        enough: see `frontiers`.

        Raises: MappingError of the last folding, if an engine accepts none.
        """
        found: list[Candidate] = []
        refused: MappingError | None = None
        most = max(FEW_PRODUCTS, SPARE_PRODUCTS * -(-layer.products // enough)) if enough else inf
        for folding in self._choices(layer):
            if folding.pe * folding.simd > most:
                continue
            try:
                found.append(self.candidate(layer, folding))
            except MappingError as error:
                refused = error
        if not found and refused is not None:
            raise refused
        # Sorted so, an item can only be beaten by one in front of it.
        found.sort(key=lambda item: (item.cycles, item.cost.lc, item.cost.ebr))
        kept: list[Candidate] = []
        for item in found:
            if not any(other.beats(item) for other in kept):
                kept.append(item)
        return kept

    def _choices(self, layer: Layer) -> Iterator[Folding]:
        """Yield the foldings of a layer; for a family with LUT memories, also variants with small memories in LUTs."""
        for folding in foldings(layer):
            if isinstance(layer, MatrixLayer) and folding.logic_tails and not self._planner.tail_words(layer, folding):
                # The same as without them.
                continue
            yield folding
            if not self.family.lut_ram.words:
                continue
            # A line buffer that does not fit there is refused by the planner, and the folding is left out.
            yield replace(folding, lut_buffer=True)
            if isinstance(layer, MatrixLayer) and not folding.logic_tails:
                # Memories of so few words are cheap in LUTs, and leave block RAMs free.
                if 1 < folding.depth(layer) <= (self.family.logic.deep_rom or (0,))[0]:
                    yield replace(folding, logic_pe=folding.pe)
                    yield replace(folding, logic_pe=folding.pe, lut_buffer=True)

    def _overridden(self, layer: Layer, override: Mapping[str, int]) -> list[Candidate]:
        """Return the candidates of a layer that agree with an override."""
        free = {item.name for item in fields(Folding)}
        wrong = sorted(set(override) - free)
        if wrong:
            raise MappingError(
                f"layer {layer.where} is overridden with '{wrong[0]}'; known are {', '.join(sorted(free))}"
            )
        folded = {key: value for key, value in override.items() if key in FOLDED}
        rest: dict[str, Any] = {key: value for key, value in override.items() if key not in FOLDED}
        # Other fields, such as `hop`, are set as they are given; an engine that does not accept them refuses.
        agreeing = [
            item for item in foldings(layer) if all(getattr(item, key) == value for key, value in folded.items())
        ]
        if not agreeing:
            raise MappingError(f"layer {layer.where} cannot be folded as {dict(override)}: {_divisors_of(layer)}")
        return sorted((self.candidate(layer, replace(item, **rest)) for item in agreeing), key=lambda item: item.cycles)

    def _check_names(self, overrides: Mapping[str, Mapping[str, int]]) -> None:
        unknown = sorted(set(overrides) - {layer.name for layer in self.layers})
        if unknown:
            names = ", ".join(f"'{layer.name}'" for layer in self.layers)
            raise MappingError(
                f"the overrides name layer '{unknown[0]}', which the model does not have; its layers are {names}"
            )


def smallest_within(frontiers: Sequence[Sequence[Candidate]], interval: int, block_ram_lc: float) -> list[Candidate]:
    """Return the smallest candidate of each layer among those of at most `interval` cycles; there must be one.

    Parameters
    ----------
    frontiers: the candidates of each layer.
    interval: cycles from frame to frame.
    block_ram_lc: price of a block RAM, in logic cells.
    """
    return [
        min(
            (candidate for candidate in candidates if candidate.cycles <= interval),
            key=lambda candidate: (candidate.cost.lc + block_ram_lc * candidate.cost.ebr, candidate.cycles),
        )
        for candidates in frontiers
    ]


def _divisors_of(layer: Layer) -> str:
    if not isinstance(layer, MatrixLayer):
        return f"channel_lanes must divide its {layer.run} channels"
    outputs, channels, rows, _ = layer.weights.shape
    return (
        f"pe must divide its {outputs // layer.groups} outputs, channel_lanes its {channels} channels, "
        f"row_lanes be 1 or {rows}"
    )
