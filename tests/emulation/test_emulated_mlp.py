"""The CUDA variants of the gated MLP compute what they should; no GPU needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from emulate import compiler, emulate, few_blocks, run
from host_blas import HostBlas, host_blas

ERRORS = {"float64": 1e-13, "float32": 3e-6, "bfloat16": 3e-2, "float16": 4e-3}
TOKENS = {"row_warps": 2, "split_warps": 2, "chunk": 32}
WEIGHTS = {"feature_warps": 4, "partners": 2, "step": 16, "shares": 2}
SPLIT = {"row_warps": 2, "split_warps": 2, "shares": 2}
OPERATIONS = ("gated_mlp", "gated_mlp_backward", "gated_mlp_train", "norm_mlp", "norm_mlp_train")
ALL = bool(os.environ.get("AUTOTUNE_TEST_COMPILE"))  # else one case of each kind
FAMILIES = {"float64": "cuda_dmma", "float32": "cuda_tf32x3", "bfloat16": "cuda_mma"}


@pytest.fixture(autouse=True)
def blas(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostBlas:
    compiler()
    emulate(monkeypatch, tmp_path, "mlp_instructions.cuh")
    few_blocks(monkeypatch)
    return host_blas(monkeypatch)


@pytest.mark.parametrize(
    ("operation", "dtype", "layout"),
    [
        ("norm_mlp", "float32", "scattered"),
        ("gated_mlp_backward", "float64", "transposed"),
        ("gated_mlp", "float16", "packed"),
        ("gated_mlp_train", "bfloat16", "scattered"),
        ("norm_mlp_train", "float64", "packed"),
    ][: 5 if ALL else 1],
)
def test_products_of_whole_matrices(
    operation: str, dtype: str, layout: str, blas: HostBlas
) -> None:
    flags: dict[str, Any] = {"residual": True} if "norm" in operation else {}
    sizes = {"N": 21, "D": 24, "F": 40}
    error = run(operation, "cuda_blas", sizes, {"room_mib": 4}, dtype, layout=layout, **flags)
    assert error < ERRORS[dtype]
    forward, backward = "backward" not in operation, operation not in ("gated_mlp", "norm_mlp")
    assert len(blas.calls) == 2 + forward + (6 if backward else 0)


@pytest.mark.parametrize(
    ("operation", "dtype", "layout", "sizes"),
    [
        ("norm_mlp_train", "float64", "packed", (37, 64, 40)),
        ("gated_mlp", "bfloat16", "packed", (33, 64, 72)),
        ("gated_mlp", "float32", "scattered", (17, 24, 40)),
        ("gated_mlp_backward", "bfloat16", "packed", (70, 64, 72)),
        ("norm_mlp", "float64", "packed", (33, 64, 64)),
        ("norm_mlp_train", "float32", "transposed", (40, 17, 33)),
    ][: 6 if ALL else 2],
)
def test_tiles_of_tokens(
    operation: str, dtype: str, layout: str, sizes: tuple[int, int, int]
) -> None:
    flags: dict[str, Any] = {"residual": True} if "norm" in operation else {}
    config = TOKENS if operation in ("gated_mlp", "norm_mlp") else {**TOKENS, **WEIGHTS}
    dims = dict(zip("NDF", sizes, strict=True))
    error = run(operation, FAMILIES[dtype], dims, config, dtype, layout=layout, **flags)
    assert error < ERRORS[dtype]


@pytest.mark.parametrize(
    ("operation", "layout", "sizes"),
    [
        ("norm_mlp_train", "packed", (37, 64, 40)),
        ("gated_mlp_backward", "scattered", (70, 17, 72)),
    ][: 2 if ALL else 1],
)
def test_float32_as_sums_of_two_halves(
    operation: str, layout: str, sizes: tuple[int, int, int]
) -> None:
    flags: dict[str, Any] = {"residual": True} if "norm" in operation else {}
    dims = dict(zip("NDF", sizes, strict=True))
    error = run(operation, "cuda_split_half", dims, SPLIT, "float32", layout=layout, **flags)
    assert error < ERRORS["float32"]


@pytest.mark.parametrize(
    ("operation", "variant", "dtype", "layout", "sizes"),
    [
        ("gated_mlp_backward", "cuda_mma_atomic", "float16", "packed", (70, 64, 72)),
        ("norm_mlp_train", "cuda_split_half_atomic", "float32", "packed", (37, 17, 40)),
        ("norm_mlp_train", "cuda_dmma_atomic", "float64", "transposed", (100, 24, 72)),
    ][: 3 if ALL else 1],
)
def test_shares_that_add_to_one_sum(
    operation: str, variant: str, dtype: str, layout: str, sizes: tuple[int, int, int]
) -> None:
    flags: dict[str, Any] = {"residual": True} if "norm" in operation else {}
    config = SPLIT if "split" in variant else {**TOKENS, **WEIGHTS}
    dims = dict(zip("NDF", sizes, strict=True))
    error = run(operation, variant, dims, config, dtype, layout=layout, **flags)
    assert error < ERRORS[dtype]
