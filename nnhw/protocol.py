"""The contract between driver and gateware: commands, frames, payloads, limits.

A frame is, before COBS,

    command u8 | sequence u8 | payload, 0 to 240 bytes | CRC-32 of all before, u32

COBS takes the zero bytes out of it, and one zero byte ends it on the wire. All numbers are little-endian.

The CRC of a frame from the device begins with one byte more, which is not sent: the session. It is 0 when the device
starts, and from a RESET on that RESET's token, which is never 0. So what a device sends that was restarted, or got
another bitstream, is a damaged frame to the host, until the host has sent RESET again: it cannot go on with a batch
that another one began, whatever its sequences say. Frames to the device are those of session 0.

    host -> device                               device -> host
    IDENTIFY  sequence: any                      IDENTIFY | ANSWER  same sequence, identity
    RESET     sequence: a token, 1 to 255        RESET | ANSWER     same sequence, which is the session from here on
    DATA      sequence: 0, 1, ... since RESET    TAKEN   sequence: DATA frames taken since RESET, modulo 256
              payload: next bytes of the images
    STATUS    sequence: any                      STATUS | ANSWER    same sequence, counters
    LOAD      sequence: as of DATA, which        TAKEN   as of DATA
              it counts with
              payload: next bytes of a program,
              or of those of several engines,
              one behind the other
    PROGRAM   sequence: any                      PROGRAM | ANSWER   same sequence, state of the program
                                                 RESULT  sequence: 0, 1, ... since RESET
                                                         payload: next bytes of one image's output
                                                 ERROR   sequence: of no meaning; payload: reason u8

Images follow one another in the DATA payloads without gaps; where one frame ends and the next begins is free.
A RESULT never holds bytes of two images: an output of more than 240 bytes comes in several, all full but the last.

The device takes a DATA frame only when its CRC holds and its sequence is the expected one, whole or not at all. It is
taken when its payload begins to move to the engine, behind that of the frame before; from then on there is room for
one more. One TAKEN may stand for several frames. On a line without flow control, and with an engine slower than the
line, the host sends a DATA frame only when all before it are taken.
Every other frame is dropped, and one ERROR stands for the frames dropped until it could be sent.
Sequences count modulo 256, so the host keeps at most `WINDOW_FRAMES` frames in flight in each direction. It sends the
last byte of an image only if at most that many RESULT frames are outstanding then, or if all of them belong to this
image. A single image may have more, because it is incomplete while any of its frames is missing.
RESET empties the engine, both sequences start from 0, and everything in flight is lost except frames that are being
sent already; they come before its answer. An image without an answer may be sent again; of a recurrent network, whose
state RESET clears, together with all steps of its sequence before it.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from nnhw.errors import InputError, LinkError

PROTOCOL_VERSION = 2
"""Raised with every change that a driver and a bitstream of different versions would not survive."""
MAGIC = b"NNHW"
"""Start of a device's identity."""
ANSWER = 0x80
"""Bit of the command by which an answer differs from its question."""

PROGRAM_MAGIC = b"NNPR"
PROGRAM_HEADER = struct.Struct("<4sIII")
"""In front of the body of a program: magic, id of the array, bytes of the body, bytes of a frame's output."""
PROGRAM_TRAILER = struct.Struct("<I")
"""Behind the body: CRC-32 of header and body."""
PROGRAM_OVERHEAD_BYTES = PROGRAM_HEADER.size + PROGRAM_TRAILER.size
OUTPUT_LIMIT_BYTES = 1 << 24
"""A program's output has fewer bytes than this: the device's counter has 24 bits."""

