"""Sequences on a device: each frame is one step, and the device keeps a state between steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhw.accelerator import Accelerator
from nnhw.accelerator.formats import Codes
from nnhw.accelerator.frame_order import FrameOrder
from nnhw.driver.conversion import as_array, check_bytes
from nnhw.errors import InputError
from nnhw.ir import run

if TYPE_CHECKING:
    from nnhw.driver.device import Device


@dataclass(frozen=True)
class FrameBatch:
    """The frames that are sent to a device, and how its outputs become results.

    Parameters
    ----------
    frames: uint8 [N, bytes], as they are sent.
    order: order of the frames as steps of sequences; None: frames are independent.
    lengths: number of steps of each sequence; empty where frames are independent.
    steps: number of steps of every sequence, if they came in one array: results are one array, too; else None.
    """

    frames: np.ndarray
    order: FrameOrder | None = None
    lengths: tuple[int, ...] = ()
    steps: int | None = None

    @classmethod
    def of(cls, codes: Codes, accelerator: Accelerator) -> FrameBatch:
        """Return the batch of codes that were checked; see `nnhw.accelerator.formats.Codes`."""
        form = accelerator.input_format
        none = np.zeros((0, form.frame_bytes), np.uint8)
        if not form.headed:
            return cls(form.pack(codes) if len(codes) else none)
        steps = codes.shape[1] if isinstance(codes, np.ndarray) else None
        order = form.order(codes)
        return cls(form.pack(codes) if len(codes) else none, order, tuple(map(len, codes)), steps)

    def results(self, outputs: np.ndarray, accelerator: Accelerator) -> Any:
        """Return values of the output bytes [n, bytes] of the first n frames.

        The result is int64 [n, *shape]. For sequences it has those at the front of which every step was answered:
        [sequences, *shape] where only the last result of each counts; else [sequences, steps, *shape], or a list of
        [steps, *shape].
        """
        form = accelerator.output_format
        values = form.unpack(outputs) if len(outputs) else np.zeros((0, *form.shape), np.int64)
        if self.order is None:
            return values
        ends = np.cumsum(self.lengths, dtype=np.int64)
        # Sequences take turns, so a later one may end first: one counts only when those before it are whole.
        last = np.maximum.accumulate(self.order.places[ends - 1]) if len(ends) else ends
        whole = int((last < len(outputs)).sum())
        places = self.order.places[: ends[whole - 1] if whole else 0]
        if form.last_step:
            return values[places[ends[:whole] - 1]]
        if self.steps is None:
            return np.split(values[places], ends[:whole])[:whole]
        return values[places].reshape(whole, self.steps, *form.shape)


@dataclass(frozen=True)
class SavedState:
    """The frames of a stream since its sequence began, uint8 [frames, bytes]; sent again, they restore the state."""

    frames: np.ndarray


class StepStream:
    """A sequence that is sent to a device step by step; see `Device.stream`.

    The device keeps the state between two calls. If it has lost it, because a frame was lost, the device was reset, or
    another batch ran in between, all steps of the sequence are sent again, and their results dropped. For that, the
    stream keeps all frames since the sequence began, until `reset`.

    Parameters
    ----------
    device: the device that runs it.
    encode: turns one step into codes [*shape] of the device.
    decode: turns the device's values [*shape], with the step, into a result.
    """

    def __init__(
        self, device: Device, encode: Callable[[Any], np.ndarray], decode: Callable[[np.ndarray, Any], Any]
    ) -> None:
        self._device, self._encode, self._decode = device, encode, decode
        form = device.accelerator.input_format
        self._turns = form.turns
        self._room = np.zeros((16 * form.turns, form.frame_bytes), np.uint8)
        self.steps = 0
        """Steps since the sequence began."""

    def __enter__(self) -> StepStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reset()

    def __call__(self, step: Any) -> Any:
        """Run one step of the sequence, [*shape] or [1, *shape]; return the model's result after it.

        Raises
        ------
        ClosedError: the device is closed.
        InputError: the step has another shape, or values that are no numbers.
        BatchError: the link failed; the step does not count as run, and may be given again.
        """
        codes = self._encode(step)
        # The device expects steps of other sequences in between: these begin anew each time, and their results are
        # dropped.
        begins = np.arange(self._turns) > 0
        begins[0] = self.steps == 0
        steps = np.repeat(codes[None], self._turns, axis=0)
        frames = self._device.accelerator.input_format.pack_steps(steps, begins)
        first, end = self.steps * self._turns, (self.steps + 1) * self._turns
        if end > len(self._room):
            self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        self._room[first:end] = frames
        outputs = self._device.run_step(self, self._room[:end])
        self.steps += 1
        return self._decode(self._device.accelerator.output_format.unpack(outputs)[0], step)

    def reset(self) -> None:
        """Begin a new sequence with the next step."""
        self.steps = 0

    def save(self) -> SavedState:
        """Return the state of this stream as it is now, to go on from it later with `set`."""
        return SavedState(self._room[: self.steps * self._turns].copy())

    def set(self, saved: SavedState) -> None:
        """Go on from a state that was saved by this stream, or by another one of the same accelerator.

        With the next step, all steps that led to the state are sent again, which takes as long as they took before.

        Raises
        ------
        InputError: the state is of another accelerator.
        """
        if saved.frames.shape[1:] != self._room.shape[1:] or len(saved.frames) % self._turns:
            raise InputError(
                f"a saved state of frames of {saved.frames.shape[-1]} bytes is not of accelerator "
                f"'{self._device.accelerator.name}', which takes {self._room.shape[1]}; save it with this build"
            )
        self._room = np.concatenate([saved.frames, np.zeros((16 * self._turns, self._room.shape[1]), np.uint8)])
        self.steps = len(saved.frames) // self._turns
        self._device.forget(self)


def encode_step(device: Device, head: Any, step: Any) -> np.ndarray:
    """Return the codes [*shape] of one step. Raises InputError: it has another shape, or holds no numbers."""
    array, _ = as_array(step)
    shape = head.inputs[0].type.shape
    if array.shape not in (shape, (1, *shape)):
        raise InputError(
            f"stream of '{device.accelerator.name}': a step has shape {list(shape)}, given {list(array.shape)}; whole "
            "sequences [N, steps, ..] go to the device itself"
        )
    steps = array.reshape(1, 1, *shape)
    codes: np.ndarray = run(head, steps)[0]
    check_bytes(steps, lambda given: run(head, given)[0])
    return codes[0, 0]
