"""The top of a design: a board's pins, its clock and reset, and the device behind its link."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from amaranth.build import Attrs, Pins, Platform, Resource, ResourceError, Subsignal, TemplatedPlatform
from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal, Value
from amaranth.lib import cdc, io, wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import Board
from nnhw.errors import BoardError, NnhwError, raise_all
from nnhw.families import FAMILIES
from nnhw.hdl.cells import CELLS
from nnhw.hdl.initial_words import words_at_once
from nnhw.hdl.link.linked_engine import ENGINE_DOMAIN
from nnhw.hdl.pll import PllSettings, connect_clock
from nnhw.hdl.sensors import SensorDevice
from nnhw.hdl.sensors.pins import add_sensor, connect_sensor
from nnhw.links import BoardLink, LinkPort

_SETTLE_S = 15e-6
"""Shortest reset after the PLL has locked, in seconds; see `ClockGenerator`."""


@dataclass(frozen=True)
class TopDesign:
    """The input of synthesis, and of place and route.

    Parameters
    ----------
    rtlil: text of the module `top`.
    constraints: text of the constraint file, in the family's format: pins, and the input clock.
    """

    rtlil: str
    constraints: str


class StartReset(wiring.Component):
    """Holds a reset until a clock has been good for a while.

    Parameters
    ----------
    cycles: how many cycles of the clock it holds the reset, at least.

    Members
    -------
    lock: In(1), asynchronous: the clock is stable.
    reset: Out(1), a register, 1 from the start.

    Timing: the reset ends `cycles` to `2 * cycles` cycles after `lock`, and begins again 4 cycles after `lock` is lost.
    """

    def __init__(self, cycles: int) -> None:
        # A power of two, so that the end is one bit and not a comparison.
        self.cycles_log2 = max(1, (cycles - 1).bit_length())
        super().__init__({"lock": In(1), "reset": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        locked, waited = Signal(), Signal(self.cycles_log2 + 1)
        m.submodules.synchronizer = cdc.FFSynchronizer(self.lock, locked)
        with m.If(~locked):
            m.d.sync += waited.eq(0)
        with m.Elif(~waited[-1]):
            m.d.sync += waited.eq(waited + 1)
        m.d.sync += self.reset.eq(~waited[-1])
        return m


class ClockGenerator(wiring.Component):
    """The PLL and the start reset, for the `sync` domain of the design.

    nextpnr derives the constraint of this clock from that of the input clock and the PLL's parameters.

    Timing: the reset ends 15 to 30 microseconds after the PLL has locked, at the fastest clock that a layout serves
    (`Board.fastest_clock_hz`); at slower clocks it takes as many cycles, so it ends later. The reason is that the block
    RAM of the iCE40 reads as zeros in the first 3 microseconds after configuration.
    Source: Project IceStorm, issue 76; the factor of 5 is that of Amaranth's iCE40 platform (`create_missing_domain`).

    Members
    -------
    clock: Out(1), the clock for the `sync` domain.
    link_clock: Out(1), the clock that the link needs beside that, if it needs one.
    reset: Out(1), the reset for it, active high.
    """

    def __init__(self, board: Board, settings: PllSettings) -> None:
        self.board = board
        self.settings = settings
        super().__init__({"clock": Out(1), "link_clock": Out(1), "reset": Out(1)})

    @property
    def _settle_cycles(self) -> int:
        """Cycles of the reset, at least; the same for all clocks that one layout serves."""
        return math.ceil(_SETTLE_S * max(self.settings.output_hz, self.board.fastest_clock_hz))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        clock, lock = Signal(name="pll_clock"), Signal(name="pll_lock")
        port = platform.request(self.board.input_clock.resource, dir="-")
        oscillator = connect_clock(m, self.board, self.settings, port, clock, lock)
        self._connect_link_clock(m, platform, clock, oscillator)

        # The same clock without a reset, for the registers that make the reset.
        m.domains.start = ClockDomain(reset_less=True, local=True)
        m.submodules.start = start = DomainRenamer("start")(StartReset(self._settle_cycles))
        m.d.comb += [
            ClockSignal("start").eq(clock),
            start.lock.eq(lock),
            self.clock.eq(clock),
            self.reset.eq(start.reset),
        ]
        return m

    def _connect_link_clock(self, m: Module, platform: Any, clock: Signal, oscillator: Value | None) -> None:
        """Connect the clock that the link needs beside that of the design, and tell place and route its frequency.

        A design with a sensor has no link.
        """
        link = self.board.host_link
        if not link.own_clock_hz or self.board.sensor is not None:
            return
        if link.clock_source == "design":
            m.d.comb += self.link_clock.eq(clock)
            return
        assert oscillator is not None, "a board whose link has the oscillator's clock does not give it to the PLL alone"
        # Kept, so that place and route finds it by its name.
        link_clock = Signal(name="oscillator_clock", attrs={"keep": 1})
        platform.add_clock_constraint(link_clock, link.own_clock_hz)
        m.d.comb += [link_clock.eq(oscillator), self.link_clock.eq(link_clock)]


class Top(wiring.Component):
    """A device on a board.

    Parameters
    ----------
    device: component with the ports of the board's link; and with `cs`, `clk`, `copi` and `cipo` if it reads the
        board's flash. Of a board that is chosen for a sensor, a `SensorDevice`.
    board: whose pins and oscillator to use.
    settings: of the PLL that makes the device's clock.
    """

    def __init__(self, device: wiring.Component, board: Board, settings: PllSettings) -> None:
        self.device = device
        self.board = board
        self.settings = settings
        super().__init__({})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.domains.sync = ClockDomain()
        m.domains += ClockDomain(ENGINE_DOMAIN, reset_less=True)
        m.submodules.clock = clock = ClockGenerator(self.board, self.settings)
        m.d.comb += [ClockSignal(name).eq(clock.clock) for name in ("sync", ENGINE_DOMAIN)]
        m.d.comb += ResetSignal("sync").eq(clock.reset)
        m.submodules.device = self.device
        if self.board.sensor is not None:
            connect_sensor(m, platform, self.board, cast(SensorDevice, self.device))
            return m
        if self.board.host_link.own_clock_hz:
            m.d.comb += cast(Any, self.device).link_clock.eq(clock.link_clock)
        self._connect_link(m, platform)
        if hasattr(self.device, "cs") and not self.board.host_link.shares_flash:
            self._connect_flash(m, platform)
        return m

    def _connect_link(self, m: Module, platform: Any) -> None:
        """Connect the device to the pins of the board's link."""
        link, device = self.board.host_link, cast(Any, self.device)
        name = link.resource_name
        # Requested without buffers: pins that the device does not use, such as flow control, stay out of the design.
        pins = platform.request(name, dir={pin.name: "-" for pin in platform.lookup(name).ios})
        for port in link.ports:
            if port.clocks:
                platform.add_clock_constraint(getattr(device, port.gateware), link.pin_clock_hz)
        if link.shares_flash and hasattr(device, "cs"):
            self._connect_shared(m, pins)
            return
        for port in link.ports:
            m.submodules[port.name] = buffer = io.Buffer(port.direction, getattr(pins, port.name))
            if port.direction != "o":
                m.d.comb += getattr(device, port.gateware).eq(buffer.i)
            if port.direction == "i":
                continue
            m.d.comb += buffer.o.eq(getattr(device, port.gateware_out))
            if port.enable:
                m.d.comb += buffer.oe.eq(getattr(device, port.enable))

    def _connect_shared(self, m: Module, pins: Any) -> None:
        """Connect a device that reads the flash to the pins of a link that are the flash's: both ways, in turns."""
        device: Any = self.device
        told = {"cs": ~device.cs, "sck": device.clk, "copi": device.copi}
        for port in self.board.host_link.ports:
            m.submodules[port.name] = buffer = io.Buffer("io", getattr(pins, port.name))
            if port.direction == "i":
                m.d.comb += [getattr(device, port.gateware).eq(buffer.i), buffer.oe.eq(device.loading)]
                m.d.comb += buffer.o.eq(told[port.name])
            else:
                m.d.comb += [device.cipo.eq(buffer.i), buffer.oe.eq(getattr(device, port.enable))]
                m.d.comb += buffer.o.eq(getattr(device, port.gateware))

    def _connect_flash(self, m: Module, platform: Any) -> None:
        """Connect the device to the flash, and hold the other inputs of the flash chip inactive.

        In some families the flash's clock is a pin of the configuration logic, which user logic reaches through a cell.
        """
        assert self.board.flash is not None, "a device reads flash only on boards that have it"
        name = self.board.flash.resource
        device: Any = self.device
        flash = platform.request(name, dir={pin.name: "-" for pin in platform.lookup(name).ios})
        outputs = [pin.name for pin in platform.lookup(name).ios if pin.name != "cipo"]
        if CELLS[self.board.family].flash_clock(m, device.clk):
            outputs = [pin for pin in outputs if pin != "clk"]
        m.submodules.flash_cipo = cipo = io.Buffer("i", flash.cipo)
        m.d.comb += device.cipo.eq(cipo.i)
        for pin in outputs:
            m.submodules[f"flash_{pin}"] = buffer = io.Buffer("o", getattr(flash, pin))
            m.d.comb += buffer.o.eq(getattr(device, pin, 0))


