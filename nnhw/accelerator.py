"""The contract between mapping and hardware: the engines of an accelerator, in stream order, and its byte formats."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.engines.channelwise import ChannelwiseConfig
from nnhw.engines.convert import ConvertConfig
from nnhw.engines.encoding import decode, encode
from nnhw.engines.fifo import FifoConfig
from nnhw.engines.fork import ForkConfig
from nnhw.engines.join import ConcatConfig, SumConfig
from nnhw.engines.matmul import MatmulConfig
from nnhw.engines.pad import PadConfig
from nnhw.engines.pool import PoolConfig
from nnhw.engines.requantize import DoubleScaler, Scaler, Table, Thresholds, ThresholdSearch
from nnhw.engines.shared import ArrayConfig, Compute, Emit, Fill, Loop, SharedConfig
from nnhw.engines.timing import Schedule
from nnhw.engines.window import WindowConfig
from nnhw.errors import BuildError
from nnhw.ir.files import pack_arrays, widen_integers
from nnhw.ir.types import IntType

EngineConfig = (
    ChannelwiseConfig
    | ConcatConfig
    | ConvertConfig
    | FifoConfig
    | ForkConfig
    | MatmulConfig
    | PadConfig
    | PoolConfig
    | SharedConfig
    | SumConfig
    | WindowConfig
)

FORMAT_VERSION = 2


INPUT = (-1, 0)
"""The source of a stage that reads the input of the accelerator."""


def stream_order(values: np.ndarray) -> np.ndarray:
    """Return a batch in the order in which it streams: pixels row by row, channels innermost.

    Parameters
    ----------
    values: [N, channels, height, width], [N, channels, length] or [N, elements].

    Returns
    -------
    [N, elements].
    """
    return np.moveaxis(values, 1, -1).reshape(len(values), -1)


def tensor_order(stream: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return [N, *shape] of a batch [N, elements] in stream order: the inverse of `stream_order`."""
    channels, *sides = shape
    return np.moveaxis(stream.reshape(-1, *sides, channels), -1, 1)


@dataclass(frozen=True)
class InputFormat:
    """Codes of one frame as bytes.

    Parameters
    ----------
    shape: of one frame, (channels, height, width) or (elements,).
    element: type of the codes; at most 8 bits.
    per_byte: elements in one byte, the first in the lowest bits; divides the elements of a frame.
    beat_bytes: bytes that the engine takes at once, the first in the lowest bits; divides the bytes of a frame.
    """

    shape: tuple[int, ...]
    element: IntType
    per_byte: int
    beat_bytes: int = 1

    @property
    def elements(self) -> int:
        """Elements of one frame."""
        return int(np.prod(self.shape))

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return self.elements // self.per_byte

    @property
    def frame_beats(self) -> int:
        """Beats of one frame at the engine."""
        return self.frame_bytes // self.beat_bytes

    @property
    def stream(self) -> Stream:
        """What the elements are in the engine."""
        return Stream(self.per_byte * self.beat_bytes, self.elements, self.element)

    def pack(self, codes: np.ndarray) -> np.ndarray:
        """Return uint8 [N, frame_bytes] of int codes [N, *shape]."""
        patterns = encode(stream_order(codes), self.element).reshape(len(codes), -1, self.per_byte)
        weights = 1 << (np.arange(self.per_byte) * self.element.bits)
        return (patterns * weights).sum(axis=2).astype(np.uint8)

    def unpack(self, frames: np.ndarray) -> np.ndarray:
        """Return int64 codes [N, *shape] of uint8 [N, frame_bytes]."""
        shifts = np.arange(self.per_byte) * self.element.bits
        patterns = (frames.astype(np.int64)[:, :, None] >> shifts) & ((1 << self.element.bits) - 1)
        return tensor_order(decode(patterns, self.element).reshape(len(frames), -1), self.shape)


