"""What each kind of link must tell about itself. The gateware of each is in `nnhw.hdl.link.devices`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from nnhw.protocol import PAYLOAD_LIMIT_BYTES, WIRE_OVERHEAD_BYTES


@dataclass(frozen=True)
class LinkPort:
    """A pin of a link.

    Parameters
    ----------
    name: name of the pin in the table of the board file, and in a resource of amaranth-boards.
    direction: `i` for an input of the FPGA, `o` for an output, `io` for both.
    device: name of the gateware's port at this pin; empty: the pin's name.
    enable: name of the gateware's port that is 1 while the pin is to be driven; empty: it always is.
    clocks: the pin clocks registers, at `BoardLink.pin_clock_hz` at most.
    width: number of pins; in a board file, their names are separated by blanks.
    """

    name: str
    direction: str
    device: str = ""
    enable: str = ""
    clocks: bool = False
    width: int = 1

    @property
    def gateware(self) -> str:
        """Name of the gateware's port at this pin; of the one from the pin, where the pin has both directions."""
        return self.device or self.name

    @property
    def gateware_out(self) -> str:
        """Name of the gateware's port that drives this pin, if the pin is driven."""
        return f"{self.gateware}_out" if self.direction == "io" else self.gateware

    def places(self, pins: str) -> dict[str, str]:
        """Return each of its pins by its name, of a text that names all; empty texts where it names fewer."""
        if self.width == 1:
            return {self.name: pins}
        names = [*pins.split(), *[""] * self.width][: max(self.width, len(pins.split()))]
        return {f"{self.name}[{place}]": pin for place, pin in enumerate(names)}


