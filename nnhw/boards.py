"""Boards: their device's resources, and the pins of their clock and links. Each is a data file in `boards/`."""

from __future__ import annotations

import difflib
import importlib.resources
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args, get_type_hints

from nnhw.errors import BoardError, NnhwError, raise_all
from nnhw.families import FAMILIES
from nnhw.links import LINKS, BoardLink, Ftdi, Spi, Uart, Ulpi, Usb
from nnhw.reading import is_plain_name, parse_toml
from nnhw.sensors import INPUTS, Camera, I2s, Pdm, ResultPins, SensorPins

BOARD_NAMES = (
    *("icebreaker", "ice40_hx8k_b_evn", "icestick", "icesugar", "icesugar_nano", "nandland_go"),
    *("blackice", "blackice_ii"),
    *("ulx3s_12f", "ulx3s_25f", "ulx3s_45f", "ulx3s_85f", "versa_ecp5", "versa_ecp5_5g", "ecp5_5g_evn"),
    *("fomu_pvt", "icebreaker_bitsy", "tinyfpga_bx"),
    *("ecpix5_45f", "ecpix5_85f", "colorlight_5a75b_r7_0", "icepi_zero", "icesugar_pro", "supercon19badge"),
)
"""The boards that come with nnhw; each is the name of a file in `boards/`, without its suffix."""

# A board file may come from anybody: nothing but a class of this package is imported for it.
_PLATFORM = re.compile(r"amaranth_boards\.[A-Za-z]\w*:[A-Za-z]\w*", re.ASCII)
_NUMBER_MAX = (1 << 32) - 1
"""Greatest whole number that a board file may have; larger ones are mistakes."""
FLASH_BLOCK_BYTES = 0x10000
"""Largest block that flash erases at once."""


@dataclass(frozen=True)
class Resources:
    """The resources of a device, or of a design on it.

    Parameters
    ----------
    lc: logic cells, each a 4-input LUT and a flip-flop.
    ebr: block RAMs, of the family's size.
    spram: large RAMs of 256 Kibit; 0 where the device has none.
    dsp: DSP blocks.
    ff: flip-flops, in families where a flip-flop can be used beside any LUT; a board file may leave them out: as many
        as logic cells. In other families 0, as each flip-flop is part of a logic cell.
    """

    lc: int
    ebr: int
    spram: int
    dsp: int
    ff: int = 0


@dataclass(frozen=True)
class InputClock:
    """The oscillator of a board.

    Parameters
    ----------
    resource: name in amaranth-boards.
    hz: frequency in Hz.
    pll: 'pad' if it is wired to the PLL's own pin, which not every family has, else 'core'; 'none' if it reaches no
        PLL, so that the design runs at this clock.
    """

    resource: str
    hz: int
    pll: str


@dataclass(frozen=True)
class Flash:
    """SPI flash with the bitstream, and behind it a program of a shared engine.

    Parameters
    ----------
    resource: name in amaranth-boards, of a resource with single data lines.
    offset: address of the program in bytes: behind the largest bitstream of the device, at the start of a block of
        64 KiB, so that writing one erases nothing of the other.
    """

    resource: str
    offset: int


