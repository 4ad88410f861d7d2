"""New weights without place and route: the layout of a finished build with contents of a network of the same shape.

The design of the new network is made, and compared with that of the finished build, both without what their memories
hold (`nnhw.flow.implementation.contents`). Where they are the same, so are synthesis and place and route: the new
contents go into the layout (`nnhw.flow.implementation.filling`), which is then what a whole build would have made, bit
by bit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nnhw
from nnhw.boards import Board
from nnhw.errors import BuildError
from nnhw.families import FAMILIES
from nnhw.flow.folder.build_folder import BuildFolder
from nnhw.flow.implementation.cells import NETLIST
from nnhw.flow.implementation.contents import Parted, part
from nnhw.flow.implementation.filling import CONTENTS, Slots
from nnhw.flow.implementation.layouts import Layout, format_of
from nnhw.flow.implementation.place import pack_layout
from nnhw.flow.implementation.timing_closure import usable_clocks
from nnhw.flow.tools.sources import code_hash
from nnhw.flow.tools.toolchain import Note, find_tool, silent
from nnhw.reading import parse_json

if TYPE_CHECKING:
    from nnhw.flow.implementation.bitstream import BitstreamRequest, MakeDevice
    from nnhw.hdl.pll import PllSettings

DESIGN, REPORT, FACTS = "design.il", "nextpnr.json", "build.json"
_LISTED = 3
_DAMAGES = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions that damaged files cause; a signature says who made them, not that they are right."""
_SIZES, _CONSTANTS = "memories of other sizes", "other constants in logic"
_CONSTANT = re.compile(r"\d+'[01xz]+")


class DiffersError(BuildError):
    """A finished build has another layout than the new network needs; the message says where."""


@dataclass(frozen=True)
class Base:
    """The bitstream of a finished build, with all files that another network's bitstream is made from.

    Parameters
    ----------
    title: for messages: the model, and the start of the bitstream's hash.
    model: name of the model.
    bitstream: SHA-256 of the bitstream, in hex.
    files: contents of its files by name.
    """

    title: str
    model: str
    bitstream: str
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, folder: BuildFolder) -> Base:
        """Read the bitstream of a build.

        Raises
        ------
        BuildError: there is none, it is damaged, it has no contents that could be exchanged, or somebody else made it.
        """
        folder.require("build")
        named = folder.files("build")
        if CONTENTS not in named:
            raise BuildError(
                f"build folder '{folder.path}' has a bitstream for a device whose block RAMs nnhw cannot fill; leave "
                "out --from (contents are exchanged on iCE40)"
            )
        if folder.is_foreign("build"):
            raise BuildError(
                f"build folder '{folder.path}' was made by somebody else, so its layout is not taken over; if you "
                f"trust who made it, 'nnhw trust {folder.path}' says so; or leave out --from"
            )
        # Read first: what is compared with its hash is what is used.
        files = {name: (folder.path / name).read_bytes() for name in named if not name.endswith(".log")}
        if any(hashlib.sha256(content).hexdigest() != named[name] for name, content in files.items()):
            raise BuildError(f"build folder '{folder.path}' is being changed by another build; try again")
        bitstream = next(digest for name, digest in named.items() if name in ("design.bin", "design.bit"))
        assert bitstream is not None
        return cls(f"'{folder.model}' ({bitstream[:16]})", folder.model, bitstream, files)

    @classmethod
    def open(cls, path: Path) -> Base:
        """Read the bitstream of a build folder. Raises BuildError: as of `of`, or it is no folder of this nnhw."""
        return cls.of(BuildFolder.open(path))

    def text(self, name: str) -> str:
        """Return a file as text."""
        return self.files[name].decode("utf-8")

    def json(self, name: str) -> Any:
        """Return a file's content."""
        return parse_json(self.files[name])


def fingerprint(board: Board, request: BitstreamRequest) -> dict[str, Any]:
    """Return everything but the design that a layout depends on: tools, board, request, and nnhw itself."""
    asked = {name: getattr(request, name) for name in ("clock_hz", "seeds", "dsp")}
    return {
        "nnhw": f"{nnhw.__version__} {code_hash()[:16]}",
        "tools": {name: find_tool(name).title for name in FAMILIES[board.family].tools.names},
        "board": json.loads(json.dumps(dataclasses.asdict(board), default=dict)),
        "request": asked,
    }


def patch_bitstream(
    base: Base, make_device: MakeDevice, board: Board, out: Path, request: BitstreamRequest, note: Note = silent
) -> dict[str, Any]:
    """Make the bitstream of a device from that of another; return the facts of the build.

    Parameters
    ----------
    make_device: returns a new device with ports `rx` and `tx` for a clock in hertz.
    out: folder for the files, the same as those of `nnhw.flow.implementation.bitstream.build_bitstream`.

    Raises
    ------
    DiffersError: the device needs another layout; nothing was written.
    ToolError: the packer is missing, or failed.
    """
    from nnhw.hdl.top import make_top

    family = FAMILIES[board.family]
    slots, facts, clock = _read(base, board, request)
    design = make_top(make_device, board, clock)
    old, new = (part(text, family, slots.kept) for text in (base.text(DESIGN), design.rtlil))
    if old.skeleton != new.skeleton:
        raise DiffersError(describe(old.skeleton, new.skeleton))
    constraints, layout = f"design.{family.tools.constraints[0]}", f"design.{family.tools.layout[0]}"
    if design.constraints != base.text(constraints):
        raise DiffersError("the pins of the board are others")
    changed = {DESIGN: design.rtlil, **_exchange(base, slots, (old, new), layout, format_of(family).read)}
    for name, text in changed.items():
        (out / name).write_text(text, encoding="utf-8")
    for name in (constraints, REPORT, CONTENTS):
        (out / name).write_bytes(base.files[name])
    pack_layout(out, layout, family, note)
    (out / f"{family.tools.pack.name}.log").unlink()
    return {**facts, "patched": {"model": base.model, "bitstream": base.bitstream}}


