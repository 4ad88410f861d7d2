"""The schedule of an accelerator (latency and interval, by stepping cycle models), and the depths of its FIFOs."""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from nnhw.accelerator import Accelerator, EngineConfig, Stage
from nnhw.engines.fifo import FifoConfig, FifoModel
from nnhw.engines.network import CycleModel, NetworkModel
from nnhw.engines.shared import SharedConfig
from nnhw.engines.shared.cycle_model import lone_schedule
from nnhw.engines.timing import (
    NetworkRun,
    PipelineModel,
    Schedule,
    estimated,
    run_network,
    run_until_periodic,
    schedule_of,
)
from nnhw.errors import StuckError, UnsettledError
from nnhw.families import ICE40, Cost, Family
from nnhw.mapping.cost import cost

FIFO_MIN_DEPTH = 3
"""Depth in beats of a FIFO whose depth is not known yet; shallower FIFOs have no memory."""
BUFFER_DEPTH = 2
"""Depth in beats of the shallowest FIFO without a combinational path through it: a buffer of two registers."""
FRAMES = 5
"""Frames that are stepped to find how full FIFOs of unlimited depth become."""
MOST_FRAMES, MOST_STEPS = 6, 1_000_000
"""A network is stepped from rest on for so many frames and steps of engines, unless it repeats itself before."""
FEW_FRAMES, LONG_STEPS = 3, 20_000_000
"""Fewer frames are stepped, for an estimate and for depths, where `MOST_FRAMES` would take more steps of engines."""
MOST_STEPPED = 200_000
"""Cycles times engines of a frame; a chain with more is not stepped where a rough schedule suffices."""
MOST_SETTLED = 64, 200_000
"""Frames and cycles within which a network has to repeat itself when it begins with full buffers."""
PATIENT_FRAMES = 2
"""Frames that are stepped beat by beat; after the first one, every engine is in its initial state again."""
MOST_TRIAL_CYCLES = 400_000
"""Most cycles that are stepped to find out whether FIFOs may be shallower."""
LEAST_SAVED_LC = 20
"""Logic cells that a shallower FIFO must save to be worth the trials."""


