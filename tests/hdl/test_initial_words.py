"""Initial words of memories: the text is Amaranth's own."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import pytest
from amaranth.back import rtlil
from amaranth.hdl import MemoryData, Module, Shape, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.hdl.initial_words import constant, words_at_once

SHAPES = st.builds(lambda bits, sign: (signed if sign else unsigned)(bits), st.integers(1, 70), st.booleans())


class Memories(wiring.Component):
    """A memory for each list of words, read by one address; the last one is written, too."""

    def __init__(self, memories: list[tuple[Shape, list[int]]]) -> None:
        self.memories = memories
        super().__init__({"addr": In(3), "i_data": In(70), **{f"data_{n}": Out(70) for n in range(len(memories))}})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for number, (shape, words) in enumerate(self.memories):
            m.submodules[f"memory_{number}"] = memory = Memory(shape=shape, depth=5, init=words)
            reader = memory.read_port()
            m.d.comb += [reader.addr.eq(self.addr), getattr(self, f"data_{number}").eq(reader.data)]
        writer = memory.write_port()
        m.d.comb += [writer.addr.eq(self.addr), writer.data.eq(self.i_data), writer.en.eq(self.addr[0])]
        return m


@st.composite
def contents(draw: st.DrawFn) -> tuple[Shape, list[int]]:
    shape = draw(SHAPES)
    low = -(1 << shape.width - 1) if shape.signed else 0
    return shape, draw(st.lists(st.integers(low, low + (1 << shape.width) - 1), max_size=5))


@settings(max_examples=30)
@given(st.lists(contents(), min_size=1, max_size=3))
def test_rtlil_of_memories_is_that_of_amaranth(memories: list[tuple[Shape, list[int]]]) -> None:
    wanted = rtlil.convert(Memories(memories), name="top")
    with words_at_once():
        assert rtlil.convert(Memories(memories), name="top") == wanted
    assert rtlil.convert(Memories(memories), name="top") == wanted


@pytest.mark.parametrize("shape", [unsigned(2), signed(2)])
@pytest.mark.parametrize("word", [3, 4, 1 << 70, -1, -2, -3, True])
def test_words_are_checked_as_by_amaranth(word: int, shape: Shape) -> None:
    made: list[tuple[int, list[str]]] = []
    for context in (nullcontext(), words_at_once()):
        with context, warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            made.append((MemoryData(shape=shape, depth=1, init=[word]).init[0], [str(one.message) for one in found]))
    assert made[0] == made[1]


def test_constant_of_nothing_is_empty() -> None:
    assert constant((), 8) == constant((1,), 0) == "{  }"
