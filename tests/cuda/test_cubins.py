"""Compiled kernels on disk: found again, never half, never stale, never too many."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from autotune.cuda import CudaSource, cubins, nvrtc


@pytest.fixture
def source(tmp_path: Path) -> CudaSource:
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text("int b;\n")
    return CudaSource(tmp_path / "a.cu")


def files(home: Path) -> list[Path]:
    return sorted((home / "cache" / "cuda").iterdir())


def test_the_second_process_compiles_nothing(
    source: CudaSource, compiled: list[Any], private_home: Path
) -> None:
    first = source.compile({"TILE": 1})
    assert source.compile({"TILE": 1}) == first
    assert len(compiled) == 1
    assert [file.suffix for file in files(private_home)] == [".cubin"]


def test_everything_that_matters_is_in_the_key(
    source: CudaSource, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    source.compile({"TILE": 1})
    source.compile({"TILE": 2})
    source.compile({"TILE": 1}, arch="sm_80")
    source.compile({"TILE": 1}, options=("-G",))
    CudaSource(source.path, ("--use_fast_math",)).compile({"TILE": 1})
    (source.path.parent / "b.cuh").write_text("long b;\n")
    source.compile({"TILE": 1})
    monkeypatch.setattr(nvrtc, "version", lambda: "13.1")
    source.compile({"TILE": 1})
    assert len(compiled) == 7


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "foreign"])
def test_a_damaged_file_is_compiled_again(
    source: CudaSource, compiled: list[Any], private_home: Path, damage: str
) -> None:
    code = source.compile()
    (file,) = files(private_home)
    whole = file.read_bytes()
    file.write_bytes(
        {
            "cut": whole[:-1],
            "empty": b"",
            "flipped": whole[:-1] + bytes([whole[-1] ^ 1]),
            "foreign": b"not a kernel of ours",
        }[damage]
    )
    assert source.compile() == code
    assert len(compiled) == 2
    assert file.read_bytes() == whole


def test_what_was_not_used_for_longest_goes_first(
    source: CudaSource, compiled: list[Any], private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    for tile in range(4):
        source.compile({"TILE": tile})
        for age, file in enumerate(sorted(files(private_home), key=lambda f: f.stat().st_mtime_ns)):
            os.utime(file, (1000 + age, 1000 + age))
    size = sum(file.stat().st_size for file in files(private_home))
    source.compile({"TILE": 0})  # used again
    monkeypatch.setattr(cubins.KEPT, "largest", size)
    monkeypatch.setattr(cubins.KEPT, "look_every", 1)
    source.compile({"TILE": 4})
    assert len(files(private_home)) == 4
    before = len(compiled)
    source.compile({"TILE": 0})
    assert len(compiled) == before
    source.compile({"TILE": 1})
    assert len(compiled) == before + 1


def test_a_cache_that_cannot_be_written_costs_one_warning(
    source: CudaSource, compiled: list[Any], private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_home.mkdir()
    (private_home / "cache").write_text("a file where a directory should be")
    monkeypatch.setattr(cubins.KEPT, "warned", False)
    with pytest.warns(UserWarning, match="cannot keep compiled kernels.*AUTOTUNE_HOME"):
        first = source.compile()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert source.compile() == first
    assert len(compiled) == 2