@dataclass(frozen=True)
class StreamNetwork:
    """The stages of an accelerator as a network of cycle models.

    Parameters
    ----------
    stages: in stream order.
    i_beats, o_beats: beats of one frame at the input and at the output.
    """

    stages: tuple[Stage, ...]
    i_beats: int
    o_beats: int

    @property
    def joining(self) -> tuple[int, ...]:
        """Indices of the FIFOs in front of joins, and of what a join's layer has in front of it for each input."""
        joins = [stage for stage in self.stages if len(stage.sources) > 1]
        indices = {self._in_front(index, stage.layer) for stage in joins for index, _ in stage.sources}
        return tuple(sorted(index for index in indices if self.stages[index].config.fifo))

    @property
    def behind_stages(self) -> list[int]:
        """Indices of the FIFOs in front of joins that another stage feeds: the input itself has no register."""
        return [index for index in self.joining if self.stages[index].sources[0][0] >= 0]

    @property
    def has_loop(self) -> bool:
        """Whether a stage reads what a later stage gives, as the memory of a state does."""
        return any(source >= index for index, stage in enumerate(self.stages) for source, _ in stage.sources)

    def _in_front(self, index: int, layer: str) -> int:
        """Return the first stage of a layer with a single input, up to a FIFO, that leads to a stage or is it."""
        stage = self.stages[index]
        if stage.config.fifo is None and len(stage.sources) == 1:
            before = stage.sources[0][0]
            if before >= 0 and self.stages[before].layer == layer:
                return self._in_front(before, layer)
        return index

    def fifo(self, index: int) -> FifoConfig:
        """Return the configuration of a stage that is a FIFO."""
        fifo = self.stages[index].config.fifo
        assert fifo is not None
        return fifo

    def with_fifo(self, index: int, config: EngineConfig) -> StreamNetwork:
        """Return the network in which stage `index` has another configuration."""
        stages = list(self.stages)
        stages[index] = replace(stages[index], config=config)
        return replace(self, stages=tuple(stages))

    def without(self, index: int) -> StreamNetwork:
        """Return the network without stage `index`, which has one input and one output."""
        source = self.stages[index].sources[0]

        def moved(port: tuple[int, int]) -> tuple[int, int]:
            stage, number = source if port[0] == index else port
            # Stages behind the one that goes move up by a place.
            return (stage - (stage > index), number)

        left = [stage for place, stage in enumerate(self.stages) if place != index]
        stages = tuple(replace(stage, sources=tuple(map(moved, stage.sources))) for stage in left)
        return replace(self, stages=stages)

    def schedule(self) -> Schedule:
        """Return latency and interval.

        Where engines in front of the slowest one are a little faster than it, the buffers between them fill up within
        thousands of frames, and only then the network repeats itself. So it is stepped again, from full buffers on.

        Raises
        ------
        StuckError: engines wait for each other for ever. UnsettledError: it never repeats itself.
        """
        if self._lone is not None:
            return self.estimate()
        run = self._run([stage.config.model() for stage in self.stages])
        if run.period:
            return schedule_of(run)
        again = [stage.config.model() for stage in self.stages]
        settled = run_until_periodic(again, self._sources, self._beats, self._frame_cycles, MOST_SETTLED, run.slowest)
        if not settled.period:
            raise UnsettledError(
                f"the pipeline did not repeat itself within {len(settled.ends)} frames, so its interval is not known; "
                "this is a mistake of nnhw, please report the model"
            )
        return schedule_of(run, settled)

    def estimate(self, rough: bool = False) -> Schedule:
        """Return latency and interval; the interval is that of the last frames where nothing repeats itself soon.

        Parameters
        ----------
        rough: a chain of engines whose frames take very many steps is not stepped: its interval is that of an engine
            that never waits, its latency a bound.
        """
        if self._lone is not None:
            return lone_schedule(self._lone)
        if rough and all(len(stage.sources) == 1 for stage in self.stages):
            slowest = max(stage.config.cycles for stage in self.stages)
            if slowest * len(self.stages) > MOST_STEPPED:
                return Schedule(self._frame_cycles, slowest, joined=False)
        return self.follow([stage.config.model() for stage in self.stages])

    def follow(self, models: Sequence[CycleModel | NetworkModel]) -> Schedule:
        """Step models of the stages; see `estimate`."""
        run = self._run(models, most_frames=self._fewer(MOST_FRAMES))
        return schedule_of(run) if run.period else estimated(run)

    def _fewer(self, frames: int) -> int:
        """Return so many frames, or fewer if they are long.

        They are for estimates: FIFOs that turn out too shallow become deeper (`_deeper`), and the schedule of a build
        is exact (`with_schedule`).
        """
        steps = max(stage.config.cycles for stage in self.stages) * len(self.stages) * MOST_FRAMES
        return FEW_FRAMES if steps > LONG_STEPS else frames

    @property
    def _lone(self) -> SharedConfig | None:
        """The configuration of a shared engine that is the only stage: its schedule is computed, not stepped."""
        return self.stages[0].config.program if len(self.stages) == 1 else None

    @property
    def _beats(self) -> list[int]:
        """Beats of a frame at each output of each stage."""
        return [*(stage.config.o_beats for stage in self.stages[:-1]), self.o_beats]

    def keeps(self, schedule: Schedule) -> bool:
        """Return whether latency and interval are no longer than those of a schedule, and the network cannot hang."""
        try:
            models = [stage.config.model() for stage in self.stages]
            run = self._run(models, schedule.latency_cycles, self._fewer(MOST_FRAMES))
        # A FIFO that is too shallow may stop the network for good.
        except StuckError:
            return False
        # Such a run was stopped behind its first frame, and has no interval.
        if run.latency > schedule.latency_cycles:
            return False
        found = schedule_of(run) if run.period else estimated(run)
        return found.interval <= schedule.interval and not self.can_hang()

    def _run(
        self,
        models: Sequence[CycleModel | NetworkModel],
        latency: int | None = None,
        most_frames: int | None = None,
    ) -> NetworkRun:
        """Step models of the stages from rest on, until they repeat themselves or for some frames.

        Parameters
        ----------
        latency: stop behind the first frame if it has a longer one.
        most_frames: in place of `MOST_FRAMES`.
        """
        most = most_frames or MOST_FRAMES, MOST_STEPS // len(self.stages)
        return run_until_periodic(models, self._sources, self._beats, self._frame_cycles, most, latency=latency)

    def run(self, models: Sequence[CycleModel | NetworkModel]) -> None:
        """Step models of the stages for some frames."""
        frames = self._fewer(FRAMES)
        limit = (frames + 1) * self._frame_cycles
        run_network(models, self._sources, self.i_beats, self.o_beats, frames, limit)

    @property
    def _frame_cycles(self) -> int:
        """Upper bound of the cycles that a frame takes from its first input beat to its last output beat."""
        return sum(stage.config.cycle_bound for stage in self.stages) + self.i_beats + self.o_beats + 1000

    def can_hang(self) -> bool:
        """Return whether there are stalls under which engines wait for each other for ever.

        What an engine takes and gives, and in which order, does not depend on when; so it does not depend on stalls
        whether a network comes to a halt, but for one thing: how many beats are on their way in a pipeline when it
        stands still. They are fewest where a beat comes in only when nothing moves any more; and where one beat of the
        input sets off a whole frame, as in a loop, pipelines count as holding the beats of their output buffer alone.
        """
        try:
            self.run_patiently(self.patient([stage.config.model() for stage in self.stages]))
        except StuckError:
            return True
        return False

    def patient(self, models: Sequence[CycleModel | NetworkModel]) -> Sequence[CycleModel | NetworkModel]:
        """Return models for `run_patiently`: in a loop their pipelines hold as few beats as they ever may."""
        return [emptied(model) for model in models] if self.has_loop else models

    def run_patiently(self, models: Sequence[CycleModel | NetworkModel]) -> None:
        """Step models of the stages, a beat at a time; see `can_hang`."""
        bounds = sum(stage.config.cycle_bound for stage in self.stages)
        # Each beat may have to pass the whole network before the next one comes in.
        limit = PATIENT_FRAMES * (self.i_beats + 1) * bounds
        run_network(models, self._sources, self.i_beats, self.o_beats, PATIENT_FRAMES, limit, patient=True)

    @property
    def _sources(self) -> list[tuple[tuple[int, int], ...]]:
        return [stage.sources for stage in self.stages]


