"""Layer boundaries: the beats that must pass between the layers of an accelerator, compared with those that did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnhw import ir
from nnhw.accelerator import Accelerator, stream_order
from nnhw.accelerator.execution import execute_all
from nnhw.accelerator.formats import Codes, as_array
from nnhw.accelerator.frame_order import FrameOrder
from nnhw.mapping.loops import step_of

CHUNK = 250
"""Images that the IR computes at a time; it limits memory, as all values of the network are kept."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing one boundary with the IR.

    Parameters
    ----------
    name: of the value that passes the boundary, or 'output'.
    frames: number of frames compared.
    mismatches: number of frames in which a beat differs or is missing.
    extra: number of beats that came after the last frame.
    """

    name: str
    frames: int
    mismatches: int
    extra: int = 0

    @property
    def equal(self) -> bool:
        """Whether everything arrived, nothing else did, and there was something to compare."""
        return self.frames > 0 and self.mismatches == 0 and self.extra == 0


@dataclass(frozen=True)
class Passing:
    """The beats that pass in an accelerator while it computes N frames.

    Parameters
    ----------
    beats: of each boundary, uint32 [N * beats, words], the lowest bits first.
    outputs: uint8 [N, bytes], as they leave the last engine.
    """

    beats: tuple[np.ndarray, ...]
    outputs: np.ndarray

    @classmethod
    def of_values(cls, accelerator: Accelerator, values: Mapping[str, np.ndarray]) -> Passing:
        """Return what must pass for values of the IR, int64 [N, *shape] of each boundary's node."""
        beats = [pack_beats(each.patterns(values[each.node]), each.widths) for each in accelerator.boundaries]
        streamed = stream_order(values[accelerator.output_node])
        return cls(tuple(beats), accelerator.output_format.pack_stream(streamed))

    @classmethod
    def of_graph(cls, accelerator: Accelerator, body: ir.Graph, codes: Codes) -> Passing:
        """Return what must pass for codes, as the interpreter of the IR computes it."""
        form = accelerator.input_format
        if form.headed:
            return cls.of_values(accelerator, boundary_values(body, codes, form.order(codes)))
        parts = [
            cls.of_values(accelerator, boundary_values(body, codes[start : start + CHUNK]))
            for start in range(0, len(codes), CHUNK)
        ]
        beats = zip(*(part.beats for part in parts), strict=True)
        return cls(tuple(map(np.concatenate, beats)), np.concatenate([part.outputs for part in parts]))

    @classmethod
    def of_stages(
        cls, accelerator: Accelerator, codes: Codes, states: Mapping[str, np.ndarray] | None = None
    ) -> Passing:
        """Return what passes for codes by the golden functions of the engines; see `execute`."""
        frames = execute_all(accelerator, codes, states)
        beats = [
            pack_beats(np.concatenate([frame.patterns(each) for frame in frames]), each.widths)
            for each in accelerator.boundaries
        ]
        return cls(tuple(beats), np.stack([frame.output for frame in frames]))

    def compared(
        self, accelerator: Accelerator, expected: Passing, came: Sequence[int] | None = None
    ) -> tuple[Comparison, ...]:
        """Compare with the expected beats: each boundary, then the output.

        Parameters
        ----------
        came: number of beats that came at each boundary, and of bytes of the output, where arrays are larger than what
            came; None: they are not.
        """
        frames = len(expected.outputs)
        names = [*(boundary.name for boundary in accelerator.boundaries), "output"]
        pairs = zip(
            (*self.beats, self.outputs.reshape(-1)), (*expected.beats, expected.outputs.reshape(-1)), strict=True
        )
        seen = [len(beats) for beats in (*self.beats, self.outputs.reshape(-1))] if came is None else came
        return tuple(compare(name, *pair, frames, count) for name, pair, count in zip(names, pairs, seen, strict=True))


def boundary_values(body: ir.Graph, codes: Codes, order: FrameOrder | None = None) -> dict[str, np.ndarray]:
    """Return every value of the IR for some codes, by name: [N, *shape], for sequences a row for each step of each.

    Steps that layers compute from a whole image are positions of a map, as in the accelerator.

    Parameters
    ----------
    order: order of the steps of all sequences; None: one sequence behind the other.

    Raises
    ------
    MappingError: a graph of sequences that cannot run step by step.
    """
    if body.inputs[0].type.is_sequence:
        steps = step_of(body).values(list(codes))
        return steps if order is None else {name: value[order.rows] for name, value in steps.items()}
    return step_of(body).values_of_images(as_array(codes))


def compare_stages(accelerator: Accelerator, body: ir.Graph, codes: Codes) -> tuple[Comparison, ...]:
    """Compare the golden functions of an accelerator's engines with the IR, at each boundary and the output.

    Parameters
    ----------
    body: the integer graph that the accelerator was mapped from.
    codes: see `nnhw.accelerator.formats.Codes`.
    """
    expected = Passing.of_graph(accelerator, body, codes)
    # The states of all steps, where a frame has several: to begin with, as `execute` finds them by itself.
    names = [stage.node for stage in accelerator.stages if stage.config.late_inputs]
    values = boundary_values(body, codes) if names and not accelerator.input_format.headed else {}
    states = {name: values[name] for name in names if name in values}
    return Passing.of_stages(accelerator, codes, states).compared(accelerator, expected)


def pack_beats(patterns: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """Return uint32 [beats, words] of bit patterns [beats, elements], each element so many bits."""
    bits = [(patterns[:, [index]] >> np.arange(width)) & 1 for index, width in enumerate(widths)]
    packed = np.zeros((len(patterns), 4 * -(-sum(widths) // 32)), np.uint8)
    filled = np.packbits(np.concatenate(bits, axis=1).astype(np.uint8), axis=1, bitorder="little")
    packed[:, : filled.shape[1]] = filled
    return packed.view("<u4").astype(np.uint32)


def compare(name: str, seen: np.ndarray, expected: np.ndarray, frames: int, came: int) -> Comparison:
    """Compare the beats of a boundary, or the bytes of the output, frame by frame.

    Parameters
    ----------
    seen, expected: [frames * beats, ...], of the same shape.
    came: number of beats that came; rows of `seen` behind them mean nothing.
    """
    beats = len(expected) // frames
    wrong = (seen != expected).reshape(frames, -1).any(axis=1)
    # A frame of which a beat is missing is wrong, whatever the array has in its place.
    wrong[came // beats :] = True
    return Comparison(name, frames, int(wrong.sum()), max(0, came - len(expected)))
