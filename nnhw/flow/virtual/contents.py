"""What the memories of a design hold, apart from its Verilog: so designs that differ there alone are compiled once."""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^  initial begin\n((?:    \S+ ?\[\d+\] = \d+'(?:h[0-9a-f]+|d\d+);\n)+)  end\n", re.MULTILINE)
_WORD = re.compile(r"    (\S+ ?)\[(\d+)\] = \d+'(?:h([0-9a-f]+)|d(\d+));\n")


def part_contents(verilog: str) -> tuple[str, tuple[str, ...]]:
    """Return Verilog that reads at its start what its memories hold, and the text of the files that it reads.

    The files are `0.hex`, `1.hex`, .. in the folder that the argument `+contents=FOLDER` of the simulation names. Most
    of a network's weights are in memories, so that other weights mostly leave the Verilog as it is. It also is shorter:
    as statements, the words of large memories take longer to compile than the hardware around them.

    Parameters
    ----------
    verilog: as yosys's `write_verilog` gives it: an `initial` block for each memory, with one word a line.

    Returns
    -------
    Verilog, and for each file the words in hexadecimal, one a line. A memory with undefined bits stays as it is.
    """
    files: list[str] = []

    def read(block: re.Match[str]) -> str:
        words = _WORD.findall(block[1])
        # One memory, from its first word on, without gaps: nothing else is what `$readmemh` fills.
        if [(name, int(index)) for name, index, *_ in words] != [(words[0][0], place) for place in range(len(words))]:
            return block[0]
        # Words of 32 bits are in decimal.
        files.append("".join(f"{digits or format(int(decimal), 'x')}\n" for _, _, digits, decimal in words))
        number = len(files) - 1
        return (
            f"  initial begin : contents_{number}\n    string folder;\n"
            f'    if (!$value$plusargs("contents=%s", folder)) $fatal(1, "no +contents");\n'
            f'    $readmemh({{folder, "/{number}.hex"}}, {words[0][0]});\n  end\n'
        )

    return _BLOCK.sub(read, verilog), tuple(files)
