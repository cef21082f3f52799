"""The gated MLP, alone and behind a normalisation: references, counts, splits, dispatch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract_arrays import boxed
from contract_runs import faults, random_inputs, run
from differences import check_gradients

import autotune
from autotune.device import local_cpu
from autotune.model import Config, Problem, predict
from autotune.model.space import configs, default_config
from autotune.registry import registry
from autotune_variants.mlp import operations, reference

RNG = np.random.default_rng(3)
N, D, F = 5, 4, 6


def draw(norm: bool) -> tuple[Any, ...]:
    """x, the normalisation's weight where there is one, w_gate, w_up, w_down."""
    shapes = ((N, D), *(((D,),) if norm else ()), (D, F), (D, F), (F, D))
    return tuple(RNG.standard_normal(shape) for shape in shapes)


def problem(operation: str, sizes: tuple[int, int, int], **options: Any) -> Problem:
    """A problem of one of the MLP's operations."""
    return Problem.of(registry.operation(operation), sizes, **options)


def test_forward_is_the_textbook() -> None:
    x, w_gate, w_up, w_down = draw(norm=False)
    for function in (reference.mlp, reference.plain_mlp):
        found = function(x, w_gate, w_up, w_down)
        for i in range(N):
            u, v = x[i] @ w_gate, x[i] @ w_up
            hidden = [u[f] / (1 + np.exp(-u[f])) * v[f] for f in range(F)]
            np.testing.assert_allclose(found[i], hidden @ w_down, rtol=1e-12)


def test_mlp_gradients_are_central_differences() -> None:
    inputs, grad_out = draw(norm=False), RNG.standard_normal((N, D))
    for function in (reference.mlp_gradients, reference.plain_mlp_gradients):
        found = function(*inputs, grad_out)
        check_gradients(reference.mlp, inputs, grad_out, found, tolerance=1e-7)


@pytest.mark.parametrize("residual", [False, True])
def test_norm_mlp_gradients_are_central_differences(residual: bool) -> None:
    inputs, grad_out = draw(norm=True), RNG.standard_normal((N, D))
    options = {"residual": residual, "eps": 1e-2}

    def forward(*arrays: Any) -> Any:
        return reference.norm_mlp_forward(*arrays, **options)

    np.testing.assert_allclose(
        forward(*inputs), reference.plain_norm_mlp_forward(*inputs, **options), rtol=1e-11
    )
    for function in (reference.norm_mlp_gradients, reference.plain_norm_mlp_gradients):
        found = function(*inputs, grad_out, **options)
        check_gradients(forward, inputs, grad_out, found, tolerance=1e-7)


def test_the_study_counts_inputs_outputs_and_four_hidden_arrays() -> None:
    for operation, width in (("gated_mlp_train", 2), ("norm_mlp_train", 6)):
        wanted = problem(operation, (4096, 64, 256), dtype="float64")
        (published,) = wanted.operation.published
        moved = published.count(wanted.names).bytes_moved
        assert moved == (width * 64 + 4 * 256) * 4096 * 8