class BoardLink(Protocol):
    """A link of a board: a frozen dataclass whose fields are the keys of a table in the board file.

    Members
    -------
    kind: name of the table in the board file, and of the link on the command line.
    title: name of the link in messages.
    has_port: a computer reaches it; else only a microcontroller does.
    shares_flash: its pins are those of the flash.
    ports: its pins; there is a field of the same name for each.
    speed_field: name of the field with its speed, in bits per second.
    speed_unit: unit of that number in messages.
    bits_per_byte: bits that a byte takes on the wire.
    half_duplex: both directions share the rate.
    own_clock_hz: clock in hertz that the gateware needs beside that of the design, at its port `link_clock`; 0: none.
    called: names by which a user may ask for the link on a board which has no link of such a kind.
    """

    kind: ClassVar[str]
    called: ClassVar[tuple[str, ...]] = ()
    title: ClassVar[str]
    has_port: ClassVar[bool]
    shares_flash: ClassVar[bool] = False
    ports: ClassVar[tuple[LinkPort, ...]]
    speed_field: ClassVar[str]
    speed_unit: ClassVar[str]
    bits_per_byte: ClassVar[int]
    half_duplex: ClassVar[bool] = False
    own_clock_hz: ClassVar[int] = 0

    @property
    def clock_source(self) -> str:
        """Where the clock of `own_clock_hz` comes from: `oscillator`, of the board, or `design`, its own clock."""
        return "design"

    @property
    def pin_clock_hz(self) -> int:
        """Highest frequency, in hertz, at the pin of `ports` that clocks registers."""
        return self.speed

    @property
    def inverted(self) -> tuple[str, ...]:
        """Ports of `ports` whose pins are active low, where the board file names pins."""
        return ()

    @property
    def resource(self) -> str:
        """Name of the link in amaranth-boards; empty: the fields of `ports` name pins of the package."""

    @property
    def io_standard(self) -> str:
        """I/O standard of the pins, as amaranth-boards calls it; empty: the family's default."""

    @property
    def speed(self) -> int:
        """Bits per second, as in the board file."""
        return int(getattr(self, self.speed_field))

    def rates(self, clock_hz: float) -> tuple[int, ...]:
        """Return the bit rates, in bits per second, of a design with a clock of `clock_hz`, fastest first.

        The driver uses the first one, and falls back to the others.
        """
        return (self.speed,)

    def bytes_per_s(self, clock_hz: float) -> float:
        """Return the bytes per second that can pass in each direction at the same time, at a clock of the design.

        With `half_duplex`, of both directions together.
        """
        return self.rates(clock_hz)[0] / self.bits_per_byte

    @abstractmethod
    def clock_problem(self, clock_hz: float) -> str:
        """Return why the link cannot work at a clock of the design, and what to do; an empty string if it can."""

    @property
    def pins(self) -> dict[str, str]:
        """Pins of the package by name, see `LinkPort.places`; an empty string for one that the board file lacks."""
        return {name: pin for port in self.ports for name, pin in port.places(getattr(self, port.name)).items()}

    @property
    def resource_name(self) -> str:
        """Name of the link's resource in an Amaranth platform: that of amaranth-boards, or a new one for own pins."""
        return self.resource or f"nnhw_{self.kind}"

    @property
    def words(self) -> dict[str, str]:
        """Fields that are handed to other tools as they are, by name: each must be a single word."""
        return {"resource": self.resource, **self.pins, "io_standard": self.io_standard}

    def rate_text(self, clock_hz: float) -> str:
        """Return its speed at a clock of the design, as a text for people."""
        return f"{self.rates(clock_hz)[0]:,} {self.speed_unit}"

    def problems(self) -> list[str]:
        """Return a message for each mistake in the fields."""
        return list(filter(None, (self.place_problem(),)))

    def place_problem(self) -> str:
        """Return what is wrong with the link's place, which is a resource or all pins, not both; empty: nothing."""
        has_pins = all(self.pins.values())
        if (not self.resource and has_pins) or (self.resource and not (any(self.pins.values()) or self.io_standard)):
            return ""
        names = [f"'{port.name}'" for port in self.ports]
        given = ", ".join(f"'{name}'" for name, value in self.words.items() if value) or "none of them"
        pins = f"both {' and '.join(names)}" if len(names) == 2 else f"all of {', '.join(names)}"
        return (
            f"table '{self.kind}' must have either 'resource' (a {self.title} in amaranth-boards) or {pins} "
            f"(pins of the package, with 'io_standard' where the board needs one), but has {given}"
        )

    def images_per_s(self, input_bytes: int, output_bytes: int, clock_hz: float) -> float:
        """Return how many images per second the link carries; the slower of its two directions counts, or their sum.

        The bytes of images fill DATA frames without gaps, and each frame is acknowledged; each result begins a frame.

        Parameters
        ----------
        input_bytes, output_bytes: bytes of one image and of its result, on the link.
        clock_hz: clock of the design.
        """
        # A DATA frame may hold parts of several images, so their number per image is a fraction.
        i_frames, o_frames = input_bytes / PAYLOAD_LIMIT_BYTES, -(-output_bytes // PAYLOAD_LIMIT_BYTES)
        i_bytes = input_bytes + i_frames * WIRE_OVERHEAD_BYTES
        o_bytes = output_bytes + (o_frames + i_frames) * WIRE_OVERHEAD_BYTES
        return self.bytes_per_s(clock_hz) / (i_bytes + o_bytes if self.half_duplex else max(i_bytes, o_bytes))

    def facts(self, input_bytes: int | None, output_bytes: int | None, clock_hz: float) -> dict[str, Any]:
        """Return what the report says of the link: kind, bit rate, images per second.

        Parameters
        ----------
        input_bytes, output_bytes: bytes of one image and of its result; None: not known yet, nor images per second.
        clock_hz: clock of the design.
        """
        known = input_bytes is not None and output_bytes is not None
        images = self.images_per_s(input_bytes or 0, output_bytes or 0, clock_hz) if known else None
        rate, *slower = self.rates(clock_hz)
        fallback = {"fallback": slower[0]} if slower else {}
        return {"kind": self.kind, self.speed_field: rate, **fallback, "inferences_per_second": images}