Fitted = tuple[Mapping[str, FifoConfig], Schedule]
"""FIFOs of joins by name, without those that are not needed, and the schedule of a network with them."""


def schedule_stages(
    stages: Sequence[Stage],
    i_beats: int,
    o_beats: int,
    family: Family = ICE40,
    rough: bool = False,
    known: dict[bytes, Fitted] | None = None,
) -> tuple[tuple[Stage, ...], Schedule]:
    """Find latency, interval, and depths at which no FIFO of a join delays anything in the long run.

    Each is first as deep as one without bounds was full, with an input that never pauses and with one that always does:
    a join waits for its longer branch, whose engines need a fixed number of input beats for each output beat, and the
    FIFO of the shorter one has held as many. What frames leave behind may add up, so that one that was deep enough for
    some frames is not for all: those that are full at times become deeper as long as that shortens the interval
    (`_deeper`). Then each becomes shallower where that saves a block RAM or logic, as long as neither latency nor
    interval grow and the network cannot hang (`StreamNetwork.can_hang`). Depths of the same cost are not told apart,
    and a large network has a limited number of trials (`MOST_TRIAL_CYCLES`): so one less need not stall. In a loop,
    where each takes a cycle of every step, those that are not needed go, on the same conditions: most engines have a
    buffer at their output anyhow.

    Parameters
    ----------
    stages: in stream order.
    i_beats, o_beats: of one frame at either end.
    family: of the device.
    rough: see `StreamNetwork.estimate`.
    known: what earlier calls for the same family found; it is completed. To step long frames takes seconds.

    Returns
    -------
    The stages with their FIFOs as deep as they have to be, and the schedule of these, see `StreamNetwork.estimate`.
    """
    network = StreamNetwork(tuple(stages), i_beats, o_beats)
    if not network.joining:
        return network.stages, network.estimate(rough)
    known = {} if known is None else known
    timing = _timing(network)
    if timing not in known:
        known[timing] = _fitted(network, family)
    fifos, schedule = known[timing]
    for index in reversed(network.joining):
        name = network.stages[index].name
        network = network.with_fifo(index, fifos[name]) if name in fifos else network.without(index)
    return network.stages, schedule


