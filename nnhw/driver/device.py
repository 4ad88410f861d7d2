"""A device as programs on the host use it: images in, results out, over any link."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from nnhw.accelerator import Accelerator
from nnhw.accelerator.formats import Codes
from nnhw.driver.conversion import Answer, as_array, check_bytes
from nnhw.driver.image import ProgramImage
from nnhw.driver.links.base import ByteLink
from nnhw.driver.saturation import InputUse
from nnhw.driver.sending import Pace
from nnhw.driver.session import BatchError, Progress, Session
from nnhw.driver.step_stream import FrameBatch, StepStream, encode_step
from nnhw.driver.turns import Turns
from nnhw.errors import InputError, LinkError, OtherDeviceError, SaturationWarning
from nnhw.ir import Graph, IntType, Rounds, run_in_chunks
from nnhw.notebook import facts_table
from nnhw.protocol import (
    PAYLOAD_LIMIT_BYTES,
    REFUSAL_TEXT,
    WINDOW_FRAMES,
    WIRE_OVERHEAD_BYTES,
    DeviceIdentity,
    ProgramState,
    ProgramStatus,
    result_frames,
)

_COUNTER_LIMIT = 1 << 32
"""Counters of the device have 32 bits, and begin again at 0."""


@dataclass(frozen=True)
class Status:
    """What a device has counted since its last RESET, which `Device` sends only when it opens and after faults.

    Members
    -------
    cycles, input_wait, output_wait: see `nnhw.protocol.Counters`.
    images: number of images answered; it wraps with the device's counter of 2^16 RESULT frames.
    bad_frames: frames of the protocol that the device dropped since power-up, modulo 256.
    clock_hz: clock of the counted cycles, in Hz.
    resets: RESETs of the driver since it opened the device; each sets the counters but `bad_frames` to 0.
    """

    cycles: int
    input_wait: int
    output_wait: int
    images: int
    bad_frames: int
    clock_hz: int
    resets: int = 0

    def since(self, before: Status) -> CountedWork | None:
        """Return what was counted since an earlier status; None if a RESET came in between."""
        if self.resets != before.resets:
            return None
        cycles, input_wait, output_wait = (
            (getattr(self, name) - getattr(before, name)) % _COUNTER_LIMIT
            for name in ("cycles", "input_wait", "output_wait")
        )
        return CountedWork((cycles - input_wait - output_wait) % _COUNTER_LIMIT, input_wait, output_wait)


@dataclass(frozen=True)
class CountedWork:
    """What a device counted between two moments at which its engine only waited for input; all modulo 2^32.

    Members
    -------
    cycles: cycles in which the engine did not wait. The number is exact although the device counts cycles in steps:
        whenever it is asked, the same part of a step is left.
    input_wait, output_wait: cycles in which it waited for input, or for room for output.
    """

    cycles: int
    input_wait: int
    output_wait: int


class Device:
    """A device that runs an accelerator.

    Threads may share it: one uses it at a time, for a whole batch, and the others wait. It may be closed from any
    thread; a running batch then ends with ClosedError. It belongs to the process that opened it: in a forked
    process, every use raises LinkError, and closing it does not close it in the process that opened it.

    Parameters
    ----------
    link: carries bytes to and from the device; it is closed with the device.
    accelerator: the accelerator that must be on the device.
    head, tail: float graphs that the host computes before and after the device; without them, only `infer_codes` works.
    max_retries: attempts in a row without progress, after the first.
    program: program of a shared engine. It is loaded if the device has another one, or none; images are sent only to a
        device that confirms that it has this one.
    progress: called with bytes of the program taken and bytes in all, if it has to be loaded.
    notice: called with a message when the device has refused the program that it started with.
    usual: how calibration or example data uses the input codes; None: it is not known, and inputs are not compared.
    strict: inputs that are clipped far more often than usual are an InputError instead of a SaturationWarning.

    Raises
    ------
    LinkError: the device does not answer, speaks another protocol version, has another model, or refuses the program.
    """

    def __init__(
        self,
        link: ByteLink,
        accelerator: Accelerator,
        head: Graph | None = None,
        tail: Graph | None = None,
        max_retries: int = 3,
        program: ProgramImage | None = None,
        progress: Progress = lambda finished, total: None,
        notice: Callable[[str], None] = lambda text: None,
        usual: InputUse | None = None,
        strict: bool = False,
    ) -> None:
        self.link = link
        self.accelerator = accelerator
        self.program = program
        self._head, self._tail = head, tail
        self._usual, self._strict = usual, strict
        self._session = Session(link, max_retries)
        self._stream: tuple[StepStream, int] | None = None
        """The stream whose state the device holds, and the number of RESETs when its last step ran; None: no one's."""
        self._turns = Turns(link.name, self._session.check_open)
        try:
            self.identity = self._session.identify()
            check_identity(self.identity, accelerator, link.name)
            self._session.accept = self._check_same
            if program is not None:
                self._session.guard = self._check_program
                status = self.program_status()
                if status.state == ProgramState.REFUSED:
                    notice(
                        f"link '{link.name}': the device has refused the program that it had: "
                        f"{REFUSAL_TEXT[status.reason]}; it gets that of this build now. Does it come from flash, "
                        "'nnhw program' writes it anew"
                    )
                if not _has(status, program):
                    self.load_program(program, progress)
        except BaseException:
            # Ctrl-C, too: whoever is handed no device cannot close its link.
            link.close()
            raise
        self.pace = make_pace(link, accelerator, self.identity.clock_hz)

    def __repr__(self) -> str:
        accelerator, state = self.accelerator, "closed, " if self._session.closed else ""
        return (
            f"<Device '{accelerator.name.removesuffix('_body')}' on {accelerator.board}, link '{self.link.name}': "
            f"{state}{self._frames} {self._shapes}, model {self.identity.model_hash[:8]}>"
        )

    def _repr_html_(self) -> str:
        facts = {
            "board": self.accelerator.board,
            "link": self.link.name,
            self._frames: self._shapes,
            "clock": f"{self.identity.clock_hz / 1e6:.2f} MHz",
            "model": self.identity.model_hash[:8],
            "state": "closed" if self._session.closed else "open",
        }
        return facts_table(f"Device '{self.accelerator.name.removesuffix('_body')}'", facts)

    @property
    def result_keys(self) -> tuple[str, ...]:
        """What several results are called: their keys, or their numbers in a tuple; none where there is one result."""
        if self._tail is None or (len(self._tail.outputs) == 1 and not self._tail.keys):
            return ()
        return self._tail.keys or tuple(map(str, range(len(self._tail.outputs))))

    @property
    def _frames(self) -> str:
        """What the device is sent, in a word for people."""
        return "steps" if self.accelerator.input_format.headed else "images"

    @property
    def _shapes(self) -> str:
        """The shapes of an image or step and of its results, for people."""
        given, results = _given(self.accelerator)[0], [self.accelerator.output_format.shape]
        if self._head is not None and self._tail is not None:
            given = self._head.inputs[0].type.shape
            results = [node.type.shape for node in self._tail.output_nodes]
        return f"{[*given]} -> {', '.join(str([*shape]) for shape in results)}"

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the link. A batch of another thread is stopped first. Closing again does nothing."""
        self._session.closed = True
        # The link of a forked process is that of the process that opened the device, which goes on with it.
        if not self._session.forked:
            self._turns.end(self.link.close)

    def status(self) -> Status:
        """Return the device's counters.

        Raises
        ------
        LinkError: no answer.
        """
        with self._turns.take():
            return self._status()

    def _status(self) -> Status:
        counters = self._session.counters()
        return Status(
            cycles=counters.cycles,
            input_wait=counters.input_wait,
            output_wait=counters.output_wait,
            images=counters.results // result_frames(self.accelerator.output_format.frame_bytes),
            bad_frames=counters.bad_frames,
            clock_hz=self.identity.clock_hz,
            resets=self._session.resets,
        )

    def idle_status(self) -> Status:
        """Return the device's counters, once its engine does nothing but wait for input.

        Raises
        ------
        LinkError: no answer, or the engine does not come to rest.
        """
        with self._turns.take():
            status, deadline = self._status(), self.link.now() + self.pace.patience_s
            while self.link.now() <= deadline:
                before, status = status, self._status()
                work = status.since(before)
                # Two answers with no working cycle between them: it has come to rest.
                if work is not None and not work.cycles:
                    return status
        raise LinkError(
            f"link '{self.link.name}': the device does not come to rest after its last image; open it again"
        )

    def program_status(self) -> ProgramStatus:
        """Return the state of the device's program.

        Raises
        ------
        LinkError: no answer, or the device's engine runs no programs.
        """
        with self._turns.take():
            return self._session.program_status()

    def load_program(
        self, image: ProgramImage | bytes, progress: Progress = lambda finished, total: None
    ) -> ProgramStatus:
        """Load a program, and check that the device has accepted it.

        Images are sent only while the device has the program that it was opened with.

        Parameters
        ----------
        image: the program, or its bytes.
        progress: called with bytes taken and bytes in all.

        Raises
        ------
        InputError: the program is cut or damaged; nothing was sent then.
        LinkError: the device refused it, it is for another array, or the link failed.
        """
        image = image if isinstance(image, ProgramImage) else ProgramImage(image)
        with self._turns.take():
            return self._load_program(image, progress)

    def _load_program(self, image: ProgramImage, progress: Progress) -> ProgramStatus:
        array_id, name = self._session.program_status().array_id, self.link.name
        if image.array_id != array_id:
            raise LinkError(
                f"link '{name}': {image.where} is for array {image.array_id:08x}, the device has {array_id:08x}; "
                "load the bitstream of its build with 'nnhw program', or build the model for the device's array"
            )
        status = self._session.load(image.data, progress)
        if not _has(status, image):
            why = REFUSAL_TEXT[status.reason] if status.state == ProgramState.REFUSED else f"it is {status.state.name}"
            raise LinkError(
                f"link '{name}': the device did not accept {image.where} ({len(image.data)} bytes, "
                f"CRC {image.crc:08x}): {why}; load the bitstream of this build with 'nnhw program' and try again"
            )
        return status

    def _check_same(self, identity: DeviceIdentity) -> None:
        """Raise OtherDeviceError if the device is not the one that was opened any more."""
        if identity != self.identity:
            raise OtherDeviceError(
                f"link '{self.link.name}': the device was loaded with another bitstream while its link was open: it "
                f"runs {_described(identity)} now, and not {_described(self.identity)} ('{self.accelerator.name}'); "
                "load this build with 'nnhw program' and open it again"
            )

    def _check_program(self) -> None:
        """Raise LinkError if the device has another program than this build's, or none."""
        assert self.program is not None
        status = self._session.program_status()
        if not _has(status, self.program):
            found = f"program {status.crc:08x}" if status.state == ProgramState.READY else "no program"
            raise LinkError(
                f"link '{self.link.name}': the device has {found}, not {self.program.crc:08x} of this build: "
                "it was restarted, or loaded by another; open it again"
            )

    def infer_codes(self, codes: Codes, progress: Progress = lambda finished, total: None) -> Any:
        """Run the device on integer codes, without head and tail.

        Parameters
        ----------
        codes: integers [N, *shape], in the range of the device's input. For a recurrent network, sequences: integers
            [N, steps, *shape], or a list of [steps, *shape] of different lengths.
        progress: called with images (or steps) finished, and their number in all.

        Returns
        -------
        int64 [N, *shape]. Where a recurrent network gives a result for each step, [N, steps, *shape], or a list.

        Raises
        ------
        ClosedError: the device is closed.
        InputError: codes of another shape, type or range.
        BatchError: the link failed; its `results` are those that were finished, in the same form.
        """
        self._session.check_open()
        checked = _checked(codes, self.accelerator)
        if self.accelerator.rounds is not None:
            return self._in_rounds(self.accelerator.rounds, checked, progress)
        return self._results(checked, progress)

    def _results(self, codes: Codes, progress: Progress) -> Any:
        batch = FrameBatch.of(codes, self.accelerator)
        try:
            return batch.results(self._run(batch, progress), self.accelerator)
        except BatchError as error:
            error.results = batch.results(error.results, self.accelerator)
            raise

    def _in_rounds(self, rounds: Rounds, codes: Codes, progress: Progress) -> Any:
        """Run sequences as often as both directions need it; see `Rounds`."""
        sequences, steps = list(codes), sum(map(len, codes))

        def formed(made: list[np.ndarray]) -> Any:
            found = rounds.results(made)
            if not isinstance(codes, np.ndarray) and not rounds.last_step:
                return found
            lead = () if rounds.last_step else codes.shape[1:2]  # type: ignore[union-attr]
            shape = (rounds.channels, *self.accelerator.output_format.shape[1:])
            return np.stack(found) if found else np.zeros((0, *lead, *shape), np.int64)

        made: list[np.ndarray] = []
        for number in range(rounds.count):

            def in_all(finished: int, _: int, before: int = number * steps) -> None:
                progress(before + finished, rounds.count * steps)

            try:
                made = self._results(rounds.frames(sequences, made, number), in_all)
            except BatchError as error:
                # Only the last round gives results of the model.
                error.results = formed(list(error.results) if number == rounds.count - 1 else [])
                raise
        return formed(made)

    def every_result(self, codes: Codes) -> np.ndarray:
        """Return the result of every frame, int64 [N, *shape]; for sequences, of every step of each of them in turn.

        Where sequences are sent in rounds, codes and results are those of frames.

        Parameters, errors: see `infer_codes`.
        """
        batch = FrameBatch.of(_checked(codes, self.accelerator, frames=True), self.accelerator)
        values = self.accelerator.output_format.unpack(self._run(batch))
        return values if batch.order is None else values[batch.order.places]

    def _run(self, batch: FrameBatch, progress: Progress = lambda finished, total: None) -> np.ndarray:
        if not len(batch.frames):
            return np.zeros((0, 0), np.uint8)
        with self._turns.take():
            self._stream = None
            o_bytes = self.accelerator.output_format.frame_bytes
            starts = None if batch.order is None else batch.order.starts
            return self._session.run(batch.frames, o_bytes, self.pace, progress, starts)

    def stream(self) -> StepStream:
        """Return a sequence that runs step by step: `with device.stream() as stream: result = stream(step)`.

        Several streams may take turns. The device has one state, so at each change from one stream to another the
        earlier steps of the new one are sent again.

        Raises
        ------
        ClosedError: the device is closed.
        InputError: its network has no state, or reads sequences from their end; or it was opened without head and tail.
        """
        self._session.check_open()
        head, tail = self._head, self._tail
        if not self.accelerator.input_format.headed:
            raise InputError(
                f"accelerator '{self.accelerator.name}' keeps no state from one image to the next; call the device"
            )
        if self.accelerator.rounds is not None:
            raise InputError(
                f"accelerator '{self.accelerator.name}' reads sequences in both directions, and the last step of a "
                "stream is not known before its end; call the device with whole sequences, or use a model with one "
                "direction"
            )
        if head is None or tail is None:
            raise InputError("this device was opened without head and tail; use infer_codes, or open a build folder")
        if not head.inputs[0].type.is_sequence:
            raise InputError(
                f"accelerator '{self.accelerator.name}' takes its steps from whole images of shape "
                f"{list(head.inputs[0].type.shape)}; call the device with images"
            )
        steps = (1,) if tail.inputs[0].type.is_sequence else ()

        def decode(values: np.ndarray, step: Any) -> Any:
            results = run_in_chunks(tail, values.reshape(1, *steps, *values.shape))
            bare = tuple(np.ascontiguousarray(one.reshape(one.shape[1 + len(steps) :])) for one in results)
            return tail.in_form(tuple(map(as_array(step)[1], bare)))

        return StepStream(self, lambda step: encode_step(self, head, step), decode)

    def run_step(self, stream: StepStream, frames: np.ndarray) -> np.ndarray:
        """Run the last step of a stream, and the steps before it if the device does not have their state.

        Parameters
        ----------
        frames: uint8 [N, bytes]: all steps of the sequence so far, with the steps of the sequences that take turns with
            it.

        Returns
        -------
        uint8 [1, bytes].
        """
        turns = self.accelerator.input_format.turns
        self._session.check_open()
        with self._turns.take():
            # No stream's until the run has succeeded: an error below leaves the device in an unknown state.
            kept, self._stream = (stream, self._session.resets) == self._stream, None
            first = len(frames) - turns if kept else 0
            outputs = self._session.run(
                frames,
                self.accelerator.output_format.frame_bytes,
                self.pace,
                starts=np.zeros(len(frames), np.int64),
                first=first,
            )
            self._stream = stream, self._session.resets
        return outputs[-turns:][:1]

    def forget(self, stream: StepStream) -> None:
        """Note that a stream will go on from another state than the one that the device has."""
        if self._stream is not None and self._stream[0] is stream:
            self._stream = None

    def __call__(self, images: Any, progress: Progress = lambda finished, total: None) -> Any:
        """Run the whole model.

        Parameters
        ----------
        images: [N, *shape], NumPy or torch; bfloat16 and sparse tensors are converted, see `as_array`.
        progress: called with images (or steps) finished, and their number in all.

        Returns
        -------
        The results of the model, NumPy or torch like the images; a tuple if the model has several outputs. Floats have
        the dtype of the images: each is the exact result, rounded once to the nearest number of that dtype, so they
        equal `nnhw.reference(model)(images)` in that dtype. Use float64 images for every bit of the exact results:
        float32 is too narrow where a sum and its scale have more than 24 bits together. Integer and float8 images give
        float64; a model that ends in argmax gives int64.

        Raises
        ------
        ClosedError: the device is closed.
        InputError: images of another shape, values that are no real numbers, or are not finite; uint8 images for a
            model of smaller numbers, see `check_bytes`; with `strict`, images that are clipped far more often than
            usual; a result beyond the range of the images' dtype, as of float16.
        BatchError: the link failed; its `results` are those that were finished, in the same form.

        Warns
        -----
        SaturationWarning: the input quantizer clips the images far more often than calibration data.
        """
        if self._head is None or self._tail is None:
            raise InputError("this device was opened without head and tail; use infer_codes, or open a build folder")
        self._session.check_open()
        array, answer = as_array(images)
        _check_finite(array)
        head = self._head
        codes = run_in_chunks(head, array)[0]
        check_bytes(array, lambda images: run_in_chunks(head, images)[0])
        self._check_use(array, codes)
        try:
            values = self.infer_codes(codes, progress)
        except BatchError as error:
            error.results = self._finish(error.results, answer)
            raise
        return self._finish(values, answer)

    def _check_use(self, images: np.ndarray, codes: np.ndarray) -> None:
        """Compare how images use the input codes with what is usual. Raises: InputError, if the device is strict."""
        use = None if self._usual is None else InputUse.of(images, codes, _given(self.accelerator)[1])
        if self._usual is None or use is None or (message := use.more_than(self._usual, codes.size)) is None:
            return
        if self._strict:
            raise InputError(f"images: {message}")
        warnings.warn(f"images: {message}", SaturationWarning, stacklevel=3)

    def _finish(self, values: np.ndarray, answer: Answer) -> Any:
        assert self._tail is not None
        return self._tail.in_form(tuple(map(answer, run_in_chunks(self._tail, values))))


