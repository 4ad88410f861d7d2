"""Links that harm what they carry: bytes, and whole frames of the protocol."""

from __future__ import annotations

import math
import random
import sys

from cobs import cobs


class Noise:
    """Harms bytes: drops, flips, cuts, repeats, inserts.

    Parameters
    ----------
    seed: of the random numbers.
    chance: of harm at each byte.
    """

    KINDS = ("drop", "flip", "cut", "repeat", "insert")

    def __init__(self, seed: int, chance: float) -> None:
        self._rng = random.Random(seed)
        self._chance = chance
        self.count = 0

    def __call__(self, data: bytes) -> bytes:
        out = bytearray()
        position = 0
        while (place := position + self._unharmed()) < len(data):
            out += data[position:place]
            self.count += 1
            position = self._harm(self._rng.choice(self.KINDS), data, place, out)
        return bytes(out + data[position:])

    def _unharmed(self) -> int:
        """Return how many bytes pass before the next harm."""
        if not self._chance:
            return sys.maxsize
        return int(math.log(1 - self._rng.random()) / math.log(1 - self._chance))

    def _harm(self, kind: str, data: bytes, position: int, out: bytearray) -> int:
        length = self._rng.randrange(1, 300)
        if kind == "flip":
            out.append(data[position] ^ 1 << self._rng.randrange(8))
        elif kind == "repeat":
            out += data[position : position + length] * 2
            return position + length
        elif kind == "insert":
            out += self._rng.randbytes(length)
            return position
        elif kind == "cut":
            return position + length
        return position + 1


class FrameNoise(Noise):
    """Loses, repeats and swaps whole frames: every CRC holds, only the sequence tells."""

    def __call__(self, data: bytes) -> bytes:
        frames = [part + b"\0" for part in data.split(b"\0")[:-1]]
        place = 0
        while place < len(frames):
            if self._rng.random() < self._chance:
                self.count += 1
                frames[place : place + 2] = self._rng.choice(
                    [
                        frames[place + 1 : place + 2],
                        [frames[place], *frames[place : place + 2]],
                        frames[place : place + 2][::-1],
                    ]
                )
                place += 1
            place += 1
        return b"".join(frames)


class FrameBursts(Noise):
    """Loses many whole frames in a row, as a buffer that overruns does: 1 to 4,096, often a multiple of 256.

    Three of four seeds lose frames of a single command alone, whose numbers would then fit again.

    Parameters
    ----------
    seed, chance: as of `Noise`, at each frame.
    command: of the frames with a number of their own.

    Members
    -------
    count, lost: bursts, and frames that they lost.
    """

    LONGEST, SEQUENCES = 4096, 256

    def __init__(self, seed: int, chance: float, command: int) -> None:
        super().__init__(seed, chance)
        self._command = command if seed % 4 else None
        self._left = self.lost = 0

    def __call__(self, data: bytes) -> bytes:
        return b"".join(part + b"\0" for part in data.split(b"\0")[:-1] if not self._is_lost(part))

    def _is_lost(self, part: bytes) -> bool:
        if not part or (self._command is not None and cobs.decode(part)[0] != self._command):
            return False
        if not self._left and self._rng.random() < self._chance:
            self.count += 1
            self._left = self._length()
        if not self._left:
            return False
        self._left, self.lost = self._left - 1, self.lost + 1
        return True

    def _length(self) -> int:
        if self._rng.randrange(2):
            return min(self.SEQUENCES << int(self._rng.expovariate(1)), self.LONGEST)
        return round(2 ** self._rng.uniform(0, math.log2(self.LONGEST)))