def _timing(network: StreamNetwork) -> bytes:
    """Return all on which the schedule and the depths of FIFOs depend.

    Networks that differ in where weights and thresholds are kept have the same.
    """
    models = [stage.config.model() for stage in network.stages]
    fifos = [(network.stages[index].name, network.fifo(index)) for index in network.joining]
    return pickle.dumps((models, fifos, network._sources, network.i_beats, network.o_beats))


def _fitted(network: StreamNetwork, family: Family) -> Fitted:
    """Return the FIFOs of joins as deep as they have to be, and the schedule with them; see `schedule_stages`."""
    network = _as_deep_as_full(network)
    deep, schedule = _deeper(network)
    if network.has_loop and (lean := _lean(network)) is not None:
        fewer, shorter = _deeper(lean)
        if (shorter.interval, shorter.latency_cycles) <= (schedule.interval, schedule.latency_cycles):
            deep, schedule = fewer, shorter
    shallow = _shallower(deep, schedule, family)
    fewer = _without_buffers(shallow, schedule, family) if network.has_loop else shallow
    fifos = {fewer.stages[index].name: fewer.fifo(index) for index in fewer.joining}
    return fifos, schedule if fewer is deep else fewer.estimate()


def _as_deep_as_full(network: StreamNetwork) -> StreamNetwork:
    """Return the network with the FIFOs of joins as deep as ones without bounds are full.

    Raises
    ------
    StuckError: engines wait for each other for ever.
    """
    models, patient = _endless(network), network.patient(_endless(network))
    network.run(models)
    network.run_patiently(patient)
    for index in network.joining:
        # Both kinds of stalls: neither the fullest nor the emptiest network may find it too shallow.
        depth = max(model.high_water for model in (models[index], patient[index]) if isinstance(model, FifoModel))
        network = network.with_fifo(index, replace(network.fifo(index), depth=depth))
    return network


def _lean(network: StreamNetwork) -> StreamNetwork | None:
    """Return the network without FIFOs of joins that were never full, the others as deep as they are then.

    In a loop over steps each FIFO takes cycles of every step. What waits in several shallow ones then waits in a deep
    one, which is a block RAM. None: all are needed.
    """
    shallow = [index for index in network.behind_stages if network.fifo(index).depth <= FIFO_MIN_DEPTH]
    for index in reversed(shallow):
        network = network.without(index)
    try:
        return _as_deep_as_full(network) if shallow else None
    except StuckError:
        return None


def _deeper(network: StreamNetwork) -> tuple[StreamNetwork, Schedule]:
    """Return the network with FIFOs of joins so deep that no depth gives a shorter interval, and its schedule.

    What bounds the interval is a circle of engines that wait for each other. If it goes through a FIFO, that one is
    full at times, and a deeper one shortens the interval. So once twice the depth of all that are full shortens
    nothing, no FIFO bounds it.
    """
    schedule, full = _settled(network)
    slowest = max(stage.config.cycles for stage in network.stages)
    while full and schedule.interval > slowest:
        deeper = network
        for index in full:
            config = network.fifo(index)
            deeper = deeper.with_fifo(index, replace(config, depth=2 * config.depth))
        shorter, full = _settled(deeper)
        if shorter.interval >= schedule.interval:
            break
        network, schedule = deeper, shorter
    return network, schedule


