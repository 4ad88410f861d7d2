"""The end of a pipeline: raw results are requantized, where there is a requantizer, and leave through a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Module, Value
from amaranth.lib import wiring

from nnhw.engines.requantize import Requantizer
from nnhw.hdl.buffer import StreamBuffer
from nnhw.hdl.requantizer_table import make_requantizer
from nnhw.ir.types import IntType


def result_buffer(m: Module, o: Any) -> StreamBuffer:
    """Add a buffer in front of the output stream `o`; return it. The pipeline moves while the buffer's `i` is ready."""
    m.submodules.buffer = buffer = StreamBuffer(o.signature.members["payload"].shape)
    wiring.connect(m, buffer.o, wiring.flipped(o))
    return buffer


def deliver(
    m: Module,
    buffer: StreamBuffer,
    requantizer: Requantizer | None,
    raw: IntType,
    valid: Value,
    results: Sequence[Value],
) -> None:
    """Connect raw results to the buffer, through a requantizer if there is one.

    Parameters
    ----------
    buffer: of `result_buffer`.
    requantizer: None: raw results leave as they are.
    raw: type of the raw results.
    valid: there are results in this move.
    results: raw results of all lanes: numbers, or bit patterns as they leave if there is no requantizer.
    """
    bits = buffer.i.payload.as_value()
    if requantizer is None:
        m.d.comb += buffer.i.valid.eq(valid)
        lane_bits = len(bits) // len(results)
        for lane, result in enumerate(results):
            m.d.comb += bits[lane * lane_bits : (lane + 1) * lane_bits].eq(result)
        return
    m.submodules.requantizer = unit = make_requantizer(requantizer, (raw.low, raw.high), len(results))
    m.d.comb += [unit.ce.eq(buffer.i.ready), unit.i_valid.eq(valid)]
    m.d.comb += [unit.i_sums[lane].eq(result) for lane, result in enumerate(results)]
    m.d.comb += [buffer.i.valid.eq(unit.o_valid), bits.eq(unit.o_codes.as_value())]
