"""S-expressions: nested tuples of numbers, booleans, symbols and strings, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from nnhw.errors import IrError

DEPTH_MAX = 100
"""Most levels of nested brackets that are accepted."""
_ATOM_LENGTH_MAX = 1000
"""Most characters of a number or word."""
_EXCERPT_BEFORE, _EXCERPT = 60, 100
"""Characters of a source line that an error shows: in front of the place, and in all."""


class Symbol(str):
    """A bare word, such as a keyword or a name."""

    __slots__ = ()


Expression = int | float | bool | str | tuple["Expression", ...]


class Form(tuple[Expression, ...]):
    """A tuple that was read from a text.

    Parameters
    ----------
    place: position of its '(', in characters from the start of the text.
    places: position of the first character of each item.
    """

    place: int
    places: tuple[int, ...]

    @classmethod
    def of(cls, items: Iterable[Expression], place: int, places: Iterable[int]) -> Form:
        """Return a form of the given items, with their places and its own."""
        form = cls(items)
        form.place, form.places = place, tuple(places)
        return form


class TextError(IrError):
    """A text is not a valid graph.

    Parameters
    ----------
    message: for the user, with the place. line, column: the place, each counted from 1.
    """

    def __init__(self, message: str, line: int, column: int) -> None:
        self.line, self.column = line, column
        super().__init__(message)


class Text:
    """A text and the name of its file, for errors.

    Parameters
    ----------
    content: the text.
    file: name of its file, as errors show it; empty if it is from no file.
    """

    def __init__(self, content: str, file: str = "") -> None:
        self.content, self.file = content, file

    def line(self, place: int) -> int:
        """Return the number of the line, from 1, that holds a place (a position in characters)."""
        return self.content.count("\n", 0, place) + 1

    def error(self, place: int, message: str) -> TextError:
        """Return an error whose message shows the line that holds a place, with a mark below the place."""
        start = self.content.rfind("\n", 0, place) + 1
        end = self.content.find("\n", place)
        source = self.content[start : len(self.content) if end < 0 else end]
        line, column = self.line(place), place - start + 1
        first = max(0, column - 1 - _EXCERPT_BEFORE)
        shown = "".join(char if char.isprintable() else " " for char in source[first : first + _EXCERPT])
        where = f"{self.file}:{line}:{column}" if self.file else f"line {line}, column {column}"
        return TextError(f"{where}: {message}\n    {shown.rstrip()}\n    {' ' * (column - 1 - first)}^", line, column)


_SYMBOL = re.compile(r"[A-Za-z_:.@][\w:.@/\-]*")
_INTEGER = re.compile(r"[+-]?[0-9]+")
# Without the underscores and the words 'nan' and 'infinity' that Python's float() would take.
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TOKEN = re.compile(
    r'\s*(?:(?P<atom>[^\s()";]+)|(?P<bracket>[()])|(?P<string>"(?:[^"\\]|\\.)*")|(?P<comment>;[^\n]*)|(?P<rest>[^\s]))'
)
_WORDS = {"true": True, "false": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def show(expression: Expression) -> str:
    """Return an expression as text on one line. Strings that are no bare words, such as "true" or "1x", are quoted."""
    if isinstance(expression, tuple):
        return f"({' '.join(map(show, expression))})"
    if isinstance(expression, bool):
        return "true" if expression else "false"
    if isinstance(expression, str):
        bare = _SYMBOL.fullmatch(expression) and isinstance(_atom(expression), Symbol)
        return expression if bare else json.dumps(expression)
    # The shortest text that is read back as the same float64.
    return repr(expression)


def parse(text: str | Text) -> Expression:
    """Return the one expression in a text: the inverse of `show`. White space and comments (`; ..`) are skipped.

    Raises: TextError that names the place.
    """
    source = text if isinstance(text, Text) else Text(text)
    reader = _Reader(source)
    position, content = 0, source.content
    while (match := _TOKEN.match(content, position)) is not None:
        position = match.end()
        reader.take(match.lastgroup or "", match.start(match.lastgroup or 0), match[match.lastgroup or 0])
    return reader.finished()


class _Reader:
    """Builds an expression from the tokens of a text, with a stack instead of recursion.

    `opened` is the stack of open brackets, each with its place, its items so far, and their places. The bottom of it
    stands for the text itself.
    """

    def __init__(self, source: Text) -> None:
        self.source = source
        self.opened: list[tuple[int, list[Expression], list[int]]] = [(0, [], [])]

    def take(self, kind: str, place: int, token: str) -> None:
        """Take one token. Raises: TextError."""
        if kind == "atom":
            self._append(place, self._atom(place, token))
        elif token == "(":
            if len(self.opened) > DEPTH_MAX:
                raise self.source.error(place, f"brackets are nested too deeply: {DEPTH_MAX} levels are accepted")
            self.opened.append((place, [], []))
        elif token == ")":
            if len(self.opened) == 1:
                raise self.source.error(place, "a ')' without its '('; delete it, or open one in front of it")
            start, items, places = self.opened.pop()
            self._append(start, Form.of(items, start, places))
        elif kind == "string":
            self._append(place, self._string(place, token))
        elif kind == "rest":
            raise self.source.error(place, 'an unfinished string; close it with "')

    def finished(self) -> Expression:
        """Return the one expression. Raises: TextError for none, for more, and for open brackets."""
        if len(self.opened) > 1:
            missing = len(self.opened) - 1
            raise self.source.error(
                self.opened[-1][0], f"this '(' is never closed; {missing} ')' missing at the end of the text"
            )
        _, items, _ = self.opened[0]
        if not items:
            raise self.source.error(0, "one expression is needed, got none: the text is empty")
        return items[0]

    def _append(self, place: int, item: Expression) -> None:
        _, items, places = self.opened[-1]
        if len(self.opened) == 1 and items:
            raise self.source.error(place, "extra text behind the expression, which ends in front of it; delete it")
        items.append(item)
        places.append(place)

    def _atom(self, place: int, token: str) -> Expression:
        value = _atom(token) if len(token) <= _ATOM_LENGTH_MAX else None
        if value is None:
            shown = token if len(token) < 40 else f"{token[:24]}.. ({len(token)} characters)"
            what = "number" if token[0] in "+-.0123456789" else "word"
            raise self.source.error(place, f"'{shown}' is no {what}; write a name like this in double quotes")
        return value

    def _string(self, place: int, token: str) -> str:
        try:
            text: str = json.loads(token)
        except ValueError:
            raise self.source.error(
                place, r"a string takes the escapes of JSON, such as \" and \\, and no line breaks or tabs; write \n"
            ) from None
        return text


def _atom(text: str) -> Expression | None:
    """Return the number or word that a token is; None if it is neither."""
    if _INTEGER.fullmatch(text):
        return int(text)
    # Before symbols, which these words would be, too.
    if text in _WORDS:
        return _WORDS[text]
    if _FLOAT.fullmatch(text):
        return float(text)
    return Symbol(text) if _SYMBOL.fullmatch(text) else None
