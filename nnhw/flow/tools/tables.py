"""Tables for a terminal or a pipe: however narrow it is, no number is cut."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.box import HEAVY_HEAD, SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

NAME_LEAST = 16
"""Fewest characters of a long name that still tell a layer from its neighbours."""
WORD_MOST = 24
"""Most characters of a word, such as the name of a board, that is not broken in a text that wraps."""
CONTEXT = 2
"""Characters shown in front of the place where names differ, such as the `d_` of `conv2d_1`."""


@dataclass(frozen=True)
class Frame:
    """The lines of a table.

    Parameters
    ----------
    box: characters of the lines. has_edge: whether there are lines around the table.
    padding: blanks above, right of, below and left of each cell.
    """

    box: Box
    has_edge: bool
    padding: tuple[int, int, int, int]

    def total(self, widths: Sequence[int]) -> int:
        """Return the width of a table whose columns have these widths."""
        between = 1 + self.padding[1] + self.padding[3]
        return sum(widths) + between * (len(widths) - 1) + (self.has_edge and between + 1)


FRAMED = Frame(HEAVY_HEAD, True, (0, 1, 0, 1))
PLAIN = Frame(SIMPLE_HEAD, False, (0, 1, 0, 0))


class NumberTable:
    """A table of names, numbers and texts that shows every number whole, whatever the width.

    Where the table is too wide, its headings wrap first. Then it loses the lines around its cells, texts wrap, and
    names lose characters in their middle. Columns that still do not fit follow in a second table below, which begins
    with the same first column.

    Parameters
    ----------
    title: shown above.
    columns: headings. Columns of numbers are flush right and never cut.
    names: headings of the columns whose cells are shortened in the middle; None: the first column alone.
    texts: headings of the columns whose cells wrap between words.
    """

    def __init__(
        self, title: str, *columns: str, names: Collection[str] | None = None, texts: Collection[str] = ()
    ) -> None:
        self.title = title
        self._columns = columns
        self._names = columns[:1] if names is None else names
        self._texts = texts
        self._rows: list[tuple[Text, ...]] = []
        self._sections: set[int] = set()

    def row(self, *cells: str | Text) -> None:
        """Append a row with a cell for each column; brackets in it are plain text, not markup."""
        self._rows.append(tuple(cell if isinstance(cell, Text) else Text(cell) for cell in cells))

    def section(self) -> None:
        """Draw a line below the rows so far."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | Table]:
        """Yield titles and the tables that hold all columns, each at most as wide as `options` say."""
        mark = "..." if options.ascii_only else "…"
        width, title = options.max_width, self.title
        for places in self._parts(width):
            # Not as a title of rich's, which is as wide as the table and would wrap.
            yield Text(title, "bold")
            # Lines around cells cost each column three characters instead of two: only where there is room for them.
            is_framed = len(places) == len(self._columns) and FRAMED.total(self._unwrapped(places)) <= width
            yield self._drawn(places, width, FRAMED if is_framed else PLAIN, mark)
            title = f"{self.title}, continued"

    def _parts(self, width: int) -> list[list[int]]:
        """Return the columns of each table, by number."""
        parts = [[0]]
        for place in range(1, len(self._columns)):
            joined = [*parts[-1], place]
            if len(joined) == 2 or PLAIN.total(self._widths(joined, width, PLAIN)) <= width:
                parts[-1] = joined
            else:
                parts.append([0, place])
        return parts

    def _unwrapped(self, places: Sequence[int]) -> list[int]:
        """Return the widths of columns of which nothing but headings wraps."""
        return [max(_word(self._columns[place]), self._longest(place)) for place in places]

    def _widths(self, places: Sequence[int], width: int, frame: Frame) -> list[int]:
        """Return the widths of columns; with the frame they are too wide where numbers need more room."""
        whole = [max(cell_len(self._columns[place]), self._longest(place)) for place in places]
        widths = whole if frame.total(whole) <= width else self._unwrapped(places)
        least = [self._least(place) for place in places]
        while frame.total(widths) > width and any(wide > low for wide, low in zip(widths, least, strict=True)):
            widest = max(range(len(places)), key=lambda at: (widths[at] > least[at], widths[at]))
            widths[widest] -= 1
        # Headings that need not wrap after all.
        for at, wanted in enumerate(whole):
            if self._longest(places[at]) <= widths[at] and frame.total(widths) + wanted - widths[at] <= width:
                widths[at] = wanted
        return widths

    def _least(self, place: int) -> int:
        """Return the fewest characters to which a column can be made narrow."""
        heading, longest = self._columns[place], self._longest(place)
        if heading in self._names:
            return max(_word(heading), min(longest, NAME_LEAST))
        if heading in self._texts:
            words = max((_word(row[place].plain) for row in self._rows), default=0)
            return max(_word(heading), min(words, WORD_MOST))
        return max(_word(heading), longest)

    def _longest(self, place: int) -> int:
        return max((cell_len(row[place].plain) for row in self._rows), default=0)

    def _drawn(self, places: Sequence[int], room: int, frame: Frame, mark: str) -> Table:
        """Return the table of some columns; every cell fits its column, so that rich cuts and wraps nothing."""
        table = Table(box=frame.box, padding=frame.padding, show_edge=frame.has_edge, pad_edge=frame.has_edge)
        columns: list[list[Text]] = []
        for place, width in zip(places, self._widths(places, room, frame), strict=True):
            heading = self._columns[place]
            left = heading in self._names or heading in self._texts
            wrapped = "\n".join(textwrap.wrap(heading, width, break_long_words=False, break_on_hyphens=False))
            table.add_column(wrapped, justify="left" if left else "right", width=width, no_wrap=True)
            cells = [row[place] for row in self._rows]
            if heading in self._names:
                short = shortened([cell.plain for cell in cells], width, mark)
                cells = [Text(text, cell.style) for text, cell in zip(short, cells, strict=True)]
            elif heading in self._texts:
                cells = [_wrapped(cell, width) for cell in cells]
            columns.append(cells)
        for number, cells_of_row in enumerate(zip(*columns, strict=True)):
            table.add_row(*cells_of_row, end_section=number in self._sections)
        return table


