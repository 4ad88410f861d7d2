"""Text of C: identifiers, literals, tables, loops, functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from nnhw.ir.types import IntType

_WIDTH = 118
"""Columns of a line of a table."""
_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main".split()
)
_SIGNED = ("int8_t", "int16_t", "int32_t", "int64_t")
# Without uint32_t and uint64_t: arithmetic with them would be unsigned, and differences wrap around.
_UNSIGNED = ("uint8_t", "uint16_t", "int32_t", "int64_t")
BYTES = {name: int(re.sub(r"\D", "", name)) // 8 for name in {*_SIGNED, *_UNSIGNED, "uint32_t"}} | {
    "double": 8,
    "float": 4,
}
_INT32_LEAST = -(1 << 31)


def identifier(name: str) -> str:
    """Return a C identifier for a name: other characters become '_'; 'm_' is put before keywords and leading digits."""
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name).strip("_") or "model"
    return f"m_{safe}" if safe[0].isdigit() or safe in _KEYWORDS else safe


def c_type(dtype: IntType) -> str:
    """Return the narrowest type of stdint.h that holds a range, of those that become signed in arithmetic."""
    for name in _SIGNED if dtype.low < 0 else _UNSIGNED:
        bits = BYTES[name] * 8
        least, most = (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        if least <= dtype.low and dtype.high <= most:
            return name
    raise AssertionError("an IntType fits into 64 bits")


def c_type_of(values: np.ndarray) -> str:
    """Return the narrowest type that holds an array of integers."""
    return c_type(IntType(int(values.min(initial=0)), int(values.max(initial=0))))


def accumulator(bound: int) -> str:
    """Return int32_t or int64_t for sums whose magnitude, also of every partial sum, is at most `bound`."""
    return "int32_t" if bound < 1 << 31 else "int64_t"


def integer(value: int, ctype: str = "int32_t") -> str:
    """Return a literal of an integer; for -2**31 and -2**63 these are macros, as C has no literals of their types."""
    if ctype == "int64_t":
        return "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"
    if value == _INT32_LEAST:
        return "INT32_MIN"
    return f"{value}u" if ctype == "uint32_t" else str(value)


def real(value: float) -> str:
    """Return the literal of a double with the digits that give exactly this double again."""
    return repr(float(value))


def table(ctype: str, name: str, values: np.ndarray) -> list[str]:
    """Return the lines of a constant array."""
    flat = values.reshape(-1)
    texts = [real(value) for value in flat] if ctype == "double" else [integer(int(value), ctype) for value in flat]
    return [f"static const {ctype} {name}[{len(flat)}] = {{", *_filled(texts), "};"]


def _filled(texts: Iterable[str]) -> list[str]:
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) + 2 > _WIDTH:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return [*lines, line]


def indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Return lines moved to the right, empty ones as they are."""
    return ["    " * levels + line if line else line for line in lines]


def times(variable: str, factor: int) -> str:
    """Return the C expression `variable * factor`."""
    return variable if factor == 1 else f"{variable} * {factor}"


def loop(variable: str, count: int, body: Sequence[str]) -> list[str]:
    """Return a loop over 0..count - 1."""
    return [f"for (int {variable} = 0; {variable} < {count}; ++{variable}) {{", *indented(body), "}"]


def loops(counts: Sequence[tuple[str, int]], body: Sequence[str]) -> list[str]:
    """Return nested loops, the first the outermost."""
    lines = list(body)
    for variable, count in reversed(counts):
        lines = loop(variable, count, lines)
    return lines


def comment(text: str) -> str:
    """Return a comment of one line, in which no text can end the comment or make a trigraph."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    return f"/* {plain.replace('*/', '* /').replace('/*', '/ *').replace('??', '? ?')} */"


@dataclass(frozen=True)
class Scratch:
    """An array of `count` elements that a layer needs while it runs."""

    name: str
    ctype: str
    count: int

    @property
    def bytes(self) -> int:
        """Size of the array."""
        return self.count * BYTES[self.ctype]


@dataclass
class CFunction:
    """One function of the C file.

    Parameters
    ----------
    name: of the function, unique in the file.
    about: what it computes, for people.
    reads: (C type, parameter, name of the value in the graph) of each value that it reads.
    writes: (C type, parameter, name of the value) of its result.
    body: its statements.
    scratch: scratch arrays, which are its last parameters.
    tables: lines of its constants.
    helpers: names of shared functions that it calls.
    functions: lines of functions of its own that it calls.
    """

    name: str
    about: str
    reads: list[tuple[str, str, str]]
    writes: tuple[str, str, str]
    body: list[str]
    scratch: list[Scratch] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        """Return the lines of tables and function."""
        parameters = [f"const {ctype} *restrict {name}" for ctype, name, _ in self.reads]
        parameters += [f"{self.writes[0]} *restrict {self.writes[1]}"]
        parameters += [f"{array.ctype} *restrict {array.name}" for array in self.scratch]
        head = f"static void {self.name}({', '.join(parameters)})"
        return [comment(self.about), *self.tables, *self.functions, head, "{", *indented(self.body), "}", ""]