def make_top(make_device: Callable[[int], wiring.Component], board: Board, settings: PllSettings) -> TopDesign:
    """Return the design of a device on a board, the same text for the same input.

    Parameters
    ----------
    make_device: returns a new device for a clock in hertz, with the ports of the board's link.
    settings: of the PLL.

    Raises
    ------
    BoardError: see `load_platform`.
    """
    platform = load_platform(board)
    # The base class's method in place of the board's own: what boards add is about packing, which is done elsewhere,
    # and on one board it fails.
    platform.toolchain_prepare = partial(TemplatedPlatform.toolchain_prepare, platform)
    with words_at_once():
        plan = platform.prepare(Top(make_device(settings.output_hz), board, settings), name="top", emit_src=False)
    return TopDesign(rtlil=plan.files["top.il"], constraints=plan.files[FAMILIES[board.family].pins.constraints])


def load_platform(board: Board) -> Platform:
    """Return a new amaranth-boards platform of a board.

    Raises
    ------
    BoardError: its module, its class or a resource does not exist, its oscillator has another frequency, or a pin of
        the board file is in use.
    ProblemList: several pins are in use.
    """
    try:
        platform = _platform_class(board.platform)()
    except (ImportError, AttributeError) as error:
        raise BoardError(
            f"board '{board.name}' needs '{board.platform}' of amaranth-boards, which cannot be loaded: {error}; "
            "install a newer amaranth-boards, or correct the field 'platform' of the board file"
        ) from None
    clock = _look_up(board, platform, "input_clock.resource", board.input_clock.resource).clock
    if clock is None or round(clock.frequency) != board.input_clock.hz:
        known = "without a frequency" if clock is None else f"of {clock.frequency:.0f} Hz"
        raise BoardError(
            f"board '{board.name}': '{board.input_clock.resource}' is in amaranth-boards an oscillator {known}, "
            f"but field 'input_clock.hz' is {board.input_clock.hz}; correct the board file"
        )
    if board.flash is not None:
        _look_up(board, platform, "flash.resource", board.flash.resource)
    for link in board.links:
        if link.resource:
            _look_up(board, platform, f"{link.kind}.resource", link.resource)
    own = [link for link in board.links if not link.resource]
    raise_all([problem for link in own for problem in _pin_problems(board, platform, link)])
    if board.sensor is not None:
        add_sensor(platform, board, _taken(board, platform))
    # Results of a sensor's device leave by the serial port, whatever the link is.
    used = [board.host_link, *([board.uart] if board.sensor is not None else [])]
    platform.add_resources([_link_pins(board, link) for link in own if any(link is one for one in used)])
    return platform