def _read(base: Base, board: Board, request: BitstreamRequest) -> tuple[Slots, dict[str, Any], PllSettings]:
    """Return the places of contents in a finished build, its facts, and its clock; see `patch_bitstream`."""
    try:
        contents, facts = base.json(CONTENTS), base.json(FACTS)
        differences = list(_unlike(contents["made"], fingerprint(board, request)))
        if differences:
            raise DiffersError("; ".join(differences))
        clocks = {clock.output_hz: clock for clock in usable_clocks(board)}
        return Slots.from_document(contents), facts, clocks[facts["clock_hz"]]
    except _DAMAGES as error:
        raise DiffersError(f"its {CONTENTS} or {FACTS} cannot be used ({error!r})") from None


def _exchange(
    base: Base, slots: Slots, parts: tuple[Parted, Parted], name: str, read_layout: Callable[[str], Layout]
) -> dict[str, str]:
    """Return netlist and layout of a finished build with other contents, once it is seen to hold its own."""
    old, new = parts
    try:
        layout, netlist = read_layout(base.text(name)), json.loads(base.text(NETLIST))
        right = slots.hold(layout, netlist["modules"]["top"], old)
    except _DAMAGES as error:
        raise DiffersError(f"its layout or netlist cannot be used ({error!r})") from None
    if not right:
        raise DiffersError("its layout does not hold what its design says")
    slots.fill(layout, netlist["modules"]["top"], new)
    return {NETLIST: json.dumps(netlist), name: layout.text}


def _unlike(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield the differences of two fingerprints, in words."""
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _unlike(before, after, f"{where}{key} ")
        elif before != after:
            yield f"{where}{key}: {before} there, {after} here"


def describe(old: str, new: str) -> str:
    """Return in words how two designs differ, without what their memories hold.

    Parameters
    ----------
    old, new: RTLIL of the top.
    """
    before, after = _modules(old), _modules(new)
    found: dict[str, str] = {}
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            how, place = _how(before.get(name), after.get(name)), _place_of(name)
            found[place] = min(found.get(place, how), how, key=_rank)
    # Layers first, as users know them by name; then the differences that explain others.
    listed = sorted(found, key=lambda place: (not place.startswith("layer"), _rank(found[place])))
    rest = len(listed) - _LISTED
    texts = [f"{place}: {found[place]}" for place in listed[:_LISTED]]
    return "; ".join([*texts, *([f"and {rest} more"] if rest > 0 else [])])


def _rank(how: str) -> int:
    """Return the rank of a difference: one of lower rank explains those of a higher one, so it is shown first."""
    return next((rank for rank, start in enumerate((_SIZES, _CONSTANTS)) if how.startswith(start)), 2)


def _modules(rtlil: str) -> dict[str, str]:
    """Return the text of a design's modules by name."""
    parts = re.split(r"^module \\(\S+)\n", rtlil, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _place_of(module: str) -> str:
    """Return the part of the device that a module belongs to, in words: a layer's engine, or the module's name."""
    inside = module.partition(".engine.engine.")[2]
    if not inside:
        return f"'{module.rpartition('.')[2]}'"
    layer, _, kind = inside.partition(".")[0].rpartition("_")
    return f"layer '{layer}' ({kind})"


def _how(before: str | None, after: str | None) -> str:
    """Return in words how the two forms of a module differ."""
    if before is None or after is None:
        return "it is not there" if before is None else "it is no more there"
    shapes = [re.findall(r"^ *memory width (\d+) size (\d+)", text, re.MULTILINE) for text in (before, after)]
    if shapes[0] != shapes[1]:
        there, here = (", ".join(f"{words} x {bits}" for bits, words in shape) or "none" for shape in shapes)
        return f"{_SIZES}, {there} bits there and {here} here"
    if _CONSTANT.sub("#", before) == _CONSTANT.sub("#", after):
        return _CONSTANTS
    return "other logic, as of another shape, folding or width of numbers"


def load_base(path: Path | None, folder: BuildFolder) -> Base | None:
    """Return the finished build whose layout a new one may take; None where there is none.

    Parameters
    ----------
    path: a build folder that somebody named; None: the folder itself, as it is before it is built anew.

    Raises
    ------
    BuildError: the folder that somebody named cannot be used, see `Base.of`.
    """
    if path is not None:
        return Base.open(path)
    if CONTENTS not in folder.files("build") or not folder.is_intact("build") or folder.is_foreign("build"):
        return None
    return Base.of(folder)