BITS_PER_UART_BYTE = 10
"""Bits of a byte on a serial line: start bit, 8 bits of data, stop bit."""
USB_VENDOR, USB_PRODUCT = 0x1209, 0x0001
"""Numbers by which a computer knows a device at its USB: those that pid.codes keeps for tests, and nobody owns."""
USB_BYTES_PER_S = 1000 * 19 * 64
"""Most bytes that a USB of full speed carries by bulk packets, in both directions together: 19 of 64 a millisecond.

Source: USB 2.0, table 5-9.
"""
USB_FAST_BYTES_PER_S = 8000 * 13 * 512
"""The same of a USB of high speed: 13 packets of 512 bytes in a micro-frame of 125 microseconds.

Source: USB 2.0, table 5-10.
"""
PAYLOAD_LIMIT_BYTES = 240
"""With header and CRC a frame has 246 bytes at most: below 255, COBS needs one code byte in front, and no other."""
HEADER_BYTES = 2
"""Command and sequence."""
CRC_BYTES = 4
FRAME_LIMIT_BYTES = HEADER_BYTES + PAYLOAD_LIMIT_BYTES + CRC_BYTES
WIRE_OVERHEAD_BYTES = HEADER_BYTES + CRC_BYTES + 2  # and the COBS code byte and the delimiter
DELIMITER = b"\x00"
SEQUENCES = 256
"""A sequence is a byte."""
WINDOW_FRAMES = 240
"""Maximum number of frames in flight in one direction.

With 256 or more, a loss of exactly 256 would go unnoticed. The 16 numbers that are left belong to the frames before, so
that a repeated or late frame is not mistaken for a new one.
"""
SESSIONS = 256
"""A session is a byte; 0 is that of a device which no RESET has reached."""
# zlib's start value is the CRC so far, and the inversions cancel its own, so this is the register behind one byte.
_CRC_OF_SESSION = tuple(zlib.crc32(bytes((session,)), 0xFFFFFFFF) ^ 0xFFFFFFFF for session in range(SESSIONS))
"""Start value for `zlib.crc32` of a frame, by session; with that of session 0 it gives the plain CRC-32."""

IDENTITY_FORMAT = struct.Struct("<4sB8sIII")
"""Magic, version, hash of the model, bytes of an image, bytes of an output, clock in Hz: see `DeviceIdentity`."""
STATUS_FORMAT = struct.Struct("<IIIHB")
"""Cycles, cycles of waiting for input and for output, results, bad frames: see `Counters`."""
PROGRAM_FORMAT = struct.Struct("<BBIII")
"""State, reason, CRC, bytes of an output, id of the array: see `ProgramStatus`."""


class Command(enum.IntEnum):
    """First byte of a frame."""

    # These numbers are in bitstreams and exported drivers, too: a change of one needs another PROTOCOL_VERSION.
    IDENTIFY = 0x01
    RESET = 0x02
    DATA = 0x03
    STATUS = 0x04
    LOAD = 0x05
    PROGRAM = 0x06
    ERROR = 0x80
    IDENTITY = IDENTIFY | ANSWER
    RESET_DONE = RESET | ANSWER
    RESULT = DATA | ANSWER
    TAKEN = 0x87
    COUNTERS = STATUS | ANSWER
    PROGRAM_STATUS = PROGRAM | ANSWER


class Reason(enum.IntEnum):
    """Payload of an ERROR frame."""

    COMMAND = 0
    DAMAGED = 1
    SEQUENCE = 2
    OVERRUN = 3
    PROGRAM = 4


REASON_TEXT = {
    Reason.COMMAND: "a command that the device does not know",
    Reason.DAMAGED: "a frame that is damaged",
    Reason.SEQUENCE: "a frame out of sequence",
    Reason.OVERRUN: "bytes lost because they came faster than the device takes them",
    Reason.PROGRAM: "an image for which it has no program",
}


class ProgramState(enum.IntEnum):
    """State of a device's program; only READY runs."""

    EMPTY = 0
    LOADING = 1
    READY = 2
    REFUSED = 3


class Refusal(enum.IntEnum):
    """Why a program was refused."""

    NONE = 0
    NO_IMAGE = 1
    OTHER_ARRAY = 2
    LENGTH = 3
    CHECKSUM = 4


REFUSAL_TEXT = {
    Refusal.NONE: "no reason",
    Refusal.NO_IMAGE: "what came is no program",
    Refusal.OTHER_ARRAY: "the program is for another array",
    Refusal.LENGTH: "the program does not fit the memory",
    Refusal.CHECKSUM: "the checksum does not hold",
}


