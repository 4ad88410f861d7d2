"""Hashes of the hardware of every example and every engine: whether a change of the source has changed a netlist."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nnhw.accelerator import Accelerator
from nnhw.errors import NnhwError
from nnhw.flow.options import Options
from nnhw.flow.pipeline import build_file
from nnhw.hdl.engine import HARDWARE, Engine
from nnhw.hdl.verilog import to_rtlil
from sim.cases import CASES

EXAMPLES = Path(__file__).parents[1] / "examples"
STORED = Path(__file__).parent / "results" / "netlists.json"

Row = dict[str, Any]


@dataclass(frozen=True)
class Design:
    """An example, and what it is mapped for.

    Parameters
    ----------
    file: in `examples/`.
    board: name.
    options: fields of `Options`.
    """

    file: str
    board: str = "icebreaker"
    options: Mapping[str, Any] = field(default_factory=dict)


# Every example that has a model, on the board that its page names; shared engines of both families.
DESIGNS = {
    "hand_written": Design("hand_written.ir"),
    "mnist_mlp": Design("mnist_mlp.py"),
    "mnist_mlp_ecp5": Design("mnist_mlp.py", "ulx3s_25f"),
    "mnist_cnn": Design("mnist_cnn.py"),
    "brevitas_mlp": Design("brevitas_mlp.py"),
    "median_voter": Design("median_voter.py"),
    "motion_lstm": Design("motion_lstm.py"),
    "spoken_digits": Design("spoken_digits.py"),
    "denoise": Design("denoise.py", "ulx3s_25f"),
    "mnist_float": Design("mnist_float.py", "ulx3s_85f"),
    "mnist_float_shared": Design("mnist_float.py", options={"style": "shared"}),
    "mnist_float_shared_ecp5": Design("mnist_float.py", "ulx3s_25f", {"style": "shared"}),
    "pruned": Design("pruned.py", "ulx3s_85f"),
    "mnist_qdq": Design("mnist_qdq.onnx", "ulx3s_85f"),
    "mnist_int8": Design("mnist_int8.tflite", "ulx3s_85f"),
    "mnist_pt2e": Design("mnist_pt2e.pt2", "ulx3s_85f"),
    "mnist_vit": Design("mnist_vit.py", "ulx3s_45f", {"target_fps": 5000.0}),
}


def run(board: str | None) -> Row:
    """Elaborate the examples and the cases of each engine, and compare their hashes with the stored ones.

    Parameters
    ----------
    board: of the examples; None: all.

    Returns
    -------
    `examples`: for each, `mapping` and `netlist`, see `hashes_of`, or why it cannot be mapped (`refused`).
    `engines`: hash of the netlist of each row of `sim.cases`.
    `changed`: what differs from the stored hashes, as `<example> <hash>` or the name of the engine's row.
    """
    designs = {name: design for name, design in DESIGNS.items() if board in (None, design.board)}
    examples = {name: hashes_of(design) for name, design in designs.items()}
    row: Row = {"examples": examples, "engines": {name: engine_hash(make()) for name, make in CASES.items()}}
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    return row | {"changed": list(changes(stored, row))}


def changes(stored: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield the name of each hash that is not the stored one; what is stored and not elaborated now does not count."""
    for name, hashes in now["examples"].items():
        before = stored.get("examples", {}).get(name, {})
        yield from (f"{name} {kind}" for kind, value in hashes.items() if before.get(kind) != value)
    before = stored.get("engines", {})
    yield from (name for name, value in now["engines"].items() if before.get(name) != value)


def show(row: Mapping[str, Any]) -> None:
    """Print the hashes of the examples, and what differs from the stored ones."""
    table = Table("example", "mapping", "netlist")
    for name, hashes in row["examples"].items():
        table.add_row(name, hashes.get("mapping", "-"), hashes.get("netlist", hashes.get("refused", "-")))
    console = Console(width=120)
    console.print(table)
    console.print(f"{len(row['engines'])} engines; other than stored: {', '.join(row['changed']) or 'none'}")


def hashes_of(design: Design) -> dict[str, str]:
    """Map an example.

    Returns
    -------
    `mapping`: of the accelerator's document, with all weights and programs. `netlist`: of its hardware, in which
    weights of engines of layers are, and programs of shared engines are not. Or `refused`: why it cannot be mapped.
    """
    with tempfile.TemporaryDirectory() as scratch:
        try:
            options = Options(**{"fast_for": "engine", **design.options})
            build_file(str(EXAMPLES / design.file), design.board, options, out=scratch, stop_at="map")
        except NnhwError as error:
            return {"refused": str(error)}
        accelerator = Accelerator.load(Path(scratch))
        documents = [(Path(scratch) / f"accelerator{ending}").read_bytes() for ending in (".json", ".npz")]
    return {"mapping": _short(b"".join(documents)), "netlist": fingerprint(to_rtlil(Engine(accelerator)))}


def engine_hash(config: Any) -> str:
    """Return the hash of the netlist of one engine."""
    make: Callable[[Any], Any] = HARDWARE[type(config)]
    return fingerprint(to_rtlil(make(config)))


def fingerprint(rtlil: str) -> str:
    """Return the hash of a netlist in RTLIL that is the same for netlists that differ in names and attributes alone.

    Modules are numbered in the order in which they appear, and so are wires, memories and cells in each module. So
    another order of statements gives another hash, although the hardware is the same.
    """
    modules: dict[str, str] = {}
    names: dict[str, str] = {}
    kept = []
    for line in map(str.strip, rtlil.splitlines()):
        kind, _, rest = line.partition(" ")
        if kind == "module":
            names = {}
        if kind in ("module", "cell"):
            # The first name is that of a module, or of a kind of cell of yosys or of a family, which stays.
            first, _, rest = rest.partition(" ")
            kind += " " + (first if first.startswith("$") or first[1:].isupper() else _numbered(first, modules))
        elif kind == "parameter" or _CELL_PORT.match(line):
            first, _, rest = rest.partition(" ")
            kind += " " + first
        if line and kind != "attribute":
            kept.append(f"{kind} {_numbered(rest, names)}")
    return _short("\n".join(kept).encode())


# A name begins with \ or $ and ends at a blank; in a string, such as the name of a memory, the \ is doubled.
_NAME = re.compile(r'(?<!\S)[\\$]\S+|"\\\\[^"]+"')
# Ports of yosys's own cells and of primitives of a family: capital letters, which no name of ours consists of.
_CELL_PORT = re.compile(r"connect \\[A-Z0-9_]+ ")


def _numbered(text: str, numbers: dict[str, str]) -> str:
    """Return a text with a number for each name; a name that is new gets the next number."""

    def number(name: re.Match[str]) -> str:
        plain = name[0].strip('"').replace("\\\\", "\\")
        return numbers.setdefault(plain, f"n{len(numbers)}")

    return _NAME.sub(number, text)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
