"""Mapping on a shared engine: layers become records of a program, and tensors get places in its memory."""

from nnhw.mapping.shared.compile import Compiled, compile_network, network_of
from nnhw.mapping.shared.search.arrays import Choice, choose_array
from nnhw.mapping.shared.search.fitting import compile_body

__all__ = ["Choice", "Compiled", "choose_array", "compile_body", "compile_network", "network_of"]
