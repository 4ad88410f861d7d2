"""What a device family must give. Every field is needed: a family that lacks one cannot be made."""

from __future__ import annotations

from dataclasses import dataclass

from nnhw.families.cost import Cost
from nnhw.families.logic import Logic
from nnhw.families.memory import BlockRam, LargeRamBlock, LutRam
from nnhw.families.pll import PllLimits
from nnhw.families.tools import CellKinds, CellModels, Tools


@dataclass(frozen=True)
class DspBlock:
    """A DSP block.

    Parameters
    ----------
    products: products of two factors of up to `factor_bits` bits that one block makes at the same time.
    least_bits: of both factors of a product together, below which yosys makes it of LUTs.
    multiplies_and_adds: the hardware can have a product of 16 x 16 bits and a sum of 32 bits made in one block.
    """

    products: int
    factor_bits: int
    least_bits: int
    multiplies_and_adds: bool


@dataclass(frozen=True)
class PinRules:
    """Pins in Amaranth.

    Parameters
    ----------
    io_standard: attribute of a pin that says its voltage, and what it is where a board file does not say it.
    constraints: file of constraints among those that Amaranth makes.
    """

    io_standard: tuple[str, str]
    constraints: str


@dataclass(frozen=True)
class Room:
    """What may be planned of a device.

    Parameters
    ----------
    usable: share of a device's logic cells that a mapping may be estimated to take: beyond, clocks drop, or placement
        finds no room.
    usable_ff: the same of flip-flops, where they are counted apart.
    usable_shared: the same of logic cells, for a shared engine.
    stretch: factor on the budget of a design that is assembled: it may exceed the estimate of its layers alone by what
        is only known then, which is FIFOs, converters of width and larger line buffers.
    spare_ebr: block RAMs that stay free.
    link: what UART, framing, CRC, identity, counters and reset take.
    """

    usable: float
    usable_ff: float
    usable_shared: float
    stretch: float
    spare_ebr: int
    link: Cost


@dataclass(frozen=True)
class Family:
    """A device family.

    Parameters
    ----------
    name: as in the field `family` of a board.
    article, title: as people call it, in messages.
    devices: that the flow can build for, as nextpnr calls them.
    speeds: speed grades; ("",): the device's name says it.
    clock_sources: how the clock may come from the oscillator; see `nnhw.boards.InputClock`.
    platform: beginning of the name that Amaranth's platforms have for a device, in small letters.
    block_ram, large_ram, lut_ram: its memories; no large RAM: None.
    logic: LUTs, carry chains, flip-flops.
    dsp: its DSP block; some devices of the family have none.
    pll: limits of its PLL.
    pins: as Amaranth has them.
    room: what may be planned of a device.
    tools, kinds, models: how the tools build for it, what cells count as, and how they are simulated.
    block_ram_lc, dsp_lc: logic cells that a block RAM or a DSP block is taken to be worth when foldings of the same
        speed are compared.
    dense_dsp: choice of a mapping: one DSP block multiplies and adds where sums are scaled to codes and that is exact,
        and makes the products of two cells of one lane.
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

    def weight(self, lc: float, ebr: int, dsp: int) -> float:
        """Return one number to compare costs by."""
        return lc + self.block_ram_lc * ebr + self.dsp_lc * dsp

    def block_rams(self, depth: int, bits: int, *, rom: bool = False, parts: int = 1) -> int:
        """Return the block RAMs of a memory, see `BlockRam.shape`; a single word is a constant."""
        return self.block_ram.shape(depth, bits, rom, parts)[0] if depth > 1 else 0

    def rom_banks(self, depth: int, bits: int) -> int:
        """Return how many memories one below another a ROM in block RAM is made of, with a multiplexer behind them."""
        return self.block_ram.shape(depth, bits, True, 1)[1]

    def large_rams(self, depth: int, bits: int) -> int | None:
        """Return the large RAMs of a memory, side by side; None where the family has none, or none of that depth."""
        if self.large_ram is None or depth > self.large_ram.words:
            return None
        return -(-bits // self.large_ram.bits)
