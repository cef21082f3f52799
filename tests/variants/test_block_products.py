"""The products between the parts of a block: both kinds, any shape, any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from chosen_parts import serve
from contract_runs import faults

import autotune_variants  # noqa: F401
from autotune.device import local_cpu
from autotune.model import Config, Problem
from autotune.model.space import default_config
from autotune.registry import registry
from autotune_variants.block.products import products

RNG = np.random.default_rng(1)
# (rows, terms, columns): less than a tile, ragged tiles, several chains of terms, nothing.
SHAPES = ((1, 1, 1), (5, 16, 24), (130, 70, 17), (33, 600, 300), (64, 64, 64), (3, 0, 4), (0, 5, 4))


@pytest.mark.parametrize("kind", ["simd", "blas"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_products_are_those_of_numpy(kind: str, threads: int) -> None:
    operation = registry.operation("transformer_block")
    problem = Problem.of(operation, {"B": 1, "N": 1, "D": 1, "F": 1}, "float32")
    multiply = products(problem, {"products": kind, "threads": threads})
    for m, k, n in SHAPES:
        a, b = (RNG.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n)))
        c = np.full((3, m, n), np.nan, "float32")
        multiply.times(a, b, c[0])
        multiply.transposed_times(a.T.copy(), b, c[1])
        multiply.times_transposed(a, b.T.copy(), c[2], np.empty(b.size + 3, "float32"))
        right = a.astype(float) @ b.astype(float)
        assert np.abs(c - right).max(initial=0.0) <= 2e-7 * (1 + k), (m, k, n)


@pytest.mark.parametrize("operation", ["transformer_block_train", "projected_block_train"])
def test_a_block_is_right_with_products_by_blas(
    operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune_variants.block.parts.dispatch", serve({}))
    variant = registry.variant(operation, "parts")
    problem = Problem.of(
        variant.operation, {"B": 2, "N": 20, "D": 16, "F": 8, "H": 4, "Hkv": 2}, "float64"
    )
    start = default_config(variant, problem, local_cpu())
    assert start is not None
    assert start["products"] == "simd"
    config = Config({**start, "products": "blas"})
    assert faults(variant, problem, config, "packed") == []


def test_a_block_pins_nobody() -> None:
    for name in ("transformer_block", "projected_block_train"):
        for variant in registry.variants(name):
            if variant.device == "cpu":
                assert "placement" not in variant.tunable_names
