"""Compiled hardware in the cache: checked when it is taken from there, made again when it is damaged."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from nnhw.errors import BuildError, InputError
from nnhw.flow.virtual import compiled
from nnhw.flow.virtual.compiled import (
    RUNTIME_EFFORT,
    CompiledProduct,
    Compiler,
    compile_library,
    library_cache,
    runtime_object,
)
from nnhw.flow.virtual.virtual_board import CompiledHardware


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was compiled: here a compiler writes a few bytes."""
    names: list[str] = []

    def compile_units(
        compiler: Compiler,
        folder: Path,
        units: Mapping[str, tuple[Path, str]],
        watch: Callable[[int, int], None] | None = None,
    ) -> None:
        for name, (_, effort) in units.items():
            assert effort == RUNTIME_EFFORT
            names.append(name)
            (folder / name).write_bytes(b"object")

    def compile_design(
        product: CompiledProduct, compiler: Compiler, folder: Path, cache: Path, watch: Callable[[int, int], None]
    ) -> Path:
        runtime = compiled.runtime_object(compiler, cache)
        names.append("product")
        (folder / "product").write_bytes(runtime.read_bytes() + b"library")
        return folder / "product"

    monkeypatch.setattr(compiled, "_compile_units", compile_units)
    monkeypatch.setattr(compiled, "_compile", compile_design)
    return names


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    monkeypatch.setattr(Compiler, "identity", "a compiler")
    return Compiler(("c++",), tmp_path)


@pytest.mark.parametrize("damage", [b"", b"object", b"x" * 19])
def test_compile_library_makes_a_damaged_library_again(
    tmp_path: Path, compiler: Compiler, made: list[str], damage: bytes
) -> None:
    library = compile_library("module top; endmodule", (), tmp_path, compiler)
    whole = library.read_bytes()
    assert compile_library("module top; endmodule", (), tmp_path, compiler) == library
    assert made == ["runtime.o", "product"]
    made.clear()
    library.write_bytes(damage)
    assert compile_library("module top; endmodule", (), tmp_path, compiler).read_bytes() == whole
    assert made == ["product"]


def test_runtime_object_that_is_damaged_is_made_again(tmp_path: Path, compiler: Compiler, made: list[str]) -> None:
    runtime_object(compiler, tmp_path).write_bytes(b"obj")
    assert runtime_object(compiler, tmp_path).read_bytes() == b"object"
    assert made == ["runtime.o"] * 2


def test_runtime_object_is_of_its_effort_and_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: Compiler, made: list[str]
) -> None:
    runtime_object(compiler, tmp_path)
    runtime_object(compiler, tmp_path)
    assert made == ["runtime.o"]
    runtime_object(replace(compiler, flags=("-O0",)), tmp_path)
    monkeypatch.setattr(Compiler, "identity", "another compiler")
    runtime_object(compiler, tmp_path)
    assert made == ["runtime.o"] * 3


def test_compile_library_makes_what_other_code_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: Compiler, made: list[str]
) -> None:
    compile_library("module top; endmodule", (), tmp_path, compiler)
    made.clear()
    monkeypatch.setattr(compiled, "sources_hash", lambda module: f"changed {module}")
    compile_library("module top; endmodule", (), tmp_path, compiler)
    assert made == ["runtime.o", "product"]


def test_compile_library_rejects_a_full_disk_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: Compiler, made: list[str]
) -> None:
    def full(*arguments: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(compiled, "_compile", full)
    cache = tmp_path / "cache"
    with pytest.raises(BuildError) as caught:
        compile_library("module top; endmodule", (), cache, compiler)
    assert str(caught.value) == (
        f"compiled hardware cannot be kept in '{cache}': No space left on device; make room there, name another folder "
        "with NNHW_CACHE, or set it to 'off' to keep nothing"
    )
    assert not list(cache.glob(".partial-*"))


def test_compile_library_rejects_a_file_in_the_way(tmp_path: Path, compiler: Compiler, made: list[str]) -> None:
    (tmp_path / "virtual").write_text("", encoding="utf-8")
    with pytest.raises(BuildError, match=r"^compiled hardware cannot be kept in '.*virtual': File exists \('"):
        compile_library("module top; endmodule", (), tmp_path / "virtual", compiler)


def test_hardware_that_cannot_be_loaded_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "product.so").write_text("no library", encoding="utf-8")
    with pytest.raises(
        BuildError, match=r"^compiled hardware '.*product.so' cannot be loaded: .*; name with NNHW_CACHE "
    ):
        CompiledHardware(tmp_path / "product.so")


def test_library_cache_rejects_a_cache_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("NNHW_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match=r"^NNHW_CACHE is '"):
        library_cache(tmp_path)
