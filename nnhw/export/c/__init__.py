"""Portable C99 for a lowered model: `make_c`. It is compiled elsewhere; see `nnhw.flow.commands.exporting_c`."""

from .c_program import CProgram, make_c

__all__ = ["CProgram", "make_c"]
