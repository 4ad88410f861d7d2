"""The command processor between a byte stream and an engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from nnhw.hdl.link.framing.receiver import FrameReceiver
from nnhw.hdl.link.framing.transmitter import FrameTransmitter
from nnhw.hdl.link.program_signature import ProgramSignature
from nnhw.protocol import DeviceIdentity, ProgramState


class Link(wiring.Component):
    """Speaks the protocol with the host on one side, and plain input and output bytes with the engine on the other.

    Parameters
    ----------
    identity: what the device says about itself; its `output_bytes` cut the engine's bytes into RESULT frames.
    array_id: identifies the array whose programs the engine runs; None: the engine runs none.

    Members
    -------
    i, o: streams of bytes from and to the host.
    overrun: In(1), strobe: a byte from the host was lost in front of `i`.
    o_engine: stream of input bytes to the engine.
    i_engine: stream of output bytes from the engine.
    reset_engine: Out(1), the engine has to be reset; it is 1 for at least 3 cycles.
    o_load: only with an `array_id`: stream of the bytes of a program to the engine.
    program: In(ProgramSignature), only with an `array_id`: the program's state; its `output_bytes` then cut the
        engine's bytes into RESULT frames.

    Timing
    ------
    A byte per cycle on each stream but for framing: a DATA frame of n payload bytes takes n + 12 cycles.
    """

    def __init__(self, identity: DeviceIdentity, array_id: int | None = None) -> None:
        self.identity = identity
        self.array_id = array_id
        loads = {"o_load": Out(stream.Signature(unsigned(8))), "program": In(ProgramSignature())}
        super().__init__(
            {
                "i": In(stream.Signature(unsigned(8))),
                "o": Out(stream.Signature(unsigned(8))),
                "overrun": In(1),
                "o_engine": Out(stream.Signature(unsigned(8))),
                "i_engine": In(stream.Signature(unsigned(8))),
                "reset_engine": Out(1),
                **({} if array_id is None else loads),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        loadable = self.array_id is not None
        m.submodules.receiver = receiver = FrameReceiver(loadable)
        m.submodules.transmitter = transmitter = FrameTransmitter(self.identity, self.array_id)
        wiring.connect(m, wiring.flipped(self.i), receiver.i)
        if loadable:
            self._connect_program(m, receiver, transmitter)
        else:
            wiring.connect(m, receiver.o, wiring.flipped(self.o_engine))
        wiring.connect(m, wiring.flipped(self.i_engine), transmitter.i)
        wiring.connect(m, transmitter.o, wiring.flipped(self.o))
        m.d.comb += [
            receiver.overrun.eq(self.overrun),
            receiver.answered.eq(transmitter.answered),
            transmitter.ask.eq(receiver.ask),
            transmitter.command.eq(receiver.command),
            transmitter.token.eq(receiver.token),
            transmitter.error.eq(receiver.error),
            transmitter.reason.eq(receiver.reason),
            transmitter.taken.eq(receiver.taken),
            transmitter.taken_count.eq(receiver.taken_count),
            transmitter.reset.eq(receiver.reset),
            # As long as the engine is in reset, so that nothing that it did before is counted.
            transmitter.clear.eq(self.reset_engine),
        ]
        # What a program waits for is known to its engine alone: there are queues between it and the link.
        input_waits, output_waits = (
            (self.program.input_waits, self.program.output_waits)
            if loadable
            else (self.o_engine.ready & ~self.o_engine.valid, self.i_engine.valid & ~self.i_engine.ready)
        )
        # One register between the handshakes and the counters' adder.
        m.d.sync += [transmitter.input_waits.eq(input_waits), transmitter.output_waits.eq(output_waits)]
        # The engine is in reset from the RESET frame until the answer to it is being built.
        resetting = Signal()
        with m.If(receiver.reset):
            m.d.sync += resetting.eq(1)
        with m.Elif(transmitter.answered):
            m.d.sync += resetting.eq(0)
        m.d.comb += self.reset_engine.eq(resetting)
        return m

    def _connect_program(self, m: Module, receiver: FrameReceiver, transmitter: FrameTransmitter) -> None:
        """Send the payloads of DATA and LOAD frames to their streams, and the program's state to both sides."""
        wiring.connect(m, wiring.flipped(self.program), transmitter.program)
        m.d.comb += [
            self.o_engine.payload.eq(receiver.o.payload),
            self.o_engine.valid.eq(receiver.o.valid & ~receiver.load),
            self.o_load.payload.eq(receiver.o.payload),
            self.o_load.valid.eq(receiver.o.valid & receiver.load),
            receiver.o.ready.eq(Mux(receiver.load, self.o_load.ready, self.o_engine.ready)),
            receiver.runnable.eq(self.program.state == ProgramState.READY),
        ]
