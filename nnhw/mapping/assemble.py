"""Assembly of an accelerator from layers and their plans: connects engines by converters, forks and FIFOs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from nnhw.accelerator import INPUT, Accelerator, EngineConfig, InputFormat, OutputFormat, Stage, Stream, stream_order
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.slice import SliceConfig
from nnhw.engines.state import NEXT, StateConfig
from nnhw.engines.window import WindowConfig
from nnhw.errors import MappingError
from nnhw.families import ICE40, Cost, Family
from nnhw.ir import Graph, IntType, OneStep, graph_hash
from nnhw.mapping.cost import stages_cost
from nnhw.mapping.inputs import as_byte
from nnhw.mapping.layers import Layer
from nnhw.mapping.plans import LayerPlan
from nnhw.mapping.schedule import BUFFER_DEPTH, FIFO_MIN_DEPTH, Fitted, StreamNetwork, schedule_stages

LINK_BITS = 8
"""Bits that the link carries at once: a byte."""
BEAT_BYTES = 8
"""Most bytes of a beat of the input."""
OUTPUT_BEATS = 2
"""Beats that an engine can hold at its output before it has to stop."""
MOST_WAITS = 1.01
"""Cycles that an engine may take, waits included, as a multiple of the slowest engine's cycles."""


HEAD_NODE = "input.head"
"""Name of the beat in front of a step's codes, which the memories of states read."""


@dataclass(frozen=True)
class StatePlan:
    """The memory that keeps a state of a recurrent network between steps.

    Parameters
    ----------
    given: name of the state's value, which leaves the memory.
    made: name of the next state's value, which comes back.
    start: value in the first step of a sequence, int64 [elements], in stream order.
    element: type of its elements.
    lanes: elements of a beat.
    sequences: number of sequences whose steps take turns; each has a state.
    steps: of a frame, if that is a whole sequence; 0: it is one step.
    """

    given: str
    made: str
    start: np.ndarray
    element: IntType
    lanes: int
    sequences: int
    steps: int


@dataclass(frozen=True)
class _Port:
    """An output port of a stage.

    Parameters
    ----------
    source: index of the stage (or INPUT) and number of its port.
    stream: what leaves the port.
    """

    source: tuple[int, int]
    stream: Stream


