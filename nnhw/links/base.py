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
    ports: its pins.
    resource: its name in amaranth-boards; empty: the fields named as `ports` say pins of the package.
    io_standard: of these pins, as amaranth-boards calls it; empty: the family's default.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    ports: ClassVar[tuple[Port, ...]]

    @property
    def resource(self) -> str: ...

    @property
    def io_standard(self) -> str: ...

    @property
    def speed(self) -> dict[str, int]:
        """What the report says of its speed: bits per second, under the name of its field."""

    @property
    def bytes_per_s(self) -> float:
        """Bytes that pass in each direction, both at once."""

    @abstractmethod
    def clock_problem(self, clock_hz: int) -> str:
        """Return why a clock of the design does not serve, what is needed and what to do; empty: it serves."""

    @property
    def pins(self) -> dict[str, str]:
        """Pins of the package by name, where the board file says them; empty texts where it does not."""
        return {port.name: getattr(self, port.name) for port in self.ports}

    @property
    def words(self) -> dict[str, str]:
        """Fields that other tools read as a word, by name."""
        return {"resource": self.resource, **self.pins, "io_standard": self.io_standard}

    @property
    def rate_text(self) -> str:
        """Its speed for people."""
        ((name, value),) = self.speed.items()
        return f"{value:,} {'baud' if name == 'baud' else 'bit/s'}"

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

    def images_per_s(self, input_bytes: int, output_bytes: int) -> float:
        """Return the images per second that pass, both directions at once: the slower direction counts.

        Images fill DATA frames without gaps, each of which is acknowledged; a result has frames of its own.

        Parameters
        ----------
        input_bytes, output_bytes: of one image and its result, packed.
        """
        i_frames, o_frames = input_bytes / PAYLOAD_LIMIT_BYTES, -(-output_bytes // PAYLOAD_LIMIT_BYTES)
        i_bytes = input_bytes + i_frames * WIRE_OVERHEAD_BYTES
        o_bytes = output_bytes + (o_frames + i_frames) * WIRE_OVERHEAD_BYTES
        return self.bytes_per_s / max(i_bytes, o_bytes)

    def facts(self, input_bytes: int | None, output_bytes: int | None) -> dict[str, Any]:
        """Return what the report says: kind, speed and images per second; None where nothing is mapped yet."""
        known = input_bytes is not None and output_bytes is not None
        rate = self.images_per_s(input_bytes or 0, output_bytes or 0) if known else None
        return {"kind": self.kind, **self.speed, "inferences_per_second": rate}
