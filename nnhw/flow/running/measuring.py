"""Cycles of the parts of a program on a device, which itself counts only whole frames and their waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhw.accelerator import Accelerator, OutputFormat
from nnhw.driver import Device
from nnhw.driver.device import CountedWork
from nnhw.driver.image import ProgramImage
from nnhw.engines.shared import Emit, Fill, SharedConfig
from nnhw.engines.shared.counters import CountedPart, least_cycles, program_parts
from nnhw.engines.shared.records import Record
from nnhw.errors import InputError
from nnhw.ir.types import IntType

COUNTER_LIMIT = 1 << 32
_BYTE = Emit(start=0, pixels=1, elements=1, flip=False)
"""One byte of output right behind the input. The device opens the frame of its answer on the link when output comes:
with this byte the frame is open when the last layer sends its sums. Else these would wait for it, and the device would
count waits that do not make the program longer."""


@dataclass(frozen=True)
class PartCount:
    """The cycles of a part of a program on a device, for all images together.

    Parameters
    ----------
    part: the part, with its predicted cycles for one image.
    images: number of images.
    input_wait: cycles counted in which the first part waited for a beat of the input; 0 of all other parts.
    output_wait: cycles counted in which the last part waited for room for a byte of output; 0 of all other parts.
    measured: cycles for one image without waits, from `measure_parts`; None: not asked for.
    """

    part: CountedPart
    images: int
    input_wait: int
    output_wait: int
    measured: int | None = None

    @property
    def cycles(self) -> int:
        """Cycles of the device's clock."""
        return self.images * self.part.cycles + self.input_wait + self.output_wait

    @property
    def busy(self) -> int:
        """Those of the cycles in which the array multiplied."""
        return self.images * self.part.busy


@dataclass(frozen=True)
class ProgramCount:
    """The cycles that a device counted while its program answered images.

    Parameters
    ----------
    parts: of the program; nothing but their waits depends on when something comes or goes.
    counted: cycles in which the program did not wait, as the device counted them, modulo 2^32.
    least, most: bounds of `counted` by the schedule; they differ only where a part works while it waits, so that
        its cycles count as waits.
    """

    parts: tuple[PartCount, ...]
    counted: int
    least: int
    most: int

    @property
    def as_predicted(self) -> bool:
        """Whether the count lies within the bounds of the schedule."""
        # Modulo, as the device's counter wraps around.
        return (self.most - self.counted) % COUNTER_LIMIT <= self.most - self.least


def count_parts(
    program: SharedConfig, images: int, work: CountedWork, measured: Sequence[int] | None = None
) -> ProgramCount:
    """Return the cycles of a program's parts, from what a device counted while it answered `images` images."""
    parts = program_parts(program)
    found = [
        PartCount(
            part,
            images,
            work.input_wait if part.kind == "input" else 0,
            work.output_wait if index == len(parts) - 1 else 0,
            measured[index] if measured else None,
        )
        for index, part in enumerate(parts)
    ]
    most = images * sum(part.cycles for part in parts)
    least = max(most - work.output_wait, images * least_cycles(program))
    return ProgramCount(tuple(found), work.cycles, least, most)


def measure_parts(device: Device) -> tuple[int, ...]:
    """Return the cycles that each part of a device's program takes for one image, without waits, measured.

    For each part a program is run that consists of the input and this part: its cycles less those of the input alone
    are the part's, as they do not depend on the numbers that it computes with. At the end the device is given its own
    program again.

    Raises
    ------
    InputError: a device without a program, one that counts no cycles, several shared engines, engines behind the
        shared one, or a program of a loop.
    LinkError: see `Device`.
    """
    programs, image = device.accelerator.programs, device.program
    if not programs or image is None or not device.status().cycles:
        raise InputError(
            f"link '{device.link.name}': cycles of layers can be measured where a shared engine runs a program, on a "
            "board or the virtual one; build with '--style shared', and use another link than 'model'"
        )
    if len(programs) > 1:
        raise InputError(
            f"cycles of layers cannot be measured one by one where {len(programs)} shared engines stand in a row; "
            "leave out '--measure', and the whole program of the first one is counted"
        )
    if device.accelerator.input_format.headed:
        raise InputError(
            "cycles of layers cannot be measured one by one where the program is a step of a loop, whose parts are no "
            "programs; leave out '--measure', and whole steps are counted"
        )
    layers = _layers_behind(device.accelerator)
    if layers:
        raise InputError(
            f"cycles of layers cannot be measured one by one where layers stand behind the shared engine, as "
            f"'{layers[0]}' does: what it makes of a part's result takes time of its own; leave out '--measure', and "
            "whole programs are counted"
        )
    try:
        return _measure(device, programs[0])
    finally:
        device.load_program(image)


def _layers_behind(accelerator: Accelerator) -> list[str]:
    """Return the layers that have engines of their own behind a shared one."""
    stages = accelerator.stages
    shared = next(index for index, stage in enumerate(stages) if stage.config.program is not None)
    return [stage.layer for stage in stages[shared + 1 :] if stage.layer != "program"]


def _measure(device: Device, program: SharedConfig) -> tuple[int, ...]:
    parts = program_parts(program)
    first, *fills = [record for record in program.records if isinstance(record, Fill)]

    def time(own: Sequence[Record], count: int = 1) -> int:
        return _time(device, replace(program, records=(first, *[_BYTE] * count, *fills, *own)))

    # All times hold what a frame takes beside its parts; differences of two times do not.
    start = time(())
    byte = time((), count=2) - start
    cycles = [start - byte]
    for part in parts[1:]:
        own = [program.records[index] for index in part.records]
        # No program may be longer than the own one, behind which its tensors lie: that of a single layer would be.
        fits = len(parts) > 2
        cycles.append(time(own) - start if fits else time(own, count=0) - (start - byte))
    return tuple(cycles)


def _time(device: Device, config: SharedConfig) -> int:
    """Return the cycles that a program takes for one image, without waits."""
    accelerator = _with_program(device.accelerator, config)
    other = Device(device.link, accelerator, program=ProgramImage(config.image))
    form = accelerator.input_format
    before = other.idle_status()
    other.infer_codes(np.full((1, *form.shape), form.codes.low))
    work = other.idle_status().since(before)
    # A fault in between is rare; behind it, the image is sent again.
    return _time(device, config) if work is None else work.cycles


def _with_program(accelerator: Accelerator, config: SharedConfig) -> Accelerator:
    """Return an accelerator with another program; its results are bytes without a meaning."""
    stages = [stage if stage.config.program is None else replace(stage, config=config) for stage in accelerator.stages]
    o_format = OutputFormat((config.o_beats,), IntType(0, 255), 1, 1, np.zeros(config.o_beats, dtype=np.int64))
    return replace(accelerator, stages=tuple(stages), output_format=o_format)
