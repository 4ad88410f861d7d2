"""Images of programs: what is in them, and what is not taken for one."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.driver.image import ProgramImage
from nnhw.engines.shared import ArrayConfig, SharedConfig
from nnhw.errors import InputError
from nnhw.protocol import OUTPUT_LIMIT_BYTES

GOOD = ProgramImage.pack(0x12345678, bytes(range(16)), 10)
REMEDY = "run 'nnhw build' again"


@given(st.integers(0, 2**32 - 1), st.binary(max_size=300), st.integers(1, OUTPUT_LIMIT_BYTES - 1))
def test_image_comes_back(array_id: int, body: bytes, output_bytes: int) -> None:
    image = ProgramImage.pack(array_id, body, output_bytes)
    assert (image.array_id, image.body_bytes, image.output_bytes) == (array_id, len(body), output_bytes)
    assert image.crc == zlib.crc32(image.data[:-4])
    assert image.data == struct.pack("<4sIII", b"NNPR", array_id, len(body), output_bytes) + body + struct.pack(
        "<I", image.crc
    )


def test_image_of_an_engine_without_output_is_refused() -> None:
    array = ArrayConfig(4, 2, 8, 8, 64, 64, 4, 24, 12, 24, (8,))
    with pytest.raises(InputError, match="the program gives 0 bytes a frame, but must give 1 to 16777215"):
        ProgramImage(SharedConfig(array, ()).image)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", f"the program is no program: it begins with b'', not b'NNPR'; {REMEDY}"),
        (b"NN", f"the program is no program: it begins with b'NN', not b'NNPR'; {REMEDY}"),
        (40 * b"\xff", f"the program is no program: it begins with b'\\xff\\xff\\xff\\xff', not b'NNPR'; {REMEDY}"),
        (GOOD.data[:19], f"the program is cut: it has 19 bytes, but needs 20; {REMEDY}"),
        (GOOD.data[:-1], f"the program is cut: it has 35 bytes, but needs 36; {REMEDY}"),
        (GOOD.data + b"\0", f"the program is too long: it has 37 bytes, but needs 36; {REMEDY}"),
    ],
)
def test_image_rejects_another_size(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        ProgramImage(data)
    assert str(caught.value) == message


@pytest.mark.parametrize("place", [4, 13, 16, 31, 32, 35])
def test_image_rejects_damage(place: int) -> None:
    data = GOOD.data[:place] + bytes([GOOD.data[place] ^ 16]) + GOOD.data[place + 1 :]
    with pytest.raises(
        InputError, match=r"^the program is damaged: its CRC is [0-9a-f]{8}, not [0-9a-f]{8} as it says"
    ):
        ProgramImage(data)


def test_image_reads_a_build_folder(tmp_path: Path) -> None:
    assert ProgramImage.read(tmp_path) is None
    path = tmp_path / "program.bin"
    path.write_bytes(GOOD.data)
    image = ProgramImage.read(tmp_path)
    assert image is not None
    assert image.data == GOOD.data
    path.write_bytes(GOOD.data[:-3])
    with pytest.raises(InputError) as caught:
        ProgramImage.read(tmp_path)
    assert str(caught.value) == f"'{path}' is cut: it has 33 bytes, but needs 36; {REMEDY}"
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="cannot be read: "):
        ProgramImage.read(tmp_path)