def _settled(network: StreamNetwork) -> tuple[Schedule, list[int]]:
    """Return the schedule of a network, and the FIFOs of joins that are full at times."""
    models = [stage.config.model() for stage in network.stages]
    schedule = network.follow(models)
    joining = [(index, models[index]) for index in network.joining]
    return schedule, [index for index, model in joining if isinstance(model, FifoModel) and model.was_full]


def emptied(model: CycleModel | NetworkModel) -> CycleModel | NetworkModel:
    """Return a model whose pipeline, if it has one, holds no beats but those in its output buffer."""
    # Joins have their pipeline inside.
    pipeline = getattr(model, "pipeline", model)
    if isinstance(pipeline, PipelineModel):
        # At once in the output buffer, so nothing is on its way.
        pipeline.latency = 1
    return model


def _endless(network: StreamNetwork) -> list[CycleModel | NetworkModel]:
    """Return the models of a network, the FIFOs of joins without bounds."""
    joining = network.joining
    return [FifoModel(None) if index in joining else stage.config.model() for index, stage in enumerate(network.stages)]


def _shallower(network: StreamNetwork, schedule: Schedule, family: Family) -> StreamNetwork:
    """Return the network with the shallowest FIFOs of joins that keep its schedule; see `schedule_stages`."""
    # Networks with long frames get few trials, or none: their FIFOs stay as deep as they were full.
    trials = MOST_TRIAL_CYCLES // _trial_cycles(schedule)

    # FIFOs of a loop hold a few beats of wide numbers: in registers they would take more than a block RAM is worth.
    block_ram_lc = family.block_ram_lc if network.has_loop else inf

    def weight(index: int) -> float:
        taken = cost(network.stages[index].config, family)
        return family.weight(taken.lc, taken.ebr, 0)

    for index in sorted(network.joining, key=weight, reverse=True):
        depths = cheaper_depths(network.fifo(index), family, block_ram_lc)
        # A binary search among n depths takes n.bit_length() trials; if there are too few, try the deepest of them
        # only.
        if len(depths).bit_length() > trials:
            depths = depths[len(depths) - (1 << trials) + 1 :] if trials else []
        trials -= len(depths).bit_length()
        config = network.fifo(index)
        fitting = [network.with_fifo(index, replace(config, depth=depth)) for depth in depths]
        found = bisect_left(fitting, True, key=lambda shallow: shallow.keeps(schedule))
        network = [*fitting, network][found]
    return network


def _without_buffers(network: StreamNetwork, schedule: Schedule, family: Family) -> StreamNetwork:
    """Return a network with a loop without the FIFOs of joins that its schedule does not need.

    Those that only hold the beats of a buffer go all at once, or else one after the other, as far as the number of
    trials allows. Deeper ones may go, too, the most expensive first: some only run ahead.
    """
    buffers = [index for index in reversed(network.behind_stages) if network.fifo(index).depth == BUFFER_DEPTH]
    fewer = network
    for index in buffers:
        fewer = fewer.without(index)
    trials = MOST_TRIAL_CYCLES // _trial_cycles(schedule)
    if fewer is not network and fewer.keeps(schedule):
        network, buffers = fewer, []
    deep = sorted(network.behind_stages, key=lambda index: -cost(network.stages[index].config, family).lc)
    places = [*buffers, *(index for index in deep if index not in buffers)]
    # By name: indices change with each stage that goes.
    for name in [network.stages[index].name for index in places[:trials]]:
        index = next(place for place, stage in enumerate(network.stages) if stage.name == name)
        fewer = network.without(index)
        network = fewer if fewer.keeps(schedule) else network
    return network


def _trial_cycles(schedule: Schedule) -> int:
    """Return about how many cycles are stepped to find out whether a network keeps a schedule."""
    return 2 * (schedule.latency_cycles + (schedule.frames or MOST_FRAMES) * schedule.interval_cycles)


