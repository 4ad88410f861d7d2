"""What links take on each family, for the cost model: the protocol that all share, and the port of each kind.

The port of a kind is what a device behind it takes beyond one behind byte streams. The engine does nothing, so that
synthesis finds nothing in it to share with the link.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amaranth.hdl import Module, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from rich.console import Console
from rich.table import Table

from benchmarks.lanes import BOARDS, synthesize
from nnhw.families import FAMILIES, Cost
from nnhw.flow.tools.progress import make_progress
from nnhw.hdl.link.devices import device_at
from nnhw.hdl.link.linked_engine import LinkedEngine
from nnhw.links import BoardLink, Ftdi, Spi, Uart, Usb
from nnhw.protocol import DeviceIdentity

CLOCK_HZ = 48_000_000
SAMPLES: Mapping[str, BoardLink] = {
    "uart": Uart(3_000_000, adapter="ft2232h"),
    "spi": Spi(6_000_000),
    "ftdi": Ftdi(30_000_000),
    "usb": Usb("oscillator"),
}
"""A link of each kind: of those that a kind has, the one that takes most, such as a serial port of two rates."""

Row = dict[str, Any]


class Loop(wiring.Component):
    """An engine that gives what it takes."""

    def __init__(self) -> None:
        super().__init__({"i": In(stream.Signature(unsigned(8))), "o": Out(stream.Signature(unsigned(8)))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m


def device_cost(link: BoardLink | None, family: str, clock_hz: int = CLOCK_HZ) -> Cost:
    """Return what a device behind a link takes, whose engine does nothing; None: behind byte streams."""
    device = LinkedEngine(Loop(), DeviceIdentity("3f1c09a5b77e2d84", 12, 5, clock_hz))
    with tempfile.TemporaryDirectory() as folder:
        cells = synthesize(device if link is None else device_at(link, device), family, Path(folder))
    kinds = FAMILIES[family].kinds
    return Cost(lc=cells["lc"], ebr=kinds.count(cells, kinds.block_rams), ff=kinds.ff(cells))


def port_cost(link: BoardLink, family: str, protocol: Cost, clock_hz: int = CLOCK_HZ) -> Cost:
    """Return what the port of a link takes beside the protocol."""
    return device_cost(link, family, clock_hz) + -1 * protocol


def run(board: str | None) -> Row:
    """Measure the protocol and the port of each kind of link, on each family; a board plays no part in it."""
    progress, families = make_progress(Console(stderr=True)), {}
    for family in BOARDS:
        with progress.stage(f"links of {family}"):
            protocol = device_cost(None, family)
            costs = {"protocol": protocol} | {kind: port_cost(link, family, protocol) for kind, link in SAMPLES.items()}
            families[family] = {kind: {"lc": one.lc, "ebr": one.ebr, "ff": one.ff} for kind, one in costs.items()}
    return {"families": families}


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    table = Table(title="protocol, and the port of each kind of link")
    for name in ("family", "part", "LC", "block RAMs", "flip-flops"):
        table.add_column(name, justify="left" if name in ("family", "part") else "right")
    for family, parts in row["families"].items():
        for part, cost in parts.items():
            table.add_row(family, part, *(f"{cost[name]:,}" for name in ("lc", "ebr", "ff")))
    Console().print(table)