def _described(identity: DeviceIdentity) -> str:
    return f"model {identity.model_hash} at {identity.clock_hz / 1e6:g} MHz"


def _has(status: ProgramStatus, image: ProgramImage) -> bool:
    """Return whether the device is ready to run this program."""
    said = (status.state, status.crc, status.output_bytes, status.array_id)
    return said == (ProgramState.READY, image.crc, image.output_bytes, image.array_id)


def check_identity(identity: DeviceIdentity, accelerator: Accelerator, name: str) -> None:
    """Raise LinkError if a device is not this accelerator.

    Parameters
    ----------
    name: of the link, for the message.
    """
    wanted = accelerator.device_hash[: len(identity.model_hash)].lower()
    if identity.model_hash != wanted:
        raise LinkError(
            f"link '{name}': the device runs model {identity.model_hash}, the build folder holds model {wanted} "
            f"('{accelerator.name}'); load this build with 'nnhw program', or open the folder of the other model"
        )
    has = (identity.input_bytes, identity.output_bytes)
    needs = accelerator.device_bytes
    if has != needs:
        raise LinkError(
            f"link '{name}': the device takes {has[0]} bytes an image and gives {has[1]}, the build folder's "
            f"accelerator '{accelerator.name}' {needs[0]} and {needs[1]}; load this build with 'nnhw program'"
        )


