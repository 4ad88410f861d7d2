"""Hardware of the systolic matrix engine: sequencing around the array."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.engines.matmul import MatmulConfig
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.requantizer_table import make_requantizer
from nnhw.hdl.systolic_array import SystolicArray, is_spread


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
        spread = is_spread(config, platform)
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
