"""RMS normalisation: its reference, the study's count, and a call from end to end."""

from __future__ import annotations

import numpy as np
import pytest
from contract_runs import faults
from differences import check_gradients

import autotune
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.model.space import configs
from autotune.registry import registry
from autotune_variants.norm.reference import (
    norm_gradients,
    normalise,
    plain_norm_gradients,
    plain_normalise,
)

RNG = np.random.default_rng(7)


def test_every_token_is_divided_by_its_root_mean_square() -> None:
    x, weight = RNG.standard_normal((5, 8)), RNG.standard_normal(8)
    for function in (normalise, plain_normalise):
        found = function(x, weight, eps=0.1)
        for i in range(5):
            root = np.sqrt(sum(value * value for value in x[i]) / 8 + 0.1)
            np.testing.assert_allclose(found[i], weight * x[i] / root, rtol=1e-13)


def test_gradients_are_central_differences() -> None:
    x, weight, grad_out = (RNG.standard_normal(shape) for shape in ((4, 6), (6,), (4, 6)))

    def forward(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return normalise(x, weight, eps=1e-2)

    for function in (norm_gradients, plain_norm_gradients):
        found = function(x, weight, grad_out, eps=1e-2)
        check_gradients(forward, (x, weight), grad_out, found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_plain_in_sixteen_bits_sums_in_float32(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    x, weight, grad_out = (
        RNG.standard_normal(shape).astype(dtype) for shape in ((40, 512), (512,), (40, 512))
    )
    wide = [each.astype(np.float64) for each in (x, weight, grad_out)]
    step = 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    found = [
        plain_normalise(x, weight, eps=1e-6),
        *plain_norm_gradients(x, weight, grad_out, eps=1e-6),
    ]
    right = [normalise(*wide[:2], eps=1e-6), *norm_gradients(*wide, eps=1e-6)]
    for one, other in zip(found, right, strict=True):
        assert one.dtype == np.dtype(dtype)
        error = np.abs(one.astype(np.float64) - other).max()
        assert error <= 1.1 * step * np.abs(other).max()


def test_the_study_counts_four_elements_a_feature() -> None:
    problem = Problem.of(registry.operation("rmsnorm_backward"), (512, 64), "float64")
    (published,) = problem.operation.published
    assert published.count(problem.names).bytes_moved == 4 * 512 * 64 * 8


def test_dispatch_serves_it() -> None:
    x, weight = RNG.standard_normal((33, 16)), RNG.standard_normal(16)
    kernel = autotune.dispatch("rmsnorm", x, weight)
    assert kernel.variant in ("numpy", "tiled")
    np.testing.assert_allclose(kernel(x, weight), normalise(x, weight, eps=1e-6), rtol=1e-13)
    wide = kernel(x, weight, eps=0.5)
    np.testing.assert_allclose(wide, normalise(x, weight, eps=0.5), rtol=1e-13)


def test_every_number_of_rows_a_tile_gives_the_same_gradients() -> None:
    variant = registry.variant("rmsnorm_backward", "tiled")
    problem = Problem.of(variant.operation, {"N": 150, "D": 24})
    tried = [c for c in configs(variant, problem, local_cpu()) if c["placement"] == "free"]
    assert len({config["rows"] for config in tried}) == 5
    for config in tried:
        assert faults(variant, problem, config, "packed") == [], config