@dataclass(frozen=True)
class Frame:
    """One frame without CRC and COBS.

    Raises
    ------
    InputError: command or sequence outside 0..255, or more than 240 payload bytes.
    """

    command: int
    sequence: int
    payload: bytes = b""

    def __post_init__(self) -> None:
        if not (0 <= self.command <= 0xFF and 0 <= self.sequence <= 0xFF):
            raise InputError(
                f"frame: command and sequence must be in 0..255, not {self.command} and {self.sequence}; "
                "take them modulo 256"
            )
        if len(self.payload) > PAYLOAD_LIMIT_BYTES:
            raise InputError(
                f"frame: a payload has at most {PAYLOAD_LIMIT_BYTES} bytes, not {len(self.payload)}; "
                "split it over several frames"
            )

    def to_bytes(self, session: int = 0) -> bytes:
        """Return command, sequence, payload and CRC, as COBS takes them."""
        body = bytes((self.command, self.sequence)) + self.payload
        return body + zlib.crc32(body, _CRC_OF_SESSION[session]).to_bytes(CRC_BYTES, "little")

    @classmethod
    def from_bytes(cls, data: bytes, session: int = 0) -> Frame:
        """Check and take apart what COBS gave back.

        Raises
        ------
        LinkError: too short, too long, or the CRC does not hold, such as that of a frame of another session.
        """
        if not HEADER_BYTES + CRC_BYTES <= len(data) <= FRAME_LIMIT_BYTES:
            raise LinkError(
                f"frame of {len(data)} bytes: needs {HEADER_BYTES + CRC_BYTES} to {FRAME_LIMIT_BYTES}; "
                "check the cable and the baud rate"
            )
        body, crc = data[:-CRC_BYTES], int.from_bytes(data[-CRC_BYTES:], "little")
        computed = zlib.crc32(body, _CRC_OF_SESSION[session])
        if computed != crc:
            raise LinkError(
                f"frame of {len(data)} bytes: its CRC is {computed:08x}, not {crc:08x} as it says; "
                "check the cable and the baud rate"
            )
        return cls(body[0], body[1], bytes(body[HEADER_BYTES:]))


