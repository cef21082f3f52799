"""The CUDA block composes its parts rightly: parts by their references, all else as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from emulate import HostArray, compiler, emulate, few_blocks, run
from host_blas import host_blas

from autotune.model import Problem
from autotune.registry import registry

SIZES = {"B": 2, "N": 9, "D": 16, "F": 24, "H": 4, "Hkv": 2}


def referenced(
    operation: str, *, dims: Mapping[str, int], dtype: str, device: str, **options: Any
) -> Callable[..., None]:
    """In place of a kernel that dispatch serves: the operation's reference, into `out`."""
    assert device == "cuda:0"
    assert options.pop("deterministic")
    room = options.pop("max_workspace")
    problem = Problem.of(registry.operation(operation), dims, dtype, **options)

    def kernel(*inputs: HostArray, out: Any, workspace: HostArray, **scalars: float) -> None:
        assert workspace.array.nbytes >= room
        names = problem.operation.scalars
        known = dict(zip(names, problem.scalars(scalars or None), strict=True))
        wide = [each.array.astype("f8") for each in inputs]
        found = problem.operation.reference(*wide, **problem.flags, **known)
        results = found if isinstance(found, tuple) else (found,)
        targets = out if isinstance(out, tuple) else (out,)
        for target, values in zip(targets, results, strict=True):
            target.array[...] = values

    return kernel


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler()
    emulate(monkeypatch, tmp_path)
    few_blocks(monkeypatch)
    host_blas(monkeypatch)
    monkeypatch.setattr("autotune_variants.block.parts.dispatch", referenced)
    cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0))
    monkeypatch.setattr("autotune_variants.block.cuda.parts.cupy_cuda", lambda: cuda)
    monkeypatch.setattr("autotune_variants.block.cuda.parts.kept_views", lambda make: make)
    monkeypatch.setattr("autotune.cuda.replayed.capture_check", lambda: lambda: True)


@pytest.mark.parametrize(
    ("operation", "variant", "layout"),
    [
        ("projected_block_train", "cuda_parts", "scattered"),
        ("transformer_block_train", "cuda_parts_norm_mlp", "packed"),
        ("transformer_block", "cuda_parts", "packed"),
        ("projected_block", "cuda_parts_norm_mlp", "packed"),
    ][: 4 if os.environ.get("AUTOTUNE_TEST_COMPILE") else 1],
)
def test_parts_and_what_is_between_them(operation: str, variant: str, layout: str) -> None:
    sizes = {**SIZES, "Dh": 8} if "projected" in operation else SIZES
    error = run(operation, variant, sizes, {"room": 1}, "float64", layout=layout, causal=True)
    assert error < 1e-13
