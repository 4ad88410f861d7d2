"""Every link of a board: what its gateware takes, what passes it in theory, and in simulation from host to logits.

The pins are driven bit by bit, as the drivers do it, at the rates of the board file. The host and its USB take no
time, but for the link of an FTDI chip: there the driver itself runs, on a simulated USB and chip (`sim.ft2232h`).
Under faults a damaged copy of each frame, or a part of it, goes in front of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.mnist import EXAMPLES, _examples_module
from benchmarks.ports import device_cost, port_cost
from nnhw import ir
from nnhw.accelerator import Accelerator
from nnhw.boards import Board, load_board
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.flow.report import link_rate
from nnhw.flow.tools.progress import Progress, make_progress
from nnhw.flow.verification.simulate import simulate_pins
from nnhw.links import BoardLink, Ftdi, Uart, Ulpi, Usb

NETWORKS = ("mnist_mlp", "mnist_cnn")
FRAMES, FAULTY_FRAMES = 50, 20
HOST_BYTES = {"ftdi": (40_000, 400), "usb": (12_000, 400), "ulpi": (200_000, 2000)}
"""Bytes of images through links whose host and USB are simulated as well, so many that their latency passes once; and
the most frames that these are."""
MEASURED = {"ecpix5_45f": ("ulpi",)}
"""Kinds of links that are measured on a board; all that it has, elsewhere.

At 150 MHz a bit of a serial port takes 50 cycles: that is long to simulate, and shows nothing that a slower clock does
not.
"""
MOST_FRAMES = max(frames for _, frames in HOST_BYTES.values())

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A link at one of its rates.

    Parameters
    ----------
    link: as it is built.
    rate: bits a second.
    clock_hz: of the design.
    """

    link: BoardLink
    rate: int
    clock_hz: int

    @property
    def name(self) -> str:
        """As people call it."""
        others = "".join(f", also {rate:,}" for rate in self.link.rates(self.clock_hz) if rate != self.rate)
        return f"{self.link.kind} at {self.rate:,} {self.link.speed_unit}{others}"

    @property
    def alone(self) -> BoardLink:
        """The link as if this was its only rate."""
        if isinstance(self.link, Ftdi):
            return replace(self.link, hz=self.rate)
        return Uart(self.rate) if isinstance(self.link, Uart) else self.link


@dataclass(frozen=True)
class Network:
    """A network with images, and the integers that belong to them."""

    name: str
    accelerator: Accelerator
    codes: np.ndarray
    outputs: np.ndarray


def cases(board: Board) -> list[Case]:
    """Return each link that is measured, at each of its rates.

    A serial port of two rates is one of the slower rate alone, too. The clock is the board's usual one, or that which
    the link needs.
    """
    found = list[Case]()
    for link in board.links:
        if link.kind not in MEASURED.get(board.name, (link.kind,)):
            continue
        clock_hz = link.own_clock_hz if link.clock_problem(board.target_clock_hz) else board.target_clock_hz
        rates = link.rates(clock_hz)
        if isinstance(link, Uart) and len(rates) > 1:
            found.append(Case(replace(link, adapter=""), link.baud, clock_hz))
        found += [Case(link, rate, clock_hz) for rate in rates]
    return found


def run(board: str) -> Row:
    """Measure the links of a board with both MNIST examples.

    Returns
    -------
    `clock_hz`; `protocol_lc`: logic cells of framing, commands and counters, which all links share. `links`: for each
    its kind, the rate in bits a second, `lc` that its port takes beside the protocol, and for each network images a
    second in `theory` and `simulated`, with the engine's; and under faults how many were injected, in how many frames,
    and how many of all images had a `wrong` result.
    """
    found, progress = load_board(board), make_progress(Console(stderr=True))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        networks = [load_network(name, found, folder / name, progress) for name in NETWORKS]
        protocol = device_cost(None, found.family, found.target_clock_hz)
        rows = []
        for case in cases(found):
            with progress.stage(case.name):
                cells = port_cost(case.link, found.family, protocol, case.clock_hz).lc
                images = {network.name: measure(case, network, folder) for network in networks}
            rows.append({"link": case.name, "kind": case.link.kind, "rate": case.rate, "lc": cells, "networks": images})
    return {"board": found.name, "clock_hz": found.target_clock_hz, "protocol_lc": protocol.lc, "links": rows}


def load_network(name: str, board: Board, folder: Path, progress: Progress) -> Network:
    """Map an example; return it with images of the test set."""
    options = Options(frames=0, style="streaming", fast_for="engine")
    build = build_file(str(EXAMPLES / f"{name}.py"), board.name, options, out=folder, stop_at="map", progress=progress)
    images = _examples_module("mnist_data").load_mnist("test")[0][:MOST_FRAMES]
    codes = ir.run(ir.load(folder / "head.ir"), images)[0]
    return Network(name, build.accelerator, codes, ir.run(ir.load(folder / "lower.ir"), codes)[0])


def measure(case: Case, network: Network, folder: Path) -> Row:
    """Return the rates of a network through a link, and what came of it under faults."""
    clock_hz, accelerator = case.clock_hz, network.accelerator
    engine = clock_hz / float(accelerator.schedule.interval)
    theory = link_rate(accelerator, case.alone, clock_hz)
    # As the drivers do: a line without flow control needs an engine that is faster; SPI waits for each frame. On a USB
    # bytes wait by themselves.
    stepwise = not case.link.has_port or (engine < theory and not isinstance(case.link, (Usb, Ulpi)))
    simulated = partial(simulate_pins, accelerator, clock_hz=clock_hz, link=case.link, folder=folder, rate=case.rate)
    frames = FRAMES
    if sent := HOST_BYTES.get(case.link.kind):
        frames = min(sent[1], sent[0] // accelerator.input_format.frame_bytes)
    free = simulated(network.codes[:frames], network.outputs[:frames], stepwise=stepwise)
    faulty = simulated(network.codes[:FAULTY_FRAMES], network.outputs[:FAULTY_FRAMES], faults=True)
    return {
        "engine": round(engine),
        "theory": round(theory),
        "simulated": round(free.frames / free.seconds),
        "frames": free.frames + faulty.frames,
        "faults": faulty.faults,
        "wrong": free.mismatches + faulty.mismatches,
    }


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    console = Console()
    table = Table(title=f"{row['board']} at {row['clock_hz'] / 1e6:g} MHz; the protocol takes {row['protocol_lc']} LC")
    for name in ("link", "LC", "network", "theory/s", "simulated/s", "frames", "faults", "wrong"):
        table.add_column(name, justify="left" if name in ("link", "network") else "right")
    for link in row["links"]:
        for name, found in link["networks"].items():
            counts = (f"{found[key]:,}" for key in ("theory", "simulated", "frames", "faults", "wrong"))
            table.add_row(link["link"], str(link["lc"]), name, *counts)
    console.print(table)