def result_frames(output_bytes: int) -> int:
    """Return the number of RESULT frames that the output of an image comes in."""
    return -(-output_bytes // PAYLOAD_LIMIT_BYTES)


def other_version(version: str) -> LinkError:
    """Return the error of a device that speaks another version of the protocol."""
    return LinkError(
        f"the device speaks protocol version {version}, "
        f"this nnhw speaks {PROTOCOL_VERSION}; build and load the accelerator again with this nnhw"
    )


@dataclass(frozen=True)
class DeviceIdentity:
    """The identity of a device, which is part of its bitstream.

    Parameters
    ----------
    model_hash: hexadecimal, 16 digits or more; the first 16 go over the wire.
    input_bytes, output_bytes: bytes of one image and of one output, packed.
    clock_hz: clock of the engine in Hz, whose cycles are counted.

    Raises
    ------
    InputError: a hash that is too short or not hexadecimal; a number that is not positive or above 32 bits.
    """

    model_hash: str
    input_bytes: int
    output_bytes: int
    clock_hz: int

    def __post_init__(self) -> None:
        # 16 digits are the 8 bytes of the identity's format.
        digits = self.model_hash[:16].lower()
        if len(digits) < 16 or not set(digits) <= set("0123456789abcdef"):
            raise InputError(
                f"device identity: model_hash needs 16 hexadecimal digits or more, not {self.model_hash!r}; "
                "use the hash of the built accelerator"
            )
        for name in ("input_bytes", "output_bytes", "clock_hz"):
            value = getattr(self, name)
            if not 0 < value < 1 << 32:
                raise InputError(f"device identity: {name} must be in 1..2^32-1, not {value}; check the accelerator")
        # The dataclass is frozen; of a longer hash, a device knows the first 16 digits alone.
        object.__setattr__(self, "model_hash", digits)

    @property
    def results_per_image(self) -> int:
        """RESULT frames for one image."""
        return result_frames(self.output_bytes)

    def pack(self) -> bytes:
        """Return the payload of the answer to IDENTIFY."""
        hash_bytes = bytes.fromhex(self.model_hash)
        return IDENTITY_FORMAT.pack(
            MAGIC, PROTOCOL_VERSION, hash_bytes, self.input_bytes, self.output_bytes, self.clock_hz
        )

    @classmethod
    def unpack(cls, payload: bytes) -> DeviceIdentity:
        """Take the payload of the answer to IDENTIFY apart.

        Raises
        ------
        LinkError: no nnhw device, or one of another protocol version.
        """
        # Magic and version come first in every version of the protocol, so that they are read before the length is
        # checked.
        head = MAGIC + bytes((PROTOCOL_VERSION,))
        if payload[: len(MAGIC)] != MAGIC:
            raise LinkError(
                f"the device names itself {payload[:4]!r}, not {MAGIC!r}: it runs no nnhw accelerator; load one"
            )
        if payload[: len(head)] != head:
            raise other_version(str(payload[len(MAGIC)]) if len(payload) > len(MAGIC) else "unknown")
        if len(payload) != IDENTITY_FORMAT.size:
            raise LinkError(
                f"the device's identity has {len(payload)} bytes, not {IDENTITY_FORMAT.size}; "
                "build and load the accelerator again with this nnhw"
            )
        _, _, model_hash, input_bytes, output_bytes, clock_hz = IDENTITY_FORMAT.unpack(payload)
        return cls(model_hash.hex(), input_bytes, output_bytes, clock_hz)


@dataclass(frozen=True)
class Counters:
    """The counters of a device. All wrap; `bad_frames` counts from power-up, the others from the last RESET.

    Members
    -------
    cycles: clock cycles, modulo 2^32.
    input_wait: cycles in which the engine would have taken a byte and there was none, modulo 2^32; of an engine that
        runs a program, those in which the program waited for input.
    output_wait: cycles in which the engine held an output byte that the link could not take, modulo 2^32; of an engine
        that runs a program, those in which the program waited for room for output.
    results: RESULT frames, modulo 2^16.
    bad_frames: frames dropped, modulo 2^8.
    """

    cycles: int
    input_wait: int
    output_wait: int
    results: int
    bad_frames: int

    def pack(self) -> bytes:
        """Return the payload of the answer to STATUS."""
        return STATUS_FORMAT.pack(
            # The device's counters wrap around at these widths.
            self.cycles & 0xFFFFFFFF,
            self.input_wait & 0xFFFFFFFF,
            self.output_wait & 0xFFFFFFFF,
            self.results & 0xFFFF,
            self.bad_frames & 0xFF,
        )

    @classmethod
    def unpack(cls, payload: bytes) -> Counters:
        """Take the payload of the answer to STATUS apart.

        Raises
        ------
        LinkError: a payload of another size.
        """
        if len(payload) != STATUS_FORMAT.size:
            raise LinkError(
                f"the device's status has {len(payload)} bytes, not {STATUS_FORMAT.size}; "
                "build and load the accelerator again with this nnhw"
            )
        return cls(*STATUS_FORMAT.unpack(payload))


def program_image(array_id: int, body: bytes, output_bytes: int) -> bytes:
    """Return a program as it is loaded: header, body, trailer.

    Parameters
    ----------
    array_id: id of the array that it is made for.
    body: bytes for the memory of the array.
    output_bytes: bytes of a frame's output.
    """
    head = PROGRAM_HEADER.pack(PROGRAM_MAGIC, array_id, len(body), output_bytes)
    return head + body + PROGRAM_TRAILER.pack(zlib.crc32(head + body))


def joined_id(ids: Sequence[int]) -> int:
    """Return the id of several arrays in a row; of a single one, its own id."""
    return ids[0] if len(ids) == 1 else zlib.crc32(b"".join(one.to_bytes(4, "little") for one in ids))


def joined_crc(crcs: Sequence[int]) -> int:
    """Return the CRC of several programs together: XOR of their CRCs, each rotated left by its number."""
    found = 0
    for place, crc in enumerate(crcs):
        # Rotated, so that exchanged programs differ, and equal ones do not cancel.
        found ^= (crc << place | crc >> (32 - place)) & 0xFFFFFFFF
    return found


@dataclass(frozen=True)
class ProgramStatus:
    """The state of the program of a device's engine, or of the programs of all its engines in a row.

    Members
    -------
    state: READY: all programs are complete. LOADING: bytes of one of them are still missing.
    reason: why the first refused program was refused; meaningless in other states than REFUSED.
    crc: CRC of the image, from its trailer, see `joined_crc`; valid in state READY.
    output_bytes: bytes of a frame's output, from the image; valid in state READY.
    array_id: id of the array that programs must be made for, see `joined_id`; part of the bitstream.
    """

    state: ProgramState
    reason: Refusal
    crc: int
    output_bytes: int
    array_id: int

    def pack(self) -> bytes:
        """Return the payload of the answer to PROGRAM."""
        return PROGRAM_FORMAT.pack(self.state, self.reason, self.crc, self.output_bytes, self.array_id)

    @classmethod
    def unpack(cls, payload: bytes) -> ProgramStatus:
        """Take the payload of the answer to PROGRAM apart.

        Raises
        ------
        LinkError: a payload of another size, or a state or reason that is none.
        """
        if len(payload) != PROGRAM_FORMAT.size:
            raise LinkError(
                f"the state of the device's program has {len(payload)} bytes, not {PROGRAM_FORMAT.size}; "
                "build and load the accelerator again with this nnhw"
            )
        state, reason, crc, output_bytes, array_id = PROGRAM_FORMAT.unpack(payload)
        if state not in list(ProgramState) or reason not in list(Refusal):
            raise LinkError(
                f"the device's program is in state {state} for reason {reason}, which this nnhw does not know; "
                "build and load the accelerator again with this nnhw"
            )
        return cls(ProgramState(state), Refusal(reason), crc, output_bytes, array_id)
