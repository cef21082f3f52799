"""The lanes of CUDA kernels hold what the kernels think they do; no GPU needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from emulate import compiler, emulate, run

ERRORS = {"float64": 5e-14, "float32": 1e-6, "bfloat16": 1e-2}


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: Any) -> None:
    compiler()
    decode = "decode" in request.node.name
    emulate(monkeypatch, tmp_path, "decode_instructions.cuh" if decode else None)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("float64", (1, 6, 2, 77, 40)),
        ("float32", (2, 2, 1, 33, 64)),
        ("bfloat16", (1, 18, 2, 77, 72)),
    ],
)
def test_decode_in_splits(dtype: str, shape: tuple[int, ...]) -> None:
    sizes = dict(zip(("B", "H", "Hkv", "N", "D"), shape, strict=True))
    error = run("decode", "cuda_split", sizes, {"warps": 2, "splits": 2, "stages": 0}, dtype)
    assert error < ERRORS[dtype]


@pytest.mark.parametrize(
    ("dtype", "shape", "stages"),
    [
        ("float64", (1, 2, 1, 90, 16), 2),
        ("float32", (1, 1, 1, 70, 36), 3),
        ("bfloat16", (1, 4, 1, 170, 64), 3),
        ("bfloat16", (1, 1, 1, 150, 40), 4),
    ],
)
def test_decode_with_copies_under_way(dtype: str, shape: tuple[int, ...], stages: int) -> None:
    sizes = dict(zip(("B", "H", "Hkv", "N", "D"), shape, strict=True))
    error = run("decode", "cuda_unsplit", sizes, {"warps": 2, "stages": stages}, dtype)
    assert error < ERRORS[dtype]


@pytest.mark.parametrize(
    ("dtype", "shape", "config"),
    [
        ("float64", (1, 6, 2, 77, 40), {"warps": 2, "blocks": 2, "stages": 0}),
        ("float32", (1, 1, 1, 9, 5), {"warps": 1, "blocks": 4, "stages": 0}),
        ("bfloat16", (1, 9, 1, 140, 72), {"warps": 2, "blocks": 2, "stages": 2}),
    ],
    ids=["float64", "float32", "bfloat16"],
)
def test_decode_in_clusters(dtype: str, shape: tuple[int, ...], config: dict[str, Any]) -> None:
    sizes = dict(zip(("B", "H", "Hkv", "N", "D"), shape, strict=True))
    assert run("decode", "cuda_cluster", sizes, config, dtype) < ERRORS[dtype]


def test_decode_unsplit_where_rows_are_not_aligned() -> None:
    sizes = {"B": 1, "H": 2, "Hkv": 1, "N": 50, "D": 7}
    config = {"warps": 2, "stages": 0}
    assert run("decode", "cuda_unsplit", sizes, config, "bfloat16") < ERRORS["bfloat16"]


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [("float64", {"N": 70, "D": 520}), ("bfloat16", {"N": 9, "D": 72})],
    ids=["float64", "bfloat16"],
)
def test_norm_backward(dtype: str, sizes: dict[str, int]) -> None:
    config = {"lanes": 64, "block": 128, "blocks": 4}
    assert run("rmsnorm_backward", "cuda_rows", sizes, config, dtype) < 3 * ERRORS[dtype]


def test_norm_of_odd_rows() -> None:
    config = {"lanes": 32, "block": 128, "blocks": 3}
    assert run("rmsnorm", "cuda_rows", {"N": 30, "D": 33}, config, "float32") < ERRORS["float32"]
