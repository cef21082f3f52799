"""Every registered CPU variant on every kind of shape, against the float64 reference."""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import numpy as np
import pytest
from chosen_parts import serve
from contract_arrays import boxed
from contract_runs import expected, faults, random_inputs, run, smallest_tiles, with_forward
from contract_sizes import cases, typical

import autotune_variants  # noqa: F401
from autotune.model import Problem, Variant
from autotune.model.space import why_not
from autotune.registry import registry

# float32 packed and float64 with negative and non-unit strides: both dtypes, both layouts, and
# two compilations in place of four.
KINDS = (("float32", "packed"), ("float64", "strided"))


def kinds(place: int) -> tuple[tuple[str, str], ...]:
    """In turn one or the other, so that every operation has both; `make test-compile`: both."""
    return KINDS if os.environ.get("AUTOTUNE_TEST_COMPILE") else KINDS[place % 2 :][:1]


def runs() -> list[Any]:
    """Every CPU variant of the built-in operations that leave their inputs as they are."""
    variants = [
        (operation.name, variant)
        for operation in registry.operations()
        if not operation.updated
        for variant in registry.variants(operation)
        if variant.device == "cpu" and variant.build.__module__.startswith("autotune_variants.")
    ]
    return [
        pytest.param(variant, *kind, id=f"{operation}-{variant.name}-{'-'.join(kind)}")
        for place, (operation, variant) in enumerate(variants)
        for kind in kinds(place)
    ]


@pytest.fixture(autouse=True)
def numpy_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of blocks by NumPy: their own variants are under test here as well."""
    monkeypatch.setattr("autotune_variants.block.parts.dispatch", serve({}))


@pytest.mark.parametrize(("variant", "dtype", "layout"), runs())
class TestContract:
    @pytest.fixture(autouse=True)
    def available(self, variant: Variant) -> None:
        missing = variant.unavailable()
        if missing is not None:
            pytest.skip(missing)

    def test_right_on_every_shape(self, variant: Variant, dtype: str, layout: str) -> None:
        ran = 0
        for sizes, flags in cases(variant.operation.name)[:: 1 if layout == "packed" else 2]:
            problem = Problem.of(variant.operation, sizes, dtype, **flags)
            if why_not(variant, problem) is not None:
                continue
            ran += 1
            config = smallest_tiles(variant, problem)
            assert faults(variant, problem, config, layout) == [], (problem, config)
        assert ran

    def test_large_magnitudes(self, variant: Variant, dtype: str, layout: str) -> None:
        """Logits of +-1e4: finite, and within ten times what the plain implementation reaches."""
        problem = Problem.of(variant.operation, typical(variant.operation.name, 50), dtype)
        given = random_inputs(problem, scale=60.0)
        outputs = [boxed(t.shape(problem.sizes), dtype, layout) for t in variant.operation.outputs]
        inputs = [boxed(each.shape, dtype, layout, each) for each in given]
        run(variant, problem, smallest_tiles(variant, problem), [*inputs, *outputs])
        for (name, right, bound), box in zip(expected(problem, given), outputs, strict=True):
            assert np.isfinite(box.view).all(), name
            assert np.abs(box.view - right).max() <= 10 * bound, name

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_what_is_not_finite_is_not_lost(
        self, variant: Variant, dtype: str, layout: str
    ) -> None:
        """One such element in each input by turns: outputs have it where the reference has."""
        operation = variant.operation
        problem = Problem.of(operation, typical(operation.name, 50), dtype)
        options = {**problem.flags, **dict(zip(operation.scalars, problem.scalars(), strict=True))}
        config = smallest_tiles(variant, problem)
        for place, bad in product(range(len(operation.inputs)), (np.nan, np.inf)):
            name = operation.inputs[place].name
            if name in ("out", "lse"):  # they follow from others
                continue
            given = random_inputs(problem, scale=1.0)
            given[place][tuple(size // 2 for size in given[place].shape)] = bad
            given = with_forward(problem, given)
            inputs = [boxed(each.shape, dtype, layout, each) for each in given]
            outputs = [boxed(t.shape(problem.sizes), dtype, layout) for t in operation.outputs]
            run(variant, problem, config, [*inputs, *outputs])
            exact = operation.reference(*(each.astype(np.float64) for each in given), **options)
            exact = exact if isinstance(exact, tuple) else (exact,)
            for tensor, right, box in zip(operation.outputs, exact, outputs, strict=True):
                lost = np.isfinite(box.view) & ~np.isfinite(right)
                assert not lost.any(), f"{bad} in {name} is lost in {tensor.name}"
