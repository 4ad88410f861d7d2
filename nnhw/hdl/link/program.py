"""What an engine that runs a program tells the link about it."""

from __future__ import annotations

from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class ProgramSignature(wiring.Signature):
    """State of a program, as `nnhw.protocol.ProgramStatus` has it, and what keeps it waiting.

    Members
    -------
    state: Out(2), a `ProgramState`.
    reason: Out(3), a `Refusal`, of meaning when the state is REFUSED.
    crc, output_bytes: Out(32), of the image, of meaning when the state is READY. These four are registers that no
        reset of the engine clears.
    input_waits, output_waits: Out(1), in this cycle the program waits for input, or for room for output.
    """

    def __init__(self) -> None:
        state = {"state": Out(2), "reason": Out(3), "crc": Out(32), "output_bytes": Out(32)}
        super().__init__({**state, "input_waits": Out(1), "output_waits": Out(1)})
