"""The lanes of CUDA kernels hold what the kernels think they do; no GPU needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulate import HostArray, compiler, emulate

from autotune.arrays import array_dtype
from autotune.model import Config, Problem
from autotune.model.traits import intermediate_shapes
from autotune.plugins import load_plugins
from autotune.registry import registry

ERRORS = {"float64": 5e-14, "float32": 1e-6, "bfloat16": 1e-2}


def run(
    operation: str, variant: str, sizes: dict[str, int], config: dict[str, Any], dtype: str
) -> float:
    """The largest error of a variant's outputs, over the largest output."""
    load_plugins()
    problem = Problem.of(registry.operation(operation), sizes, dtype)
    kind, rng = array_dtype(dtype), np.random.default_rng(1)
    given = [
        rng.standard_normal(each.shape(problem.sizes)).astype(kind)
        for each in problem.operation.inputs
    ]
    outputs = [np.empty(each.shape(problem.sizes), kind) for each in problem.operation.outputs]
    declared = registry.variant(operation, variant)
    temporaries = [
        np.full(shape, np.nan, array_dtype(name))
        for shape, name in intermediate_shapes(declared, problem, Config(config))
    ]
    scalars = problem.scalars()
    built = declared.build(problem, Config(config))
    built(*map(HostArray, (*given, *outputs, *temporaries)), *scalars)
    named = dict(zip(problem.operation.scalars, scalars, strict=True))
    wide = [each.astype("f8") for each in given]
    right = problem.operation.reference(*wide, **problem.flags, **named)
    found = right if isinstance(right, tuple) else (right,)
    return max(
        float(np.abs(out.astype("f8") - each).max() / max(np.abs(each).max(), 1e-30))
        for out, each in zip(outputs, found, strict=True)
    )


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: Any) -> None:
    compiler()
    family = "decode" if "decode" in request.node.name else "norm"
    emulate(monkeypatch, tmp_path, f"{family}_instructions.cuh")


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
    error = run("decode", "cuda_split", sizes, {"warps": 2, "splits": 2}, dtype)
    assert error < ERRORS[dtype]


def test_decode_unsplit_where_rows_are_not_aligned() -> None:
    sizes = {"B": 1, "H": 2, "Hkv": 1, "N": 50, "D": 7}
    assert run("decode", "cuda_unsplit", sizes, {"warps": 2}, "bfloat16") < ERRORS["bfloat16"]


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
