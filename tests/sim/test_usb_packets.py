"""Packets of the USB: checksums as catalogues and captures have them, levels there and back, and what is no packet."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.usb_packets import (
    Level,
    PacketError,
    Pid,
    bits_of,
    crc,
    crc16,
    data_packet,
    head,
    levels,
    packet_of,
    parse,
    token,
)


def test_checksums_are_those_of_the_catalogue() -> None:
    """Source: the catalogue of parametrised CRC algorithms, check values of CRC-5/USB and CRC-16/USB."""
    assert crc16(b"123456789") == 0xB4C8
    assert crc(bits_of(b"123456789"), 0x05, 5) == 0x19


def test_tokens_are_those_of_captures() -> None:
    """Source: USB-IF, "Cyclic redundancy checks in USB": address 0x15, endpoint 0xe, CRC 10111 in the order sent."""
    assert token(Pid.SETUP, 0) == bytes.fromhex("2d0010")
    assert token(Pid.IN, 0x15 | 0xE << 7)[2] >> 3 == 0b11101


@settings(deadline=None)
@given(st.binary(max_size=64), st.sampled_from([Pid.DATA0, Pid.DATA1]))
def test_packets_come_back_from_their_levels(payload: bytes, pid: Pid) -> None:
    packet = data_packet(pid, payload)
    assert parse(packet_of(levels(packet))) == (pid, payload)


def test_levels_stuff_a_zero_behind_six_ones() -> None:
    """Six ones leave the wires as they are; the zero behind them changes them, the last bit of all, too."""
    sent = levels(data_packet(Pid.DATA0, b"\xff" * 16))
    runs = [len(run) for run in re.findall(r"J+|K+", "".join(level.name[0] if level else "-" for level in sent[8:]))]
    assert max(runs) == 7
    assert sent[-3:] == [Level.SE0, Level.SE0, Level.J]


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"", "no packet begins with nothing"),
        (b"\xc4", "no packet begins with c4"),
        (data_packet(Pid.DATA0, b"abc")[:-1] + b"\0", "the CRC of c36162630000 is wrong"),
        (head(Pid.DATA1), "the CRC of 4b is wrong"),
    ],
)
def test_parse_rejects_what_a_receiver_ignores(packet: bytes, message: str) -> None:
    with pytest.raises(PacketError, match=re.escape(message.split(" of ")[0])):
        parse(packet)


def test_packet_of_rejects_wrong_bits() -> None:
    good = levels(head(Pid.ACK))
    with pytest.raises(PacketError, match="seven ones in a row"):
        packet_of([*good[:8], *[Level.K] * 9, Level.SE0])
    with pytest.raises(PacketError, match="15 bits that begin with 80 are no packet"):
        packet_of([*good[:15], Level.SE0])
    with pytest.raises(PacketError, match="0 bits that begin with nothing"):
        packet_of([])
