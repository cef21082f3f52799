"""The tiled variants where they are delicate: uneven shares, shared heads, ragged tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autotune_variants.attention.tiled  # noqa: F401  registers the variants
from autotune.model import Config, Problem, Variant
from autotune.model.traits import intermediate_shapes
from autotune.registry import registry
from autotune_variants.attention.reference import forward
from autotune_variants.attention.tiled_forward import forward_step
from autotune_variants.attention.tiled_rows import owner, sharers

Array = np.ndarray[Any, Any]
TILED = [
    pytest.param(variant, id=f"{operation}-{variant.name}")
    for operation in ("attention", "attention_backward", "attention_train")
    for variant in registry.variants(operation)
    if variant.name.endswith(("_tiled", "_row_fused"))
]
SHARED_HEADS = (
    {"B": 1, "H": 1, "N": 200, "D": 16},
    {"B": 2, "H": 2, "Hkv": 1, "Nq": 130, "Nk": 150, "D": 8, "Dv": 20},
    {"B": 1, "H": 6, "Hkv": 3, "Nq": 61, "Nk": 49, "D": 8},
)


def problem_of(variant: Variant, sizes: dict[str, int], dtype: str, **flags: Any) -> Problem:
    """The problem of the variant's operation."""
    return Problem.of(variant.operation, sizes, dtype, **flags)


def inputs_of(problem: Problem, seed: int = 3, scale: float = 1.0) -> list[Array]:
    """Random inputs, with the out and lse that belong to them."""
    rng = np.random.default_rng(seed)
    arrays = {t.name: rng.standard_normal(t.shape(problem.sizes)) for t in problem.operation.inputs}
    arrays["q"] *= scale
    if "lse" in arrays:
        rounded = [arrays[n].astype(problem.dtype).astype(float) for n in "qkv"]
        (factor,) = problem.scalars()
        causal = bool(problem.flags["causal"])
        arrays["out"], arrays["lse"] = forward(*rounded, causal=causal, scale=factor)
    return [array.astype(problem.dtype) for array in arrays.values()]


def run(variant: Variant, problem: Problem, inputs: list[Array], **config: Any) -> list[Array]:
    """Outputs of one call, everything the kernel must fill poisoned before."""
    chosen = Config({"block_q": 16, "block_k": 48, "threads": 2, "placement": "free", **config})
    shapes = [(t.shape(problem.sizes), problem.dtype) for t in problem.operation.outputs]
    outputs = [np.full(shape, np.nan, dtype) for shape, dtype in shapes]
    spaces = intermediate_shapes(variant, problem, chosen)
    temporaries = [np.full(shape, np.nan, dtype) for shape, dtype in spaces]
    call = variant.build(problem, chosen)
    call(*inputs, *outputs, *temporaries, *problem.scalars())
    return outputs


def reference(problem: Problem, inputs: list[Array]) -> tuple[Array, ...]:
    """The operation in float64."""
    (scale,) = problem.scalars()
    wide = [array.astype(float) for array in inputs]
    result: tuple[Array, ...] = problem.operation.reference(*wide, **problem.flags, scale=scale)
    return result


def assert_right(outputs: list[Array], exact: tuple[Array, ...], tolerance: float) -> None:
    """Every output within `tolerance` of the largest magnitude in it."""
    for output, right in zip(outputs, exact, strict=True):
        finite = np.isfinite(right)
        assert np.array_equal(output[~finite], right[~finite].astype(output.dtype))
        magnitude = np.abs(right[finite]).max(initial=1e-3)
        assert np.abs(output[finite] - right[finite]).max(initial=0) <= tolerance * magnitude


@pytest.mark.parametrize("variant", TILED)
class TestShares:
    @pytest.mark.parametrize("threads", [1, 3, 16])
    def test_any_number_of_workers(self, variant: Variant, threads: int) -> None:
        for sizes in SHARED_HEADS:
            for causal in (False, True):
                problem = problem_of(variant, sizes, "float64", causal=causal)
                inputs = inputs_of(problem)
                outputs = run(variant, problem, inputs, threads=threads)
                assert_right(outputs, reference(problem, inputs), 1e-13)

    def test_repeats_bitwise(self, variant: Variant) -> None:
        problem = problem_of(variant, SHARED_HEADS[1], "float64", causal=True)
        inputs = inputs_of(problem)
        first, second = (run(variant, problem, inputs, threads=5) for _ in range(2))
        assert [a.tobytes() for a in first] == [b.tobytes() for b in second]


