"""Hardware of the systolic matrix engine: sequencing around the array."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.requantizer_table import make_requantizer
from nnhw.hdl.systolic_array import SystolicArray

SPREAD_BITS = 2048
"""On a large device, an array that adds at least so many products of single bits in a cycle gets an enable register for
each group of its cells; a product of 8 x 8 bits is 64 of them."""
LARGE_DEVICE = "-85f"
"""End of the names of large devices, on which one register does not reach all loads of an array in time.

Measured on an ECP5-85F with three arrays of 64 x 64: one register for the 16,500 loads of an array reached the last of
them after 14.7 ns of wires. On an ECP5-25F with one of 72 x 64 one reaches all in 6 ns, and several cost: what decides
whether the array moves reached them after 8.2 ns. An array of 16 x 8 products of 8 bits has 10,296 loads.
"""


class MatmulEngine(wiring.Component):
    """A systolic array with its requantizer between two streams; all of it stands still while two results wait.

    Timing: see `nnhw.engines.matmul.MatmulConfig`.
    """

    def __init__(self, config: MatmulConfig) -> None:
        self.config = config
        self.array = SystolicArray(config)
        if config.thresholds is None:
            o_layout = data.ArrayLayout(self.array.raw_shape, config.drain)
        else:
            o_layout = data.ArrayLayout(unsigned(config.thresholds.code.bits), config.drain)
        super().__init__(
            {
                "i": In(stream.Signature(data.ArrayLayout(unsigned(config.activation.bits), config.simd))),
                "o": Out(stream.Signature(o_layout)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.array = array = self.array
        is_large = str(getattr(platform, "device", "")).lower().endswith(LARGE_DEVICE)
        bits = config.pe * config.simd * config.activation.bits * config.weight.bits
        spread = is_large and bits >= SPREAD_BITS
        shape = self.o.signature.members["payload"].shape
        m.submodules.buffer = buffer = StreamBuffer(shape, config.groups if spread else 0)
        ce = buffer.i.ready
        # Two counters, though the step follows from the address: a remainder would cost far more.
        step, address = Signal(range(config.steps)), Signal(range(array.depth))
        last = step == config.steps - 1
        m.d.comb += [
            self.i.ready.eq(ce),
            array.ce.eq(ce),
            array.group_ce.eq(Cat(buffer.ready_copies) if spread else ce.replicate(config.groups)),
            array.i_valid.eq(self.i.valid),
            array.i_last.eq(last),
            array.i_lanes.eq(self.i.payload),
            array.i_address.eq(address),
        ]
        with m.If(self.i.valid & ce):
            m.d.sync += step.eq(Mux(last, 0, step + 1))
            m.d.sync += address.eq(Mux(address == array.depth - 1, 0, address + 1))
        if config.thresholds is None:
            m.d.comb += [buffer.i.valid.eq(array.o_valid), buffer.i.payload.eq(array.o_sums)]
        else:
            raw = config.arithmetic.raw_range(config.weights)
            requantizer = make_requantizer(config.thresholds, raw, config.drain, config.logic_thresholds)
            m.submodules.thresholds = requantizer
            m.d.comb += [
                requantizer.ce.eq(ce),
                requantizer.i_valid.eq(array.o_valid),
                requantizer.i_sums.eq(array.o_sums),
                buffer.i.valid.eq(requantizer.o_valid),
                buffer.i.payload.eq(requantizer.o_codes),
            ]
        wiring.connect(m, buffer.o, wiring.flipped(self.o))
        return m
