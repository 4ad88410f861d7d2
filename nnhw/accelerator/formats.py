"""The byte formats of frames and of results, at the two ends of an accelerator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhw.accelerator.frame_order import FrameOrder
from nnhw.accelerator.streams import Stream, stream_order, tensor_order
from nnhw.engines.encoding import decode, encode
from nnhw.engines.pack import PackConfig
from nnhw.engines.unpack import UnpackConfig
from nnhw.ir.types import IntType

ELEMENTS_MAX = 1 << 28
"""Most elements of a frame that a file may claim; real ones have far fewer."""
Codes = np.ndarray | Sequence[np.ndarray]
"""Input codes: frames int [N, *shape]; for a network with a state, a sequence of int [steps, *shape] each, or an array
[N, steps, *shape]."""


def as_array(codes: Codes) -> np.ndarray:
    """Return frames as one array int [N, *shape]; only for networks without a state."""
    return np.asarray(codes)


@dataclass(frozen=True)
class InputFormat:
    """How the codes of one frame are written as bytes.

    Parameters
    ----------
    shape: of one frame, (channels, height, width) or (elements,).
    element: type of the numbers that are sent; at most 8 bits.
    per_byte: elements in one byte, the first in the lowest bits; divides the elements of a frame.
    beat_bytes: bytes that the first engine takes at once, the first in the lowest bits; divides the bytes of a frame.
    offset: code = element + offset.
    lanes: 0: elements do not cross the borders of bytes. Else how many elements the first engine takes at once: then
        the bits of elements follow one another, across bytes, up to the end of the frame; `per_byte` is 0, and
        `beat_bytes` are the whole bytes that hold a beat.
    headed: a frame is one step of a sequence. In front of its codes there is one beat whose lowest bit is 1 if the step
        is the first one of its sequence, and whose other bits are 0.
    turns: number of sequences that take turns: consecutive steps of one sequence are so many frames apart.
    """

    shape: tuple[int, ...]
    element: IntType
    per_byte: int
    beat_bytes: int = 1
    offset: int = 0
    lanes: int = 0
    headed: bool = False
    turns: int = 1

    def check(self) -> None:
        """Check parameters that were read from a file.

        Raises
        ------
        ValueError: they contradict one another, or are out of range.
        """
        if not self.shape or min(self.shape) < 1 or self.elements > ELEMENTS_MAX or self.element.bits > 8:
            raise ValueError(f"no input has shape {self.shape} of {self.element}")
        if self.turns < 1 or (self.turns > 1 and not self.headed):
            raise ValueError(
                f"no {self.turns} sequences take turns where frames are {'' if self.headed else 'no '}steps"
            )
        if self.lanes:
            # The bytes that hold a beat in front of the first engine.
            wide = -(-self.lanes * self.element.bits // 8)
            if self.lanes < 1 or self.elements % self.lanes or (self.per_byte, self.beat_bytes) != (0, wide):
                raise ValueError(f"{self.elements} elements do not come by {self.lanes} in {self.beat_bytes} bytes")
            return
        if not 1 <= self.per_byte <= 8 // self.element.bits or self.elements % self.per_byte:
            raise ValueError(f"{self.elements} elements do not come {self.per_byte} in a byte")
        if self.beat_bytes < 1 or self.frame_bytes % self.beat_bytes:
            raise ValueError(f"{self.frame_bytes} bytes do not come {self.beat_bytes} at once")

    @property
    def codes(self) -> IntType:
        """Type of the codes."""
        return IntType(self.element.low + self.offset, self.element.high + self.offset, self.element.bipolar)

    @property
    def elements(self) -> int:
        """Elements of one frame."""
        return math.prod(self.shape)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        if self.lanes:
            return -(-self.frame_beats * self.lanes * self.element.bits // 8)
        return self.elements // self.per_byte + self.headed * self.beat_bytes

    @property
    def frame_beats(self) -> int:
        """Beats of one frame at the first engine, including the one in front of a step."""
        return self.elements // self.stream.lanes + self.headed

    @property
    def unpacking(self) -> UnpackConfig | None:
        """The unpacker between bytes and the first engine; None: bytes go in as they are."""
        return UnpackConfig(self.lanes * self.element.bits, self.frame_beats) if self.lanes else None

    @property
    def stream(self) -> Stream:
        """How the frame streams into the first engine, without the beat in front of a step."""
        offsets = np.array([self.offset]) if self.offset else None
        return Stream(self.lanes or self.per_byte * self.beat_bytes, self.elements, self.element, offsets=offsets)

    def pack(self, codes: Codes) -> np.ndarray:
        """Return the bytes uint8 [N, frame_bytes] of codes; if frames are steps, in the order of `order`."""
        return self._packed(self._frames(codes))

    def order(self, sequences: Codes) -> FrameOrder:
        """Return the order in which the steps of sequences come in as frames."""
        return FrameOrder.of([len(sequence) for sequence in sequences], self.turns)

    def pack_steps(self, codes: np.ndarray, begins: np.ndarray) -> np.ndarray:
        """Return the bytes uint8 [N, frame_bytes] of single steps.

        Parameters
        ----------
        codes: int [N, *shape].
        begins: bool [N], which steps begin a sequence.
        """
        return self._packed(self._patterns(codes, begins))

    def pack_beats(self, codes: Codes) -> np.ndarray:
        """Return the same codes as beats of the first engine, uint8 [N * frame_beats, beat_bytes]."""
        if not self.lanes:
            return self.pack(codes).reshape(-1, self.beat_bytes)
        bits = self._bits(self._frames(codes)).reshape(-1, self.lanes * self.element.bits)
        return np.packbits(bits, axis=1, bitorder="little")

    def unpack(self, frames: np.ndarray) -> np.ndarray:
        """Return the codes int64 [N, *shape] of frames uint8 [N, frame_bytes]."""
        shifts = np.arange(self.per_byte) * self.element.bits
        # The beat in front of a step has no codes.
        head = self.headed * self.stream.lanes
        if self.lanes:
            count = head + self.elements
            bits = np.unpackbits(frames, axis=1, count=count * self.element.bits, bitorder="little")
            # Elements may begin within a byte, so they are put together bit by bit.
            places = 1 << np.arange(self.element.bits)
            patterns = (bits.reshape(len(frames), count, -1) * places).sum(axis=2)
        else:
            patterns = (frames.astype(np.int64)[:, :, None] >> shifts) & ((1 << self.element.bits) - 1)
        codes = decode(patterns.reshape(len(frames), -1)[:, head:], self.element)
        return tensor_order(codes + self.offset, self.shape)

    def begins(self, frames: np.ndarray) -> np.ndarray:
        """Return bool [N]: which steps, uint8 [N, frame_bytes], are the first one of their sequence."""
        return (frames[:, 0] & 1).astype(bool)

    def _packed(self, patterns: np.ndarray) -> np.ndarray:
        """Return the bytes uint8 [N, frame_bytes] of bit patterns [N, elements]."""
        if self.lanes:
            return np.packbits(self._bits(patterns).reshape(len(patterns), -1), axis=1, bitorder="little")
        # Elements of a byte do not overlap, so their weighted sum joins them.
        weights = 1 << (np.arange(self.per_byte) * self.element.bits)
        return (patterns.reshape(len(patterns), -1, self.per_byte) * weights).sum(axis=2).astype(np.uint8)

    def _frames(self, codes: Codes) -> np.ndarray:
        """Return the bit patterns [N, elements] of frames, or of steps in the order in which they are sent."""
        if not self.headed:
            return self._patterns(as_array(codes))
        order = self.order(codes)
        return self._patterns(np.concatenate(list(codes))[order.rows], order.begins)

    def _patterns(self, codes: np.ndarray, begins: np.ndarray | None = None) -> np.ndarray:
        """Return the bit patterns [N, elements] of codes [N, *shape], with `begins` behind the first beat of a step."""
        patterns = encode(stream_order(codes) - self.offset, self.element)
        if begins is None:
            return patterns
        heads = np.zeros((len(codes), self.stream.lanes), dtype=patterns.dtype)
        # A whole beat in front keeps the beats of the codes aligned; only its lowest bit says something.
        heads[:, 0] = begins
        return np.concatenate([heads, patterns], axis=1)

    def _bits(self, patterns: np.ndarray) -> np.ndarray:
        """Return the bits uint8 [N, elements, bits] of bit patterns [N, elements], the lowest first."""
        return ((patterns[:, :, None] >> np.arange(self.element.bits)) & 1).astype(np.uint8)


@dataclass(frozen=True)
class OutputFormat:
    """How the results of one frame are written as bytes, and what they mean: value = multiplier * element + offset.

    Parameters
    ----------
    shape: of one frame's values, (channels, height, width) or (elements,).
    element: type of the elements that leave the last engine, raw sums or codes.
    element_bytes: bytes of one element behind the last engine, little-endian.
    multiplier: from raw sums to accumulators; see `nnhw.engines.arithmetic`.
    offsets: int64 [channels], or [elements] of a vector.
    streamed: the shape in which the values stream, if the model reshapes them at the end; None: `shape`.
    packed: on the link, the bits of elements follow one another, across bytes, up to the end of the frame.
    last_step: of a sequence only the result of the last step counts; the device gives one for each step all the same.
    """

    shape: tuple[int, ...]
    element: IntType
    element_bytes: int
    multiplier: int
    offsets: np.ndarray
    streamed: tuple[int, ...] | None = None
    packed: bool = False
    last_step: bool = False

    def check(self) -> None:
        """Check parameters that were read from a file.

        Raises
        ------
        ValueError: they contradict one another, or are out of range.
        """
        streamed = self.streamed or self.shape
        if not self.shape or min(*self.shape, *streamed) < 1 or self.elements > ELEMENTS_MAX:
            raise ValueError(f"no output has shape {self.shape}, streamed as {streamed}")
        if (
            math.prod(streamed) != self.elements
            or not 8 * self.element_bytes >= self.element.bits
            or self.element_bytes > 8
        ):
            raise ValueError(f"{self.element_bytes} bytes do not hold {self.element} in shape {streamed}")
        if self.offsets.ndim != 1 or self.offsets.dtype != np.int64 or not len(self.offsets):
            raise ValueError("the offsets of the output are no vector of integers")
        if self.elements % len(self.offsets) or not self.multiplier:
            raise ValueError(f"{len(self.offsets)} offsets and multiplier {self.multiplier} do not fit the output")

    @property
    def elements(self) -> int:
        """Elements of one frame."""
        return math.prod(self.shape)

    @property
    def frame_beats(self) -> int:
        """Bytes of one frame as they leave the last engine, one in each beat."""
        return self.elements * self.element_bytes

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame on the link."""
        return self.packing.o_beats if self.packing else self.frame_beats

    @property
    def packing(self) -> PackConfig | None:
        """The packer between the last engine and the link; None: its bytes are sent as they are."""
        return PackConfig(self.element.bits, self.elements) if self.packed else None

    def _stream_offsets(self) -> np.ndarray:
        """Offsets [elements] in stream order."""
        return np.tile(self.offsets, self.elements // len(self.offsets))

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Return the bytes uint8 [N, frame_bytes] that a device sends for int values [N, *shape]."""
        beats = self.pack_beats(values)
        if self.packing is None:
            return beats
        bits = np.unpackbits(beats, axis=1, bitorder="little").reshape(len(beats), self.elements, -1)
        # What fills up the bytes of an element, copies of its sign, is not sent.
        kept = bits[:, :, : self.element.bits].reshape(len(beats), -1)
        return np.packbits(kept, axis=1, bitorder="little")

    def pack_beats(self, values: np.ndarray) -> np.ndarray:
        """Return the bytes uint8 [N, frame_beats] that leave the last engine for int values [N, *shape]."""
        return self.pack_stream(stream_order(values.reshape(len(values), *(self.streamed or self.shape))))

    def pack_stream(self, streamed: np.ndarray) -> np.ndarray:
        """Return the same bytes for int values [N, elements] in stream order."""
        # Exact: values of a format are multiplier * element + offset.
        elements = (streamed - self._stream_offsets()) // self.multiplier
        # Not `encode` for numbers: it cuts them to their bits, and the sign has to fill the last byte.
        patterns = encode(elements, self.element) if self.element.bipolar else elements
        shifts = 8 * np.arange(self.element_bytes)
        return ((patterns[:, :, None] >> shifts) & 0xFF).astype(np.uint8).reshape(len(streamed), -1)

    def unpack(self, frames: np.ndarray) -> np.ndarray:
        """Return the values int64 [N, *shape] of bytes uint8 [N, frame_bytes] from the link."""
        if self.packing is None:
            return self.unpack_beats(frames)
        bits = np.unpackbits(frames, axis=1, count=self.elements * self.element.bits, bitorder="little")
        return self._values((bits.reshape(len(frames), self.elements, -1) << np.arange(self.element.bits)).sum(axis=2))

    def unpack_beats(self, frames: np.ndarray) -> np.ndarray:
        """Return the values int64 [N, *shape] of bytes uint8 [N, frame_beats] from the last engine."""
        parts = frames.astype(np.int64).reshape(len(frames), -1, self.element_bytes)
        # The bits above an element are copies of its sign, which `decode` makes again.
        return self._values((parts << (8 * np.arange(self.element_bytes))).sum(axis=2) & ((1 << self.element.bits) - 1))

    def _values(self, patterns: np.ndarray) -> np.ndarray:
        """Return the values int64 [N, *shape] of bit patterns [N, elements]."""
        values = decode(patterns, self.element) * self.multiplier + self._stream_offsets()
        return tensor_order(values, self.streamed or self.shape).reshape(-1, *self.shape)
