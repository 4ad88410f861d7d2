"""Contents in block RAMs: which bit is where, found by markers, without synthesis and place and route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhw.errors import BuildError
from nnhw.flow.implementation.asc import AscLayout
from nnhw.flow.implementation.block_rams import BITS, RamPiece, find_pieces, read_init, write_init
from nnhw.flow.implementation.contents import Parted, marker
from nnhw.flow.implementation.filling import Slots, block_ram_mark, locate, mark, table_marks
from nnhw.flow.implementation.lookup_tables import ORDERS, reorder
from tests.flow.test_asc import RAM, TILE


def block_rams(path: str, words: np.ndarray, width: int) -> dict[str, Any]:
    """Return the cells of a memory as yosys makes them, in its own words (techlibs/ice40/brams_map.v).

    Words of the second, the third row of block RAMs are read beside those of the first one.
    """
    depth = BITS // width
    rows = -(-words.shape[0] // depth)
    padded = np.zeros((rows * depth, words.shape[1]), np.uint8)
    padded[: words.shape[0]] = words
    wide = np.concatenate([padded[row * depth :][:depth] for row in range(rows)], axis=1)
    columns = -(-wide.shape[1] // width)
    wide = np.pad(wide, ((0, 0), (0, columns * width - wide.shape[1])))
    cells = {}
    for column in range(columns):
        init = wide[:, column * width :][:, :width].ravel()
        parameters = {"READ_MODE": f"{(16, 8, 4, 2).index(width):02b}"}
        for index in range(16):
            bits = []
            for i in range(256):
                low = (i & 1) << 3 | (i >> 1 & 1) << 2 | (i >> 2 & 1) << 1 | i >> 3 & 1
                bits.append(init[index << 8 | i >> 4 << 4 | low])
            parameters[f"INIT_{index:X}"] = "".join(map(str, reversed(bits)))
        cells[f"{path}.0.{column}"] = {"type": "SB_RAM40_4K", "parameters": parameters}
    return cells


@settings(max_examples=20)
@given(
    depth=st.sampled_from([12, 100, 256, 300, 700, 1200]),
    bits=st.integers(1, 40),
    width=st.sampled_from([2, 4, 8, 16]),
    seed=st.integers(0, 9),
)
def test_pieces_hold_any_words_as_synthesis_would_put_them(depth: int, bits: int, width: int, seed: int) -> None:
    cells = block_rams("a.rom", marker("a.rom", depth, bits), width)
    pieces, unknown = find_pieces({"cells": cells}, {"a.rom": (depth, bits)})
    assert not unknown
    assert {piece.cell for piece in pieces} == cells.keys()
    words = np.random.default_rng(seed).integers(0, 2, (depth, bits), dtype=np.uint8)
    expected = block_rams("a.rom", words, width)
    for piece in pieces:
        assert (piece.fill(words) == read_init(expected[piece.cell]["parameters"])).all()


def test_pieces_of_a_memory_of_which_bits_are_left_out() -> None:
    shown = marker("rom", 100, 20)[:, [0, 3, 17, 19]]
    pieces, unknown = find_pieces({"cells": block_rams("rom", shown, 8)}, {"rom": (100, 20)})
    assert not unknown
    assert [piece.columns for piece in pieces] == [((0, 0), (0, 3), (0, 17), (0, 19), None, None, None, None)]
    assert find_pieces({"cells": {}}, {"rom": (100, 20)}) == ([], [])


@pytest.mark.parametrize("case", ["two words", "other words", "another mode"])
def test_pieces_of_a_memory_that_cannot_be_told(case: str) -> None:
    depth = 2 if case == "two words" else 600
    cells = block_rams("rom", marker("rom", depth, 16), 16)
    if case == "other words":
        bits = read_init(cells["rom.0.0"]["parameters"]).astype(np.uint8)
        bits[77] ^= 1
        write_init(cells["rom.0.0"]["parameters"], bits)
    elif depth > 2:
        cells["rom.0.1"]["parameters"]["READ_MODE"] = "01"
    assert find_pieces({"cells": cells}, {"rom": (depth, 16)}) == ([], ["rom"])


def test_parameters_of_a_block_ram_are_written_as_they_are_read() -> None:
    bits = np.random.default_rng(1).integers(0, 2, BITS, dtype=np.uint8)
    parameters: dict[str, str] = {}
    write_init(parameters, bits)
    assert (read_init(parameters) == bits).all()
    assert not read_init({name: value.replace("1", "x") for name, value in parameters.items()}).any()


def test_marks_of_tables_differ_from_all_others_in_any_order() -> None:
    others = {reorder(content, ORDERS[5]) for content in table_marks(["a", "b"], set()).values()}
    names = [f"table_{number}" for number in range(60)]
    marks = table_marks(names, others)
    seen = [reorder(content, order) for content in (*marks.values(), *others) for order in ORDERS]
    assert len(seen) == len(set(seen)) == 62 * 24


class Design:
    """A netlist of a memory in two block RAMs and two tables, and its layout, in which each is somewhere."""

    POSITIONS = ((6, 1), (19, 3))

    def __init__(self, folder: Path) -> None:
        self.netlist = folder / "design.json"
        words = np.random.default_rng(3).integers(0, 2, (300, 16), dtype=np.uint8)
        tables = {"t0": np.array([1, 0] * 8, np.uint8), "t1": np.array([0, 0, 1, 1] * 4, np.uint8)}
        self.parted = Parted("", {"rom": words}, tables)
        cells = block_rams("rom", marker("rom", 300, 16), 16)
        cells |= {name: {"type": "SB_LUT4", "parameters": {}} for name in tables}
        cells["other"] = {"type": "SB_LUT4", "parameters": {"LUT_INIT": "1000000000000000"}}
        self.netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}}}), encoding="utf-8")
        self.plan, self.unknown = mark(self.netlist, self.parted)
        text = f".logic_tile 1 1\n{TILE}" + "".join(f".ram_data {x} {y}\n{RAM}" for x, y in (*self.POSITIONS, (6, 3)))
        self.layout = AscLayout(text)
        for piece, position in zip(self.plan.pieces, self.POSITIONS, strict=True):
            self.layout.set_ram(position, block_ram_mark(piece))
        for cell, content in enumerate(self.plan.tables.values()):
            self.layout.set_table((1, 1, 3 + cell), reorder(content, ORDERS[11]))

    @property
    def module(self) -> dict[str, Any]:
        return dict(json.loads(self.netlist.read_text(encoding="utf-8"))["modules"]["top"])


def test_contents_come_into_layout_and_netlist_where_the_marks_were(tmp_path: Path) -> None:
    design = Design(tmp_path)
    assert design.unknown == []
    slots, module = locate(design.layout, design.plan), design.module
    assert [ram.position for ram in slots.rams] == list(Design.POSITIONS)
    assert not slots.hold(design.layout, module, design.parted)
    slots.fill(design.layout, module, design.parted)
    assert slots.hold(design.layout, module, design.parted)
    expected = block_rams("rom", design.parted.memories["rom"], 16)
    for ram in slots.rams:
        assert (design.layout.ram(ram.position) == read_init(expected[ram.piece.cell]["parameters"])).all()
    assert module["cells"]["t0"]["parameters"]["LUT_INIT"] == "01" * 8
    assert design.layout.table((1, 1, 4)) == reorder(0xCCCC, ORDERS[11])


def test_slots_are_the_same_behind_their_file(tmp_path: Path) -> None:
    design = Design(tmp_path)
    slots = locate(design.layout, design.plan, ("kept",))
    assert Slots.from_document(json.loads(json.dumps(slots.document({})))) == slots


@pytest.mark.parametrize(
    ("key", "value"), [("format", 2), ("tables", [{"cell": "a", "place": [1, 2], "order": []}]), ("block_rams", [{}])]
)
def test_slots_reject_another_file(tmp_path: Path, key: str, value: object) -> None:
    design = Design(tmp_path)
    document = json.loads(json.dumps(locate(design.layout, design.plan).document({})))
    with pytest.raises((ValueError, KeyError)):
        Slots.from_document(document | {key: value})


@pytest.mark.parametrize("case", ["absent", "twice"])
def test_locate_rejects_a_layout_without_the_marks(tmp_path: Path, case: str) -> None:
    design = Design(tmp_path)
    layout = design.layout
    layout.set_ram((6, 3) if case == "twice" else (6, 1), layout.ram((6, 1)) if case == "twice" else layout.ram((6, 3)))
    with pytest.raises(BuildError) as caught:
        locate(layout, design.plan)
    assert str(caught.value) == (
        "the layout should have each of 4 marked cells once, but 1 are not there or more than once, such as 'rom.0.0'; "
        "this is a mistake of nnhw: please report it with the version of nextpnr"
    )


def test_mark_leaves_a_netlist_whose_memories_are_not_found(tmp_path: Path) -> None:
    netlist = tmp_path / "design.json"
    cells = block_rams("rom", marker("rom", 2, 16), 16)
    text = json.dumps({"modules": {"top": {"cells": cells}}})
    netlist.write_text(text, encoding="utf-8")
    plan, unknown = mark(netlist, Parted("", {"rom": np.zeros((2, 16), np.uint8)}, {}))
    assert (plan.pieces, unknown, netlist.read_text(encoding="utf-8")) == ((), ["rom"], text)


def test_a_piece_beyond_the_end_of_its_memory_is_zero() -> None:
    piece = RamPiece("rom.0.1", "rom", tuple((256, bit) for bit in range(16)))
    assert piece.fill(np.ones((257, 16), np.uint8)).sum() == 16
