"""The ports by which an engine that runs a program tells the link about it."""

from __future__ import annotations

from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class ProgramSignature(wiring.Signature):
    """State of a program, as `nnhw.protocol.ProgramStatus` has it, and what the program waits for.

    Members
    -------
    state: Out(2), a `ProgramState`.
    reason: Out(3), a `Refusal`; it means something while the state is REFUSED.
    crc, output_bytes: Out(32), CRC of the image, and bytes of one output; they mean something while the state is
        READY. A reset of the engine clears none of these four registers.
    input_waits, output_waits: Out(1), in this cycle the program waits for input; for room for output.
    """

    def __init__(self) -> None:
        state = {"state": Out(2), "reason": Out(3), "crc": Out(32), "output_bytes": Out(32)}
        super().__init__({**state, "input_waits": Out(1), "output_waits": Out(1)})
