"""Networks of cycle models: streams between them, and stepping all of them cycle by cycle.

`Network` does it in Python. `stepped_by` names another way, which may be faster, such as compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class CycleModel(Protocol):
    """The handshakes of one engine: one input stream, one output stream.

    `o_valid` is a register: it does not depend on this cycle's inputs.
    """

    o_valid: bool

    def ready(self, o_ready: bool) -> bool:
        """Return whether a beat that is offered in this cycle is taken."""

    def step(self, i_valid: bool, o_ready: bool) -> bool:
        """Pass one clock edge; return False only if nothing changed: no beat passed, and nothing is on its way."""

    def state(self) -> Hashable:
        """Return all on which its behaviour from this cycle on depends."""


class NetworkModel(Protocol):
    """The handshakes of an engine with several input or output streams.

    `o_valids` are registers: they do not depend on this cycle's inputs.
    """

    o_valids: list[bool]

    def ready(self, o_readies: Sequence[bool], i_valids: Sequence[bool]) -> list[bool]:
        """Return for each input whether a beat that is offered in this cycle is taken."""

    def step(self, i_valids: Sequence[bool], o_readies: Sequence[bool]) -> bool:
        """Pass one clock edge; return False only if nothing changed: no beat passed, and nothing is on its way."""

    def state(self) -> Hashable:
        """Return all on which its behaviour from this cycle on depends."""


Source = int | tuple[int, int]
"""Where an input of a model comes from: (index of a model, its output), or the index alone for output 0."""


class SteppedNetwork(Protocol):
    """A network of models that is stepped, at rest at first; its members are those of `Network`."""

    @property
    def cycle(self) -> int: ...

    @property
    def first(self) -> int: ...

    @property
    def ends(self) -> Sequence[int]: ...

    @property
    def model_ends(self) -> tuple[tuple[int, ...], ...]: ...

    def run(self, beats: int, o_beats: int, frames: int, limit_cycles: int, patient: bool) -> list[int]: ...

    def rest(self, limit_cycles: int) -> bool: ...

    def fill(self, limit_cycles: int) -> bool: ...

    def frame(self, limit_cycles: int) -> bool: ...

    def state(self) -> Hashable: ...

    def settle(self) -> None: ...


Models = Sequence[CycleModel | NetworkModel]
Sources = Sequence[Sequence[Source]]
Maker = Callable[[Models, Sources, "Sequence[int] | None", "int | None"], "SteppedNetwork | None"]
"""Makes a network of what `Network` takes; None: it does not know all of the models."""
_MAKER: ContextVar[Maker | None] = ContextVar("maker", default=None)


@contextmanager
def stepped_by(maker: Maker) -> Iterator[None]:
    """Step the networks that are made in here in another way, where `maker` knows all of their models."""
    token = _MAKER.set(maker)
    try:
        yield
    finally:
        _MAKER.reset(token)


def make_network(
    models: Models, sources: Sources, o_beats: Sequence[int] | None = None, held: int | None = None
) -> SteppedNetwork:
    """Return a network of models; for the parameters see `Network`."""
    maker = _MAKER.get()
    return (maker and maker(models, sources, o_beats, held)) or Network(models, sources, o_beats, held)


class Network:
    """Models and the streams between them: stream 0 is the input, the last one the output.

    A model is stepped only if it changed in the cycle before, or if a valid or a ready that it sees did.

    Parameters
    ----------
    models, sources: see `run_network`.
    o_beats: for each model, the beats of one frame at each of its outputs; None: no frame ever ends.
    held: index of a model that gives nothing until `fill` has filled everything in front of it; None: there is none.

    Members
    -------
    cycle: cycles since it was at rest.
    first: cycle in which `run` or `frame` took the first beat; -1: none has come in.
    """

    def __init__(
        self,
        models: Sequence[CycleModel | NetworkModel],
        sources: Sequence[Sequence[Source]],
        o_beats: Sequence[int] | None = None,
        held: int | None = None,
    ) -> None:
        models = list(models)
        if held is not None:
            models[held] = _Held(models[held])
        self._models, self._held = models, held
        self.cycle, self.first = 0, -1
        self._inputs, self._outputs = number_streams(models, sources)
        count = self._outputs[-1][0] + 1
        self._valids, self._readies = [False] * count, [True] * count
        self._readers = self._sides(self._inputs, count)
        self._writers = self._sides(self._outputs, count)
        self._beats = [0] * count
        # Without lengths of frames, none ever ends.
        for wires, beats in zip(self._outputs, o_beats or [1 << 62] * len(models), strict=True):
            for wire in wires:
                self._beats[wire] = beats
        self._left = list(self._beats)
        late = [wires[port] for model, wires in zip(models, self._inputs, strict=True) for port in late_inputs(model)]
        self._late = dict.fromkeys(late, False)
        """Valids of this cycle of streams that lead backwards: their source is stepped before their reader is."""
        self.frame_ends: list[list[int]] = [[] for _ in range(count)]
        # Bit i stands for model i, so that those that sleep take no time. The ends of the network are never stepped.
        self._bits = [*(1 << index for index in range(len(models))), 0]
        self._awake = (1 << len(models)) - 1
        # What `step` needs of each model with a single input and output.
        self._nodes: list[tuple[Any, bool, int, int, int, int]] = [
            (model, not hasattr(model, "o_valids"), i, o, self._writers[i], self._readers[o])
            # What has no input is no single model, and is asked for none.
            for model, (i, *_), (o, *_) in zip(
                models, ([*wires, 0] for wires in self._inputs), self._outputs, strict=True
            )
        ]

    def _sides(self, rows: list[list[int]], count: int) -> list[int]:
        """Return the model at one side of each stream; the ends of the network count as one more model."""
        sides = {wire: index for index, row in enumerate(rows) for wire in row}
        return [sides.get(wire, len(rows)) for wire in range(count)]

    @property
    def model_ends(self) -> tuple[tuple[int, ...], ...]:
        """The cycles in which the last results of frames left each model."""
        return tuple(tuple(self.frame_ends[wires[0]]) for wires in self._outputs)

    def _ended(self, wire: int) -> None:
        """Note the end of a frame of a stream."""
        self._left[wire] = self._beats[wire]
        self.frame_ends[wire].append(self.cycle)

    @property
    def ends(self) -> list[int]:
        """The cycles in which frames of the network's output ended."""
        return self.frame_ends[-1]

    def state(self) -> Hashable:
        """Return all on which the network's behaviour from this cycle on depends, if neither end ever pauses."""
        return tuple(model.state() for model in self._models)

    def settle(self) -> None:
        """Tell the models what was counted of them."""

    def run(self, beats: int, o_beats: int, frames: int, limit_cycles: int, patient: bool) -> list[int]:
        """Step until frames have ended; return the cycle of the last beat of each, of fewer if the network is stuck.

        Parameters
        ----------
        beats: that come in.
        o_beats: of a frame at the output, which never blocks.
        limit_cycles, patient: see `run_network`.
        """
        done, finish, still = 0, [], True
        while self.cycle < limit_cycles:
            # The output never blocks, so a beat that is there leaves in this cycle.
            if self._valids[-1]:
                done += 1
                if done % o_beats == 0:
                    finish.append(self.cycle)
                    if len(finish) == frames:
                        break
            offered = beats > 0 and (still or not patient)
            beats -= self._take(offered)
            # Nothing moves, and the next cycle would offer nothing new: it will stay so.
            still = not self._awake
            if still and not (patient and beats and not offered):
                break
        return finish

    def rest(self, limit_cycles: int) -> bool:
        """Step without input until nothing changes any more; return whether it came to that."""
        for _ in range(limit_cycles):
            self.step(False)
            if not self._awake:
                return True
        return False

    def fill(self, limit_cycles: int) -> bool:
        """Step until nothing moves in front of the held model, then release it; return whether it came to that."""
        for _ in range(limit_cycles):
            self.step(True)
            if not self._awake:
                self._release()
                return True
        return False

    def _release(self) -> None:
        held = self._held
        assert held is not None
        model: Any = self._models[held]
        model.release()
        shown = model.o_valids if hasattr(model, "o_valids") else [model.o_valid]
        # Streams remember what they saw last, and this model was not stepped: they are told.
        for number, valid in zip(self._outputs[held], shown, strict=True):
            self._valids[number] = valid
            self._awake |= self._bits[self._readers[number]]
        self._awake |= self._bits[held]

    def frame(self, limit_cycles: int) -> bool:
        """Step with an input that never pauses to the end of the next frame; return False if the network is stuck."""
        frames, end = len(self.ends), self.cycle + limit_cycles
        # At rest, as in the first cycle, a network is still; behind a step that offered a beat, it is stuck then.
        while self.cycle <= end:
            self._take(True)
            if len(self.ends) > frames:
                return True
            if not self._awake:
                break
        return False

    def _take(self, offered: bool) -> bool:
        """Pass one clock edge, see `step`, and note when the first beat comes in."""
        taken = self.step(offered)
        if taken and self.first < 0:
            self.first = self.cycle - 1
        return taken

    def step(self, i_valid: bool) -> bool:  # noqa: C901 - a call for each model would take as long as its step
        """Pass one clock edge; return whether a beat came in.

        Models are stepped from output to input: then those behind a model have already said whether they are ready in
        this cycle, and those in front of it still show their valids of this cycle.
        """
        valids, readies, left, nodes, bits = self._valids, self._readies, self._left, self._nodes, self._bits
        pending, later = self._awake, 0
        if self._late:
            self._late = {wire: valids[wire] for wire in self._late}
        if i_valid != valids[0]:
            valids[0] = i_valid
            pending |= bits[self._readers[0]]
        while pending:
            index = pending.bit_length() - 1
            bit = bits[index]
            pending ^= bit
            model, single, i_wire, o_wire, writer, reader = nodes[index]
            if not single:
                changed, woken = self._step_several(index, model)
                if changed:
                    later |= bit
                if woken:
                    # Those in front of the model have yet to be stepped in this cycle.
                    pending |= woken & (bit - 1)
                    later |= woken & -bit
                continue
            o_ready = readies[o_wire]
            if o_ready and valids[o_wire]:
                left[o_wire] -= 1
                if not left[o_wire]:
                    self._ended(o_wire)
            # Before the step, which changes what the model answers: this is its answer in this cycle.
            ready = model.ready(o_ready)
            if model.step(valids[i_wire], o_ready):
                later |= bit
            # All handshakes are plain bools, so `is not` says whether they differ.
            if ready is not readies[i_wire]:
                readies[i_wire] = ready
                pending |= bits[writer]
            if model.o_valid is not valids[o_wire]:
                valids[o_wire] = model.o_valid
                # A stream that leads backwards wakes a model that has yet to be stepped in this cycle.
                if reader > index:
                    later |= bits[reader]
                else:
                    pending |= bits[reader]
        self._awake = later
        self.cycle += 1
        return i_valid and readies[0]

    def _step_several(self, index: int, model: NetworkModel) -> tuple[bool, int]:
        """Step a model with several inputs or outputs, see `step`; return whether it changed, and whom it wakes."""
        valids, readies, bits, woken = self._valids, self._readies, self._bits, 0
        ins, outs = self._inputs[index], self._outputs[index]
        i_valids = [self._late.get(wire, valids[wire]) for wire in ins]
        o_readies = [readies[wire] for wire in outs]
        for wire in outs:
            if readies[wire] and valids[wire]:
                self._left[wire] -= 1
                if not self._left[wire]:
                    self._ended(wire)
        i_readies = model.ready(o_readies, i_valids)
        changed = model.step(i_valids, o_readies)
        if self._late and any(wire in self._late for wire in ins):
            # The source of a late input is stepped before this model: in the next cycle it must see the ready that
            # holds then, which it does because that is a register.
            later = model.ready(o_readies, i_valids)
            i_readies = [
                after if wire in self._late else now for wire, now, after in zip(ins, i_readies, later, strict=True)
            ]
            changed = changed or any(valids[wire] != seen for wire, seen in self._late.items() if wire in ins)
        for wire, ready in zip(ins, i_readies, strict=True):
            if readies[wire] is not ready:
                readies[wire] = ready
                woken |= bits[self._writers[wire]]
        for wire, valid in zip(outs, model.o_valids, strict=True):
            if valids[wire] is not valid:
                valids[wire] = valid
                woken |= bits[self._readers[wire]]
        return changed, woken


