"""A mapped network: engines in stream order, byte formats, schedule; and its files."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnhw.accelerator.boundaries import Boundary, StoreBoundary, StreamBoundary
from nnhw.accelerator.document import dump, load
from nnhw.accelerator.formats import InputFormat, OutputFormat
from nnhw.accelerator.stages import BUILT_IN, Stage
from nnhw.accelerator.streams import Stream
from nnhw.engines.own import engine_types
from nnhw.engines.requantize import CommonSteps, DoubleScaler, RankedSteps, Scaler, Table, Thresholds, ThresholdSearch
from nnhw.engines.shared import ArrayConfig, Compute, Emit, Fill, Loop, SharedConfig, StepMemory
from nnhw.engines.timing import Schedule
from nnhw.errors import BuildError
from nnhw.ir.files import pack_arrays, widen_integers
from nnhw.ir.ops import IntegerNorm, IntegerSoftmax
from nnhw.ir.rounds import Rounds, SentPart
from nnhw.ir.types import IntType
from nnhw.reading import load_npz, parse_json

FORMAT_VERSION = 6
"""Version of the form of `accelerator.json`; files of any other version are refused."""
_HASH = re.compile(r"[0-9a-fA-F]{16,64}")
"""A model hash, in hex digits."""


@dataclass(frozen=True)
class Accelerator:
    """A mapped network: engines, from input bytes to output bytes.

    Parameters
    ----------
    name: name of the model.
    model_hash: hash of the integer graph, 16 to 64 hex digits.
    board: name of the board that it is mapped to.
    stages: engines; each comes after those that it reads, but for late inputs, and the last one's output leaves.
    input_format, output_format: how codes and results are written as bytes.
    schedule: latency and interval in cycles, as the cycle models predict them.
    rounds: how the host sends sequences that the model reads in both directions; None: as they are.
    """

    name: str
    model_hash: str
    board: str
    stages: tuple[Stage, ...]
    input_format: InputFormat
    output_format: OutputFormat
    schedule: Schedule
    rounds: Rounds | None = None

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Where values of the IR can be seen: on streams behind stages, and where shared engines store codes."""
        found: list[Boundary] = []
        for index, stage in enumerate(self.stages):
            if (program := stage.config.program) is not None:
                array, records = program.array, enumerate(program.records)
                # Records without a node store what is no value of the IR.
                stored = [
                    (number, record)
                    for number, record in records
                    if isinstance(record, Compute) and record.node and not record.raw and not record.partial
                ]
                found += [StoreBoundary(index, number, record, array) for number, record in stored]
            elif stage.node:
                found.append(StreamBoundary(index, stage.node, stage.layer, stage.output))
        return tuple(found)

    @property
    def programs(self) -> tuple[SharedConfig, ...]:
        """The shared engines with their programs, in stream order."""
        return tuple(found for stage in self.stages if (found := stage.config.program) is not None)

    @property
    def image(self) -> bytes | None:
        """The bytes to be loaded into the shared engines, one image behind the other; None if there are none."""
        images = [program.image_for(self.output_format.frame_bytes) for program in self.programs]
        return b"".join(images) or None

    @property
    def device_hash(self) -> str:
        """Hash of what makes the hardware, in hex: the model's; with shared engines, that of all but their programs."""
        if not self.programs:
            return self.model_hash
        # Of a shared engine only its array is hardware; the packing of the link is not part of a stage.
        bare: list[Any] = [stage if (found := stage.config.program) is None else found.array for stage in self.stages]
        bare += [wire for wire in (self.input_format.unpacking, self.output_format.packing) if wire is not None]
        arrays: dict[str, np.ndarray] = {}
        # `dump` numbers the arrays in the order in which it meets them, so equal hardware gives equal bytes.
        document = json.dumps(dump(tuple(bare), arrays)).encode() + pack_arrays(arrays)
        return hashlib.sha256(document).hexdigest()

    @property
    def device_bytes(self) -> tuple[int, int]:
        """(input, output) bytes of a frame in the device's identity; (1, 1) if its programs determine them."""
        if self.programs:
            # The program that is loaded says how long frames are; an identity has no sizes of 0.
            return 1, 1
        return self.input_format.frame_bytes, self.output_format.frame_bytes

    @property
    def output_node(self) -> str:
        """Name of the IR value that leaves the accelerator."""
        # Behind the stage that gives the value there may be converters and FIFOs.
        stage = self.stages[-1]
        while not stage.node:
            stage = self.stages[stage.sources[0][0]]
        return stage.node

    def save(self, folder: Path) -> None:
        """Write `accelerator.json` and `accelerator.npz` into a folder; the same accelerator gives the same bytes."""
        arrays: dict[str, np.ndarray] = {}
        document = {"format": FORMAT_VERSION, "accelerator": dump(self, arrays)}
        (folder / "accelerator.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (folder / "accelerator.npz").write_bytes(pack_arrays(arrays))

    @classmethod
    def load(cls, folder: Path) -> Accelerator:
        """Read what `save` wrote.

        Raises
        ------
        BuildError: the files are missing or damaged, or another version of nnhw wrote them.
        """
        try:
            document = parse_json((folder / "accelerator.json").read_bytes())
            # Files hold integers as narrow as they are; all code computes with int64.
            arrays = {key: widen_integers(array) for key, array in load_npz(folder / "accelerator.npz").items()}
        except (OSError, ValueError) as error:
            raise BuildError(
                f"build folder '{folder}' has no readable accelerator ({error}); run 'nnhw build' again"
            ) from None
        version = document.get("format") if isinstance(document, dict) else None
        if version != FORMAT_VERSION:
            raise BuildError(
                f"build folder '{folder}' is of format {version!r}, this nnhw needs {FORMAT_VERSION}; "
                "run 'nnhw build' again"
            )
        try:
            return _checked(load(document.get("accelerator"), arrays, {**engine_types(), **_TYPES}))
        # The types of fields are checked before, their values are not: in a file that somebody changed, these may make
        # the checks and properties of any engine fail in any way, with an IndexError or a ZeroDivisionError as well.
        except Exception as error:
            raise BuildError(
                f"'{folder / 'accelerator.json'}' describes no accelerator ({error!r}); run 'nnhw build' again"
            ) from error


def _checked(loaded: Any) -> Accelerator:
    """Return what a file describes if it is consistent.

    Raises
    ------
    Exception: of any class, if it is not; `Accelerator.load` makes a message of it.
    """
    if not isinstance(loaded, Accelerator):
        raise ValueError(f"it is of type {type(loaded).__name__}")
    for index, stage in enumerate(loaded.stages):
        for number, (source, port) in enumerate(stage.sources):
            # -1 is the input of the accelerator. Only a late input may read a stage that comes later.
            end = len(loaded.stages) if number in stage.config.late_inputs else index
            if not -1 <= source < end or port < 0:
                raise ValueError(f"stage '{stage.name}' reads output {port} of stage {source}")
    if min(loaded.schedule.latency_cycles, loaded.schedule.interval_cycles) < 1:
        raise ValueError("its schedule has no cycles")
    if not _HASH.fullmatch(loaded.model_hash):
        raise ValueError(f"'{loaded.model_hash}' is no hash")
    loaded.input_format.check()
    loaded.output_format.check()
    if loaded.rounds is not None:
        _check_rounds(loaded.rounds, loaded.input_format, loaded.output_format)
    _ = loaded.image, loaded.boundaries  # what cannot be derived fails here, where a message says so
    return loaded


def _check_rounds(rounds: Rounds, i_format: InputFormat, o_format: OutputFormat) -> None:
    rounds.check()
    sent = (sum(part.channels for part in rounds.parts), *rounds.shape[1:])
    ends = [part.source + part.channels for part in rounds.parts if part.source >= 0]
    if not i_format.headed or i_format.shape != sent or max(rounds.channels, *ends, 0) > o_format.shape[0]:
        raise ValueError(f"frames of {i_format.shape} and results of {o_format.shape} are not those of its rounds")


_KINDS: tuple[type, ...] = (
    Accelerator,
    *BUILT_IN,
    *(InputFormat, OutputFormat, Rounds, Schedule, SentPart, Stage, Stream, IntType, IntegerNorm, IntegerSoftmax),
    *(CommonSteps, DoubleScaler, Scaler, Table, Thresholds, ThresholdSearch),
    *(ArrayConfig, Compute, Emit, Fill, Loop, RankedSteps, StepMemory),
)
_TYPES = {kind.__name__: kind for kind in _KINDS}
"""The dataclasses that a file may name, by their names."""
RESERVED = frozenset(_TYPES)
"""Names that no engine of a user may have: files would be read with the class of nnhw instead."""
