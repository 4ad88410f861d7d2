"""A program as it is loaded: checked on the host before a byte of it is sent."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

from nnhw.errors import InputError
from nnhw.protocol import (
    CRC_BYTES,
    OUTPUT_LIMIT_BYTES,
    PROGRAM_HEADER,
    PROGRAM_MAGIC,
    PROGRAM_OVERHEAD_BYTES,
)

PROGRAM_FILE = "program.bin"
"""Name of a program in a build folder."""


@dataclass(frozen=True)
class ProgramImage:
    """A program as it is loaded.

    Parameters
    ----------
    data: the whole image.
    where: what the image is called in messages.

    Raises
    ------
    InputError: no program, cut, too long, or damaged.
    """

    data: bytes
    where: str = "the program"

    def __post_init__(self) -> None:
        remedy = "run 'nnhw build' again"
        if self.data[: len(PROGRAM_MAGIC)] != PROGRAM_MAGIC:
            found = self.data[: len(PROGRAM_MAGIC)]
            raise InputError(f"{self.where} is no program: it begins with {found!r}, not {PROGRAM_MAGIC!r}; {remedy}")
        needed = PROGRAM_OVERHEAD_BYTES
        if len(self.data) >= needed:
            needed += self.body_bytes
        if len(self.data) != needed:
            what = "cut" if len(self.data) < needed else "too long"
            raise InputError(f"{self.where} is {what}: it has {len(self.data)} bytes, but needs {needed}; {remedy}")
        computed = zlib.crc32(self.data[:-CRC_BYTES])
        if computed != self.crc:
            raise InputError(
                f"{self.where} is damaged: its CRC is {computed:08x}, not {self.crc:08x} as it says; {remedy}"
            )
        if not 0 < self.output_bytes < OUTPUT_LIMIT_BYTES:
            raise InputError(
                f"{self.where} gives {self.output_bytes} bytes a frame, but must give 1 to {OUTPUT_LIMIT_BYTES - 1}; "
                "build a network with a smaller output"
            )

    @property
    def array_id(self) -> int:
        """Of the array that it is made for."""
        return int(PROGRAM_HEADER.unpack_from(self.data)[1])

    @property
    def body_bytes(self) -> int:
        """Bytes that go to the engine's memory."""
        return int(PROGRAM_HEADER.unpack_from(self.data)[2])

    @property
    def output_bytes(self) -> int:
        """Of a frame."""
        return int(PROGRAM_HEADER.unpack_from(self.data)[3])

    @property
    def crc(self) -> int:
        """By which the device tells programs apart."""
        return int.from_bytes(self.data[-CRC_BYTES:], "little")

    @classmethod
    def pack(cls, array_id: int, body: bytes, output_bytes: int) -> ProgramImage:
        """Return the image of a body."""
        head = PROGRAM_HEADER.pack(PROGRAM_MAGIC, array_id, len(body), output_bytes)
        return cls(head + body + zlib.crc32(head + body).to_bytes(CRC_BYTES, "little"))

    @classmethod
    def read(cls, folder: Path) -> ProgramImage | None:
        """Return the program of a build folder; None where it has none.

        Raises
        ------
        InputError: it cannot be read, or is no program, cut, too long, or damaged.
        """
        path = folder / PROGRAM_FILE
        if not path.exists():
            return None
        try:
            return cls(path.read_bytes(), f"'{path}'")
        except OSError as error:
            raise InputError(f"'{path}' cannot be read: {error.strerror}; run 'nnhw build' again") from None