@pytest.mark.parametrize("variant", TILED)
class TestTiles:
    @pytest.mark.parametrize(("block_q", "block_k"), [(16, 48), (96, 64), (128, 192)])
    def test_ragged_last_tiles(self, variant: Variant, block_q: int, block_k: int) -> None:
        for sizes in ({"B": 1, "H": 1, "N": 333, "D": 40}, {"B": 1, "H": 1, "N": 1000, "D": 64}):
            problem = problem_of(variant, sizes, "float64")
            inputs = inputs_of(problem)
            outputs = run(variant, problem, inputs, block_q=block_q, block_k=block_k)
            assert_right(outputs, reference(problem, inputs), 1e-12)

    def test_maximum_that_keeps_growing(self, variant: Variant) -> None:
        """Later tiles of keys raise the maximum of every row, so that all sums are rescaled."""
        sizes = {"B": 1, "H": 1, "Nq": 40, "Nk": 300, "D": 8}
        problem = problem_of(variant, sizes, "float64")
        inputs = inputs_of(problem)
        inputs[1] *= np.linspace(0.1, 12, 300)[:, None]
        if variant.operation.name == "attention_backward":
            inputs[3], inputs[4] = forward(*inputs[:3], scale=problem.scalars()[0])
        assert_right(run(variant, problem, inputs), reference(problem, inputs), 1e-12)

    def test_strided_outputs_and_inputs(self, variant: Variant) -> None:
        problem = problem_of(variant, {"B": 2, "H": 2, "N": 60, "D": 12}, "float64")
        inputs = inputs_of(problem)
        packed = run(variant, problem, inputs)
        wide = [np.repeat(array, 2, axis=-1)[..., ::2] for array in inputs]
        assert not any(array.flags.c_contiguous for array in wide)
        assert_right(run(variant, problem, wide), tuple(packed), 1e-13)


@pytest.mark.parametrize("variant", TILED)
def test_nan_is_not_lost(variant: Variant) -> None:
    problem = problem_of(variant, {"B": 1, "H": 1, "N": 64, "D": 16}, "float64")
    inputs = inputs_of(problem)
    inputs[0][0, 0, 10, 3] = np.nan
    first = run(variant, problem, inputs)[0]
    assert np.isnan(first[0, 0, 10]).all()
    if variant.operation.name == "attention":
        assert np.isfinite(np.delete(first[0, 0], 10, axis=0)).all()


def test_every_piece_has_one_owner_and_the_shares_are_even() -> None:
    costs = [5, 1, 9, 2, 2, 7, 4, 4, 1, 8]
    done, total = 0, sum(costs)
    owners = []
    for cost in costs:
        owners.append(owner.py_func(done, cost, total, 3))
        done += cost
    assert owners == sorted(owners)
    shares = [sum(c for c, o in zip(costs, owners, strict=True) if o == w) for w in range(3)]
    assert max(shares) - min(shares) <= max(costs)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("heads", [1, 2, 3, 7])
def test_sharers_cover_all_owners_of_a_head(heads: int, workers: int) -> None:
    for head in range(heads):
        first, last = sharers.py_func(head, heads, workers)
        for tile in range(10):
            assert first <= owner.py_func(head * 10 + tile, 1, heads * 10, workers) <= last


def test_the_steps_are_compiled_once_for_all_layouts() -> None:
    variant = registry.variant("attention", "simd_tiled")
    problem = problem_of(variant, {"B": 1, "H": 1, "N": 20, "D": 8}, "float64")
    inputs = inputs_of(problem)
    run(variant, problem, inputs)
    before = len(forward_step.overloads)
    run(variant, problem, [np.asfortranarray(array) for array in inputs])
    assert len(forward_step.overloads) == before
