"""What a link of a board to its host must give. The gateware of each is in `nnhw.hdl.link.devices`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from nnhw.protocol import PAYLOAD_LIMIT_BYTES, WIRE_OVERHEAD_BYTES


@dataclass(frozen=True)
class Port:
    """A pin of a link.

    Parameters
    ----------
    name: of the pin in the table of the board file, and in a resource of amaranth-boards.
    direction: `i` or `o`, seen from the FPGA.
    device: name of the port of the gateware; the pin's where it is left out.
    enable: name of the port of the gateware that drives the pin while it is 1; empty: the pin is always driven.
    """

    name: str
    direction: str
    device: str = ""
    enable: str = ""

    @property
    def gateware(self) -> str:
        """Name of the port of the gateware."""
        return self.device or self.name


class BoardLink(Protocol):
    """A link of a board; a frozen dataclass, whose fields are a table of the board file.

    Members
    -------
    kind: name of the table, and of the link on the command line.
    title: as messages call it.
    has_port: a computer reaches it by a serial port; else only a microcontroller does.
    ports: its pins.
    speed_field: name of the field with its speed, in bits a second.
    speed_unit: of that number, for people.
    bits_per_byte: bits that a byte takes on the wire.
    resource: its name in amaranth-boards; empty: the fields named as `ports` say pins of the package.
    io_standard: of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    has_port: ClassVar[bool]
    ports: ClassVar[tuple[Port, ...]]
    speed_field: ClassVar[str]
    speed_unit: ClassVar[str]
    bits_per_byte: ClassVar[int]

    @property
    def resource(self) -> str: ...

    @property
    def io_standard(self) -> str: ...

    @property
    def speed(self) -> int:
        """Bits a second, as the board file has them."""
        return int(getattr(self, self.speed_field))

    def rates(self, clock_hz: float) -> tuple[int, ...]:
        """Return the bits a second that the gateware speaks with a clock, fastest first.

        Behind the first come those that the driver falls back to.
        """
        return (self.speed,)

    def bytes_per_s(self, clock_hz: float) -> float:
        """Return the bytes that pass in each direction, both at once, with a clock of the design."""
        return self.rates(clock_hz)[0] / self.bits_per_byte

    @abstractmethod
    def clock_problem(self, clock_hz: float) -> str:
        """Return why a clock of the design does not serve, what is needed and what to do; empty: it serves."""

    @property
    def pins(self) -> dict[str, str]:
        """Pins of the package by name, where the board file says them; empty texts where it does not."""
        return {port.name: getattr(self, port.name) for port in self.ports}

    @property
    def resource_name(self) -> str:
        """Name of its resource in a design: that of amaranth-boards, or one for the pins of the board file."""
        return self.resource or f"nnhw_{self.kind}"

    @property
    def words(self) -> dict[str, str]:
        """Fields that other tools read as a word, by name."""
        return {"resource": self.resource, **self.pins, "io_standard": self.io_standard}

    def rate_text(self, clock_hz: float) -> str:
        """Return its speed with a clock, for people."""
        return f"{self.rates(clock_hz)[0]:,} {self.speed_unit}"

    def problems(self) -> list[str]:
        """Return what is wrong with the fields."""
        return list(filter(None, (self.place_problem(),)))

    def place_problem(self) -> str:
        """Return what is wrong with where the link is: it is a resource or all pins, not both, and not neither."""
        has_pins = all(self.pins.values())
        if (not self.resource and has_pins) or (self.resource and not (any(self.pins.values()) or self.io_standard)):
            return ""
        names = [f"'{name}'" for name in self.pins]
        given = ", ".join(f"'{name}'" for name, value in self.words.items() if value) or "none of them"
        pins = f"both {' and '.join(names)}" if len(names) == 2 else f"all of {', '.join(names)}"
        return (
            f"table '{self.kind}' must have either 'resource' (a {self.title} in amaranth-boards) or {pins} "
            f"(pins of the package, with 'io_standard' where the board needs one), but has {given}"
        )

    def images_per_s(self, input_bytes: int, output_bytes: int, clock_hz: float) -> float:
        """Return the images per second that pass, both directions at once: the slower direction counts.

        Images fill DATA frames without gaps, each of which is acknowledged; a result has frames of its own.

        Parameters
        ----------
        input_bytes, output_bytes: of one image and its result, packed.
        clock_hz: of the design.
        """
        i_frames, o_frames = input_bytes / PAYLOAD_LIMIT_BYTES, -(-output_bytes // PAYLOAD_LIMIT_BYTES)
        i_bytes = input_bytes + i_frames * WIRE_OVERHEAD_BYTES
        o_bytes = output_bytes + (o_frames + i_frames) * WIRE_OVERHEAD_BYTES
        return self.bytes_per_s(clock_hz) / max(i_bytes, o_bytes)

    def facts(self, input_bytes: int | None, output_bytes: int | None, clock_hz: float) -> dict[str, Any]:
        """Return what the report says: kind, speed and images per second; None where nothing is mapped yet."""
        known = input_bytes is not None and output_bytes is not None
        images = self.images_per_s(input_bytes or 0, output_bytes or 0, clock_hz) if known else None
        rate, *slower = self.rates(clock_hz)
        fallback = {"fallback": slower[0]} if slower else {}
        return {"kind": self.kind, self.speed_field: rate, **fallback, "inferences_per_second": images}