def _platform_class(text: str) -> Any:
    """Return the class of a board of amaranth-boards that `module:Class` names.

    A board file comes from anybody, so it may name nothing else: importing and calling it would run that.

    Raises
    ------
    ImportError, AttributeError: there is no such class.
    """
    module, _, name = text.partition(":")
    package, _, rest = module.partition(".")
    if package != "amaranth_boards" or not rest.isidentifier():
        raise ImportError("it is no module of amaranth_boards")
    found = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, Platform) and found.__module__ == module):
        raise AttributeError(f"'{name}' is no class of a board in it")
    return found


def _look_up(board: Board, platform: Platform, field: str, resource: str) -> Any:
    """Return a resource of a platform.

    Raises
    ------
    BoardError: there is none of this name; the message names `field` of the board file.
    """
    try:
        return platform.lookup(resource)
    except ResourceError as error:
        raise BoardError(f"board '{board.name}': field '{field}': {error}") from None


def _link_pins(board: Board, link: BoardLink) -> Resource:
    """Return a link as a resource at the pins that the board file gives."""
    attribute, standard = FAMILIES[board.family].pins.io_standard
    ways = {port.name: "io" if link.shares_flash else port.direction for port in link.ports}
    pins = [
        Subsignal(port.name, Pins(getattr(link, port.name), dir=ways[port.name], **_pin_options(link, port)))
        for port in link.ports
    ]
    return Resource(link.resource_name, 0, *pins, Attrs(**{attribute: link.io_standard or standard}))


