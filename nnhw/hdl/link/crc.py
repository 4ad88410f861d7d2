"""CRC-32 of one byte per cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

_POLYNOMIAL = 0xEDB88320
"""The generator 0x04C11DB7 of IEEE 802.3 with its bits reversed, as bytes come with their lowest bit first."""
RESIDUE = 0xDEBB20E3
"""The register's content behind any message that is followed by its own CRC, least significant byte first."""
INITIAL = 0xFFFFFFFF
"""The register's content in front of a message: were it 0, zeros in front of a message would not change its CRC."""


def step(state: int, byte: int) -> int:
    """Return the register's next content: reflected CRC-32, without the final inversion."""
    state ^= byte
    for _ in range(8):
        state = state >> 1 ^ (_POLYNOMIAL if state & 1 else 0)
    return state


def initial_before(byte: int) -> int:
    """Return the content that becomes `INITIAL` once `byte` is taken in: for messages with that byte in front of them.

    Parameters
    ----------
    byte: value in front of each message, which must not change its CRC.
    """
    # The steps of `step` backwards: the top bit tells whether the polynomial was added, as only that sets it.
    state = INITIAL
    for _ in range(8):
        carried = state >> 31
        state = (state ^ (_POLYNOMIAL if carried else 0)) << 1 | carried
    return state ^ byte


class Crc32(wiring.Component):
    """CRC-32 register (zlib, Ethernet; CRC-32/ISO-HDLC), one byte per cycle.

    Parameters
    ----------
    initial: content after a reset and after `clear`.

    Members
    -------
    data: In(8), byte to take in.
    enable: In(1), takes `data` in.
    unload: In(1), together with `enable`: shifts the register down by one byte instead of taking `data` in.
    clear: In(1), sets the initial content; it wins over `enable`.
    low: Out(8), next byte of the CRC to send.
    match: Out(1), the bytes taken in are a message and its CRC. halves: Out(2), the same of each half of the register.

    Timing
    ------
    Outputs follow one cycle after `enable`. Three LUT4 levels, for `halves` two.
    """

    def __init__(self, initial: int = INITIAL) -> None:
        self._initial = initial
        super().__init__(
            {
                "data": In(8),
                "enable": In(1),
                "unload": In(1),
                "clear": In(1),
                "low": Out(8),
                "match": Out(1),
                "halves": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(32, init=self._initial)
        # A kept node: without it the mapper spreads these eight XORs into the 32 that follow.
        mixed = Signal(8)
        m.d.comb += [
            mixed.eq(Mux(self.unload, 0, state[:8] ^ self.data)),
            self.low.eq(~state[:8]),
            self.halves.eq(Cat(state[:16] == RESIDUE & 0xFFFF, state[16:] == RESIDUE >> 16)),
            self.match.eq(self.halves.all()),
        ]
        # The CRC is linear: each bit of the mixed byte adds what it alone does to an empty register.
        columns = [step(0, 1 << bit) for bit in range(8)]
        shifted = Cat(state[8:], Const(0, 8))
        following: list[Value] = []
        for bit in range(32):
            terms: Value = shifted[bit]
            for column, source in zip(columns, mixed, strict=True):
                if column >> bit & 1:
                    terms = terms ^ source
            following.append(terms)
        with m.If(self.enable):
            m.d.sync += state.eq(Cat(*following))
        with m.If(self.clear):
            m.d.sync += state.eq(self._initial)
        return m