@dataclass(frozen=True)
class Board:
    """A board: its device, and where the clock and the link to the host are.

    Parameters
    ----------
    name: name of the board, as in the names of build folders.
    title: name of the board for people.
    platform: class of amaranth-boards, `module:Class`.
    family: family of the device, `ice40` or `ecp5`.
    device: nextpnr's name of the device.
    package: nextpnr's name of the package.
    target_clock_hz: clock in Hz that a design is placed for when no clock is requested.
    resources: resources of the device.
    input_clock: the oscillator.
    uart: the serial port to the host; None: the board has none.
    openfpgaloader: openFPGALoader's name of the board; empty: it has none.
    speed: speed grade of the device; empty where the device's name contains it.
    aliases: other names of the board.
    flash: flash from which the device may load a program when it starts; None: it does not.
    spi: pins for a microcontroller; None: the board has none for it.
    ftdi: pins of the flash by which an FTDI chip reaches the FPGA, too; None: the board has none.
    usb: pins of the FPGA at a USB connector; None: the board has none.
    ulpi: pins of the FPGA at a ULPI PHY with a USB connector; None: the board has none.
    link: kind of the link that a build is for when none is asked for.
    i2s: pins of a microphone; None: the board has none for it.
    pdm: pins of a microphone that sends single bits; None: the board has none for it.
    camera: pins of a camera; None: the board has none for it.
    result: pins that show the result of a network which a sensor feeds; None: it leaves by the serial port alone.
    input: kind of the sensor that a build is for when none is asked for; empty: the link.
    """

    name: str
    title: str
    platform: str
    family: str
    device: str
    package: str
    target_clock_hz: int
    resources: Resources
    input_clock: InputClock
    uart: Uart | None = None
    openfpgaloader: str = ""
    speed: str = ""
    aliases: tuple[str, ...] = ()
    flash: Flash | None = None
    spi: Spi | None = None
    ftdi: Ftdi | None = None
    usb: Usb | None = None
    ulpi: Ulpi | None = None
    link: str = Uart.kind
    i2s: I2s | None = None
    pdm: Pdm | None = None
    camera: Camera | None = None
    result: ResultPins | None = None
    input: str = ""

    @property
    def fastest_clock_hz(self) -> int:
        """Clock in Hz up to which a layout can be changed to another clock: its counters of time are wide enough."""
        return 2 * self.target_clock_hz

    @property
    def links(self) -> tuple[BoardLink, ...]:
        """The links that it has."""
        return tuple(link for kind in LINKS if (link := getattr(self, kind)) is not None)

    @property
    def host_link(self) -> BoardLink:
        """The link that a build is for."""
        return next(link for link in self.links if link.kind == self.link)

    def with_link(self, kind: str) -> Board:
        """Return the same board with another of its links chosen for builds.

        Parameters
        ----------
        kind: of the link, or another name of it (`BoardLink.called`).

        Raises
        ------
        BoardError: nnhw or the board has no link of this kind.
        """
        return self if kind == self.link else _with_link(self, kind)

    @property
    def sensors(self) -> tuple[SensorPins, ...]:
        """The sensors that it has pins for."""
        return tuple(pins for kind in INPUTS if (pins := getattr(self, kind)) is not None)

    @property
    def sensor(self) -> SensorPins | None:
        """The sensor that a build is for; None: the input comes by the link."""
        return next((pins for pins in self.sensors if pins.kind == self.input), None)

    def with_input(self, kind: str) -> Board:
        """Return the same board with one of its sensors chosen for builds; empty: as it is.

        Raises
        ------
        BoardError: nnhw or the board has no sensor of this kind.
        """
        return replace(self, input=_known_input(self, kind)) if kind else self


def _with_link(board: Board, kind: str) -> Board:
    """Return a board with another link, see `Board.with_link`."""
    has = _quoted([link.kind for link in board.links])
    if kind not in LINKS:
        raise BoardError(f"--link is one of {_quoted(LINKS)}; given '{kind}'; board '{board.name}' has {has}")
    if getattr(board, kind) is None and (other := next((link for link in board.links if kind in link.called), None)):
        kind = other.kind
    if getattr(board, kind) is None:
        pins = _quoted([port.name for port in LINKS[kind].ports])
        raise BoardError(
            f"board '{board.name}' has no link '{kind}', it has {has}; use one of these, or give a board file with a "
            f"table '{kind}' that names the pins {pins}"
        )
    return replace(board, link=kind)


def _known_input(board: Board, kind: str) -> str:
    """Return the kind of a sensor that a board has pins for, see `Board.with_input`."""
    has = _quoted([pins.kind for pins in board.sensors]) or "no sensor"
    if kind not in INPUTS:
        raise BoardError(f"--input is one of {_quoted(INPUTS)}; given '{kind}'; board '{board.name}' has {has}")
    if getattr(board, kind) is None:
        keys = _quoted([item.name for item in fields(INPUTS[kind]) if item.default is MISSING])
        raise BoardError(
            f"board '{board.name}' has no pins for the input '{kind}'; its board file has {has}; give one with a table "
            f"'{kind}' that names the pins {keys}"
        )
    return kind


def list_boards() -> tuple[Board, ...]:
    """Return the boards that come with nnhw."""
    return tuple(_read(_folder() / f"{name}.toml") for name in BOARD_NAMES)


def load_board(name: str | Path) -> Board:
    """Return a board.

    Parameters
    ----------
    name: of a board that comes with nnhw, an alias of it, or the path of a board file (`.toml`).

    Raises
    ------
    BoardError: an unknown name, or a file that cannot be read or has mistakes (all are listed).
    """
    if isinstance(name, Path) or name.endswith(".toml"):
        return _read(Path(name))
    # All are read: aliases are in the files, and there are few.
    known = {alias: board for board in list_boards() for alias in (board.name, *board.aliases)}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise BoardError(
        f"board '{name}' is not known; {hint}'nnhw boards' lists all, "
        "and a board of your own is a file: --board PATH.toml"
    )


def _folder() -> Traversable:
    """Return the folder of the board files: in the wheel inside the package, in a checkout beside it."""
    package = importlib.resources.files("nnhw")
    shipped = package / "_boards"
    return shipped if shipped.is_dir() else Path(str(package)).parent / "boards"


def _read(path: Traversable) -> Board:
    """Return the board of a file; see `load_board`."""
    where = f"board file '{path.name}'"
    try:
        table = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BoardError(f"{where} cannot be read: {error}") from None
    return board_of(table, where)


