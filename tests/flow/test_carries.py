"""Carry chains of ECP5: shorter, and the same function, whatever comes in at an end that is not connected."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Cat, Const, Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import load_board
from nnhw.errors import BuildError
from nnhw.flow.implementation.carries import shorten_chains
from nnhw.flow.implementation.cells import Bit, Cell
from nnhw.flow.implementation.output_registers import absorb_registers
from nnhw.flow.implementation.rewriting import REWRITES, rewrite
from nnhw.flow.tools.processes import ToolFailure
from nnhw.flow.tools.toolchain import run_yosys

BITS = 6
PORTS = (("a", In, BITS), ("b", In, BITS), ("c", In, 1), ("o", Out, BITS + 2))


class Sums(wiring.Component):
    """One kind of adder, each of which synthesis makes another chain of."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__({name: way(bits) for name, way, bits in PORTS})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, c = self.a, self.b, self.c
        total = {
            "add": a + b,
            "odd": (a[:-1] + b[:-1]),
            "subtract": a - b,
            "carry_in": (Cat(Const(1, 1), a) + Cat(c, b))[1:],
            "negate": Mux(c, a - b, a + b),
            "compare": a >= b,
            "constant": a >= 21,
            "increment": a + c,
            "chained": (a + b)[2:] + (a - b)[1:],
            "beside": Cat((Cat(a, b[:3]) + Cat(b, a[:3]))[5:9], (Cat(b, a[3:]) - Cat(a, b[3:]))[5:9]),
        }[self.kind]
        if self.kind == "beside":
            with m.If(c):
                m.d.sync += self.o.eq(total)
        else:
            m.d.comb += self.o.eq(total)
        return m


KINDS = ("add", "odd", "subtract", "carry_in", "negate", "compare", "constant", "increment", "chained", "beside")


class AllSums(wiring.Component):
    """All kinds, each a module of its own that takes and gives its own bits."""

    def __init__(self) -> None:
        super().__init__({f"{name}_{kind}": way(bits) for kind in KINDS for name, way, bits in PORTS})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for kind in KINDS:
            m.submodules[kind] = sums = Sums(kind)
            m.d.comb += [getattr(sums, name).eq(getattr(self, f"{name}_{kind}")) for name in "abc"]
            m.d.comb += getattr(self, f"o_{kind}").eq(sums.o)
        return m


@pytest.fixture(scope="module")
def netlists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The netlists of all kinds, of one synthesis that keeps their modules apart: {kind: module}."""
    folder = tmp_path_factory.mktemp("sums")
    (folder / "design.il").write_text(rtlil.convert(AllSums(), name="top", emit_src=False), encoding="utf-8")
    made = ["read_rtlil design.il", "synth_ecp5 -top top -noflatten", "select top.*", "write_json -selected all.json"]
    run_yosys(made, folder)
    modules = json.loads((folder / "all.json").read_text(encoding="utf-8"))["modules"]
    return {kind: modules[f"top.{kind}"] for kind in KINDS}


def netlist(module: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write a netlist as `long.json`; return a copy that a test may change."""
    write(module, "top", folder)
    (folder / "top.json").rename(folder / "long.json")
    copy: dict[str, Any] = json.loads(json.dumps(module))
    return copy


def without_registers(module: dict[str, Any]) -> dict[str, Any]:
    """Return a netlist with LUTs that pass their input in place of registers: what they take is to be equal."""
    copy: dict[str, Any] = json.loads(json.dumps(module))
    for cell in copy["cells"].values():
        if cell["type"] == "TRELLIS_FF":
            wires = {"A": cell["connections"]["DI"], "Z": cell["connections"]["Q"]}
            wires |= {name: ["0"] for name in "BCD"}
            directions = dict.fromkeys("ABCD", "input") | {"Z": "output"}
            cell |= {"type": "LUT4", "parameters": {"INIT": f"{0xAAAA:016b}"}, "connections": wires}
            cell["port_directions"] = directions
    return copy


def write(module: dict[str, Any], name: str, folder: Path) -> None:
    """Write a netlist under another name."""
    (folder / f"{name}.json").write_text(json.dumps({"modules": {name: module | {"attributes": {}}}}), encoding="utf-8")


