"""What a file claims is checked before memory is taken for it."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnhw.errors import BuildError
from nnhw.reading import check_folder, is_plain_name, load_npy, load_npz, parse_json, parse_toml


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def claiming(shape: str, dtype: str = "<f8") -> bytes:
    """Return a .npy file of eight numbers whose header says something else."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


@pytest.mark.parametrize("dtype", ["<f4", ">i2", "?", "<U3"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_load_npy_equals_numpy(tmp_path: Path, dtype: str, order: str) -> None:
    array = np.asarray(np.arange(24).reshape(2, 3, 4).astype(dtype), order=order)  # type: ignore[call-overload]
    for number, value in enumerate((array, array[:0], array[0, 0, 0])):
        path = tmp_path / f"{number}.npy"
        np.save(path, value)
        loaded, expected = load_npy(path), np.load(path)
        assert (loaded.dtype, loaded.shape) == (expected.dtype, expected.shape)
        assert (loaded == expected).all()
        assert loaded.flags.writeable


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (claiming("(1000000000000, 8)"), "64000000000000 bytes, but only 64 follow"),
        (claiming(f"({10**30},)"), "bytes, but only 64 follow"),
        (claiming("(9,)"), "72 bytes, but only 64 follow"),
        (claiming("(7,)"), "56 bytes of numbers, but there are others"),
        (claiming("(-1, 8)"), "is cut or damaged"),
        (claiming("(8,)", "<U0"), "is cut or damaged"),
        (claiming("(" * 3000), "Cannot parse header|its header is damaged"),
        (claiming("-" * 8000 + "1"), "its header is damaged|Cannot parse header"),
        (claiming("(8,)", "|O"), "Object arrays cannot be loaded"),
        (b"", "EOF"),
        (b"no array", "magic string"),
        (b"\x93NUMPY\x03\x00", "format 3.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "EOF"),
    ],
)
def test_load_npy_rejects_what_the_file_does_not_have(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_npy(tmp_path / "x.npy")


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_load_npy_raises_nothing_but_value_error(tmp_path_factory: pytest.TempPathFactory, at: int, put: bytes) -> None:
    content = bytearray(npy(np.arange(8)))
    content[at : at + len(put)] = put
    path = tmp_path_factory.getbasetemp() / "changed.npy"
    path.write_bytes(content)
    try:
        assert load_npy(path).nbytes <= len(content)
    except ValueError:
        pass


def bomb(path: Path, count: int) -> Path:
    """Write an archive of a few kilobytes that unpacks to `count` mebibytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for number in range(count // 8):
            archive.writestr(f"a{number}.npy", npy(np.zeros(1 << 20)))
    return path


def test_load_npz_refuses_what_unpacks_to_much_more(tmp_path: Path) -> None:
    path = bomb(tmp_path / "x.npz", 72)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"its compressed entries unpack to \d+ bytes; at most 67108864 are accepted"):
        load_npz(path)


def test_load_npz_refuses_entries_that_claim_more_than_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(8))
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02")
    for place in (at + 20, at + 24):  # of the compressed and of the unpacked size in the directory
        content[place : place + 4] = (1 << 31).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"its entries claim \d+ bytes, but the file has \d+"):
        load_npz(path)


def lying(path: Path, name: str, content: bytes, claimed: int) -> Path:
    """Add an entry that claims to unpack to its first bytes alone, also by its checksum."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(name, content)
        entry = archive.getinfo(name)
        entry.file_size, entry.CRC = claimed, zlib.crc32(content[:claimed])
    return path


def test_load_npz_refuses_an_entry_that_unpacks_to_more_than_it_claims(tmp_path: Path) -> None:
    content = npy(np.arange(8))
    path = lying(tmp_path / "x.npz", "a.npy", content + bytes(1 << 20), len(content))
    # zipfile itself cuts it off, and says nothing.
    with zipfile.ZipFile(path) as archive:
        assert archive.read("a.npy") == content
    with pytest.raises(ValueError, match=r"its entry 'a\.npy' claims 192 bytes, but unpacks to a different number"):
        load_npz(path)


def test_load_npz_takes_no_memory_for_what_an_entry_does_not_claim(tmp_path: Path) -> None:
    """The first bytes are a header that asks for 1 GiB, which the entry would unpack to."""
    header = b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little")
    path = lying(tmp_path / "x.npz", "a.npy", header + bytes(64 << 20), 64)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"its entry 'a\.npy' claims 64 bytes"):
        load_npz(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_load_npz_equals_numpy_and_says_what_is_wrong_with_a_cut_one(tmp_path: Path, save: object) -> None:
    path = tmp_path / "x.npz"
    save(path, a=np.arange(80), b=np.ones((2, 3), np.float32))  # type: ignore[operator]
    loaded = load_npz(path)
    assert {name: array.tolist() for name, array in loaded.items()} == {"a": list(range(80)), "b": [[1.0] * 3] * 2}
    content = path.read_bytes()
    for end in range(0, len(content), 7):
        path.write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"."):
            load_npz(path)
    for at in range(0, len(content), 3):
        path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
        try:
            load_npz(path)
        except (ValueError, OSError):
            pass


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 200 + "]" * 200, '{"a":' * 500 + "1" + "}" * 500])
def test_parse_json_rejects_deep_nesting(text: str) -> None:
    with pytest.raises(ValueError, match="it is nested too deeply: 100 levels are accepted"):
        parse_json(text)


@pytest.mark.parametrize("text", ["[NaN]", "-Infinity", "[1e999]", "9" * 5000, str(1 << 63), "{", "\ud800"])
def test_parse_json_rejects_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize("depth", [200, 100_000])
def test_parse_toml_rejects_deep_nesting(depth: int) -> None:
    with pytest.raises(ValueError, match="it is nested too deeply: 100 levels are accepted"):
        parse_toml(f"a = {'[' * depth}{']' * depth}")


def test_plain_names_stay_in_their_folder_and_are_no_options() -> None:
    assert all(map(is_plain_name, ("a", "device.v", "0_.-", "accelerator.json")))
    refused = (
        "",
        ".",
        "..",
        "../a",
        "a/b",
        "/a",
        "a\\b",
        "-a",
        ".a",
        "a b",
        "a\n",
        "a\0",
        "ä",
        "C:a",
        "a" * 201,
        None,
        1,
    )
    assert not any(map(is_plain_name, refused))


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo])
def test_check_folder_rejects_what_may_lead_out_of_it(tmp_path: Path, make: object) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    check_folder(tmp_path)
    make(tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(BuildError, match=r"holds 'x', which is .*; a build has plain files only"):
        check_folder(tmp_path)
