"""Drivers for microcontrollers: C and MicroPython for an accelerator that is connected by SPI."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass

from nnhw.errors import InputError
from nnhw.protocol import PAYLOAD_LIMIT_BYTES, PROTOCOL_VERSION, WINDOW_FRAMES

LANGUAGES = ("c", "micropython")


@dataclass(frozen=True)
class DriverModel:
    """The facts about a bitstream that its driver needs.

    Parameters
    ----------
    name: name of the model, an identifier.
    model_hash: hexadecimal, 16 digits.
    input_bytes, output_bytes: bytes of one image and of its output, packed.
    hz: highest SPI clock, in Hz.
    patience_bytes: bytes that the driver reads without an answer before it assumes that something was lost.
    layout: lines of a comment about how images and outputs are packed.
    """

    name: str
    model_hash: str
    input_bytes: int
    output_bytes: int
    hz: int
    patience_bytes: int
    layout: tuple[str, ...]


def make_driver(model: DriverModel, language: str) -> dict[str, str]:
    """Return the files of a driver, text by name; the file of the model comes first.

    Raises
    ------
    InputError: the language is not one of `LANGUAGES`.
    """
    if language not in LANGUAGES:
        raise InputError(f"--to is one of {', '.join(LANGUAGES)}; given '{language}'")
    if language == "micropython":
        return {f"{model.name}_model.py": _python_model(model), "nnhw_spi.py": _template("micropython.txt")}
    sources = {name: _template(name) for name in ("nnhw_spi.h", "nnhw_spi.c")}
    return {f"{model.name}_model.h": _c_model(model), **sources}


def _template(name: str) -> str:
    text = (importlib.resources.files(__name__) / name).read_text(encoding="utf-8")
    values = {"VERSION": PROTOCOL_VERSION, "PAYLOAD": PAYLOAD_LIMIT_BYTES, "WINDOW": WINDOW_FRAMES}
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _c_model(model: DriverModel) -> str:
    digits = bytes.fromhex(model.model_hash)
    guard = f"{model.name.upper()}_MODEL_H"
    return "\n".join(
        (
            f"/* The bitstream of the model {model.name}.",
            *(f" * {line}" for line in model.layout),
            " */",
            f"#ifndef {guard}",
            f"#define {guard}",
            '#include "nnhw_spi.h"',
            f"#define {model.name.upper()}_INPUT_BYTES {model.input_bytes}",
            f"#define {model.name.upper()}_OUTPUT_BYTES {model.output_bytes}",
            f"#define {model.name.upper()}_SPI_HZ {model.hz}",
            f"static const nnhw_model {model.name}_model = {{",
            f"    {{{', '.join(f'0x{byte:02x}' for byte in digits)}}},",
            f"    {model.input_bytes}u, {model.output_bytes}u, {model.patience_bytes}u}};",
            "#endif",
            "",
        )
    )


def _python_model(model: DriverModel) -> str:
    values = {
        "hash": bytes.fromhex(model.model_hash),
        "input_bytes": model.input_bytes,
        "output_bytes": model.output_bytes,
        "hz": model.hz,
        "patience_bytes": model.patience_bytes,
    }
    layout = "".join(f"{line}\n" for line in model.layout)
    return f'"""The bitstream of the model {model.name}.\n\n{layout}"""\n\nMODEL = {values!r}\n'