@dataclass(frozen=True)
class OutputFormat:
    """Bytes of one frame's results, and what they mean: value = multiplier * element + offset.

    Parameters
    ----------
    shape: of one frame, (channels, height, width) or (elements,).
    element: type of what leaves the last engine, a raw sum or a code.
    element_bytes: bytes of one element, little-endian.
    multiplier: from raw sums to accumulators; see `nnhw.engines.arithmetic`.
    offsets: int64 [channels], or [elements] of a vector.
    streamed: the shape in which they stream, where a reshape of the model follows; None: the same.
    """

    shape: tuple[int, ...]
    element: IntType
    element_bytes: int
    multiplier: int
    offsets: np.ndarray
    streamed: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Elements of one frame."""
        return int(np.prod(self.shape))

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return self.elements * self.element_bytes

    def _stream_offsets(self) -> np.ndarray:
        """Offsets [elements] in stream order."""
        return np.tile(self.offsets, self.elements // len(self.offsets))

    def pack(self, values: np.ndarray) -> np.ndarray:
        """Return uint8 [N, frame_bytes] of int values [N, *shape]: what a device sends."""
        streamed = stream_order(values.reshape(len(values), *(self.streamed or self.shape)))
        elements = (streamed - self._stream_offsets()) // self.multiplier
        patterns = encode(elements, self.element) if self.element.bipolar else elements
        shifts = 8 * np.arange(self.element_bytes)
        return ((patterns[:, :, None] >> shifts) & 0xFF).astype(np.uint8).reshape(len(values), -1)

    def unpack(self, frames: np.ndarray) -> np.ndarray:
        """Return int64 values [N, *shape] of uint8 [N, frame_bytes]."""
        parts = frames.astype(np.int64).reshape(len(frames), -1, self.element_bytes)
        patterns = (parts << (8 * np.arange(self.element_bytes))).sum(axis=2) & ((1 << self.element.bits) - 1)
        values = decode(patterns, self.element) * self.multiplier + self._stream_offsets()
        return tensor_order(values, self.streamed or self.shape).reshape(-1, *self.shape)


@dataclass(frozen=True)
class Stream:
    """What leaves a stage: value = multiplier * element + offset of the channel.

    Parameters
    ----------
    lanes: elements of a beat.
    elements: of a frame.
    element: type of the elements: a code, or a raw sum.
    multiplier, offsets: from elements to values, see `nnhw.engines.arithmetic`; offsets int64 [channels], None: zeros.
    """

    lanes: int
    elements: int
    element: IntType
    multiplier: int = 1
    offsets: np.ndarray | None = None

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.elements // self.lanes

    @property
    def is_plain(self) -> bool:
        """Whether the elements are the values."""
        return self.multiplier == 1 and (self.offsets is None or not self.offsets.any())

    def elements_of(self, values: np.ndarray) -> np.ndarray:
        """Return the elements int64 [N, elements], in stream order, of values [N, *shape]."""
        streamed = stream_order(values)
        if self.offsets is not None:
            streamed = streamed - np.tile(self.offsets, streamed.shape[1] // len(self.offsets))
        return streamed // self.multiplier


@dataclass(frozen=True)
class Stage:
    """One engine.

    Parameters
    ----------
    name: unique, `layer.kind`.
    layer: the layer of the model that it serves.
    node: the IR value that leaves it as `output` says, or "" where what leaves is not a value of the IR.
    config: the engine's parameters.
    sources: for each input port, (index of an earlier stage, its output port); (-1, 0) is the input of the accelerator.
    output: what leaves, from every output port the same.
    products: of one frame that it computes, those with a border of padding not counted.
    """

    name: str
    layer: str
    node: str
    config: EngineConfig
    sources: tuple[tuple[int, int], ...]
    output: Stream
    products: int = 0


@dataclass(frozen=True)
class StreamBoundary:
    """The stream behind a stage, on which a value of the IR passes.

    Parameters
    ----------
    stage: its index.
    node: name of the value.
    layer: of the model.
    stream: how the value streams.
    """

    stage: int
    node: str
    layer: str
    stream: Stream

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.node

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.stream.beats

    @property
    def bits(self) -> int:
        """Bits of a beat."""
        return self.stream.lanes * self.stream.element.bits

    def patterns(self, values: np.ndarray) -> np.ndarray:
        """Return the bit patterns [N * beats, elements] of a value [N, *shape]; the bits of an element are `widths`."""
        elements = encode(self.stream.elements_of(values), self.stream.element)
        return elements.reshape(-1, self.stream.lanes)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each element of a beat."""
        return (self.stream.element.bits,) * self.stream.lanes


