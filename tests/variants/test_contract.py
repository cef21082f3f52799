"""Every registered CPU variant on every kind of shape, against the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contract_arrays import boxed
from contract_runs import expected, faults, random_inputs, run, smallest_tiles

import autotune_variants  # noqa: F401
from autotune.model import Problem, Variant
from autotune.model.space import why_not
from autotune.registry import registry

ATTENTION = (
    *({"B": 1, "H": 2, "N": n, "D": 16} for n in (1, 7, 8, 15, 17, 63, 65, 100, 127, 129)),
    *({"B": 1, "H": 1, "N": 33, "D": d} for d in (1, 40, 64, 72, 80, 96, 112, 128, 192)),
    {"B": 2, "H": 1, "N": 300, "D": 64},
    {"B": 1, "H": 1, "Nq": 40, "Nk": 20, "D": 24, "Dv": 40},
    {"B": 1, "H": 1, "Nq": 20, "Nk": 40, "D": 40, "Dv": 3},
    {"B": 2, "H": 6, "Hkv": 2, "Nq": 20, "Nk": 35, "D": 8},
    {"B": 1, "H": 5, "Hkv": 1, "N": 19, "D": 8},
)
MASKED = (
    {"B": 1, "H": 1, "N": 100, "D": 16},
    {"B": 1, "H": 1, "N": 1, "D": 4},
    {"B": 1, "H": 1, "Nq": 2, "Nk": 5, "D": 4},
    {"B": 1, "H": 1, "Nq": 3, "Nk": 4, "D": 4},
    {"B": 1, "H": 1, "Nq": 5, "Nk": 2, "D": 4},
    {"B": 1, "H": 4, "Hkv": 2, "Nq": 150, "Nk": 40, "D": 8},
    {"B": 2, "H": 2, "Hkv": 1, "Nq": 40, "Nk": 150, "D": 8, "Dv": 20},
)
EMPTY = (
    {"B": 1, "H": 1, "Nq": 3, "Nk": 0, "D": 4},
    {"B": 1, "H": 1, "Nq": 0, "Nk": 3, "D": 4},
    {"B": 0, "H": 1, "N": 3, "D": 4},
    {"B": 1, "H": 0, "N": 3, "D": 4},
    {"B": 1, "H": 2, "N": 5, "D": 0, "Dv": 3},
    {"B": 1, "H": 2, "N": 5, "D": 3, "Dv": 0},
)
DECODE = (
    *({"B": 1, "H": 1, "N": n, "D": 64} for n in (0, 1, 7, 8, 63, 65, 1000, 2049)),
    *({"B": 1, "H": 1, "N": 33, "D": d} for d in (0, 1, 40, 72, 80, 96, 112, 128, 192)),
    {"B": 2, "H": 6, "Hkv": 2, "N": 129, "D": 24, "Dv": 17},
    {"B": 1, "H": 8, "Hkv": 1, "N": 257, "D": 64},
    {"B": 1, "H": 3, "N": 40, "D": 8, "Dv": 0},
    {"B": 0, "H": 1, "N": 9, "D": 4},
    {"B": 1, "H": 0, "N": 9, "D": 4},
)
# float32 packed and float64 with negative and non-unit strides: both dtypes, both layouts, and
# two compilations in place of four.
KINDS = (("float32", "packed"), ("float64", "strided"))


def variants() -> list[Any]:
    """Every CPU variant of the built-in operations."""
    return [
        pytest.param(variant, id=f"{operation.name}-{variant.name}")
        for operation in registry.operations()
        for variant in registry.variants(operation)
        if variant.device == "cpu" and variant.build.__module__.startswith("autotune_variants.")
    ]


def cases(variant: Variant) -> list[tuple[dict[str, int], dict[str, bool]]]:
    """Sizes and flags to run the variant on."""
    if variant.operation.name == "decode":
        return [(sizes, {}) for sizes in DECODE]
    plain: list[tuple[dict[str, int], dict[str, bool]]] = [(s, {}) for s in (*ATTENTION, *EMPTY)]
    return [*plain, *((sizes, {"causal": True}) for sizes in (*MASKED, *EMPTY))]


@pytest.mark.parametrize(("dtype", "layout"), KINDS)
@pytest.mark.parametrize("variant", variants())
class TestContract:
    def test_right_on_every_shape(self, variant: Variant, dtype: str, layout: str) -> None:
        ran = 0
        for sizes, flags in cases(variant)[:: 1 if layout == "packed" else 2]:
            problem = Problem.of(variant.operation, sizes, dtype, **flags)
            if why_not(variant, problem) is not None:
                continue
            ran += 1
            config = smallest_tiles(variant, problem)
            assert faults(variant, problem, config, layout) == [], (problem, config)
        assert ran

    def test_large_magnitudes(self, variant: Variant, dtype: str, layout: str) -> None:
        """Logits of +-1e4: finite, and within ten times what the plain implementation reaches."""
        sizes = {"B": 1, "H": 2, "N": 50, "D": 16}
        problem = Problem.of(variant.operation, sizes, dtype)
        given = random_inputs(problem, scale=60.0)
        outputs = [boxed(t.shape(problem.sizes), dtype, layout) for t in variant.operation.outputs]
        inputs = [boxed(each.shape, dtype, layout, each) for each in given]
        run(variant, problem, smallest_tiles(variant, problem), [*inputs, *outputs])
        for (name, right, bound), box in zip(expected(problem, given), outputs, strict=True):
            assert np.isfinite(box.view).all(), name
            assert np.abs(box.view - right).max() <= 10 * bound, name