def _pin_options(link: BoardLink, port: LinkPort) -> dict[str, Any]:
    """Return how many pins a port of a link has, and whether they are active low."""
    return {"assert_width": port.width, "invert": port.name in link.inverted}


def _pin_problems(board: Board, platform: Platform, link: BoardLink) -> list[NnhwError]:
    """Return an error for each pin of a link in the board file that is given twice or in use by something else.

    A pin of another link is in use: whatever is wired to it drives it, even if the design does not use that link. A
    link that shares the flash's pins has just these.
    """
    if board.flash is not None and link.shares_flash:
        found = platform.lookup(board.flash.resource)
        names = {part.name: part.ios[0].names[0] for part in found.ios}
        needed = [names[name] for name in ("cs", "clk", "copi", "cipo")]
        given = [link.pins[name] for name in ("cs", "sck", "copi", "cipo")]
        return [
            BoardError(
                f"board '{board.name}': field '{link.kind}.{port}' must be pin {need} of '{board.flash.resource}', "
                f"with which this link shares its pins, but is {has}; correct the board file"
            )
            for port, need, has in zip(("cs", "sck", "copi", "cipo"), needed, given, strict=True)
            if need != has
        ]
    taken = _taken(board, platform)
    for other in board.links:
        if other is not link and other.resource:
            taken |= dict.fromkeys(_pins_of(platform, other.resource), f"one of '{other.resource}'")
        elif other is not link and not other.shares_flash:
            taken |= {pin: f"'{other.kind}.{name}' as well" for name, pin in other.pins.items()}
    problems: list[NnhwError] = []
    for name, pin in link.pins.items():
        if pin in taken:
            problems.append(
                BoardError(
                    f"board '{board.name}': field '{link.kind}.{name}' is pin {pin}, which is in use: it is "
                    f"{taken[pin]}; choose a free pin in the board file"
                )
            )
        taken[pin] = f"'{link.kind}.{name}' as well"
    return problems


def _taken(board: Board, platform: Platform) -> dict[str, str]:
    """Return the pins of clock and flash, with what they are."""
    taken = dict.fromkeys(_pins_of(platform, board.input_clock.resource), f"that of '{board.input_clock.resource}'")
    if board.flash is not None:
        taken |= dict.fromkeys(_pins_of(platform, board.flash.resource), f"one of '{board.flash.resource}'")
    return taken


def _pins_of(platform: Platform, resource: str) -> list[str]:
    """Return the names of the package's pins that belong to a resource of a platform."""
    # A resource has subsignals or not, and pins may be differential, with a positive one in `p`.
    found = platform.lookup(resource)
    parts = [io for one in found.ios for io in getattr(one, "ios", (one,))]
    names = [name for part in parts for name in getattr(part, "p", part).names]
    return list(names)
