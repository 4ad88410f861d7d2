"""Systolic matrix engine: `pe` cells of `simd` lanes, weights stationary in memory, sums drained in order.

Activations enter at the last group of cells and hop from group to group towards the first one. Each cell has its
finished sum in a drain register; these form a shift register, from whose first cells `drain` sums leave at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.contract import EngineConfig, ProductArray
from nnhw.engines.encoding import bits_for_range
from nnhw.engines.inner_product import InnerProduct
from nnhw.engines.requantize import Requantizer, Thresholds
from nnhw.engines.timing import PipelineModel
from nnhw.errors import MappingError
from nnhw.ir.types import IntType

__all__ = ["LOGIC_ROM_WORDS", "MatmulConfig", "Thresholds"]

LOGIC_ROM_WORDS = 64
"""Most words of a ROM in logic that are read in one cycle: on the iCE40 that takes three LUTs in a row."""


@dataclass(frozen=True)
class MatmulConfig(EngineConfig):
    """Parameters of a systolic matrix engine.

    Parameters
    ----------
    pe: cells, each of which computes one output at a time; divides the outputs.
    simd: lanes of a cell: products in a cycle; divides the inputs.
    hop: cells of a group, which share one activation register; divides `pe`.
    drain: sums that leave in one cycle; divides `hop`.
    weights: int64 [outputs, inputs], inputs in the order in which they stream in.
    activation, weight: types of the factors.
    thresholds: the requantizer of the sums, of any kind; None: raw sums leave.
    vectors: input vectors of one frame (output pixels).
    logic_pe: cells, the last ones, whose weights are constants in logic; the others' are in block RAM.
    logic_thresholds: steps of `Thresholds` are constants in logic; else in block RAM.
    dsp_pe: cells, the last ones, whose products are made in DSP blocks; the others' are made in logic.
    tail_words: the last words of each group's weights in block RAM that are constants in logic instead, so that the
        others fill whole block RAMs.
    registered: a register follows the weights from block RAM, for where the RAM, or a multiplexer behind it, takes most
        of a cycle.
    paired: two cells with DSP blocks, of one lane each, share a block, as the iCE40 can.
    winograd: products of two neighbouring lanes are made with one multiplication; see `nnhw.engines.inner_product`.

    Timing: one beat a cycle; a vector takes `steps * folds` cycles; the first code leaves `latency` cycles after
    the last beat of its fold.
    Range: sums have exactly the bits that the actual weights and the range of the activations need;
    they are added modulo that width, so partial sums need no more.

    Raises
    ------
    MappingError: parameters do not go together.
    """

    pe: int
    simd: int
    hop: int
    drain: int
    weights: np.ndarray = field(repr=False)
    activation: IntType
    weight: IntType
    thresholds: Requantizer | None
    vectors: int
    logic_pe: int = 0
    logic_thresholds: bool = True
    dsp_pe: int = 0
    tail_words: int = 0
    registered: bool = False
    paired: bool = False
    winograd: bool = False

    def __post_init__(self) -> None:
        outputs, inputs = self.weights.shape
        problems = [
            f"{name} {value} must divide {of} {total}"
            for name, value, of, total in (
                ("pe", self.pe, "outputs", outputs),
                ("simd", self.simd, "inputs", inputs),
                ("hop", self.hop, "pe", self.pe),
                ("drain", self.drain, "hop", self.hop),
            )
            if value < 1 or total % value
        ]
        # Otherwise the last group, which sees a beat `groups - 1` moves before the first one does, would load its sum
        # of the next fold into the drain before that of this fold has moved on.
        if not problems and self.groups - 1 + self.pe // self.drain > self.steps:
            problems.append(
                f"draining takes {self.groups - 1} + {self.pe // self.drain} cycles but a fold has only {self.steps}; "
                "use a larger drain or hop"
            )
        if not 0 <= self.dsp_pe <= self.pe or (self.dsp_pe and not self.arithmetic.can_use_dsp):
            problems.append(
                f"dsp_pe {self.dsp_pe} must be 0 to pe {self.pe}, and 0 for {self.activation} times {self.weight}, "
                "unless both are integers of at most 8 bits"
            )
        if self.winograd and not InnerProduct.serves(self.arithmetic, self.simd):
            problems.append(
                f"winograd needs an even simd, given {self.simd}, and integers of 4 to 8 bits with signed weights, "
                f"given {self.activation} times {self.weight}"
            )
        if problems:
            raise MappingError("matmul engine: " + "; ".join(problems))

    @property
    def arithmetic(self) -> LaneArithmetic:
        """The lane arithmetic of the two number formats."""
        return LaneArithmetic(self.activation, self.weight)

    @property
    def outputs(self) -> int:
        """Outputs of one vector."""
        return int(self.weights.shape[0])

    @property
    def steps(self) -> int:
        """Beats from which one output of each cell is made (synapse folds)."""
        return int(self.weights.shape[1]) // self.simd

    @property
    def folds(self) -> int:
        """How often each vector is read (neuron folds): each time every cell computes one output."""
        return self.outputs // self.pe

    @property
    def groups(self) -> int:
        """Groups of cells, one hop apart."""
        return self.pe // self.hop

    @property
    def pairs(self) -> tuple[int, ...]:
        """First cells of the pairs that share a DSP block: cell and next cell are in one group, and both use DSP."""
        if not self.paired or self.simd > 1:
            return ()
        # Cells with DSP blocks are the last ones. In the group where they begin, pairs begin there, too; a last cell of
        # a group that has no neighbour left stays alone.
        first = self.pe - self.dsp_pe
        groups = (range(start, start + self.hop) for start in range(0, self.pe, self.hop))
        return tuple(cell for group in groups for cell in group[max(0, first - group[0]) : -1][::2])

    @property
    def drains(self) -> int:
        """Cycles in which the sums of one fold leave: `pe / drain`."""
        return self.pe // self.drain

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.vectors * self.folds * self.steps

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.vectors * self.folds * self.drains

    @cached_property
    def raw(self) -> IntType:
        """Type of a raw sum: the exact range that any input can give."""
        return IntType(*self.arithmetic.raw_range(self.weights))

    @property
    def raw_bits(self) -> tuple[int, bool]:
        """(bits, signed) of a raw sum."""
        return bits_for_range(self.raw.low, self.raw.high)

    @cached_property
    def pair_products(self) -> InnerProduct | None:
        """How products of two lanes are made with one multiplication; None: each has its own."""
        return InnerProduct(self.arithmetic) if self.winograd else None

    @property
    def logic_levels(self) -> int:
        """Register stages from factors to the sum of a beat in a cell whose products are in logic."""
        return (self.pair_products or self.arithmetic).tree_levels(self.simd)

    @property
    def dsp_levels(self) -> int:
        """Register stages from factors to the sum of a beat in a cell whose products are in DSP blocks."""
        return (self.pair_products or self.arithmetic).dsp_levels(self.simd)

    @property
    def tree_levels(self) -> int:
        """Register stages from factors to the sum of a beat, the same in all cells: those of the slowest kind."""
        # Sums of all cells enter the drain together, so the faster kind of cells waits.
        in_logic = self.logic_levels if self.dsp_pe < self.pe else 0
        in_dsp = self.dsp_levels if self.dsp_pe else 0
        return max(in_logic, in_dsp)

    @property
    def crossed_levels(self) -> int:
        """Register stages from activations to the sum of their products, which all sums of the cells have too much.

        That takes at least as many stages as the sums of the cells, with registers if its own tree has fewer levels.
        """
        assert self.pair_products is not None
        return max(self.tree_levels, self.pair_products.crossed_levels(self.simd))

    @property
    def crossed_wait(self) -> int:
        """Moves that sums wait behind the drain for what is subtracted from them, which is prepared in the last one."""
        return self.crossed_levels + 1 - self.tree_levels if self.winograd else 0

    @property
    def split_logic(self) -> bool:
        """Whether a memory of weights in logic has too many words to be read in one cycle; then it takes two."""
        return self.logic_pe > 0 and self.folds * self.steps > LOGIC_ROM_WORDS

    @property
    def late(self) -> int:
        """1 if some weights take two cycles to read, so that everything waits a cycle for them; else 0."""
        # All weights of a beat must come together: one late memory delays the whole array.
        return int(self.split_logic or self.tail_words > 0 or self.registered)

    @property
    def array_latency(self) -> int:
        """Cycles from the last beat of a fold to its first raw sum: weights, hops, adder tree, accumulator, drain.

        With pairs of lanes, what they have too much is taken away behind the drain.
        """
        corrected = self.crossed_wait + 1 if self.winograd else 0
        return self.late + self.groups + self.tree_levels + (self.steps > 1) + 1 + corrected

    @property
    def latency(self) -> int:
        """Cycles from the last beat of a fold to its first result behind the output buffer, if nothing stalls."""
        return self.array_latency + self.requantizer_latency + 1

    @property
    def requantizer_latency(self) -> int:
        """Moves from a raw sum to its code."""
        return 0 if self.thresholds is None else self.thresholds.latency

    @property
    def weight_bits(self) -> int:
        """Bits of all weights."""
        return int(self.weights.size) * self.weight.bits

    @property
    def bursts(self) -> tuple[int, int]:
        """(results in a row, how often in a frame): the sums of all cells leave together at the end of each fold."""
        return self.drains, self.vectors * self.folds

    @property
    def requantizing(self) -> Requantizer | None:
        """The requantizer of its sums."""
        return self.thresholds

    @property
    def product_array(self) -> ProductArray:
        """The part that multiplies: all of its cells."""
        return ProductArray(self.pe, self.simd, self.weight_bits)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [o_beats, drain] of the input beats [i_beats, simd] (values).

        In the stream, each fold has its vector: the same one again, unless the layer's channels are in groups.
        """
        read = np.asarray(beats[0]).reshape(self.vectors, self.folds, -1)
        results = [self.results(read[:, fold]) for fold in range(self.folds)]
        # Of what the whole matrix makes of a fold's vectors, only the outputs of that fold are computed.
        parts = [result[:, fold * self.pe : (fold + 1) * self.pe] for fold, result in enumerate(results)]
        return np.concatenate(parts, axis=1).reshape(-1, self.drain)

    def results(self, vectors: np.ndarray) -> np.ndarray:
        """Return the results of input vectors.

        Parameters
        ----------
        vectors: int [n, inputs], in stream order, values (not bit patterns).

        Returns
        -------
        int64 [n, outputs]: codes, or raw sums when there are no thresholds.
        """
        raw = self.arithmetic.raw_sums(vectors, self.weights)
        return raw if self.thresholds is None else self.thresholds.golden(raw)

    def model(self) -> PipelineModel:
        """Return the cycle model: of the beats of a fold, the last one gives the results of all cells."""
        return PipelineModel(self.latency, period=self.steps, silent=self.steps - 1, burst=self.drains)
