"""The tiled variants on this machine's GPU."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from contract import (
    SCALES,
    SHAPES,
    SMALL,
    TRENDS,
    UNALIGNED,
    Candidate,
    Case,
    at_depths,
    candidates,
    check,
    check_repeats,
    large_magnitudes,
    repeated,
)

from autotune.execution import Executable
from autotune.model import Problem
from autotune.model.space import default_config
from autotune.registry import registry

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("compiled")]

TILED = ("cuda_dmma", "cuda_tf32x3", "cuda_mma", "cuda_simt", "cuda_wgmma", "cuda_split_half")

# Longer than float64 sums one chain of; with the gain, shifts still move when sums have.
LONG = (
    Case.of((1, 1, 1, 2100, 2100, 64)),
    Case.of((1, 2, 1, 150, 2100, 64), gain=20.0, causal=True),
    Case.of((1, 2, 1, 2100, 150, 80)),
)


def _long() -> list[Candidate]:
    """The float64 variants with their default configs, and half of them with a random one."""
    random = candidates(LONG, ("cuda_dmma",), seed=1, share=2)
    return [*candidates(LONG, ("cuda_dmma",)), *random]


def _trends() -> list[Candidate]:
    """The variants that store scores or weights on all of them, the others on every third."""
    stored = [each for each in candidates(TRENDS, TILED) if each.variant.endswith("_stored")]
    random = [replace(each, seed=2) for each in stored]
    return [*stored, *random, *candidates(TRENDS, TILED, share=3)]


@pytest.mark.parametrize("candidate", list(candidates(SHAPES, TILED, share=2)), ids=str)
def test_shapes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize(
    "candidate", list(candidates(SHAPES[4:8], TILED, share=2, seed=1)), ids=str
)
def test_random_configs(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", at_depths(TILED), ids=str)
def test_depths(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", _long(), ids=str)
def test_long_sums(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates(SMALL, TILED)), ids=str)
def test_one_query_or_none(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates(SCALES, TILED)), ids=str)
def test_negative_and_zero_scale(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", large_magnitudes(TILED), ids=str)
def test_large_magnitudes(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", _trends(), ids=str)
def test_logits_that_rise_or_fall(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", list(candidates((UNALIGNED,), TILED)), ids=str)
def test_unaligned_addresses(candidate: Candidate, device: Any, memory: Any) -> None:
    check(candidate, device, memory)


@pytest.mark.parametrize("candidate", repeated(TILED), ids=str)
def test_repeats(candidate: Candidate, device: Any, memory: Any) -> None:
    check_repeats(candidate, device, memory)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("cuda_dmma_stored", "float64"),
        ("cuda_dmma_atomic_stored", "float64"),
        ("cuda_tf32x3", "float32"),
    ],
)
def test_a_query_that_is_no_number_spoils_no_other(
    name: str, dtype: str, bad: float, device: Any
) -> None:
    cupy: Any = import_module("cupy")
    shape, row = (1, 1, 600, 64), 100
    problem = Problem.of(registry.operation("attention_train"), shape, dtype)
    variant = registry.variant(problem.operation, name)
    config = default_config(variant, problem, device)
    assert config is not None
    kernel = Executable(variant, problem, config, device)
    rng = np.random.default_rng(6)
    arrays = [cupy.asarray(rng.standard_normal(shape), dtype) for _ in range(4)]

    def run() -> list[Any]:
        outputs = [cupy.empty(shape, dtype) for _ in range(4)]
        kernel(*arrays, *outputs, *problem.scalars())
        return [each.get()[0, 0] for each in outputs]

    clean = run()
    arrays[0][0, 0, row, 0] = bad
    out, grad_q, grad_k, grad_v = run()
    assert not np.isfinite(out[row]).any()
    assert not np.isfinite(grad_q[row]).any()
    assert not np.isfinite(grad_k).any()
    assert not np.isfinite(grad_v).any()
    others = np.arange(shape[2]) != row
    for spoiled, right in ((out, clean[0]), (grad_q, clean[1])):
        np.testing.assert_allclose(spoiled[others], right[others], rtol=1e-4, atol=1e-5)