def driven(module: dict[str, Any], value: str) -> dict[str, Any]:
    """Return a netlist in which something comes in at ends that are not connected."""
    copy: dict[str, Any] = json.loads(json.dumps(module))
    for cell in copy["cells"].values():
        if cell["connections"].get("CIN") == ["x"]:
            cell["connections"]["CIN"] = [value]
        cell["connections"] = {port: bits for port, bits in cell["connections"].items() if bits != ["x"]}
    return copy


def prove(folder: Path, *kinds: str) -> None:
    """Prove that `long.json` and `short.json` of each folder are equal for every input."""
    steps = [
        [
            *("design -reset", f"read_json {kind}/long.json", "setattr -mod -unset top top"),
            *(f"read_json {kind}/short.json", "read_verilog -overwrite +/ecp5/cells_sim.v", "hierarchy", "proc"),
            *("flatten", "miter -equiv -flatten -make_outputs top short miter", "sat -verify -prove trigger 0 miter"),
        ]
        for kind in kinds or (".",)
    ]
    run_yosys([step for each in steps for step in each], folder)


def halves(module: dict[str, Any]) -> tuple[int, int]:
    """Return the CCU2C of a netlist, and the chains with an end to which nextpnr would put another one."""
    cells = [cell for cell in module["cells"].values() if cell["type"] == "CCU2C"]
    carries = Counter(cell["connections"]["COUT"][0] for cell in cells)
    ends = sum(cell["connections"]["CIN"][0] not in carries for cell in cells if cell["connections"]["CIN"] != ["x"])
    taken = Counter(cell["connections"]["CIN"][0] for cell in cells)
    ends += sum(cell["connections"]["COUT"][0] not in taken for cell in cells if cell["connections"]["COUT"] != ["x"])
    return len(cells), ends