class _Assembler:
    """Collects stages in stream order.

    Parameters
    ----------
    readers: how many layers read each value, by its name.
    slowest: cycles that the slowest engine takes for a frame.
    with_buffers: whether a buffer stands between a fork and each of its readers.
    """

    def __init__(self, readers: Mapping[str, int], slowest: int, with_buffers: bool) -> None:
        self.stages: list[Stage] = []
        self.readers = readers
        self.slowest = slowest
        self.with_buffers = with_buffers
        self._constant: list[bool] = []
        self._ports: dict[str, list[_Port]] = {}
        self._names: Counter[str] = Counter()

    def offer(self, node: str, layer: str, port: _Port) -> None:
        """Make a value available to its readers; if there are several, a fork gives each of them a copy."""
        count = self.readers[node]
        if count < 2:
            self._ports[node] = [port]
            return
        if self._is_constant(port):
            # Each reader has a source of its own: none waits until another one takes a beat.
            source = self.stages[port.source[0]]
            copies = [self.add(layer, source.config.kind, source.config, (), port.stream) for _ in range(count - 1)]
            self._ports[node] = [port, *copies]
            return
        stream = port.stream
        fork = ForkConfig(count, stream.lanes, stream.element.bits, stream.beats)
        self.add(layer, "fork", fork, (port,), stream)
        index = len(self.stages) - 1
        self._ports[node] = [_Port((index, number), stream) for number in range(count)]

    def take(self, node: str) -> _Port:
        """Return a port that gives a value to one reader; each port is returned once."""
        return self._ports[node].pop(0)

    def add(
        self,
        layer: str,
        kind: str,
        config: EngineConfig,
        inputs: Sequence[_Port],
        output: Stream,
        node: str = "",
        products: int = 0,
    ) -> _Port:
        """Add a stage and return its output port.

        Parameters
        ----------
        layer, kind: the stage's name is made of them.
        inputs: the ports that it reads. output: the stream that it gives.
        node: the IR value that it gives; empty if there is none.
        products: per frame.
        """
        base = f"{layer}.{kind}"
        number = self._names[base]
        self._names[base] += 1
        sources = tuple(port.source for port in inputs)
        self.stages.append(Stage(f"{base}{number or ''}", layer, node, config, sources, output, products))
        self._constant.append(all(map(self._is_constant, inputs)))
        return _Port((len(self.stages) - 1, 0), output)

    def convert(self, layer: str, port: _Port, lanes: int) -> _Port:
        """Convert a stream to `lanes` elements a beat; return the last converter's port.

        A converter changes the width by a whole factor, so two of them go by way of the greatest common divisor.
        """
        for target in (math.gcd(port.stream.lanes, lanes), lanes):
            stream = port.stream
            if target != stream.lanes:
                port = self.smooth(layer, port, stream.lanes // target)
                config = ConvertConfig(stream.lanes, target, stream.element.bits, stream.beats)
                port = self.add(layer, "convert", config, (port,), replace(stream, lanes=target))
        return port

    def buffer(self, layer: str, port: _Port, depth: int = FIFO_MIN_DEPTH) -> _Port:
        """Put a FIFO behind a port and return its port. In front of joins, `schedule_stages` finds the depth later."""
        stream = port.stream
        config = FifoConfig(depth, stream.lanes, stream.element.bits, stream.beats)
        return self.add(layer, "fifo", config, (port,), stream)

    def apart(self, layer: str, port: _Port) -> _Port:
        """Put a buffer between a fork and one of its readers, on a large device.

        A fork waits for all of its readers, and what is in front of it hears of that in the same cycle: from padding
        that reads a fork to the sum in front of it were 100 tiles, when a ResNet-8 was placed on an ECP5-85F.
        """
        if not self.with_buffers or port.source[0] < 0:
            return port
        if self.stages[port.source[0]].config.o_ports == 1:
            return port
        return self.buffer(layer, port, BUFFER_DEPTH)

    def _is_constant(self, port: _Port) -> bool:
        """Return whether nothing of the input is in a stream: then it is there whenever it is taken."""
        index = port.source[0]
        return index >= 0 and self._constant[index]

    def smooth(self, layer: str, port: _Port, cycles: int) -> _Port:
        """Put a FIFO behind an engine if its bursts of results would have to wait so long that it became the slowest.

        Parameters
        ----------
        cycles: cycles that the next stage takes for each beat.
        """
        index = port.source[0]
        if index < 0:
            return port
        config = self.stages[index].config
        burst, count = config.bursts
        # Per burst: the next stage needs cycles - 1 more cycles than the engine for each beat; the first beats wait at
        # the output.
        waits = count * max(0, burst * (cycles - 1) - OUTPUT_BEATS)
        # What the engine takes for a frame without its output, and what it waits for the next stage.
        if burst > 1 and waits and config.cycle_bound - config.o_beats + waits > self.slowest:
            return self.buffer(layer, port, burst)
        return port

    def before_large(self, layer: str, port: _Port, window: WindowConfig) -> _Port:
        """Put a FIFO in front of a line buffer in large RAM, if the engine in front would wait for it too long.

        A large RAM has one port: it takes a word only in a cycle in which none is read. The FIFO holds a burst.
        """
        if not window.large or port.source[0] < 0 or self.stages[port.source[0]].config.fifo is not None:
            return port
        config = self._engine_in_front(port)
        burst, count = config.bursts
        # Behind a converter a burst has other beats, in proportion.
        burst = math.ceil(burst * port.stream.beats / config.o_beats)
        waits = count * max(0, burst * window.reads - OUTPUT_BEATS)
        if config.cycle_bound - config.o_beats + waits < MOST_WAITS * self.slowest:
            return port
        return self.buffer(layer, port, burst + 1)

    def before_border(self, layer: str, port: _Port, pad: PadConfig) -> _Port:
        """Put a FIFO in front of padding, if waiting for it would make the engine in front the slowest.

        While the border at the sides of a row leaves, padding takes no beats: the FIFO holds those that arrive then.
        """
        waits = pad.o_beats - pad.i_beats
        if port.source[0] < 0 or self._cycles_in_front(port) + waits < MOST_WAITS * self.slowest:
            return port
        # Beats that arrive while the two borders between rows leave, at the pace of the slowest engine.
        sides = (pad.before[1] + pad.after[1]) * pad.chunks
        return self.buffer(layer, port, max(2, math.ceil(sides * pad.i_beats / self.slowest) + 1))

    def _cycles_in_front(self, port: _Port) -> int:
        """Return the cycles that the engine from which a stream comes takes for a frame; see `_engine_in_front`."""
        config = self._engine_in_front(port)
        return config.cycle_bound - config.o_beats

    def _engine_in_front(self, port: _Port) -> EngineConfig:
        """Return the engine from which a stream comes; a width converter in between is skipped."""
        stage = self.stages[port.source[0]]
        if stage.config.only_converts and stage.sources[0][0] >= 0:
            stage = self.stages[stage.sources[0][0]]
        return stage.config

    def layer(self, layer: Layer, plan: LayerPlan, node: str) -> None:
        """Add the stages of one layer.

        Parameters
        ----------
        node: name of the IR value that leaves it; empty if the graph has no such value.
        """
        ports = [self.take(name) for name in layer.inputs]
        if len(ports) == 1:
            # A join has FIFOs in front of it, which are buffers, too.
            ports = [self.apart(layer.name, port) for port in ports]
        ports = [self.convert(layer.name, port, lanes) for port, lanes in zip(ports, plan.i_lanes, strict=True)]
        if len(ports) > 1:
            # A join takes its inputs together: what comes by the shorter branch waits here. Constants are never late.
            ports = [port if self._is_constant(port) else self.buffer(layer.name, port) for port in ports]
        for index, (kind, config, output) in enumerate(plan.fronts):
            ports[index] = self.add(layer.name, kind, config, (ports[index],), output)
        for index, (kind, config, output) in enumerate(plan.engines):
            if buffered := _IN_FRONT.get(type(config)):
                ports = [buffered(self, layer.name, ports[0], config)]
            last = index == len(plan.engines) - 1
            products = layer.products if config.product_array is not None else 0
            # Constants are there before a frame is, so they are not compared frame by frame, but what they join is.
            named = node if last and not all(map(self._is_constant, ports)) else ""
            ports = [self.add(layer.name, kind, config, ports, output, named, products)]
        self.offer(layer.node, layer.name, ports[0])

    def begin(self, form: InputFormat, source: str, states: Sequence[StatePlan]) -> None:
        """Offer the codes of the input, and add the memories of states, which a beat in front of the codes controls.

        Parameters
        ----------
        form: the input's format. Where a frame is one step, its first beat is a head, which is no code; where a frame
            is a whole sequence, its first codes are the head as well.
        source: name of the value with the codes.
        states: each gets a memory; `end` connects its next state.
        """
        codes, turn = form.stream, form.frame_beats
        whole, head = replace(codes, elements=turn * codes.lanes), replace(codes, elements=codes.lanes)
        parts = [(HEAD_NODE, "head", 0, head), (source, "codes", int(form.headed), codes)]
        parts = [part for part in parts if self.readers[part[0]]]
        ports = [_Port(INPUT, whole)]
        if len(parts) > 1:
            fork = ForkConfig(2, codes.lanes, codes.element.bits, turn)
            forked = self.add("input", "fork", fork, ports, whole).source[0]
            ports = [_Port((forked, port), whole) for port in range(2)]
        # Each takes its part of the frame and drops the other one.
        for (name, kind, first, kept), port in zip(parts, ports, strict=True):
            if kept.beats < turn:
                part = SliceConfig(codes.lanes, codes.element.bits, 1, turn, first, kept.beats)
                port = self.add("input", kind, part, (port,), kept)
            self.offer(name, "input", port)
        for state in states:
            config = StateConfig(state.start, state.element, state.lanes, state.sequences, state.steps)
            # What comes back is not there yet: `end` puts it in the place of the second source.
            stream = Stream(state.lanes, config.o_beats * state.lanes, state.element)
            begun = self.take(HEAD_NODE)
            if state.sequences > 1:
                # The memory whose state is read late in a step holds back no other one: that begins the next step.
                begun = self.buffer(state.given, begun)
            memory = self.add(state.given, "state", config, (begun, begun), stream, state.given)
            self.offer(state.given, state.given, memory)

    def end(self, states: Sequence[StatePlan]) -> None:
        """Connect the next states to their memories."""
        for state in states:
            port = self.convert(state.given, self.take(state.made), state.lanes)
            index = next(i for i, stage in enumerate(self.stages) if stage.node == state.given)
            sources = list(self.stages[index].sources)
            sources[NEXT] = port.source
            self.stages[index] = replace(self.stages[index], sources=tuple(sources))


_IN_FRONT: dict[type, Callable[[_Assembler, str, _Port, Any], _Port]] = {
    PadConfig: _Assembler.before_border,
    WindowConfig: _Assembler.before_large,
}
"""Methods that put a FIFO in front of engines which do not take a beat in every cycle, by their configuration."""


def assemble(
    layers: Sequence[Layer],
    plans: Sequence[LayerPlan],
    step: OneStep,
    board: str,
    family: Family = ICE40,
    sequences: int = 1,
    rough: bool = False,
    large_device: bool = False,
    known: dict[bytes, Fitted] | None = None,
) -> Accelerator:
    """Return the accelerator of planned layers, with its FIFOs and its schedule.

    Parameters
    ----------
    layers, plans: the layers of `step.graph`, and the plan of each.
    step: what the engines compute in a frame: one step, if the graph has sequences.
    board: name of the board.
    sequences: number of sequences whose steps take turns, if a frame is a step.
    rough: whether the schedule may be rough, see `StreamNetwork.estimate`.
    large_device: see `Budget`.
    known: see `schedule_stages`.

    Raises
    ------
    MappingError: the link cannot carry the input's codes.
    StuckError: engines wait for each other for ever.
    """
    body = step.graph
    stages, i_format, o_format = _stages(layers, plans, step, sequences, large_device)
    stages, schedule = schedule_stages(stages, i_format.frame_beats, o_format.frame_beats, family, rough, known)
    return Accelerator(body.name, graph_hash(step.whole), board, stages, i_format, o_format, schedule, step.rounds)


def unscheduled_cost(
    layers: Sequence[Layer],
    plans: Sequence[LayerPlan],
    step: OneStep,
    family: Family,
    sequences: int,
    depths: Mapping[str, Fraction],
    movable: bool = False,
    large_device: bool = False,
) -> Cost | None:
    """Return the cost of the accelerator of `assemble` without finding its schedule.

    Parameters
    ----------
    depths: by name, depths of FIFOs in front of joins, in frames, of another accelerator of the same layers: what these
        FIFOs hold depends little on the foldings, so the cost is a close estimate. A FIFO without one counts
        as a shallow one.
    movable: whether FIFOs may move to large RAM, so that with one in it the cost is not known.
    large_device: see `Budget`.

    Returns
    -------
    The cost; it is exact if no branches join. None: it is not known.
    """
    stages, i_format, o_format = _stages(layers, plans, step, sequences, large_device)
    if movable and any(stage.config.fifo is not None for stage in stages):
        return None
    # Depths scale with the beats of a frame, which other foldings change.
    network = StreamNetwork(stages, i_format.frame_beats, o_format.frame_beats)
    for index in network.joining:
        fifo, frames = network.fifo(index), depths.get(stages[index].name)
        if frames is not None:
            network = network.with_fifo(index, replace(fifo, depth=max(1, round(frames * fifo.beats))))
    return stages_cost(network.stages, i_format, o_format, family)


def _stages(
    layers: Sequence[Layer], plans: Sequence[LayerPlan], step: OneStep, sequences: int, large_device: bool
) -> tuple[tuple[Stage, ...], InputFormat, OutputFormat]:
    """Return the stages and the formats of the bytes at both ends."""
    body = step.graph
    source = body.inputs[0]
    result, *made = (streamed(layers, body, name) for name in body.outputs)
    readers = Counter(name for layer in layers for name in layer.inputs) + Counter([result, *made])
    # Each state's memory takes a head of its own.
    readers[HEAD_NODE] = len(step.states)
    slowest = max(plan.cycles for plan in plans)
    # In a loop over steps a buffer would take a cycle of every step.
    assembler = _Assembler(readers, slowest, large_device and not step.states)
    lanes = {node.name: 1 for node in body.inputs} | _lanes_read(layers, plans)
    i_format = input_format(source.type.int_dtype, lanes[source.name], source.type.shape, slowest)
    states = [
        StatePlan(
            state.given,
            name,
            stream_order(state.start[None])[0].astype(np.int64),
            body.node(state.given).type.int_dtype,
            lanes[state.given],
            sequences,
            step.positions,
        )
        for state, name in zip(step.states, made, strict=True)
    ]
    in_steps = step.whole.inputs[0].type.is_sequence
    if in_steps:
        i_format = replace(i_format, headed=True, turns=sequences)
    assembler.begin(i_format, source.name, states)
    for layer, plan in zip(layers, plans, strict=True):
        assembler.layer(layer, plan, layer.node if layer.node in body else "")
    assembler.end(states)
    last = assembler.take(result)
    o_format = output_format(last.stream, body.output_nodes[0].type.shape, body.node(result).type.shape)
    gives_steps = step.whole.output_nodes[0].type.is_sequence
    o_format = replace(o_format, last_step=in_steps and not gives_steps)
    if step.positions and gives_steps:
        # Positions stream one after the other, so the stream is that of all steps in order.
        shape = step.positions, *step.whole.output_nodes[0].type.shape
        o_format = replace(o_format, shape=shape, streamed=(o_format.elements,))
    # Packing costs logic, so whole bytes are kept as long as the output is no longer than the input.
    o_format = replace(o_format, packed=o_format.frame_beats > i_format.frame_bytes and gains(o_format))
    last = assembler.convert("output", last, 1)
    if o_format.element_bytes > 1:
        last = assembler.smooth("output", last, o_format.element_bytes)
        config = ConvertConfig(o_format.element_bytes, 1, 8, o_format.elements)
        byte = Stream(1, o_format.frame_beats, IntType(0, 255))
        last = assembler.add("output", "bytes", config, (last,), byte)
    if last.source != (len(assembler.stages) - 1, 0):
        # The output has to leave the last stage. It does not if the result is made before some other value, such as a
        # state.
        assembler.buffer("output", last, BUFFER_DEPTH)
    return tuple(assembler.stages), i_format, o_format


def streamed(layers: Sequence[Layer], body: Graph, name: str) -> str:
    """Return the layer's or input's value that streams for a name; reshapes in between do not change a stream."""
    known = {layer.node for layer in layers} | {node.name for node in body.inputs}
    while name not in known:
        name = body.node(name).inputs[0]
    return name


def _lanes_read(layers: Sequence[Layer], plans: Sequence[LayerPlan]) -> dict[str, int]:
    """Return, for each value, the lanes with which its first reader takes it."""
    found: dict[str, int] = {}
    for layer, plan in zip(layers, plans, strict=True):
        for name, lanes in zip(layer.inputs, plan.i_lanes, strict=True):
            found.setdefault(name, lanes)
    return found


def least_interval(body: Graph) -> int:
    """Return the least cycles in which a frame's input can come in, at most bytes a beat, and its output can leave."""
    source, result = body.inputs[0].type, body.output_nodes[0].type
    i_bytes = source.size * as_byte(source.int_dtype)[0].bits / LINK_BITS
    return max(math.ceil(i_bytes / BEAT_BYTES), result.size * -(-result.int_dtype.bits // LINK_BITS))


def input_format(codes: IntType, lanes: int, shape: tuple[int, ...], slowest: int) -> InputFormat:
    """Return the format of the input's codes in bytes, with no unused bits between codes.

    If whole elements fill a byte, and the elements of a byte and `lanes` divide one another, engines take bytes as they
    are. Else the bits of codes follow one another across bytes, and hardware behind the link makes beats of them.

    Parameters
    ----------
    codes: range of the codes. shape: of a frame.
    lanes: elements that the first engine takes at once.
    slowest: cycles that the slowest engine takes for a frame; beats are made so wide that the input takes no more, if
        that is possible.

    Raises: MappingError if a code does not fit into a byte.
    """
    element, offset = as_byte(codes)
    if element.bits > LINK_BITS:
        raise MappingError(
            f"the model's input has {element.bits} bits; the link carries at most {LINK_BITS} bits an element; "
            "quantize the input to 8 bits or fewer"
        )
    elements, count = int(np.prod(shape)), LINK_BITS // element.bits
    if count * element.bits == LINK_BITS and elements % count == 0 and (lanes % count == 0 or count % lanes == 0):
        form = InputFormat(shape, element, count, offset=offset)
        wider = [bytes_ for bytes_ in range(1, BEAT_BYTES + 1) if form.frame_bytes % bytes_ == 0]
        # The narrowest beat with which the input is not slower than the slowest engine.
        enough = [bytes_ for bytes_ in wider if form.frame_bytes // bytes_ <= slowest]
        return replace(form, beat_bytes=min(enough, default=wider[-1]))
    most = LINK_BITS * BEAT_BYTES // element.bits
    wider = [beat for beat in range(1, max(1, min(lanes, most)) + 1) if elements % beat == 0 and lanes % beat == 0]
    enough = [beat for beat in wider if elements // beat <= slowest]
    beat = min(enough, default=wider[-1])
    return InputFormat(shape, element, 0, -(-beat * element.bits // LINK_BITS), offset, beat)


def output_format(stream: Stream, shape: tuple[int, ...], streamed: tuple[int, ...]) -> OutputFormat:
    """Return the format of the results in bytes.

    Parameters
    ----------
    stream: what leaves the last engine.
    shape: of the graph's output. streamed: shape of the value that streams, which a reshape may follow.
    """
    offsets = np.zeros(streamed[0], dtype=np.int64) if stream.offsets is None else stream.offsets
    # Only a reshape at the end makes the two differ.
    own = None if streamed == shape else streamed
    return OutputFormat(shape, stream.element, -(-stream.element.bits // 8), stream.multiplier, offsets, own)


def gains(form: OutputFormat) -> bool:
    """Return whether results take fewer bytes if their bits follow one another across bytes."""
    return replace(form, packed=True).frame_bytes < form.frame_beats