def board_of(table: Mapping[str, Any], where: str) -> Board:
    """Return the board that a table describes.

    Parameters
    ----------
    table: content of a board file, or `dataclasses.asdict` of a board.
    where: name of the table in messages.

    Raises
    ------
    BoardError: the table has mistakes; the message lists all of them.
    """
    problems: list[NnhwError] = []
    board = _make(Board, table, where, problems)
    # Further rules read fields, so they need a board whose fields have the right types.
    if board is not None:
        problems += _check(board, where)
    raise_all(problems)
    assert isinstance(board, Board)
    # Where flip-flops are counted apart from logic cells, a device has as many, unless its file says otherwise.
    if not FAMILIES[board.family].logic.flip_flop_packs and not board.resources.ff:
        return replace(board, resources=replace(board.resources, ff=board.resources.lc))
    return board


def _make(kind: type, table: Mapping[str, Any], where: str, problems: list[NnhwError], prefix: str = "") -> Any:
    """Return the dataclass that a table describes, or None after a problem was appended."""
    before = len(problems)
    types = _types(kind)
    values: dict[str, Any] = {}
    # In the order of the file: a set's order changes from process to process.
    for name in [name for name in table if name not in types]:
        near = difflib.get_close_matches(name, types, n=1)
        hint = f"did you mean '{prefix}{near[0]}'?" if near else f"known are {_quoted(types)}"
        problems.append(BoardError(f"{where}: field '{prefix}{name}' is not known; {hint}"))
    for item in fields(kind):
        # A build folder holds all fields of its board, also those that its file left out (`dataclasses.asdict`).
        if item.name in table and (table[item.name] is None or table[item.name] in ("", [], ())) and _is_left_out(item):
            continue
        if item.name in table:
            values[item.name] = _value(table[item.name], types[item.name], where, problems, prefix + item.name)
        elif item.default is MISSING:
            problems.append(
                BoardError(f"{where}: field '{prefix}{item.name}' ({_describe(types[item.name])}) is missing")
            )
    return kind(**values) if len(problems) == before else None


