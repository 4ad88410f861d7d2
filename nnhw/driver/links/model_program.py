"""Program memories of shared engines in Python, for a device that is Python code."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace

from nnhw.protocol import (
    CRC_BYTES,
    PROGRAM_HEADER,
    PROGRAM_MAGIC,
    PROGRAM_OVERHEAD_BYTES,
    ProgramState,
    ProgramStatus,
    Refusal,
    joined_crc,
    joined_id,
)


class ProgramMemory:
    """The program memory of an engine: it accepts and refuses programs as the gateware does.

    Parameters
    ----------
    array_id: id of the array that programs must be made for.
    memory_bytes: bytes that the body of a program may have at most.

    Members
    -------
    status: state of the program, as the device reports it.
    """

    def __init__(self, array_id: int, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._data = bytearray()
        self._ended = False
        self.status = ProgramStatus(ProgramState.EMPTY, Refusal.NONE, 0, 0, array_id)

    @property
    def ready(self) -> bool:
        """Whether images can be taken."""
        return self.status.state == ProgramState.READY

    def reset(self) -> None:
        """Expect the first byte of a program next; an incomplete one is dropped, a complete one kept until it comes."""
        self._data.clear()
        self._ended = False
        if self.status.state == ProgramState.LOADING:
            self.status = replace(self.status, state=ProgramState.EMPTY)

    def forget(self) -> None:
        """Drop the program."""
        self.status = replace(self.status, state=ProgramState.EMPTY)

    def take(self, data: bytes) -> bytes:
        """Take the next bytes of a program; return those behind its end."""
        if self._ended or not data:
            return data
        if not self._data:
            self.status = replace(self.status, state=ProgramState.LOADING)
        self._data += data
        reason = self._refusal()
        if reason is None:
            return b""
        self._ended = True
        # Refusal.NONE is 0: the program is good.
        state = ProgramState.REFUSED if reason else ProgramState.READY
        self.status = replace(self.status, state=state, reason=reason)
        size = PROGRAM_OVERHEAD_BYTES + PROGRAM_HEADER.unpack_from(self._data)[2]
        return bytes(self._data[size:])

    def _refusal(self) -> Refusal | None:
        """Return why the program is refused, NONE if it is good, and None as long as more bytes have to come."""
        if len(self._data) < PROGRAM_HEADER.size:
            return None
        magic, array_id, size, output_bytes = PROGRAM_HEADER.unpack_from(self._data)
        wrong = {
            Refusal.NO_IMAGE: magic != PROGRAM_MAGIC,
            Refusal.OTHER_ARRAY: array_id != self.status.array_id,
            Refusal.LENGTH: not 0 < size <= self._memory_bytes,
        }
        if any(wrong.values()):
            return next(reason for reason, is_wrong in wrong.items() if is_wrong)
        if len(self._data) < PROGRAM_OVERHEAD_BYTES + size:
            return None
        image = self._data[: PROGRAM_OVERHEAD_BYTES + size]
        crc = int.from_bytes(image[-CRC_BYTES:], "little")
        self.status = replace(self.status, crc=crc, output_bytes=output_bytes)
        return Refusal.NONE if zlib.crc32(image[:-CRC_BYTES]) == crc else Refusal.CHECKSUM


class ProgramChain:
    """The program memories of several engines in a row; their programs come one behind the other."""

    def __init__(self, memories: Sequence[ProgramMemory]) -> None:
        self._memories = memories
        self._current = 0

    @property
    def status(self) -> ProgramStatus:
        """State of all programs together; see `nnhw.protocol.ProgramStatus`."""
        found = [memory.status for memory in self._memories]
        states = [status.state for status in found]
        refused = [status for status in found if status.state == ProgramState.REFUSED]
        if refused:
            state = ProgramState.REFUSED
        elif all(state == ProgramState.READY for state in states):
            state = ProgramState.READY
        else:
            loading = self._current or ProgramState.LOADING in states
            state = ProgramState.LOADING if loading else ProgramState.EMPTY
        return ProgramStatus(
            state,
            refused[0].reason if refused else Refusal.NONE,
            joined_crc([status.crc for status in found]),
            found[-1].output_bytes,
            joined_id([status.array_id for status in found]),
        )

    @property
    def ready(self) -> bool:
        """Whether images can be taken."""
        return self.status.state == ProgramState.READY

    def reset(self) -> None:
        """Expect the first byte of the first program next; see `ProgramMemory.reset`."""
        self._current = 0
        for memory in self._memories:
            memory.reset()

    def take(self, data: bytes) -> None:
        """Take the next bytes. When the first program begins, the others become invalid, too."""
        while data:
            memory = self._memories[self._current]
            if not self._current:
                for other in self._memories[1:]:
                    other.forget()
            data = memory.take(data)
            if not memory.ready or self._current == len(self._memories) - 1:
                return
            self._current += 1
