"""Handler of torch's `scan`: the loop's body is translated once for all steps, to the body of the IR's `Scan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import fx

from nnhw.errors import CaptureError
from nnhw.ir import IntType, TensorType
from nnhw.ir.ops import Scan

from .calls import Call
from .sequences import FLIP, SCAN, flip, last_step
from .translator import Handler, KnownResult, Translator
from .values import Batch, Block, Codes, Float, PerImage, StepsFirst, TracedConstant, Unknown, Value


@dataclass(frozen=True)
class TracedBody:
    """The translated body of a loop.

    Parameters
    ----------
    nodes: the traced nodes of the body.
    translator: has the values that they were translated to.
    name: name of the loop's node in the graph.
    steps: number of steps, if the model fixes it.
    """

    nodes: tuple[fx.Node, ...]
    translator: Translator
    name: str
    steps: int | None


@dataclass(frozen=True)
class _Loop:
    """The arguments of a call of `scan`.

    Parameters
    ----------
    body: the traced body.
    starts: start values of the states.
    sequences: sequences of which the body reads one step each time.
    types: types of these steps.
    others: further values that the body reads.
    """

    body: fx.GraphModule
    starts: Sequence[PerImage | Codes]
    sequences: Sequence[Codes]
    types: Sequence[TensorType]
    others: Sequence[TracedConstant | Batch]


@dataclass(frozen=True)
class _State:
    """The number format of a state: that of the quantizer which makes its next value."""

    type: TensorType
    scale: np.ndarray


def scan(translator: Translator, call: Call) -> list[Value | None]:
    """A loop over the steps of sequences [steps, batch, ..]; its states are codes."""
    loop = _taken_apart(translator, call)
    # Twice: the format of a state is that of the quantizer behind a step, which is known only when the step has been
    # translated once.
    states = _states(translator, call, loop)
    body = translator.inner(translator.label(call), call.location)
    results = _translated(body, loop, states)
    count = len(loop.starts)
    if body.problems or any(isinstance(value, Unknown) for value in results):
        translator.problems += body.problems
        return [Unknown()] * len(results)
    _check_next_states(call, results[:count], states, body)
    maker = _Maker(translator, call, loop, body, [result.name for result in results[:count]], states)  # type: ignore[union-attr]
    read = {user.args[1] for user in call.node.users if user.users}
    return [
        None if index not in read else maker.last(value) if index < count else StepsFirst(maker.sequence(value))
        for index, value in enumerate(results)
    ]


class _Maker:
    """Adds the loop to the graph: one `Scan` for each value of its body that is read, as each has one output."""

    def __init__(
        self,
        translator: Translator,
        call: Call,
        loop: _Loop,
        body: Translator,
        following: Sequence[str],
        states: Sequence[_State],
    ) -> None:
        self.translator, self.call, self.loop, self.body, self.following = translator, call, loop, body, following
        pairs = zip(loop.starts, states, strict=True)
        self.operands = [value.name for value in loop.sequences]
        self.operands += [_start(translator, call, start, state, number) for number, (start, state) in enumerate(pairs)]
        self.made: dict[str, Codes] = {}

    def sequence(self, value: Value) -> Codes:
        """Return the sequence that a value of the body has over all steps."""
        if not isinstance(value, Codes):
            raise CaptureError(
                f"{self.call} gives a sequence that is no codes; put a quantizer behind what its body returns"
            )
        # A value that is read as a sequence and as its last step has one loop.
        if value.name not in self.made:
            graph = self.body.builder.build([value.name, *self.following])
            name = self.translator.emit(self.call, Scan(graph), *self.operands)
            if not self.made:
                nodes = tuple(self.loop.body.graph.nodes)
                steps = self.translator.fixed_steps
                self.translator.bodies[self.call.node] = TracedBody(nodes, self.body, name, steps)
            self.made[value.name] = Codes(name, value.scale, value.quantized)
        return self.made[value.name]

    def last(self, value: Value) -> Value:
        """Return the last value of a state."""
        return last_step(self.translator, self.call, self.sequence(value), "last")


def _taken_apart(translator: Translator, call: Call) -> _Loop:
    block, starts, sequences, others = (call.arguments[index] for index in range(4))  # type: ignore[index]
    assert isinstance(block, Block)
    starts = [_per_image(value) for value in starts]
    for value in starts:
        if not isinstance(value, PerImage | Codes) or translator.is_sequence(value):
            raise CaptureError(
                f"{call} has a state that begins as {_what(value)}; let it begin as numbers that are the same for each "
                f"image, as in x.new_zeros(x.shape[0], units), or as the codes of a quantizer"
            )
    for value in sequences:
        if not isinstance(value, StepsFirst):
            raise CaptureError(
                f"{call} does not run over the steps of a sequence of any length, but over {_what(value)}; give it "
                f"sequence.transpose(0, 1), and export with dynamic_shapes=({{0: Dim.DYNAMIC, 1: Dim.DYNAMIC}},)"
            )
        if not isinstance(value.value, Codes):
            raise CaptureError(f"{call} reads a sequence of floats; put a quantizer in front of the loop")
    for value in others:
        if not isinstance(value, TracedConstant | Batch | int | torch.SymInt):
            raise CaptureError(
                f"{call} reads {_what(value)} in each step, which is computed outside of the loop from the model's "
                f"input; compute it in the loop, or let it be a state that never changes"
            )
    codes = [value.value for value in sequences]
    types = [translator.builder.type_of(value.name).step for value in codes]
    return _Loop(block.module, starts, codes, types, others)


def _per_image(value: Value) -> Value:
    """Return a constant of shape [1, ..], which is repeated for each image, as `PerImage`; other values as they are."""
    if isinstance(value, TracedConstant) and value.tensor.shape[:1] == (1,):
        precise = None if value.precise is None else value.precise[0]
        return PerImage(TracedConstant(value.tensor[0], value.label, precise=precise))
    return value


def _what(value: object) -> str:
    names = {
        TracedConstant: "a constant for the whole batch",
        Float: "floats",
        Codes: "a value",
        StepsFirst: "a sequence",
    }
    return names.get(type(value), type(value).__name__.lower())


def _states(translator: Translator, call: Call, loop: _Loop) -> list[_State]:
    """Return the formats of the states, from a trial translation of the body in which states are floats.

    Raises: CaptureError for a state that no quantizer makes.
    """
    trial = translator.inner("trial", call.location)
    results = _translated(trial, loop, None)[: len(loop.starts)]
    if any(not isinstance(value, Codes) or not value.quantized for value in results):
        others = [problem for problem in trial.problems if not isinstance(problem, KnownResult)]
        translator.problems += others[1:]
        if others:
            raise others[0]
        raise CaptureError(
            f"{call} has a state that is no codes when a step ends; put a quantizer behind what computes it, so that "
            f"it keeps its number format from step to step"
        )
    return [_State(trial.builder.type_of(value.name), value.scale) for value in results if isinstance(value, Codes)]


def _translated(body: Translator, loop: _Loop, states: Sequence[_State] | None) -> list[Value]:
    """Translate a body; return its results: the next states, then the step of each resulting sequence.

    Parameters
    ----------
    states: formats of the states; None: they are floats.
    """
    nodes = list(loop.body.graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    count = len(loop.starts)
    steps = placeholders[count : count + len(loop.sequences)]
    for node, value, type in zip(steps, loop.sequences, loop.types, strict=True):
        body.add_codes(node, "step", type, value.scale, value.quantized)
    for number, node in enumerate(placeholders[:count]):
        if states is None:
            body.add_input(node)
        else:
            body.add_codes(node, "state", states[number].type, states[number].scale)
    for node, other in zip(placeholders[count + len(steps) :], loop.others, strict=True):
        body.set_value(node, other)
    for node in nodes:
        if node.op == "call_function":
            body.translate(node)
    return [body.value_of(node) for node in nodes[-1].args[0]]


def _check_next_states(call: Call, results: Sequence[Value], states: Sequence[_State], body: Translator) -> None:
    for number, (value, state) in enumerate(zip(results, states, strict=True)):
        if not isinstance(value, Codes) or body.builder.type_of(value.name) != state.type:
            raise CaptureError(f"{call} has a state whose number format changes from step to step, number {number}")
        if not np.array_equal(value.scale, state.scale):
            raise CaptureError(f"{call} has a state whose scale changes from step to step, number {number}")


def _start(translator: Translator, call: Call, start: PerImage | Codes, state: _State, number: int) -> str:
    """Return the node of a state's start value. Raises: CaptureError for numbers that are no codes of the state."""
    kind = state.type.int_dtype
    if isinstance(start, Codes):
        if not np.array_equal(start.scale, state.scale) or translator.builder.type_of(start.name) != state.type:
            raise CaptureError(
                f"{call} has a state that begins as {translator.builder.type_of(start.name)} in other steps than the "
                f"{state.type} it is then; let the same quantizer make both"
            )
        return start.name
    numbers = start.constant.doubles.cpu().numpy() / state.scale
    codes = np.rint(numbers)
    if numbers.shape != state.type.shape:
        raise CaptureError(
            f"{call} has a state of shape {list(state.type.shape)} that begins as numbers of shape "
            f"{list(numbers.shape)}"
        )
    wrong = (codes != numbers) | (codes < kind.low) | (codes > kind.high) | (kind.bipolar & (codes == 0))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0])
        raise CaptureError(
            f"{call} has a state that begins as {start.constant.doubles.numpy()[place]}, which is no code of its "
            f"quantizer ({kind} in steps of {np.broadcast_to(state.scale, codes.shape)[place]}); begin with one that is"
        )
    array = codes.astype(np.int64)
    # A state of signs begins as signs; other codes are whatever numbers there are.
    found = kind if kind.bipolar else IntType(int(array.min()), int(array.max()))
    label = translator.label(call, f"start_{number}")
    return translator.builder.constant(label, array, TensorType(array.shape, found), call.location)


HANDLERS: dict[str, Handler] = {SCAN: scan, FLIP: flip}
