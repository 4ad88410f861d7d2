"""An accelerator as a core for somebody else's design: its byte streams as AXI-Stream, or as registers on Wishbone."""

from .axi_stream import AxiStreamCore
from .wishbone import WishboneCore

__all__ = ["AxiStreamCore", "WishboneCore"]