def cheaper_depths(config: FifoConfig, family: Family, block_ram_lc: float = inf) -> list[int]:
    """Return the depths at which a FIFO costs less than at its own, ascending; of equally cheap ones the deepest.

    Parameters
    ----------
    block_ram_lc: most logic cells that are worth a block RAM less.
    """

    def at(depth: int) -> Cost:
        return cost(replace(config, depth=depth), family)

    found, now, depth = list[int](), cost(config, family), config.depth - 1
    before = now
    # Downwards, and only where a block RAM less, or logic, is saved: so the deepest of equal cost comes first.
    while depth >= BUFFER_DEPTH:
        taken = at(depth)
        if taken.ebr < before.ebr or (not taken.ebr and (now.ebr or now.lc - taken.lc >= LEAST_SAVED_LC)):
            # Each block RAM less may take so many logic cells more.
            if now.ebr == taken.ebr or taken.lc - now.lc < block_ram_lc * (now.ebr - taken.ebr):
                found.append(depth)
        before, depth = taken, depth - 1
        if taken.ebr:
            # Thousands of depths take as many block RAMs: the next one of interest takes fewer.
            shallower = range(BUFFER_DEPTH, depth + 1)
            depth = BUFFER_DEPTH - 1 + bisect_left(shallower, taken.ebr, key=lambda other: at(other).ebr)
    return found[::-1]


def into_large_ram(accelerator: Accelerator, ebr: int, spram: int, family: Family) -> Accelerator:
    """Move FIFOs from block RAM to large RAM, those that save most block RAMs per large RAM first.

    Parameters
    ----------
    ebr: number of block RAMs to save.
    spram: number of large RAMs that are left.

    Returns
    -------
    The accelerator with its new schedule. It may save fewer block RAMs, if no more FIFOs can be moved.
    """
    formats = accelerator.input_format.frame_beats, accelerator.output_format.frame_beats
    network = StreamNetwork(accelerator.stages, *formats)
    moves = []
    for index, stage in enumerate(accelerator.stages):
        fifo = stage.config.fifo
        if fifo is not None and fifo.in_block_ram:
            columns = family.large_rams(fifo.words, fifo.width)
            # A large RAM has one port, so each beat takes a cycle to be written and one to be read.
            if columns is not None and 2 * fifo.beats <= accelerator.schedule.interval_cycles:
                moves.append((-cost(fifo, family).ebr / columns, index, columns))
    for _, index, columns in sorted(moves):
        fifo = network.fifo(index)
        if ebr > 0 and columns <= spram:
            network = network.with_fifo(index, replace(fifo, large=True))
            ebr, spram = ebr - cost(fifo, family).ebr, spram - columns
    if network.stages == accelerator.stages:
        return accelerator
    return replace(accelerator, stages=network.stages, schedule=network.estimate())


def into_registers(accelerator: Accelerator, ebr: int, family: Family) -> Accelerator:
    """Make FIFOs of a loop shallower, from block RAM into registers, as far as the schedule stays.

    Parameters
    ----------
    ebr: number of block RAMs to save.
    """
    formats = accelerator.input_format.frame_beats, accelerator.output_format.frame_beats
    network = StreamNetwork(accelerator.stages, *formats)
    for index in network.joining if network.has_loop else ():
        fifo = network.fifo(index)
        taken = cost(fifo, family).ebr
        if ebr <= 0 or not taken:
            continue
        depths = [depth for depth in cheaper_depths(fifo, family) if not cost(replace(fifo, depth=depth), family).ebr]
        fitting = [network.with_fifo(index, replace(fifo, depth=depth)) for depth in depths]
        found = bisect_left(fitting, True, key=lambda shallow: shallow.keeps(accelerator.schedule))
        network, ebr = ([*fitting, network][found], ebr - taken * (found < len(fitting)))
    if network.stages == accelerator.stages:
        return accelerator
    return replace(accelerator, stages=network.stages, schedule=network.estimate())


def with_schedule(accelerator: Accelerator) -> Accelerator:
    """Return an accelerator whose schedule is exact, if it was an estimate. Raises: see `StreamNetwork.schedule`."""
    if accelerator.schedule.joined:
        return accelerator
    formats = accelerator.input_format.frame_beats, accelerator.output_format.frame_beats
    return replace(accelerator, schedule=StreamNetwork(accelerator.stages, *formats).schedule())