@cache
def _types(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    return get_type_hints(kind)


def _is_left_out(item: Field[Any]) -> bool:
    """Return whether an empty value of a field means that it is left out, as its default is empty, too."""
    return item.default is not MISSING and not item.default


def _value(value: Any, kind: Any, where: str, problems: list[NnhwError], name: str) -> Any:
    """Return a value as its field's type, or append a problem."""
    # `Flash | None` and the like: the dataclass in the union.
    kind = next(filter(is_dataclass, get_args(kind)), kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        return _make(kind, value, where, problems, f"{name}.")
    # Not isinstance: true and false of TOML are bool, a subclass of int.
    if kind is int and type(value) is int and value > _NUMBER_MAX:
        problems.append(BoardError(f"{where}: field '{name}' must be {_NUMBER_MAX} or less"))
        return 0
    if kind is int and type(value) is int and value >= 0:
        return value
    if kind is str and isinstance(value, str) and value:
        return value
    if kind == tuple[str, ...] and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    problems.append(BoardError(f"{where}: field '{name}' must be {_describe(kind)}, but is {value!r}"))
    return None


def _describe(kind: Any) -> str:
    names = {int: "a whole number of 0 or more", str: "a text", tuple[str, ...]: "a list of texts"}
    return names.get(kind, "a table")


def _check(board: Board, where: str) -> list[NnhwError]:
    """Return the mistakes of a board whose fields have the right types."""
    problems: list[NnhwError] = _check_choices(board, where)
    problems += [BoardError(f"{where}: {text}") for link in board.links for text in link.problems()]
    problems += _check_clocks(board, where)
    problems += [BoardError(f"{where}: {text}") for pins in board.sensors for text in pins.problems()]
    problems += _check_shared_pins(board, where)
    if not _PLATFORM.fullmatch(board.platform):
        problems.append(
            BoardError(
                f"{where}: field 'platform' must be 'module:Class' of amaranth_boards, such as "
                f"'amaranth_boards.icebreaker:ICEBreakerPlatform', but is {board.platform!r}"
            )
        )
    if not is_plain_name(board.name):
        problems.append(BoardError(f"{where}: field 'name' must serve as a folder's name, but is {board.name!r}"))
    problems += _check_words(board, where)
    positive = {
        "target_clock_hz": board.target_clock_hz,
        "input_clock.hz": board.input_clock.hz,
        **{f"{link.kind}.{link.speed_field}": link.speed for link in board.links},
        "resources.lc": board.resources.lc,
    }
    problems += [
        BoardError(f"{where}: field '{name}' must be more than 0") for name, value in positive.items() if not value
    ]
    family = FAMILIES.get(board.family)
    if board.resources.ff and (family is None or family.logic.flip_flop_packs):
        problems.append(
            BoardError(
                f"{where}: field 'resources.ff' must be left out, but is {board.resources.ff}: in family "
                f"'{board.family}' each flip-flop is part of a logic cell"
            )
        )
    if board.flash is not None and (board.flash.offset % FLASH_BLOCK_BYTES or not 0 < board.flash.offset < 1 << 24):
        problems.append(
            BoardError(
                f"{where}: field 'flash.offset' must be a multiple of {FLASH_BLOCK_BYTES:#x} between the bitstream and "
                f"16 MiB, but is {board.flash.offset:#x}"
            )
        )
    return problems


def _check_clocks(board: Board, where: str) -> list[NnhwError]:
    """Return problems with links whose clock is to be the oscillator's."""
    clock = board.input_clock
    return [
        BoardError(
            f"{where}: field '{link.kind}.clock' is 'oscillator', which needs an oscillator of {link.own_clock_hz} Hz "
            f"that reaches the design, but 'input_clock' has {clock.hz} Hz, and pll '{clock.pll}'; use 'design'"
        )
        for link in board.links
        if link.clock_source == "oscillator" and (clock.hz != link.own_clock_hz or clock.pll == "pad")
    ]


def table_pins(table: SensorPins | ResultPins) -> dict[str, str]:
    """Return the pins of the package in a table of a sensor, or of results, by name."""
    return {**getattr(table, "inputs", {}), **table.outputs}


def _check_shared_pins(board: Board, where: str) -> list[NnhwError]:
    """Return an error for each pin of a sensor that is given twice, or that the serial port or the result has, too."""
    problems: list[NnhwError] = []
    if board.sensors and board.uart is None:
        problems.append(BoardError(f"{where}: a board with a sensor needs the table 'uart', where results leave"))
    # Pins that every build with a sensor uses beside it; sensors may share pins with one another, for a build has one.
    common = {} if board.uart is None else {pin: f"uart.{name}" for name, pin in board.uart.pins.items() if pin}
    if board.result is not None:
        common |= {pin: f"result.{name}" for name, pin in board.result.outputs.items()}
    for table in board.sensors:
        taken = dict(common)
        for name, pin in table_pins(table).items():
            if pin in taken:
                problems.append(
                    BoardError(
                        f"{where}: field '{table.kind}.{name}' is pin {pin}, which '{taken[pin]}' is as well; choose a "
                        "free pin"
                    )
                )
            taken[pin] = f"{table.kind}.{name}"
    return problems


def _check_words(board: Board, where: str) -> list[NnhwError]:
    """Return problems with fields that tools read as one word, which could be an option, a path, or lines of a file."""
    tables: list[SensorPins | ResultPins] = [*board.sensors, *([board.result] if board.result else [])]
    words = {
        "package": board.package,
        "openfpgaloader": board.openfpgaloader,
        "input_clock.resource": board.input_clock.resource,
        "flash.resource": board.flash.resource if board.flash else "",
        **{f"{link.kind}.{name}": word for link in board.links for name, word in link.words.items()},
        **{
            f"{table.kind}.{name}": word
            for table in tables
            for name, word in (*table_pins(table).items(), ("io_standard", table.io_standard))
        },
        **{f"aliases[{number}]": alias for number, alias in enumerate(board.aliases)},
    }
    problems: list[NnhwError] = [
        BoardError(f"{where}: field '{name}' must be a word of letters, digits, '_', '-' and '.', but is {word!r}")
        for name, word in words.items()
        if word and not is_plain_name(word)
    ]
    if not board.title.isprintable():
        problems.append(BoardError(f"{where}: field 'title' must be a line of text, but is {board.title!r}"))
    return problems


def _check_choices(board: Board, where: str) -> list[NnhwError]:
    """Return problems with fields whose value is not one of those that the family allows."""
    if not board.links:
        return [BoardError(f"{where}: a board needs a link: the table of at least one of {_quoted(LINKS)}")]
    choices: dict[str, tuple[str, tuple[str, ...]]] = {
        "family": (board.family, tuple(FAMILIES)),
        "link": (board.link, tuple(link.kind for link in board.links)),
        "input": (board.input, ("", *(pins.kind for pins in board.sensors))),
    }
    if family := FAMILIES.get(board.family):
        choices |= {
            "device": (board.device, family.devices),
            "speed": (board.speed, family.speeds),
            "input_clock.pll": (board.input_clock.pll, family.clock_sources),
        }
    return [
        BoardError(
            f"{where}: field '{field}' must be {'one of ' + _quoted(allowed) if any(allowed) else 'left out'}, "
            f"but is '{given}'"
        )
        for field, (given, allowed) in choices.items()
        if given not in allowed
    ]


def _quoted(names: Mapping[str, Any] | tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