def shortened(names: Sequence[str], width: int, mark: str = "…") -> list[str]:
    """Return names of at most `width` characters, their middle replaced by a mark; unlike names stay unlike.

    Where several names have the same head and tail, the part in which they differ is shown between two marks:
    `block_1_depthwise_resource`, `block_1_depthwise_1_resource` --> `block_…e_reso…source`, `block_…e_1_re…source`
    """
    short = {name: name if len(name) <= width else _kept(name, width, mark) for name in names}
    _tell_apart(short, width, mark)
    return [short[name] for name in names]


def _kept(name: str, width: int, mark: str) -> str:
    """Return the head and the tail of a name."""
    tail = (width - len(mark)) // 2
    return name[: width - len(mark) - tail] + mark + name[len(name) - tail :]


def _tell_apart(short: dict[str, str], width: int, mark: str) -> None:
    """Shorten names that became the same text anew, around the first character in which they differ."""
    groups: dict[str, list[str]] = {}
    for name, text in short.items():
        groups.setdefault(text, []).append(name)
    middle = tail = (width - 2 * len(mark)) // 3
    head = width - 2 * len(mark) - middle - tail
    for alike in groups.values():
        if len(alike) == 1:
            continue
        letters = zip(*alike, strict=False)
        shared = sum(1 for _ in takewhile(lambda those: len(set(those)) == 1, letters))
        start = max(head, shared - CONTEXT)
        apart = {
            name: name[:head] + mark + name[start : start + middle] + mark + name[len(name) - tail :] for name in alike
        }
        # Of three names or more, two may differ only behind the part that is shown now.
        if len(set(apart.values())) > 1:
            _tell_apart(apart, width, mark)
        short |= apart


def _wrapped(cell: Text, width: int) -> Text:
    """Return a text whose lines have at most `width` characters, broken between words and at hyphens."""
    lines = [textwrap.fill(line, width, subsequent_indent="  ") for line in cell.plain.split("\n")]
    return Text("\n".join(lines), cell.style)


def _word(text: str) -> int:
    """Return the length of the longest part of a text that wrapping leaves whole."""
    return max(map(len, text.replace("-", "- ").split()), default=0)
