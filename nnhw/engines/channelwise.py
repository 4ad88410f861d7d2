"""Channelwise engine: reduces the pixels of a window to one, in each channel by itself.

It runs depthwise convolutions, sums (average pooling without its division) and maxima, with a running result for each
channel of a pixel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nnhw.engines.arithmetic import LaneArithmetic
from nnhw.engines.contract import ProductArray, RequantizingConfig
from nnhw.engines.requantize import Requantizer
from nnhw.engines.timing import PipelineModel
from nnhw.errors import MappingError
from nnhw.ir.types import BIPOLAR, IntType

OPERATIONS = ("sum", "dot", "max")
"""What a channelwise engine can do with the taps of a window; see `ChannelwiseConfig.op`."""


@dataclass(frozen=True)
class ChannelwiseConfig(RequantizingConfig):
    """Parameters of a channelwise engine.

    Parameters
    ----------
    taps: pixels of one window, in the order in which they stream in.
    chunks: beats of one pixel.
    lanes: channels of one beat.
    op: 'sum', 'dot' (with weights) or 'max'.
    activation: element type of the input.
    windows: windows of one frame.
    row_lanes: taps in one beat, one after the other with `lanes` channels each; divides `taps`.
    weights: int64 [channels, taps] of 'dot', taps in stream order (`WindowConfig.tap_order`).
    weight: type of the weights.
    requantizer: applied to the results; None: raw sums, or maxima, leave.
    logic_weights: weights are constants in logic; else in block RAM.
    dsp: products are made in DSP blocks, which needs `arithmetic.can_use_dsp`.

    Timing: one beat a cycle; a result leaves `latency` cycles after the last tap of its channel.
    Range: sums have exactly the bits that the actual weights and the range of the activations need; they are added
    modulo that width, so partial sums need no more.

    Raises
    ------
    MappingError: parameters do not go together.
    """

    taps: int
    chunks: int
    lanes: int
    op: str
    activation: IntType
    windows: int
    row_lanes: int = 1
    weights: np.ndarray | None = field(default=None, repr=False)
    weight: IntType | None = None
    requantizer: Requantizer | None = None
    logic_weights: bool = False
    dsp: bool = False

    def __post_init__(self) -> None:
        problems = []
        if self.op not in OPERATIONS:
            problems.append(f"op must be one of {', '.join(OPERATIONS)}, given '{self.op}'")
        if self.taps % self.row_lanes:
            problems.append(f"row lanes {self.row_lanes} must divide taps {self.taps}")
        shape = None if self.weights is None else self.weights.shape
        if self.op == "dot" and (shape != (self.channels, self.taps) or self.weight is None):
            problems.append(f"op 'dot' needs weights [{self.channels}, {self.taps}] and their type, given {shape}")
        if self.dsp and (self.op != "dot" or not self.arithmetic.can_use_dsp):
            problems.append("DSP blocks need op 'dot' and integers of at most 8 bits; use logic")
        if self.requantizer is not None and self.requantizer.outputs != self.channels:
            problems.append(f"{self.channels} channels need as many requantized, given {self.requantizer.outputs}")
        if problems:
            raise MappingError("channelwise engine: " + "; ".join(problems))

    @property
    def channels(self) -> int:
        """Channels of one pixel."""
        return self.chunks * self.lanes

    @property
    def steps(self) -> int:
        """Beats from which one result is made."""
        return self.taps // self.row_lanes

    @property
    def i_lanes(self) -> int:
        """Elements of one input beat."""
        return self.row_lanes * self.lanes

    @property
    def i_beats(self) -> int:
        """Input beats of one frame."""
        return self.windows * self.steps * self.chunks

    @property
    def o_beats(self) -> int:
        """Output beats of one frame."""
        return self.windows * self.chunks

    @property
    def arithmetic(self) -> LaneArithmetic:
        """The lane arithmetic of 'dot' and 'sum': what raw sums mean. A sum counts as a dot product with ones."""
        if self.op == "dot" and self.weight is not None:
            return LaneArithmetic(self.activation, self.weight)
        # With these types of a weight that is always +1, a raw sum counts bits, or is the sum itself.
        return LaneArithmetic(self.activation, BIPOLAR if self.activation.bipolar else IntType(1, 1))

    @property
    def factors(self) -> np.ndarray:
        """Weights int64 [channels, taps]; for a sum all are one."""
        return np.ones((self.channels, self.taps), dtype=np.int64) if self.weights is None else self.weights

    @property
    def multiplier(self) -> int:
        """By what a raw result is multiplied to get the true one, without its offset."""
        return 1 if self.op == "max" else self.arithmetic.multiplier

    @property
    def offsets(self) -> np.ndarray:
        """What to add to `multiplier * raw`: int64 [channels]."""
        if self.op == "max":
            return np.zeros(self.channels, dtype=np.int64)
        return self.arithmetic.offsets(self.factors)

    @property
    def raw(self) -> IntType:
        """Type of a raw result: that of the elements for a maximum, else the exact range of raw sums."""
        return self.activation if self.op == "max" else IntType(*self.arithmetic.raw_range(self.factors))

    @property
    def ring_in_memory(self) -> bool:
        """Whether the running results are in block RAM, which they are where registers would cost more.

        A block RAM of 16 bits a word is about as large a share of a small iCE40 as 128 registers. With fewer than 4
        chunks a result would be needed again before the memory has it.
        """
        bits = self.lanes * self.raw.bits
        return self.steps > 1 and self.chunks >= 4 and self.chunks * min(bits, 16) > 128

    @property
    def tree_levels(self) -> int:
        """Register stages from the elements of a beat, and their weights, to their sum or maximum."""
        if self.op != "dot":
            return max(1, (self.row_lanes - 1).bit_length())
        return self.arithmetic.dsp_levels(self.row_lanes) if self.dsp else self.arithmetic.tree_levels(self.row_lanes)

    @property
    def raw_latency(self) -> int:
        """Moves from the last tap to the raw result: one for the operands of 'dot', the tree, one for the ring."""
        # Without weights there is no memory to wait for, so elements go into the tree at once.
        return (self.op == "dot") + self.tree_levels + (self.steps > 1)

    @property
    def weight_bits(self) -> int:
        """Bits of all weights."""
        return 0 if self.weights is None or self.weight is None else int(self.weights.size) * self.weight.bits

    @property
    def bursts(self) -> tuple[int, int]:
        """(results in a row, how often in a frame): those of all chunks leave together, behind a window's last tap."""
        return (self.chunks, self.windows) if self.steps > 1 else super().bursts

    @property
    def product_array(self) -> ProductArray:
        """The part that multiplies: a cell for each channel of a beat."""
        return ProductArray(self.lanes, self.row_lanes, self.weight_bits)

    def golden(self, *beats: np.ndarray) -> np.ndarray:
        """Return the output beats int64 [o_beats, lanes] of the input beats [i_beats, i_lanes] (values).

        They are codes; without a requantizer maxima or raw sums.
        """
        # A beat has some taps of some channels: bring the taps together, row lanes innermost, and the channels.
        shape = (self.windows, self.steps, self.chunks, self.row_lanes, self.lanes)
        shaped = np.asarray(beats[0], dtype=np.int64).reshape(shape).transpose(0, 1, 3, 2, 4)
        pixels = shaped.reshape(self.windows, self.taps, self.channels)
        if self.op == "max":
            raw = pixels.max(axis=1)
        else:
            sums = (pixels * self.factors.T[None]).sum(axis=1)
            # Exact: offsets have the parity of all sums, see `LaneArithmetic.raw_range`.
            raw = (sums - self.offsets) // self.multiplier
        return self.requantized(raw).reshape(-1, self.lanes)

    def model(self) -> PipelineModel:
        """Return the cycle model: of the beats of a window, those of the last taps give results."""
        return PipelineModel(self.latency, self.steps * self.chunks, (self.steps - 1) * self.chunks)