def make_pace(link: ByteLink, accelerator: Accelerator, clock_hz: int) -> Pace:
    """Choose how fast images are sent.

    A line without flow control loses bytes that the device cannot take. None are lost if an image takes the line longer
    than the engine, and longer than its output takes the line back: then images are sent without waiting. Otherwise
    each frame waits until the one before is taken, which costs a round trip per 240 bytes.
    """
    schedule = accelerator.schedule
    image_s = schedule.interval_cycles / clock_hz
    i_bytes, o_bytes = accelerator.input_format.frame_bytes, accelerator.output_format.frame_bytes
    i_frames = i_bytes / PAYLOAD_LIMIT_BYTES
    i_s = (i_bytes + i_frames * WIRE_OVERHEAD_BYTES) / link.bytes_per_s
    results = result_frames(o_bytes)
    o_s = (o_bytes + (results + i_frames) * WIRE_OVERHEAD_BYTES) / link.bytes_per_s
    # Results of all images of a window may wait in the buffers of the system at once, so the larger side counts.
    window_images = max(2, min(link.window_bytes / max(i_bytes, o_bytes), WINDOW_FRAMES / results))
    # Twice what a full window takes when nothing overlaps: simulated hardware answers when it has taken everything.
    patience_s = link.slack_s + 2 * (schedule.latency_cycles / clock_hz + window_images * (image_s + i_s + o_s))
    return Pace(patience_s, int(window_images * i_bytes), not link.flow_controlled and max(image_s, o_s) >= i_s)


