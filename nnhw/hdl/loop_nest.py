"""Hardware of a loop nest: one address register, one adder, a counter and a flag for each loop."""

from __future__ import annotations

from amaranth.hdl import C, Const, Elaboratable, Module, Mux, Signal

from nnhw.engines.loop_nest import LoopNest


class LoopWalker(Elaboratable):
    """Walks the addresses of a loop nest, again and again.

    Parameters
    ----------
    nest: the loops.

    Members
    -------
    advance: in, strobe: go on to the next address with the next clock edge.
    address: out, the current address, a register.
    ends: out, one bit for each loop, innermost first, and a last one for the nest: bit k says that all loops inside
        loop k are in their last iteration, so that loop k advances with the next `advance`.
    lasts: out, one registered bit for each loop: it is in its last iteration.
    """

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.advance = Signal()
        self.address = Signal(nest.address_bits)
        self.ends = Signal(len(nest.counts) + 1)
        self.lasts = Signal(len(nest.counts))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counts, jumps = self.nest.counts, self.nest.jumps()
        jump = C(jumps[-1], self.nest.address_bits)
        m.d.comb += self.ends[0].eq(1)
        for index, count in enumerate(counts):
            m.d.comb += self.lasts[index].eq(self._counter(m, index, count))
            m.d.comb += self.ends[index + 1].eq(self.ends[index] & self.lasts[index])
        # The innermost loop that is not in its last iteration goes on, so its jump is chosen.
        for last, value in zip(reversed(self.lasts), reversed(jumps[:-1]), strict=True):
            jump = Mux(last, jump, C(value, self.nest.address_bits))
        with m.If(self.advance):
            m.d.sync += self.address.eq(self.address + jump)
        return m

    def _counter(self, m: Module, index: int, count: int) -> Signal | Const:
        """Add the counter of one loop; return its registered flag for the last iteration."""
        if count == 1:
            return C(1, 1)
        # The flag is compared a step ahead, so that no comparison stands between a counter and the choice of the jump.
        value = Signal(range(count), name=f"count_{index}")
        last = Signal(name=f"last_{index}")
        with m.If(self.advance & self.ends[index]):
            m.d.sync += [value.eq(Mux(last, 0, value + 1)), last.eq(~last & (value == count - 2))]
        return last