@dataclass(frozen=True)
class StoreBoundary:
    """What a record of a shared engine stores: the codes of some channels of a value, pixel by pixel.

    A beat is the codes that are stored at once, of a pixel, and the address of their first word.

    Parameters
    ----------
    stage: its index.
    number: of the record in the program.
    record: the record.
    array: the hardware.
    """

    stage: int
    number: int
    record: Compute
    array: ArrayConfig

    @property
    def node(self) -> str:
        """Name of the value."""
        return self.record.node

    @property
    def layer(self) -> str:
        """Of the model."""
        return self.record.layer

    @property
    def name(self) -> str:
        """What reports call it."""
        first, count = self.record.channels
        pixels = f"[{self.record.first_pixel}:]" if self.record.first_pixel else ""
        return f"{self.node}[{first}:{first + count}]{pixels}"

    @property
    def beats(self) -> int:
        """Beats of a frame."""
        return self.record.pixels

    @property
    def bits(self) -> int:
        """Bits of a beat."""
        return sum(self.widths)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of each element of a beat."""
        lanes = min(self.record.channels[1], self.array.lanes)
        return (self.array.activation_bits,) * lanes + (self.array.address_bits,)

    def patterns(self, values: np.ndarray) -> np.ndarray:
        """Return the bit patterns [N * beats, elements] of a value [N, *shape]; the bits of an element are `widths`."""
        record, (first, count) = self.record, self.record.channels
        granules = max(1, count // self.array.lanes)
        pixels = slice(record.first_pixel, record.first_pixel + record.pixels // granules)
        channels = values.reshape(len(values), values.shape[1], -1)[:, first : first + count, pixels]
        codes = encode(np.moveaxis(channels, 1, 2) - record.zero, self.array.activation)
        addresses = (record.target + record.target_step * np.arange(record.pixels)) % self.array.words
        places = np.broadcast_to(addresses[None, :, None], (len(values), record.pixels, 1))
        if record.planar:
            codes = np.moveaxis(codes.reshape(*codes.shape[:2], -1, self.array.lanes), 2, 1)
        codes = codes.reshape(len(values), record.pixels, -1)
        return np.concatenate([codes, places], axis=2).reshape(-1, len(self.widths))


Boundary = StreamBoundary | StoreBoundary


@dataclass(frozen=True)
class Accelerator:
    """A mapped network: engines, from input bytes to output bytes.

    Parameters
    ----------
    name: of the model.
    model_hash: of the integer graph, hex.
    board: name of the board that it is mapped to.
    stages: each behind those that it reads; the output of the last one leaves.
    input_format, output_format: what bytes mean.
    schedule: predicted latency and interval, exact.
    """

    name: str
    model_hash: str
    board: str
    stages: tuple[Stage, ...]
    input_format: InputFormat
    output_format: OutputFormat
    schedule: Schedule

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Where values of the IR can be seen: streams behind stages, and what shared engines store."""
        found: list[Boundary] = []
        for index, stage in enumerate(self.stages):
            if isinstance(stage.config, SharedConfig):
                array = stage.config.array
                records = enumerate(stage.config.records)
                stored = [
                    (number, record) for number, record in records if isinstance(record, Compute) and not record.raw
                ]
                found += [StoreBoundary(index, number, record, array) for number, record in stored]
            elif stage.node:
                found.append(StreamBoundary(index, stage.node, stage.layer, stage.output))
        return tuple(found)

    @property
    def shared(self) -> SharedConfig | None:
        """The shared engine with its program, or None."""
        return next((stage.config for stage in self.stages if isinstance(stage.config, SharedConfig)), None)

    @property
    def device_hash(self) -> str:
        """Hash of what the hardware is, hex: the model's, or, with a shared engine, of all but its program."""
        if self.shared is None:
            return self.model_hash
        bare = [stage.config.array if isinstance(stage.config, SharedConfig) else stage for stage in self.stages]
        arrays: dict[str, np.ndarray] = {}
        document = json.dumps(_dump(tuple(bare), arrays)).encode() + pack_arrays(arrays)
        return hashlib.sha256(document).hexdigest()

    @property
    def device_bytes(self) -> tuple[int, int]:
        """(input, output) bytes of a frame, as the hardware states them: (1, 1) where they are the program's matter."""
        if self.shared is not None:
            return 1, 1
        return self.input_format.frame_bytes, self.output_format.frame_bytes

    @property
    def output_node(self) -> str:
        """The IR value that leaves."""
        return next(stage.node for stage in reversed(self.stages) if stage.node)

    def save(self, folder: Path) -> None:
        """Write `accelerator.json` and `accelerator.npz` into a folder; the same accelerator gives the same bytes."""
        arrays: dict[str, np.ndarray] = {}
        document = {"format": FORMAT_VERSION, "accelerator": _dump(self, arrays)}
        (folder / "accelerator.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (folder / "accelerator.npz").write_bytes(pack_arrays(arrays))

    @classmethod
    def load(cls, folder: Path) -> Accelerator:
        """Read what `save` wrote.

        Raises
        ------
        BuildError: the files are missing, or of another version of nnhw.
        """
        try:
            document = json.loads((folder / "accelerator.json").read_text(encoding="utf-8"))
            with np.load(folder / "accelerator.npz", allow_pickle=False) as stored:
                arrays = {key: widen_integers(stored[key]) for key in stored.files}
        except (OSError, ValueError) as error:
            raise BuildError(
                f"build folder '{folder}' has no readable accelerator ({error}); run 'nnhw build' again"
            ) from None
        if document.get("format") != FORMAT_VERSION:
            raise BuildError(
                f"build folder '{folder}' is of format {document.get('format')}, this nnhw needs {FORMAT_VERSION}; "
                "run 'nnhw build' again"
            )
        loaded = _load(document["accelerator"], arrays)
        assert isinstance(loaded, cls)
        return loaded


_TYPES = {
    kind.__name__: kind
    for kind in (
        Accelerator,
        ArrayConfig,
        ChannelwiseConfig,
        Compute,
        ConcatConfig,
        ConvertConfig,
        DoubleScaler,
        Emit,
        FifoConfig,
        Fill,
        ForkConfig,
        InputFormat,
        IntType,
        Loop,
        MatmulConfig,
        OutputFormat,
        PadConfig,
        PoolConfig,
        Scaler,
        Schedule,
        SharedConfig,
        Stage,
        Stream,
        SumConfig,
        Table,
        Thresholds,
        ThresholdSearch,
        WindowConfig,
    )
}


def _dump(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the JSON form of a configuration; arrays go to `arrays` under a number."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _dump(getattr(value, field.name), arrays) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, np.ndarray):
        key = f"array_{len(arrays)}"
        arrays[key] = value
        return {"array": key}
    if isinstance(value, tuple):
        return [_dump(item, arrays) for item in value]
    return value


def _load(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the configuration of a JSON form: the inverse of `_dump`."""
    if isinstance(value, list):
        return tuple(_load(item, arrays) for item in value)
    if isinstance(value, dict):
        if "type" not in value:
            return arrays[value["array"]]
        fields = {key: _load(item, arrays) for key, item in value.items() if key != "type"}
        return _TYPES[value["type"]](**fields)
    return value
