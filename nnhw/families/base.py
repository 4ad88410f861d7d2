"""What a device family must give. A field without a default cannot be left out, so no family can lack a fact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nnhw.families.cost import Cost
from nnhw.families.logic import Logic
from nnhw.families.memory import BlockRam, LargeRamBlock, LutRam
from nnhw.families.parts import Inventory
from nnhw.families.pll import PllLimits
from nnhw.families.prices import Prices
from nnhw.families.tools import CellKinds, CellModels, Tools


@dataclass(frozen=True)
class DspBlock:
    """The DSP block of a family.

    Parameters
    ----------
    products: how many products one block makes at the same time, each of two factors of up to `factor_bits` bits.
    factor_bits: see `products`.
    least_bits: a product whose factors have fewer bits than this together is made from LUTs by yosys.
    multiplies_and_adds: one block can make a product of 16 x 16 bits and add it to a number of 32 bits.
    """

    products: int
    factor_bits: int
    least_bits: int
    multiplies_and_adds: bool


@dataclass(frozen=True)
class PinRules:
    """How Amaranth describes pins of the family.

    Parameters
    ----------
    io_standard: (name of the attribute with a pin's I/O standard, its value if a board file gives none).
    constraints: name of the constraint file among the files that Amaranth makes.
    """

    io_standard: tuple[str, str]
    constraints: str


@dataclass(frozen=True)
class Room:
    """How much of a device a mapping may plan to use.

    Parameters
    ----------
    usable: largest estimated share of the device's logic cells, 0 to 1: beyond it clocks drop, or placement fails.
    usable_ff: the same for flip-flops, in families that count them apart.
    usable_shared: the same for logic cells, in designs with a shared engine.
    stretch: factor, 1 or more, by which the assembled design may exceed this: FIFOs, width converters and larger line
        buffers are known only then.
    spare_ebr: block RAMs that must stay free.
    easy_ebr: share of the block RAMs, 0 to 1, of which a mapping takes no more where it can do without: with most of
        them taken, many are far from the logic that reads them.
    link: what all links take: framing, CRC, identity, counters and reset.
    ports: pairs of a kind of link and what its port takes beside that.
    """

    usable: float
    usable_ff: float
    usable_shared: float
    stretch: float
    spare_ebr: int
    easy_ebr: float
    link: Cost
    ports: tuple[tuple[str, Cost], ...]

    def link_of(self, kind: str) -> Cost:
        """Return what a kind of link takes: its port, and what all links take."""
        return self.link + dict(self.ports)[kind]


@dataclass(frozen=True)
class Family:
    """A device family.

    Parameters
    ----------
    name: value of the field `family` of a board file.
    article, title: indefinite article, and name of the family, in messages.
    devices: devices that the flow can build for, by nextpnr's names.
    speeds: speed grades; ("",) if the device's name includes it.
    clock_sources: the ways in which the clock may come from the oscillator; see `nnhw.boards.InputClock`.
    platform: beginning of the device names of Amaranth's platforms, in lower case.
    block_ram, large_ram, lut_ram: its memories; a `large_ram` of None: it has no large RAM.
    logic: LUTs, carry chains, flip-flops.
    dsp: its DSP block; some devices of the family have none.
    pll: limits of its PLL.
    pins: how Amaranth describes pins.
    room: how much of a device may be planned.
    tools, kinds, models: how the tools build for it, what its cells count as, and how they are simulated.
    block_ram_lc, dsp_lc: how many logic cells a block RAM or a DSP block counts for when foldings of the same speed are
        compared.
    dense_dsp: a mapping may put more into a DSP block: multiplication and addition of a requantizer where that is
        exact, and the products of two cells of one lane.
    large_devices: end of the names of devices so large that one clock cycle does not suffice from one end to the other;
        empty if there are none.
    """

    name: str
    article: str
    title: str
    devices: tuple[str, ...]
    speeds: tuple[str, ...]
    clock_sources: tuple[str, ...]
    platform: str
    block_ram: BlockRam
    large_ram: LargeRamBlock | None
    lut_ram: LutRam
    logic: Logic
    dsp: DspBlock
    pll: PllLimits
    pins: PinRules
    room: Room
    tools: Tools
    kinds: CellKinds
    models: CellModels
    block_ram_lc: float
    dsp_lc: float
    dense_dsp: bool = False
    large_devices: str = ""

    def is_large(self, device: str) -> bool:
        """Return whether one clock cycle does not suffice from one end of a device, by nextpnr's name, to the other."""
        return bool(self.large_devices) and device.endswith(self.large_devices)

    @cached_property
    def prices(self) -> Prices:
        """What parts cost in this family."""
        return Prices(self)

    def price(self, inventory: Inventory) -> Cost:
        """Return the cost of a list of parts."""
        return self.prices.of(inventory)

    def weight(self, lc: float, ebr: int, dsp: int) -> float:
        """Return a single number for the cost of logic cells, block RAMs and DSP blocks, in logic cells."""
        return lc + self.block_ram_lc * ebr + self.dsp_lc * dsp

    def block_rams(self, depth: int, bits: int, *, rom: bool = False, parts: int = 1) -> int:
        """Return how many block RAMs a memory takes, see `BlockRam.shape`; none for a single word, a constant."""
        # Synthesis makes registers or constants of a single word.
        return self.block_ram.shape(depth, bits, rom, parts)[0] if depth > 1 else 0

    def rom_banks(self, depth: int, bits: int) -> int:
        """Return how many banks a ROM in block RAM has: parts of its depth, with a multiplexer behind them."""
        return self.block_ram.shape(depth, bits, True, 1)[1]

    def large_rams(self, depth: int, bits: int) -> int | None:
        """Return how many large RAMs a memory takes; None if the family has none, or one has too few words."""
        # Only its width is extended: there is no multiplexer of several large RAMs behind one another.
        if self.large_ram is None or depth > self.large_ram.words:
            return None
        return -(-bits // self.large_ram.bits)
