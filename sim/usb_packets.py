"""Packets of a USB of full speed, as bytes and as levels of its wires.

Source: USB 2.0, chapters 7.1 (levels, bit stuffing, NRZI) and 8.3 to 8.5 (packets).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

STUFFED_BEHIND = 6
"""Ones in a row behind which the sender puts a zero."""
_SYNC = 0x80
_EOP_BITS = 2


class Pid(IntEnum):
    """Kinds of packets; the last two are of high speed."""

    OUT = 0b0001
    IN = 0b1001
    SOF = 0b0101
    SETUP = 0b1101
    DATA0 = 0b0011
    DATA1 = 0b1011
    ACK = 0b0010
    NAK = 0b1010
    STALL = 0b1110
    NYET = 0b0110
    PING = 0b0100


class Level(IntEnum):
    """What both wires show: `J` is idle, D+ high; `K` the opposite; `SE0` neither."""

    SE0 = 0b00
    J = 0b01
    K = 0b10
    SE1 = 0b11


class PacketError(ValueError):
    """A packet that a receiver must ignore."""


def crc(data: Iterable[int], polynomial: int, width: int) -> int:
    """Return the CRC of bits, in the order in which it is sent, lowest bit first; it begins with ones and is inverted.

    Parameters
    ----------
    data: bits in the order in which they are sent.
    polynomial: without its highest term, in the usual order of bits.
    """
    register = mask = (1 << width) - 1
    for bit in data:
        top = register >> (width - 1) & 1
        register = (register << 1 & mask) ^ (polynomial if top ^ bit else 0)
    return int(f"{register ^ mask:0{width}b}"[::-1], 2)


def bits_of(data: bytes) -> list[int]:
    """Return the bits of bytes, lowest first."""
    return [byte >> place & 1 for byte in data for place in range(8)]


def crc5(value: int) -> int:
    """Return the CRC of the 11 bits of a token."""
    return crc((value >> place & 1 for place in range(11)), 0x05, 5)


def crc16(data: bytes) -> int:
    """Return the CRC of the bytes of a data packet."""
    return crc(bits_of(data), 0x8005, 16)


def head(pid: Pid) -> bytes:
    """Return the byte of a kind: its number, and the same inverted."""
    return bytes([pid | (~pid & 0xF) << 4])


def token(pid: Pid, value: int) -> bytes:
    """Return a token of 11 bits: an address and above it an endpoint, or the number of a frame."""
    return head(pid) + (value | crc5(value) << 11).to_bytes(2, "little")


def data_packet(pid: Pid, payload: bytes) -> bytes:
    """Return a packet with a payload."""
    return head(pid) + payload + crc16(payload).to_bytes(2, "little")


def parse(packet: bytes) -> tuple[Pid, bytes]:
    """Return kind and payload of a handshake or a packet with a payload.

    Raises
    ------
    PacketError: its kind is not known, or its CRC is wrong.
    """
    if not packet or packet[0] & 0xF != ~packet[0] >> 4 & 0xF or packet[0] & 0xF not in list(Pid):
        raise PacketError(f"no packet begins with {packet[:1].hex() or 'nothing'}")
    pid = Pid(packet[0] & 0xF)
    if pid not in (Pid.DATA0, Pid.DATA1):
        return pid, packet[1:]
    payload, told = packet[1:-2], packet[-2:]
    if len(packet) < 3 or crc16(payload).to_bytes(2, "little") != told:
        raise PacketError(f"the CRC of {packet.hex()} is wrong")
    return pid, payload


def levels(packet: bytes) -> list[Level]:
    """Return the levels of a packet, one for each bit: the pattern in front, the bytes, and the end."""
    level, ones, found = Level.J, 0, list[Level]()
    for bit in bits_of(bytes([_SYNC]) + packet):
        for sent in (bit, 0) if bit and ones == STUFFED_BEHIND - 1 else (bit,):
            level = level if sent else Level(level ^ 0b11)
            ones = ones + 1 if sent else 0
            found.append(level)
    return [*found, *[Level.SE0] * _EOP_BITS, Level.J]


def packet_of(seen: Sequence[Level]) -> bytes:
    """Return the bytes of a packet, from the levels of its bits up to the end.

    Raises
    ------
    PacketError: it does not begin or end as packets do, or bits are stuffed wrong.
    """
    end = next((place for place, level in enumerate(seen) if level == Level.SE0), 0)
    bits, ones, last = list[int](), 0, Level.J
    for level in seen[:end]:
        bit, last = int(level == last), level
        if ones == STUFFED_BEHIND:
            if bit:
                raise PacketError("seven ones in a row")
            ones = 0
            continue
        ones = ones + 1 if bit else 0
        bits.append(bit)
    data = bytes(sum(bit << place for place, bit in enumerate(bits[at : at + 8])) for at in range(0, len(bits), 8))
    if len(bits) % 8 or data[:1] != bytes([_SYNC]):
        raise PacketError(f"{len(bits)} bits that begin with {data[:1].hex() or 'nothing'} are no packet")
    return data[1:]
