"""Products in DSP blocks: the family's block where hardware is synthesized, registers and `*` where it is simulated."""

from __future__ import annotations

from amaranth.hdl import Module, Shape, signed
from amaranth.lib import wiring
from amaranth.lib.data import ArrayLayout
from amaranth.lib.wiring import In, Out

from nnhw.engines.arithmetic import DSP_OPERAND_BITS, WIDE_DSP_BITS
from nnhw.errors import MappingError
from nnhw.hdl.cells import cells_of


class DspProducts(wiring.Component):
    """Products of pairs of numbers, in as many DSP blocks as the family needs.

    Parameters
    ----------
    lanes: how many products.
    a, b: shapes of their factors, at most 16 bits each; if one has more than 8, each product takes a block of its own.

    Members
    -------
    ce: In(1), the registers take their next values in this cycle (a move).
    i_a, i_b: in, factors [lanes].
    o: out, products [lanes].

    Timing: a product leaves two moves after its factors: registers at the block's inputs and behind its multiplier.

    Raises
    ------
    MappingError: a factor has more than 16 bits.
    """

    def __init__(self, lanes: int, a: Shape, b: Shape) -> None:
        if max(a.width, b.width) > WIDE_DSP_BITS:
            raise MappingError(
                f"a product in a DSP block has factors of at most {WIDE_DSP_BITS} bits, given {a.width} and "
                f"{b.width}; use narrower quantizers, or no DSP blocks for this layer"
            )
        self.lanes = lanes
        self.a, self.b = a, b
        self.wide = max(a.width, b.width) > DSP_OPERAND_BITS
        width = a.width + b.width
        self.product = signed(width) if a.signed or b.signed else Shape(width)
        super().__init__(
            {
                "ce": In(1),
                "i_a": In(ArrayLayout(a, lanes)),
                "i_b": In(ArrayLayout(b, lanes)),
                "o": Out(ArrayLayout(self.product, lanes)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cells_of(platform).multiply(m, self)
        return m
