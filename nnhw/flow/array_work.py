"""The arrays of an accelerator and the layers that they run, for reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from nnhw.accelerator import Accelerator, Stage
from nnhw.engines.shared import Compute, SharedConfig
from nnhw.engines.shared.cycles import program_cycles
from nnhw.mapping.requantize import describe


@dataclass(frozen=True)
class ArrayWork:
    """The work of one array for one layer.

    Parameters
    ----------
    layer: name of the layer in the model.
    engine: `matmul`, `channelwise` or `shared`.
    pe, simd: cells, and lanes of a cell.
    cycles: cycles that the layer takes for a frame.
    busy: those of them in which the array multiplies.
    products: multiplications of one frame that the model needs.
    weight_bits: bits of all the layer's weights together.
    requantizer: how sums become codes, in words; None where the sums themselves are the result.
    """

    layer: str
    engine: str
    pe: int
    simd: int
    cycles: int
    busy: int
    products: int
    weight_bits: int
    requantizer: str | None

    @property
    def lanes(self) -> int:
        """Multiplications per cycle when the array is full."""
        return self.pe * self.simd


def works(accelerator: Accelerator) -> tuple[ArrayWork, ...]:
    """Return the work of all arrays of an accelerator, layer by layer."""
    return tuple(work for stage in accelerator.stages for work in works_of(stage))


def peak(accelerator: Accelerator) -> Fraction:
    """Return the multiplications that all arrays together could do in one initiation interval, on average."""
    lanes = 0
    for stage in accelerator.stages:
        # All layers of a shared engine have the same array, which counts once.
        found = works_of(stage)
        lanes += found[0].lanes if found else 0
    return lanes * accelerator.schedule.interval


def works_of(stage: Stage) -> tuple[ArrayWork, ...]:
    """Return the work of a stage's array, layer by layer; empty where the stage has no array."""
    return tuple(_works(stage))


def _works(stage: Stage) -> Iterator[ArrayWork]:
    config, array = stage.config, stage.config.product_array
    if config.program is not None:
        yield from _program(config.program)
    elif stage.products and array is not None:
        yield ArrayWork(
            layer=stage.layer,
            engine=config.kind,
            pe=array.pe,
            simd=array.simd,
            cycles=config.most_i_beats,
            busy=config.most_i_beats,
            products=stage.products,
            weight_bits=array.weight_bits,
            requantizer=None if config.requantizing is None else describe(config.requantizing),
        )


def _program(config: SharedConfig) -> Iterator[ArrayWork]:
    """Yield the layers of a program, in its order."""
    array, records = config.array, dict[str, list[int]]()
    for index, record in enumerate(config.records):
        if isinstance(record, Compute):
            records.setdefault(record.layer, []).append(index)
    cycles = program_cycles(config)
    for layer, indices in records.items():
        own = [record for index in indices if isinstance(record := config.records[index], Compute)]
        shift = array.shifts[own[0].shift]
        yield ArrayWork(
            layer=layer,
            engine="shared",
            pe=array.lanes,
            simd=array.simd,
            cycles=sum(cycles[index].total for index in indices),
            busy=sum(cycles[index].busy for index in indices),
            products=sum(record.products for record in own),
            weight_bits=sum(record.weights.size for record in own) * array.weight_bits,
            requantizer=None if own[0].raw else f"multiply-add-shift (shift {shift})",
        )