class _Held:
    """A model whose outputs are held back until it is released."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._held = True
        # A network tells the kinds of models apart by this attribute, so a held one has the same.
        if hasattr(model, "o_valids"):
            self.o_valids = [False] * len(model.o_valids)
            self.late_inputs = getattr(model, "late_inputs", ())
        else:
            self.o_valid = False

    def release(self) -> None:
        """Show its outputs from now on."""
        self._held = False
        self._show()

    def ready(self, o_ready: Any, *i_valids: Any) -> Any:
        """Return what the model answers at its inputs."""
        return self._model.ready(self._seen(o_ready), *i_valids)

    def step(self, i_valid: Any, o_ready: Any) -> bool:
        """Pass one clock edge."""
        changed = self._model.step(i_valid, self._seen(o_ready))
        self._show()
        return bool(changed)

    def state(self) -> Hashable:
        """Return the state of the model."""
        state: Hashable = self._model.state()
        return state

    def _seen(self, o_ready: Any) -> Any:
        """Return the readies that the model sees at its outputs: none while it is held."""
        if not self._held:
            return o_ready
        return [False] * len(o_ready) if isinstance(o_ready, list) else False

    def _show(self) -> None:
        """Show the valids of the model's outputs, unless it is held."""
        if self._held:
            return
        if hasattr(self, "o_valids"):
            self.o_valids = self._model.o_valids
        else:
            self.o_valid = self._model.o_valid


