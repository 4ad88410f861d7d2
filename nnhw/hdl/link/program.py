"""What an engine that runs a program tells the link about it."""

from __future__ import annotations

from amaranth.lib import wiring
from amaranth.lib.wiring import Out


class ProgramSignature(wiring.Signature):
    """State of a program, as `nnhw.protocol.ProgramStatus` has it; registers that no reset of the engine clears.

    Members
    -------
    state: Out(2), a `ProgramState`.
    reason: Out(3), a `Refusal`, of meaning when the state is REFUSED.
    crc, output_bytes: Out(32), of the image, of meaning when the state is READY.
    """

    def __init__(self) -> None:
        super().__init__({"state": Out(2), "reason": Out(3), "crc": Out(32), "output_bytes": Out(32)})
