"""What a mapped accelerator computes: the golden functions of its engines, one stage after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnhw.accelerator.accelerator import Accelerator
from nnhw.accelerator.boundaries import Boundary, StreamBoundary
from nnhw.accelerator.formats import Codes, as_array
from nnhw.accelerator.stages import INPUT, Stage
from nnhw.engines.encoding import encode
from nnhw.engines.shared.golden import Trace
from nnhw.engines.shared.program import elements_of
from nnhw.engines.state import StateConfig


@dataclass(frozen=True)
class Execution:
    """All values of one frame in an accelerator; in a network with a state, a frame is one step of a sequence.

    Parameters
    ----------
    accelerator: the accelerator.
    elements: for each stage, the elements int64 [elements] that leave it, in stream order.
    traces: what each program stores, by the index of its stage.
    """

    accelerator: Accelerator
    elements: tuple[np.ndarray, ...]
    traces: Mapping[int, Trace]

    @property
    def output(self) -> np.ndarray:
        """The bytes that leave the last stage, uint8 [`output_format.frame_beats`]: the lowest byte of each element."""
        last, element = self.elements[-1], self.accelerator.stages[-1].output.element
        # Wider elements have left through a converter, one byte after the other, so each fits here.
        return ((encode(last, element) if element.bipolar else last) & 0xFF).astype(np.uint8)

    def patterns(self, boundary: Boundary) -> np.ndarray:
        """Return the bit patterns int64 [beats, elements] that pass a boundary; see `StreamBoundary.patterns`."""
        if isinstance(boundary, StreamBoundary):
            stream = boundary.stream
            return encode(self.elements[boundary.stage], stream.element).reshape(-1, stream.lanes)
        (stored,) = (one for one in self.traces[boundary.stage].stored if one.record == boundary.number)
        codes = encode(stored.codes[:, : len(boundary.widths) - 1], boundary.array.activation)
        return np.concatenate([codes, stored.addresses[:, None]], axis=1)


def execute(
    accelerator: Accelerator,
    codes: np.ndarray,
    before: Execution | None = None,
    states: Mapping[str, np.ndarray] | None = None,
) -> Execution:
    """Send one frame through all stages, engines of one layer and programs of shared engines.

    A frame that is a whole sequence is sent through until its next states are those that its states come from. There
    is only one such execution: the state of each step follows from the steps before.

    Parameters
    ----------
    codes: int [*shape], the codes of the input.
    before: the execution of the step before, for a step of a sequence; None: it is the first step, or there are none.
    states: where a frame is a whole sequence, the states in front of all its steps to begin with, [*shape] by name;
        without them, it is sent through once for each step. Wrong ones cost time alone.
    """
    source, form = accelerator.input_format.stream, accelerator.input_format
    taken = source.elements_of(codes[None])[0]
    assert source.element.holds(taken)
    # The beat in front of a step: its first element says whether a sequence begins.
    if form.headed:
        taken = np.concatenate([[before is None], np.zeros(source.lanes - 1, np.int64), taken])
    late = {
        port: _left(accelerator.stages[port[0]], before, *port) if form.headed else _supposed(stage, states or {})
        for stage in accelerator.stages
        for port in (stage.sources[number] for number in stage.config.late_inputs)
    }
    found = _execute(accelerator, taken, late, before)
    # Each pass has the right states of one more step, if not of all; one that changes nothing has them all.
    for _ in range(max((stage.config.o_beats for stage in accelerator.stages if stage.config.late_inputs), default=0)):
        came = {port: found.elements[port[0]] for port in late}
        if form.headed or all(np.array_equal(came[port], late[port]) for port in late):
            break
        late, found = came, _execute(accelerator, taken, came, before)
    return found


def _execute(
    accelerator: Accelerator,
    taken: np.ndarray,
    late: Mapping[tuple[int, int], np.ndarray],
    before: Execution | None,
) -> Execution:
    """Send a frame through all stages; `late` is what late inputs get, by what they are connected to."""
    headed = accelerator.input_format.headed
    streams: dict[tuple[int, int], np.ndarray] = {INPUT: taken}
    elements, traces = list[np.ndarray](), dict[int, Trace]()
    for index, stage in enumerate(accelerator.stages):
        inputs = [
            late[source] if port in stage.config.late_inputs else streams[source]
            for port, source in enumerate(stage.sources)
        ]
        if (program := stage.config.program) is not None:
            # In a loop, the memory keeps the states.
            memory = before.traces[index].memory if headed and before is not None else None
            traces[index] = program.trace(inputs[0], memory)
            left = elements_of(traces[index], stage.output.element)
        else:
            left = stage.config.golden_elements(inputs, stage.output.element)
        assert len(left) == stage.output.elements, stage.name
        # Where frames are steps, streams between values of the IR may carry heads, which need not be of the type.
        assert stage.output.element.holds(left) or (headed and not stage.node), stage.name
        elements.append(left)
        # All outputs of a fork carry the same beats; other engines have one output.
        streams |= {(index, port): left for port in range(stage.config.o_ports)}
    return Execution(accelerator, tuple(elements), traces)


def execute_all(
    accelerator: Accelerator, codes: Codes, states: Mapping[str, np.ndarray] | None = None
) -> list[Execution]:
    """Send frames through all stages, one after the other; steps of sequences come in the order of `FrameOrder`.

    Parameters
    ----------
    states: see `execute`, [N, *shape] by name.
    """
    form = accelerator.input_format
    if not form.headed:
        return [
            execute(accelerator, frame, None, {name: values[number] for name, values in (states or {}).items()})
            for number, frame in enumerate(as_array(codes))
        ]
    order, steps = form.order(codes), np.concatenate(list(codes))
    found: list[Execution] = []
    for row, begins in zip(order.rows, order.begins, strict=True):
        # Sequences take turns, so the step before of the same sequence lies so many frames back.
        found.append(execute(accelerator, steps[row], None if begins else found[-form.turns]))
    return found


def _supposed(stage: Stage, values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return next states of all steps of a frame for the memory of a state: what `values` say, or the start."""
    config = stage.config
    assert isinstance(config, StateConfig)
    if stage.node not in values:
        return np.tile(config.start, config.steps)
    # The state in front of a step is the next one of the step before; that of the last step is not among them.
    steps = stage.output.elements_of(values[stage.node][None]).reshape(config.steps, -1)
    return np.roll(steps, -1, axis=0).reshape(-1)


def _left(stage: Stage, before: Execution | None, source: int, port: int) -> np.ndarray:
    """Return what the late input got at the end of the step before; zeros before the first one, which nobody uses."""
    if before is None:
        return np.zeros(stage.output.elements, np.int64)
    return before.elements[source]