def late_inputs(model: CycleModel | NetworkModel) -> tuple[int, ...]:
    """Return the numbers of the inputs of a model that later models may feed."""
    found: tuple[int, ...] = getattr(model, "late_inputs", ())
    return found


def number_streams(
    models: Sequence[CycleModel | NetworkModel], sources: Sequence[Sequence[Source]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return (numbers of the streams that enter each model, numbers of those that leave it).

    Raises
    ------
    ValueError: some stream does not feed exactly one input of a later model, or one late input of an earlier model.
    """
    # Streams are numbered in stream order, so the last output of all is the network's.
    wires: dict[tuple[int, int], int] = {(-1, 0): 0}
    outputs = [
        [wires.setdefault((index, port), len(wires)) for port in range(len(getattr(model, "o_valids", [False])))]
        for index, model in enumerate(models)
    ]
    entries = [[entry if isinstance(entry, tuple) else (entry, 0) for entry in row] for row in sources]
    # Each stream once, but for the last one, which leaves the network.
    fed = sorted(wires.get(entry, -1) for row in entries for entry in row)
    backwards = [
        source >= index and port not in late_inputs(models[index])
        for index, row in enumerate(entries)
        for port, (source, _) in enumerate(row)
    ]
    if fed != list(range(len(wires) - 1)) or any(backwards):
        raise ValueError(f"each stream of a network feeds one input of a later model; given {sources}")
    return [[wires[entry] for entry in row] for row in entries], outputs