def test_large_activations_do_not_overflow() -> None:
    ones = np.ones((1, 1))
    for u in (-1000.0, 1000.0):
        found = reference.mlp(ones, u * ones, ones, ones)
        assert found == pytest.approx(max(u, 0.0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_plain_in_sixteen_bits_sums_in_float32(dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
    drawn = operations.scaled_sample(problem("gated_mlp_train", (40, 256, 300)), RNG)
    inputs = [each.astype(dtype) for each in drawn]
    found = operations.gated_mlp_train.plain(*inputs)
    right = operations.gated_mlp_train.reference(*(each.astype(np.float64) for each in inputs))
    for one, other in zip(found, right, strict=True):
        assert one.dtype == np.dtype(dtype)
        assert np.abs(one.astype(np.float64) - other).max() <= 2 * step * np.abs(other).max()


def test_samples_keep_activations_of_order_one() -> None:
    x, w_gate, w_up, w_down = operations.scaled_sample(problem("gated_mlp", (64, 300, 500)), RNG)
    for values in (x @ w_gate, x @ w_up):
        assert 0.9 < values.std() < 1.1
    assert 0.1 < reference.mlp(x, w_gate, w_up, w_down).std() < 1


@pytest.mark.parametrize(
    ("operation", "name"),
    [
        *(("gated_mlp_train", f"{by}_splits") for by in ("simd", "c", "fortran")),
        ("norm_mlp_train", "simd_splits"),
    ],
)
def test_shares_give_the_same_bits_with_any_number_of_threads(operation: str, name: str) -> None:
    if max(local_cpu().thread_counts()) < 2:
        pytest.skip("needs two CPUs")
    declared = registry.variant(operation, name)
    missing = declared.unavailable()
    if missing is not None:
        pytest.skip(missing)
    wanted = problem(operation, (130, 20, 40))
    given = random_inputs(wanted, 1.0)
    found = []
    for threads in (1, 2):
        tiles = {"rows": 16, "hidden": 64, "shares": 4 // threads}
        config = Config(**tiles, threads=threads, placement="free")
        inputs = [boxed(each.shape, "float32", "packed", each) for each in given]
        shapes = [tensor.shape(wanted.sizes) for tensor in wanted.operation.outputs]
        outputs = [boxed(shape, "float32", "packed") for shape in shapes]
        run(declared, wanted, config, [*inputs, *outputs])
        found.append([each.view.tobytes() for each in outputs])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["blas_splits", "simd_splits"])
def test_every_tile_and_share_is_right(name: str) -> None:
    declared = registry.variant("norm_mlp_train", name)
    wanted = problem("norm_mlp_train", (150, 20, 140), residual=True)
    tried = [c for c in configs(declared, wanted, local_cpu()) if c["placement"] == "free"]
    assert len({(c["rows"], c["hidden"], c["shares"]) for c in tried}) >= 4 * 3 * 2
    for config in tried[:: max(len(tried) // 8, 1)]:
        assert faults(declared, wanted, config, "packed") == [], config


def test_each_share_takes_a_copy_of_the_weights_and_nothing_else() -> None:
    declared = registry.variant("gated_mlp_train", "blas_splits")
    wanted = problem("gated_mlp_train", (4096, 64, 256))
    few, many = (
        predict(declared, wanted, Config(rows=64, hidden=128, shares=s, threads=2)) for s in (1, 4)
    )
    copies = 6 * 3 * 64 * 256 * 4
    assert many.workspace_bytes - few.workspace_bytes == copies
    assert many.bytes_read - few.bytes_read == copies
    assert (few.atomics, many.atomics) == (0, 0)


def test_tiles_write_nothing_as_large_as_the_hidden_activations() -> None:
    wanted = problem("norm_mlp", (65536, 64, 256))
    config = Config(rows=64, hidden=128, threads=1, placement="free")
    tiled, whole = (
        predict(registry.variant("norm_mlp", name), wanted, config)
        for name in ("blas_tiled", "blas")
    )
    assert tiled.bytes_written == 65536 * 64 * 4
    assert whole.bytes_written > 3 * 65536 * 256 * 4


@pytest.mark.parametrize("operation", ["gated_mlp", "gated_mlp_backward", "norm_mlp_train"])
def test_flops_are_those_of_the_products(operation: str) -> None:
    wanted = problem(operation, (256, 32, 64))
    for declared in registry.variants(operation):
        if declared.device == "cpu":
            config = default_config(declared, wanted, local_cpu())
            assert config is not None
            flops = predict(declared, wanted, config).flops
            assert wanted.flops <= flops <= 1.1 * wanted.flops, declared.name


def test_dispatch_serves_them() -> None:
    x, weight, *weights = (
        each.astype(np.float32)
        for each in operations.scaled_sample(problem("norm_mlp", (40, 16, 32)), RNG)
    )
    plain = autotune.dispatch("gated_mlp", x, *weights)(x, *weights)
    np.testing.assert_allclose(plain, reference.mlp(x, *weights), rtol=0, atol=1e-5)
    kernel = autotune.dispatch("norm_mlp", x, weight, *weights, residual=True)
    right = reference.norm_mlp_forward(x, weight, *weights, residual=True, eps=1e-6)
    np.testing.assert_allclose(kernel(x, weight, *weights), right, rtol=0, atol=1e-5)
