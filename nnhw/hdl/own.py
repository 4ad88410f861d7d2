"""Base of the hardware of registered engines whose results come a fixed number of cycles after their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.arithmetic import as_number
from nnhw.hdl.delivery import result_buffer
from nnhw.ir.types import IntType


class Pipeline(wiring.Component):
    """Takes a beat of every input at once; results leave through a buffer. A subclass adds the logic in `compute`.

    All registers move together, in the cycles in which the buffer has room; else all of them stand still.

    Parameters
    ----------
    inputs, output: types of the elements.
    i_lanes, lanes: elements of a beat at each input and at the output.
    latency: cycles from a beat to its result, at least 1: the register stages of `compute`, and one for the buffer.
        `nnhw.engines.own.pipeline` is the cycle model with the same latency.

    Members
    -------
    i0, i1, ..: streams of beats, one for each input. o: stream of results.

    Raises
    ------
    ValueError: the latency is less than 1; at elaboration, `compute` gives another number of results than `lanes`.
    """

    def __init__(self, inputs: Sequence[IntType], output: IntType, i_lanes: int, lanes: int, latency: int) -> None:
        if latency < 1:
            raise ValueError(f"a pipeline needs a latency of 1 or more, given {latency}")
        self.elements, self.element, self.i_lanes, self.lanes = tuple(inputs), output, i_lanes, lanes
        self.latency = latency
        ports: dict[str, Any] = {
            f"i{index}": In(stream.Signature(data.ArrayLayout(unsigned(element.bits), i_lanes)))
            for index, element in enumerate(inputs)
        }
        super().__init__({**ports, "o": Out(stream.Signature(data.ArrayLayout(unsigned(output.bits), lanes)))})

    def compute(self, m: Module, ce: Value, inputs: Sequence[Sequence[Value]]) -> Sequence[Value]:
        """Add the logic; return the results of all lanes.

        Parameters
        ----------
        m: the module to add it to.
        ce: the pipeline moves in this cycle: assign every register within `m.If(ce)`, with `latency` - 1 registers on
            every path.
        inputs: for each input the elements of a beat [i_lanes], as numbers (-1 and +1 if it is bipolar).

        Returns
        -------
        A number for each lane [lanes]; for a bipolar output one bit, 1 for +1.
        """
        raise NotImplementedError

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ports = [getattr(self, f"i{index}") for index in range(len(self.elements))]
        buffer = result_buffer(m, self.o)
        # No input is ready before all have a beat: so none is ahead of the others, and no beat waits in between.
        ce, take = buffer.i.ready, Signal()
        m.d.comb += take.eq(ce & Cat(*(port.valid for port in ports)).all())
        m.d.comb += [port.ready.eq(take) for port in ports]
        valid: Value = take
        for stage in range(self.latency - 1):
            register = Signal(name=f"valid_{stage}")
            with m.If(ce):
                m.d.sync += register.eq(valid)
            valid = register
        numbers = [
            [as_number(port.payload[lane], element) for lane in range(self.i_lanes)]
            for port, element in zip(ports, self.elements, strict=True)
        ]
        results = self.compute(m, ce, numbers)
        if len(results) != self.lanes:
            raise ValueError(f"compute of {type(self).__name__} must give {self.lanes} results, given {len(results)}")
        m.d.comb += buffer.i.valid.eq(valid)
        m.d.comb += [buffer.i.payload[lane].eq(result) for lane, result in enumerate(results)]
        return m
