"""The program of a shared engine as bytes, checked on the host before any of them is sent."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from nnhw.errors import InputError
from nnhw.protocol import (
    CRC_BYTES,
    OUTPUT_LIMIT_BYTES,
    PROGRAM_HEADER,
    PROGRAM_MAGIC,
    PROGRAM_OVERHEAD_BYTES,
    joined_crc,
    joined_id,
    program_image,
)

PROGRAM_FILE = "program.bin"
"""Name of a program in a build folder."""


@dataclass(frozen=True)
class ProgramImage:
    """A program as bytes; the programs of several engines in a row follow one another.

    Parameters
    ----------
    data: the whole image.
    where: name of the image in messages.

    Raises
    ------
    InputError: it is no program, or it is cut, too long, or damaged.
    """

    data: bytes
    where: str = "the program"

    def __post_init__(self) -> None:
        remedy = "run 'nnhw build' again"
        if self.data[: len(PROGRAM_MAGIC)] != PROGRAM_MAGIC:
            found = self.data[: len(PROGRAM_MAGIC)]
            raise InputError(f"{self.where} is no program: it begins with {found!r}, not {PROGRAM_MAGIC!r}; {remedy}")
        needed = self._ends[-1]
        if len(self.data) != needed:
            what = "cut" if len(self.data) < needed else "too long"
            raise InputError(f"{self.where} is {what}: it has {len(self.data)} bytes, but needs {needed}; {remedy}")
        for part in self._parts:
            computed, said = zlib.crc32(part[:-CRC_BYTES]), _crc(part)
            if computed != said:
                differs = f"its CRC is {computed:08x}, not {said:08x} as it says"
                raise InputError(f"{self.where} is damaged: {differs}; {remedy}")
        if not 0 < self.output_bytes < OUTPUT_LIMIT_BYTES:
            raise InputError(
                f"{self.where} gives {self.output_bytes} bytes a frame, but must give 1 to {OUTPUT_LIMIT_BYTES - 1}; "
                "build a network with a smaller output"
            )

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """Index behind the last byte of each engine's image, from the headers; beyond the data if these are cut."""
        found = [0]
        # At least one; an end beyond the data finds no magic there, so the loop ends.
        while not found[1:] or self.data[found[-1] :].startswith(PROGRAM_MAGIC):
            start, end = found[-1], found[-1] + PROGRAM_OVERHEAD_BYTES
            body_bytes = PROGRAM_HEADER.unpack_from(self.data, start)[2] if end <= len(self.data) else 0
            found.append(end + body_bytes)
        return tuple(found[1:])

    @property
    def _parts(self) -> tuple[bytes, ...]:
        """The images of the engines."""
        return tuple(self.data[start:end] for start, end in pairwise((0, *self._ends)))

    @property
    def array_id(self) -> int:
        """Id of the arrays that it is made for; see `nnhw.protocol.joined_id`."""
        return joined_id([int(PROGRAM_HEADER.unpack_from(part)[1]) for part in self._parts])

    @property
    def body_bytes(self) -> int:
        """Number of bytes that go to the engines' memories."""
        return sum(len(part) - PROGRAM_OVERHEAD_BYTES for part in self._parts)

    @property
    def output_bytes(self) -> int:
        """Bytes of a frame's output."""
        return int(PROGRAM_HEADER.unpack_from(self._parts[-1])[3])

    @property
    def crc(self) -> int:
        """CRC by which the device tells programs apart; see `nnhw.protocol.joined_crc`."""
        return joined_crc([_crc(part) for part in self._parts])

    @classmethod
    def pack(cls, array_id: int, body: bytes, output_bytes: int) -> ProgramImage:
        """Return the image of a body."""
        return cls(program_image(array_id, body, output_bytes))

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


def _crc(image: bytes) -> int:
    """Return the CRC at the end of an image."""
    return int.from_bytes(image[-CRC_BYTES:], "little")
