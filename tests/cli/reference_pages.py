"""docs/command-line.md and docs/board-file.md, made of what the code says: `python -m tests.cli.reference_pages`."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import typer

from nnhw.boards import Board
from nnhw.cli import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
_HEADS = {
    "command-line.md": (
        "# Command line\n\nMade of the program itself. `nnhw COMMAND --help` shows the same; "
        "`nnhw --install-completion` completes commands and options in your shell.\n"
        "\nResults go to standard output; progress and errors go to standard error. An error is one message "
        "that begins with one of these words:\n\n"
        "| exit code | first word | when |\n|---|---|---|\n"
        "| 0 |  | done |\n"
        "| 1 | `Input:` | a file, board or option value that cannot be used |\n"
        "| 1 | `Not supported:` | a model, or a part of one, that nnhw cannot build; all such parts are listed |\n"
        "| 1 | `Does not fit:` | a model that is too large or too slow for the board |\n"
        "| 1 | `Error:` | a failure of a build, a tool or a device, such as a missed clock, differing results, a "
        "missing tool, or a device that does not answer |\n"
        "| 1 |  | `fit`: the model fits no board; `doctor`: something needed for a build is missing |\n"
        "| 2 | `Usage:` | an unknown command or option, a missing argument, a value out of range |\n"
        "| 130, 143, 129 | `interrupted` | Ctrl-C, SIGTERM, SIGHUP: 128 plus the signal number |\n"
    ),
    "board-file.md": (
        "# Keys of a board file\n\nMade of the code that reads them. [My own board](how-to/own-board.md) shows how to "
        "write one, and `boards/` has one for each board that nnhw knows. `--board PATH.toml` takes it; all mistakes "
        "in it are listed at once.\n"
    ),
}


def command_line() -> str:
    """Return the page of all commands and their options."""
    return _HEADS["command-line.md"] + "".join(_sections("nnhw", typer.main.get_command(app)))


def board_file() -> str:
    """Return the page of all keys of a board file."""
    return _HEADS["board-file.md"] + "".join(_tables("", Board))


PAGES = {"command-line.md": command_line, "board-file.md": board_file}


def _sections(name: str, command: Any) -> Iterator[str]:
    """Yield the section of a command, then those of the commands in it."""
    inner = getattr(command, "commands", {})
    arguments = [one for one in command.params if not one.opts[0].startswith("-")]
    usage = " ".join([name, *(one.metavar or one.name.upper() for one in arguments), *(["COMMAND"] if inner else [])])
    yield f"\n## `{usage}`\n\n{(command.help or '').strip()}\n"
    rows = [row for one in command.params if (row := _option(one))]
    if rows:
        yield "\n| | default | |\n|---|---|---|\n" + "".join(rows)
    for part, one in inner.items():
        yield from _sections(f"{name} {part}", one)


def _option(one: Any) -> str:
    """Return the row of an option or argument; nothing for what the shell's completion needs."""
    if "completion" in one.name:
        return ""
    names = ", ".join(f"`{name}`" for name in one.opts) if one.opts[0].startswith("-") else f"`{one.metavar}`"
    if one.opts[0].startswith("-") and not one.is_flag:
        names += f" `{one.metavar or _kind(one)}`"
    shown = "" if one.default is None or one.is_flag or one.required else f"`{_plain(one.default)}`"
    return f"| {names} | {shown} | {_cell(one.help or '')} |\n"


def _kind(one: Any) -> str:
    return {"int": "NUMBER", "float": "NUMBER", "str": "TEXT", "Path": "PATH"}[
        re.sub(r"list\[(\w+)\]", r"\1", str(one.bare_type()))
    ]


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _tables(prefix: str, kind: type) -> Iterator[str]:
    """Yield the table of a class of the board file, then those of the classes in it."""
    meanings, hints = _parameters(kind), typing.get_type_hints(kind)
    title = f"`[{prefix}]`" if prefix else "The board"
    about = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    yield f"\n## {title}\n\n{about}\n\n| key | type | default | what |\n|---|---|---|---|\n"
    inner: list[tuple[str, type]] = []
    for field in fields(kind):
        part = _class_of(hints[field.name])
        if part is not None:
            inner.append((field.name, part))
            yield f"| `[{field.name}]` | table | {_default(field)} | {meanings[field.name]} |\n"
            continue
        yield f"| `{field.name}` | {_type(hints[field.name])} | {_default(field)} | {meanings.get(field.name, '')} |\n"
    for name, part in inner:
        yield from _tables(name, part)


def _class_of(hint: Any) -> type | None:
    """Return the dataclass of a key that is a table of its own."""
    choices = typing.get_args(hint) or (hint,)
    return next((one for one in choices if isinstance(one, type) and is_dataclass(one)), None)


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return "list of strings"
    return {int: "whole number", str: "string", float: "number", bool: "true or false"}[hint]


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return "needed"
    return "none" if field.default in (None, "", ()) else f"`{field.default}`"


def _parameters(kind: type) -> dict[str, str]:
    """Return what the docstring of a class says of each parameter."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("----------\n")[2]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        start = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if start:
            names = start[1].split(", ")
            found |= dict.fromkeys(names, start[2])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return {name: _cell(meaning) for name, meaning in found.items()}


if __name__ == "__main__":
    for file, make in PAGES.items():
        (DOCS / file).write_text(make(), encoding="utf-8")
