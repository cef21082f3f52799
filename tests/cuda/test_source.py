"""CUDA sources: what belongs to one, what changes its digest and the fingerprint of a variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.cuda import CudaSource
from autotune.fingerprint import code_fingerprint

MAIN = """
#include "tiles.cuh" // and not #include "absent.cuh"
#include <cstdint>
#ifndef TILE
#define TILE 64
#endif
extern "C" __global__ void k() { const char* text = "// no comment"; }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "main.cu").write_text(MAIN)
    (tmp_path / "tiles.cuh").write_text('#pragma once\n# include "parts/deep.cuh"\nint tiles;\n')
    (tmp_path / "parts" / "deep.cuh").write_text(
        '#pragma once\n#include "beside.cuh"\n#include "shared.cuh"\n'
    )
    (tmp_path / "parts" / "beside.cuh").write_text('#include "../tiles.cuh"\nint beside;\n')
    (tmp_path / "shared.cuh").write_text("int shared;\n")
    (tmp_path / "other.cuh").write_text("int other;\n")
    return tmp_path


@pytest.fixture
def source(folder: Path) -> CudaSource:
    return CudaSource(folder / "main.cu")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_consists_of_what_it_includes_directly_or_not(source: CudaSource) -> None:
    names = sorted(file.name for file in source.files())
    assert names == ["beside.cuh", "deep.cuh", "main.cu", "shared.cuh", "tiles.cuh"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main.cu", "TILE 64", "TILE 32"),
        ("main.cu", "// no comment", "// another text"),
        ("tiles.cuh", "int tiles", "int tile"),
        ("parts/beside.cuh", "int beside", "long beside"),
        ("shared.cuh", "int shared", "int shares"),
        ("tiles.cuh", "int tiles;", 'int tiles;\n#include "other.cuh"'),
    ],
)
def test_a_change_of_any_of_them_changes_the_digest(
    source: CudaSource, folder: Path, file: str, old: str, new: str
) -> None:
    before = source.digest
    edit(folder / file, old, new)
    assert source.digest != before


def test_comments_layout_and_files_beside_do_not(source: CudaSource, folder: Path) -> None:
    before = source.digest
    edit(folder / "main.cu", "// and not", "/* but\n not */ //")
    edit(folder / "tiles.cuh", "int tiles;", "\n\n  int tiles;  // a comment")
    edit(folder / "other.cuh", "int", "long")
    assert source.digest == before
    assert CudaSource(folder / "main.cu", ("--use_fast_math",)).digest != before


def test_the_fingerprint_of_code_that_uses_it_covers_its_includes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "cuda_plugin.py").write_text(
        "from pathlib import Path\n"
        "from autotune.cuda import CudaSource\n"
        "SOURCE = CudaSource(Path(__file__).parent / 'main.cu')\n"
        "OPTIONS = ('-lineinfo',)\n"
        "def build(problem, config):\n"
        "    return SOURCE.kernel('k', {'TILE': 8}, OPTIONS)\n"
    )
    monkeypatch.syspath_prepend(folder)
    import cuda_plugin  # type: ignore[import-not-found]

    first = code_fingerprint(cuda_plugin.build)
    edit(folder / "shared.cuh", "int shared", "long shared")
    second = code_fingerprint(cuda_plugin.build)
    monkeypatch.setattr(cuda_plugin, "OPTIONS", ("-G",))
    third = code_fingerprint(cuda_plugin.build)
    (folder / "main.cu").unlink()
    code_fingerprint(cuda_plugin.build)  # a missing file must not break dispatch
    assert len({first, second, third}) == 3


def test_macros_and_options_as_the_compiler_gets_them(source: CudaSource, compiled: Any) -> None:
    source.compile({"TILE": 32, "REAL": "float", "CAUSAL": True}, arch="sm_80", options=("-G",))
    ((name, options),) = compiled
    assert name == "main.cu"
    assert options[:-1] == (
        *("--gpu-architecture=sm_80", "-std=c++17", "-G"),
        *("-DCAUSAL=1", "-DREAL=float", "-DTILE=32"),
    )
    assert options[-1] == f"-I{source.path.parent}"


def test_a_language_standard_of_ones_own(source: CudaSource) -> None:
    assert source.command({}, ("--std=c++20",)) == ["--std=c++20"]
