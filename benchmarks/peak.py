"""The most binary products a cycle that matrix engines make on a whole device, with their clock: place and route."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from nnhw.boards import Board, load_board
from nnhw.engines.matmul import MatmulConfig, Thresholds
from nnhw.errors import InputError
from nnhw.families import FAMILIES, Family
from nnhw.flow.implementation.place import PlacedDesign, describe_path, place_seeds
from nnhw.flow.implementation.synthesis import synthesize
from nnhw.flow.tools.cache import Cache
from nnhw.hdl.matmul import MatmulEngine
from nnhw.hdl.pll import PllSettings, reachable_clocks
from nnhw.hdl.top import make_top
from nnhw.ir.types import BIPOLAR

WORDS = 16
"""Words of each lane's weights, as many as a LUT4 holds for a bit."""
GIVES_UP = (
    f"each lane has {WORDS} words of weights: those beyond the ports of the block RAMs are in logic, a LUT4 a lane; "
    "where weights are deeper, the ports are the limit, because lanes of several pixels do not share a word"
)
SEED = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Peak:
    """Engines that fill a device.

    Parameters
    ----------
    pe, simd, hop, drain: of each, see `MatmulConfig`.
    block_pe: cells whose weights are in block RAM, as many as its ports serve; the others' are in logic.
    aim: products a cycle and clock in hertz that a bare array reached.
    seeds: place-and-route runs.
    by_default: run where no board is asked for.
    engines: side by side, as the layers of a network have them.
    """

    pe: int
    simd: int
    hop: int
    drain: int
    block_pe: int
    aim: tuple[int, int]
    seeds: int = 2
    by_default: bool = True
    engines: int = 1

    def config(self, family: Family) -> MatmulConfig:
        """Return the engine: seeded weights and thresholds, registers behind weights where the mapper has them."""
        rng = np.random.default_rng(1)
        inputs = self.simd * WORDS
        weights = 2 * rng.integers(0, 2, (self.pe, inputs)) - 1
        steps = rng.integers(inputs * 3 // 8, inputs * 5 // 8, (self.pe, 1))
        thresholds = Thresholds(steps, np.zeros(self.pe, bool), BIPOLAR)
        return MatmulConfig(
            *(self.pe, self.simd, self.hop, self.drain, weights, BIPOLAR, BIPOLAR, thresholds),
            vectors=1,
            logic_pe=self.pe - self.block_pe,
            registered=family.block_ram.slow,
        )


PEAKS: dict[str, Peak] = {
    "icebreaker": Peak(32, 32, 8, 4, 15, (1000, 70_000_000)),
    "ice40_hx8k_b_evn": Peak(45, 32, 9, 9, 16, (1400, 170_000_000)),
    "ulx3s_25f": Peak(72, 64, 9, 9, 30, (3400, 115_000_000), seeds=1),
    # Of one engine of 112 x 128 the activations cross the whole device.
    "ulx3s_85f": Peak(64, 64, 8, 8, 30, (13_800, 100_000_000), seeds=1, by_default=False, engines=3),
}


class Harness(wiring.Component):
    """Engines between two pins: a shift register gives activations and both handshakes, registers fold the codes.

    Members
    -------
    rx: in, is mixed into the activations. tx: out, the parity of all codes.
    """

    def __init__(self, config: MatmulConfig, engines: int = 1) -> None:
        self.engines = [MatmulEngine(config) for _ in range(engines)]
        super().__init__({"rx": In(1), "tx": Out(1, init=1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        feed: Value = self.rx
        for number, engine in enumerate(self.engines):
            m.submodules[f"engine_{number}"] = engine
            feed = self._around(m, engine, feed, number)
        m.d.sync += self.tx.eq(feed)
        return m

    def _around(self, m: Module, engine: MatmulEngine, feed: Value, number: int) -> Value:
        """Give an engine its activations, into which `feed` is mixed; return the parity of its codes."""
        lanes = len(engine.i.payload.as_value())
        ring = Signal(lanes + 2, init=SEED % (1 << (lanes + 2)), name=f"ring_{number}")
        codes = Signal(len(engine.o.payload.as_value()), name=f"codes_{number}")
        m.d.sync += ring.eq(Cat(ring[-1] ^ ring[lanes // 2] ^ feed, ring[:-1]))
        m.d.comb += [
            engine.i.payload.as_value().eq(ring[:lanes]),
            engine.i.valid.eq(ring[lanes]),
            engine.o.ready.eq(ring[lanes + 1]),
        ]
        with m.If(engine.o.valid):
            m.d.sync += codes.eq(engine.o.payload.as_value())
        folded = Signal(-(-len(codes) // 4), name=f"folded_{number}")
        parity = Signal(name=f"parity_{number}")
        m.d.sync += [
            folded.eq(Cat(codes[start : start + 4].xor() for start in range(0, len(codes), 4))),
            parity.eq(folded.xor()),
        ]
        return parity


def run(board: str | None) -> dict[str, Any]:
    """Place the largest engine of a board, or of the boards that take minutes.

    Returns
    -------
    devices: a row for each, see `measure`. `gives_up`: what the number of products costs.

    Raises
    ------
    InputError: there is no engine for the board.
    """
    names = [name for name, peak in PEAKS.items() if peak.by_default] if board is None else [load_board(board).name]
    if unknown := [name for name in names if name not in PEAKS]:
        raise InputError(f"benchmark peak: there is no engine for '{unknown[0]}'; boards are {', '.join(PEAKS)}")
    return {"gives_up": GIVES_UP, "devices": [measure(load_board(name), PEAKS[name]) for name in names]}


def measure(board: Board, peak: Peak) -> dict[str, Any]:
    """Synthesize and place an engine for the clock of its aim.

    Returns
    -------
    products: a cycle; `engines`: side by side. `port_products`: those whose weights come from block RAM.
    `weight_words`: of each lane. `fmax_hz`: of the best seed; `seeds`: of each. `slowest_path`: of the best. `aim`:
    what a bare array reached.
    """
    config, placements = peak.config(FAMILIES[board.family]), list(place(board, peak))
    best = max(placements, key=lambda placement: placement.fmax_hz)
    products = config.pe * config.simd * peak.engines
    taken = best.resources
    return {
        "board": {"name": board.name, "device": board.device},
        "port_products": peak.block_pe * peak.simd * peak.engines,
        "engines": peak.engines,
        "engine": {name: getattr(config, name) for name in ("pe", "simd", "hop", "drain", "logic_pe")},
        "weight_words": config.folds * config.steps,
        "products": products,
        "resources": {
            "lc": {"used": taken.lc, "available": board.resources.lc},
            "ebr": {"used": taken.ebr, "available": board.resources.ebr},
        },
        "clock_hz": round(best.clock_hz),
        "fmax_hz": round(best.fmax_hz),
        "seeds": {str(placement.seed): round(placement.fmax_hz) for placement in placements},
        "products_per_second": products * best.fmax_hz,
        "slowest_path": describe_path(best.path),
        "aim": {"products": peak.aim[0], "clock_hz": peak.aim[1]},
    }


def place(board: Board, peak: Peak) -> list[PlacedDesign]:
    """Return a placement for each seed, made for the first clock of the PLL that is not below the aim."""
    clocks = sorted(reachable_clocks(board), key=lambda settings: settings.output_hz)
    settings: PllSettings = next((one for one in clocks if one.output_hz >= peak.aim[1]), clocks[-1])
    design = make_top(lambda clock_hz: Harness(peak.config(FAMILIES[board.family]), peak.engines), board, settings)
    cache = Cache.default()
    with tempfile.TemporaryDirectory() as scratch:
        netlist = synthesize(design.rtlil, board, Path(scratch), cache=cache)
        seeds = range(1, peak.seeds + 1)
        return list(place_seeds(netlist, design.constraints, board, settings.output_hz, seeds, cache=cache))


def show(row: Mapping[str, Any]) -> None:
    """Print a row for people."""
    columns = ("products", "aim", "LC", "EBR", "Fmax MHz", "aim", "Tproducts/s")
    print(f"{'board':18}" + "".join(f"{name:>13}" for name in columns))
    for one in row["devices"]:
        taken, aim = one["resources"], one["aim"]
        share = taken["lc"]["used"] / taken["lc"]["available"]
        cells = (
            *(str(one["products"]), str(aim["products"]), f"{taken['lc']['used']} {share:.0%}"),
            *(str(taken["ebr"]["used"]), f"{one['fmax_hz'] / 1e6:.1f}", f"{aim['clock_hz'] / 1e6:g}"),
            f"{one['products_per_second'] / 1e12:.3f}",
        )
        print(f"{one['board']['name']:18}" + "".join(f"{cell:>13}" for cell in cells))
    print(row["gives_up"])