def test_short_chains_are_equal_to_those_of_synthesis(netlists: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        module = netlist(netlists[kind], folder)
        long, ends = halves(module)
        assert shorten_chains(module) == (long > 0)
        short, open_ends = halves(module)
        assert open_ends == 0
        assert short <= long + ends
        netlist(without_registers(netlists[kind]), folder)
        write(driven(without_registers(module), "1"), "short", folder)
    prove(tmp_path, *KINDS)


def test_proof_finds_a_wrong_table(netlists: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    module = netlist(netlists["add"], tmp_path)
    shorten_chains(module)
    first = next(cell for cell in module["cells"].values() if cell["connections"]["CIN"] == ["x"])
    first["parameters"]["INIT0"] = f"{0b1111:016b}"
    write(driven(module, "1"), "short", tmp_path)
    with pytest.raises(ToolFailure):
        prove(tmp_path)


def test_adder_takes_no_cell_beside_its_bits(netlists: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    module = netlist(netlists["add"], tmp_path)
    shorten_chains(module)
    assert halves(module) == ((BITS + 2) // 2, 0)


@pytest.mark.parametrize("kind", ["add", "odd", "compare"])
def test_bits_that_only_pass_a_carry_need_no_wires(
    kind: str, netlists: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    module = netlist(netlists[kind], tmp_path)
    shorten_chains(module)
    inputs = [
        [cell["connections"][f"{name}{half}"][0] for name in "ABCD"]
        for cell in module["cells"].values()
        if cell["type"] == "CCU2C"
        for half in range(2)
    ]
    assert ["1"] * 4 in inputs
    # nextpnr connects them to a net of zeros; with one of the two at 1 it changes the table instead.
    assert not any(c == d == "0" for _, _, c, d in inputs)


def carries_in(module: dict[str, Any]) -> Counter[str]:
    """Return the constants, or 'x' for none, that come into chains, with how many."""
    cells = [cell["connections"]["CIN"][0] for cell in module["cells"].values() if cell["type"] == "CCU2C"]
    return Counter(carry for carry in cells if isinstance(carry, str))


def test_chains_share_tiles(netlists: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    module = netlist(netlists["beside"], tmp_path)
    assert carries_in(module).total() == 2
    shorten_chains(module)
    assert carries_in(module) == {"x": 1}


def test_chains_that_are_short_stay_as_they_are(netlists: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    netlist(netlists["add"], tmp_path)
    path = tmp_path / "long.json"
    rewrite(path, load_board("ulx3s_25f"))
    once = path.read_text(encoding="utf-8")
    rewrite(path, load_board("ulx3s_25f"))
    assert path.read_text(encoding="utf-8") == once


ADD = f"{0b1001011010101010:016b}"
"""Table of a half of a CCU2C that adds A and B, as yosys makes it."""


def carry_cell(
    carry_in: Bit,
    carry_out: Bit,
    sums: tuple[Bit, Bit],
    a: tuple[Bit, Bit] = ("0", "0"),
    b: tuple[Bit, Bit] = ("0", "0"),
) -> Cell:
    """Return an adder of two bits."""
    ports: dict[str, list[Bit]] = {"C0": ["0"], "C1": ["0"], "D0": ["1"], "D1": ["1"], "CIN": [carry_in]}
    ports |= {f"{name}{half}": [nets[half]] for name, nets in (("A", a), ("B", b)) for half in range(2)}
    directions = dict.fromkeys(ports, "input") | dict.fromkeys(["COUT", "S0", "S1"], "output")
    return {
        "type": "CCU2C",
        "parameters": {"INIT0": ADD, "INIT1": ADD, "INJECT1_0": "NO", "INJECT1_1": "NO"},
        "port_directions": directions,
        "connections": ports | {"COUT": [carry_out], "S0": [sums[0]], "S1": [sums[1]]},
    }


def crowd(chains: int, bits: int) -> dict[str, Any]:
    """Return a netlist of registered sums of two numbers, the second of which is turned for each."""
    nets = count(2)
    a, b = [next(nets) for _ in range(bits)], [next(nets) for _ in range(bits)]
    clock, enable, outputs, cells = next(nets), next(nets), list[int](), dict[str, Cell]()
    for chain in range(chains):
        carry: Bit = "0"
        turned = b[chain:] + b[:chain]
        for bit in range(0, bits, 2):
            sums, following = (next(nets), next(nets)), next(nets)
            pair = slice(bit, bit + 2)
            cells[f"chain_{chain}_{bit}"] = carry_cell(carry, following, sums, tuple(a[pair]), tuple(turned[pair]))
            carry = following
            for total in sums:
                outputs.append(next(nets))
                cells[f"held_{total}"] = {
                    "type": "TRELLIS_FF",
                    "parameters": {},
                    "port_directions": {"CLK": "input", "CE": "input", "DI": "input", "Q": "output"},
                    "connections": {"CLK": [clock], "CE": [enable], "DI": [total], "Q": [outputs[-1]]},
                }
    ports = {
        name: {"direction": "input", "bits": wires}
        for name, wires in zip("abce", (a, b, [clock], [enable]), strict=True)
    }
    ports["o"] = {"direction": "output", "bits": outputs}
    return {"ports": ports, "cells": cells, "netnames": {"last": {"bits": [next(nets)]}}}


def test_row_of_chains_may_take_several_cells_more_than_they_took(tmp_path: Path) -> None:
    module = crowd(chains=5, bits=8)
    netlist(without_registers(module), tmp_path)
    assert halves(module)[0] == 20
    shorten_chains(module)
    assert halves(module) == (23, 0)
    write(driven(without_registers(module), "1"), "short", tmp_path)
    prove(tmp_path)


def test_net_that_loses_what_drives_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(module: dict[str, Any]) -> bool:
        return bool(module["cells"].pop("chain_0_2"))

    path = tmp_path / "design.json"
    module = crowd(chains=2, bits=4)
    path.write_text(json.dumps({"modules": {"top": module}}), encoding="utf-8")
    rewrite(path, load_board("ulx3s_25f"))
    before = path.read_text(encoding="utf-8")
    monkeypatch.setitem(REWRITES, "ecp5", (lose, absorb_registers))
    with pytest.raises(BuildError, match=r"^the netlist has lost what drives [34] nets, one at '.*' of cell '.*'; "):
        rewrite(path, load_board("ulx3s_25f"))
    assert path.read_text(encoding="utf-8") == before


def test_chain_whose_carry_is_read_in_its_middle_stays_as_it_is() -> None:
    cells = {"low": carry_cell("0", 5, (6, 7)), "high": carry_cell(5, 8, (9, 10))}
    outputs = {"direction": "output", "bits": [5, 6, 7, 9, 10]}
    module = {"ports": {"o": outputs}, "netnames": {"o": {"bits": [5, 6, 7, 8, 9, 10]}}, "cells": dict(cells)}
    assert not shorten_chains(module)
    assert module["cells"] == cells
