"""S-expressions: nested tuples of numbers, booleans, symbols and strings, as text."""

from __future__ import annotations

import json
import re

from nnhw.errors import IrError


class Symbol(str):
    """A bare word, such as a keyword or a name."""

    __slots__ = ()


Expression = int | float | bool | str | tuple["Expression", ...]

_SYMBOL = re.compile(r"[A-Za-z_:.@][\w:.@/\-]*")
_TOKEN = re.compile(r'\s*(?:(?P<bracket>[()])|(?P<string>"(?:[^"\\]|\\.)*")|(?P<atom>[^\s()"]+))')
_NUMBERS = {"true": True, "false": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def show(expression: Expression) -> str:
    """Return the text on one line. Words that could be read as something else are quoted."""
    if isinstance(expression, tuple):
        return f"({' '.join(map(show, expression))})"
    if isinstance(expression, bool):
        return "true" if expression else "false"
    if isinstance(expression, str):
        bare = _SYMBOL.fullmatch(expression) and isinstance(_atom(expression), Symbol)
        return expression if bare else json.dumps(expression)
    return repr(expression)


def parse(text: str) -> Expression:
    """Return the one expression in `text`: the inverse of `show`, whatever the white space.

    Raises: IrError that names the place.
    """
    stack: list[list[Expression]] = [[]]
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise IrError(f"line {_line(text, position)}: an unfinished string")
        position = match.end()
        if match["bracket"] == "(":
            stack.append([])
        elif match["bracket"] == ")":
            if len(stack) == 1:
                raise IrError(f"line {_line(text, position)}: a ')' without its '('")
            stack[-2].append(tuple(stack.pop()))
        else:
            stack[-1].append(json.loads(match["string"]) if match["string"] else _atom(match["atom"]))
    if len(stack) > 1:
        raise IrError(f"line {_line(text, position)}: {len(stack) - 1} ')' missing at the end")
    if len(stack[0]) != 1:
        raise IrError(f"one expression is needed, got {len(stack[0])}")
    return stack[0][0]


def _atom(text: str) -> Expression:
    if text in _NUMBERS:
        return _NUMBERS[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return Symbol(text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
