"""A requantizer for few codes: it compares a sum with a step for each code but the lowest."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.shared.array import ArrayConfig


class StepRequantizer(wiring.Component):
    """A requantizer of one code a cycle: the lowest code, plus the number of constants with sum + constant < 0.

    Members
    -------
    sum: in, a sum. steps: in, with it: constants with one bit more than the sum, from `records.encode_record`.
    code: out, two cycles later.
    """

    def __init__(self, array: ArrayConfig) -> None:
        self.array = array
        members = {"sum": In(signed(array.sum_bits)), "steps": In(array.steps * (array.sum_bits + 1))}
        super().__init__({**members, "code": Out(signed(array.activation_bits))})

    @staticmethod
    def pieces(array: ArrayConfig) -> dict[str, tuple[int, int, int]]:
        """Return (lowest bit, bits, cycles behind the sum) of each piece of a lane's constants."""
        return {"steps": (0, array.constant_bits, 0)}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits, code = self.array.sum_bits + 1, self.array.activation_bits
        reached = Signal(self.array.steps)
        for index in range(self.array.steps):
            total = self.sum + self.steps.word_select(index, bits)
            m.d.sync += reached[index].eq(total[bits - 1])
        # A code is reached only if all below it are, so the number of those that are reached is the code.
        count = sum(reached)
        below = self.array.activation.low
        m.d.sync += self.code.eq(Cat((count + below)[:code]).as_signed())
        return m
