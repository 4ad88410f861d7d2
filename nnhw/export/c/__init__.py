"""Portable C99 of an integer graph: `make_c`. Nothing here compiles; see `nnhw.flow.commands.exporting_c`."""

from .program import CProgram, make_c

__all__ = ["CProgram", "make_c"]
