"""Initial words of memories, read and written by Amaranth at once instead of as an object for each word and bit."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Shape, _mem

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def words_at_once() -> Iterator[None]:
    """While active, Amaranth handles the initial words of memories many times faster; the RTLIL is the same.

    A memory of 16,384 words of 64 bits has a million bits. Amaranth 0.5 makes an object of each of them and joins their
    texts, which takes seconds, also where every word is zero; here the text is made of the words. Before that it makes
    a constant of each word, to see whether it fits; whole numbers are compared instead. As functions of Amaranth are
    other ones meanwhile, one thread at a time is let in.

    Source: Amaranth 0.5 `back.rtlil`, `ModuleEmitter.emit_memory`: one cell `$meminit_v2` holds all words; `hdl._ast`,
    `_get_init_value`: an int that fits into an unsigned shape is returned as it is.
    """
    with _ONE_AT_A_TIME:
        emit_memory, initial_value = rtlil.ModuleEmitter.emit_memory, _mem._get_init_value

        def emit(emitter: Any, number: int, memory: Any) -> None:
            # Without initial words Amaranth writes the cell and an empty constant at once; that constant is replaced.
            words, memory.init = memory.init, ()
            try:
                emit_memory(emitter, number, memory)
            finally:
                memory.init = words
            cell = next(reversed(emitter.builder.contents.values()))
            cell.ports["DATA"] = constant(words, memory.width)

        def checked(word: Any, shape: Any, what: str) -> Any:
            # Neither a bool nor an enumeration, which have shapes of their own.
            is_plain = type(word) is int and type(shape) is Shape and not shape.signed
            return word if is_plain and 0 <= word < 1 << shape.width else initial_value(word, shape, what)

        rtlil.ModuleEmitter.emit_memory, _mem._get_init_value = emit, checked
        try:
            yield
        finally:
            rtlil.ModuleEmitter.emit_memory, _mem._get_init_value = emit_memory, initial_value


def constant(words: Sequence[int], bits: int) -> str:
    """Return words as one constant of RTLIL, the first word in its lowest bits.

    Parameters
    ----------
    words: integers; a negative one becomes two's complement.
    bits: bits of a word.
    """
    if not words or not bits:
        return "{  }"
    mask = (1 << bits) - 1
    return f"{bits * len(words)}'" + "".join(f"{word & mask:0{bits}b}" for word in reversed(words))
