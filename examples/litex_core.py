"""A core of nnhw on the bus of a LiteX SoC; needs `pip install litex`.

    nnhw build --stop-at map examples/mnist_mlp.py
    nnhw export core build/mnist_mlp-icebreaker --bus wishbone --name digits --out core
    python examples/litex_core.py core/digits.v    # writes build/gateware/sim.v, a SoC without a CPU, and its regions

In a SoC of yours, `NnhwCore` is what matters: add it, and its registers are at the address of the region.
"""

import sys
from pathlib import Path

from litex.build.generic_platform import GenericPlatform, Pins
from litex.build.io import CRG
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCMini
from litex.soc.interconnect import wishbone
from migen import ClockSignal, Instance, Module, ResetSignal, Signal

ORIGIN, REGION_BYTES = 0x1000_0000, 0x20


class NnhwCore(Module):
    """The registers of `nnhw export core --bus wishbone` as a slave.

    Parameters
    ----------
    verilog: the file of the core, whose stem is the module's name.

    Members
    -------
    bus: Wishbone, addresses of words. irq: a result is there.
    """

    def __init__(self, platform: GenericPlatform, verilog: Path) -> None:
        self.bus = bus = wishbone.Interface(data_width=32, addressing="word")
        self.irq = Signal()
        platform.add_source(str(verilog))
        self.specials += Instance(
            verilog.stem,
            i_clk_i=ClockSignal(),
            i_rst_i=ResetSignal(),
            i_cyc_i=bus.cyc,
            i_stb_i=bus.stb,
            i_we_i=bus.we,
            i_adr_i=bus.adr[:3],
            i_sel_i=bus.sel,
            i_dat_i=bus.dat_w,
            o_dat_o=bus.dat_r,
            o_ack_o=bus.ack,
            o_irq=self.irq,
        )


class Platform(GenericPlatform):
    """Pins without a place: for looking at what LiteX makes."""

    def __init__(self) -> None:
        io = [("clk", 0, Pins("X")), ("irq", 0, Pins("X"))]
        super().__init__("none", io, name="sim")

    def build(self, fragment, build_dir, **options):  # type: ignore[no-untyped-def]
        """Write the Verilog alone."""
        Path(build_dir).mkdir(parents=True, exist_ok=True)
        self.get_verilog(fragment).write(str(Path(build_dir) / "sim.v"))


class Soc(SoCMini):
    """A bus with the core on it."""

    def __init__(self, platform: Platform, verilog: Path) -> None:
        super().__init__(platform, clk_freq=int(48e6))
        self.submodules.crg = CRG(platform.request("clk"))
        self.submodules.network = network = NnhwCore(platform, verilog)
        self.bus.add_slave("network", network.bus, SoCRegion(ORIGIN, REGION_BYTES, cached=False))
        self.comb += platform.request("irq").eq(network.irq)


if __name__ == "__main__":
    soc = Soc(Platform(), Path(sys.argv[1]))
    Builder(soc, output_dir="build", compile_software=False).build(run=False)
    print({name: hex(region.origin) for name, region in soc.bus.regions.items()})