def _given(accelerator: Accelerator, frames: bool = False) -> tuple[tuple[int, ...], IntType]:
    """Return shape and type of the codes that a user gives, or those of a frame."""
    if accelerator.rounds is not None and not frames:
        return accelerator.rounds.shape, accelerator.rounds.element
    return accelerator.input_format.shape, accelerator.input_format.codes


def _checked(codes: Codes, accelerator: Accelerator, frames: bool = False) -> Codes:
    """Return the codes as int64, of the model's input or of frames. Raises InputError: the device cannot take them."""
    given = _given(accelerator, frames)
    if not accelerator.input_format.headed:
        return _check_codes(np.asarray(codes), accelerator, ("N",), *given)
    if not isinstance(codes, np.ndarray):
        return [_check_codes(np.asarray(sequence), accelerator, ("steps",), *given) for sequence in codes]
    return _check_codes(codes, accelerator, ("N", "steps"), *given)


def _check_codes(
    codes: np.ndarray, accelerator: Accelerator, lead: tuple[str, ...], given: tuple[int, ...], element: IntType
) -> np.ndarray:
    if codes.ndim < len(lead) or codes.shape[len(lead) :] != given:
        shape = ", ".join(map(str, (*lead, *given)))
        counts = "images" if lead == ("N",) else "sequences" if "N" in lead else "steps"
        raise InputError(
            f"accelerator '{accelerator.name}' needs codes of shape [{shape}], not {list(codes.shape)}; "
            f"the first axis counts the {counts}"
        )
    if "steps" in lead and not codes.shape[lead.index("steps")]:
        raise InputError(
            f"accelerator '{accelerator.name}' needs one step or more of each sequence, given {list(codes.shape)}"
        )
    if not np.issubdtype(codes.dtype, np.integer):
        raise InputError(
            f"accelerator '{accelerator.name}' needs integer codes, not {codes.dtype}; "
            "call the device with images instead"
        )
    wrong = (codes < element.low) | (codes > element.high) | (element.bipolar & (codes == 0))
    if wrong.any():
        place = tuple(int(axis) for axis in np.argwhere(wrong)[0])
        allowed = "-1 or 1" if element.bipolar else f"{element.low} to {element.high}"
        raise InputError(
            f"accelerator '{accelerator.name}' needs codes of {allowed}, but {list(place)} is {codes[place]}; "
            "quantize as the model's first quantizer does, or call the device with images instead"
        )
    return codes.astype(np.int64)


def _check_finite(array: np.ndarray) -> None:
    if not np.issubdtype(array.dtype, np.floating):
        return
    bad = ~np.isfinite(array)
    if bad.any():
        place = [int(axis) for axis in np.argwhere(bad)[0]]
        raise InputError(
            f"images: {place} is {array[tuple(place)]}; every value must be finite; repair or drop that image"
        )
