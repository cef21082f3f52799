"""exp2 for numba code: accuracy, exact cases, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from autotune_variants.fastmath import exp2, full_width_vectors

Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64")


@njit
def every(x: Array, result: Array) -> None:
    """exp2 of every element."""
    full_width_vectors()
    for i in range(x.size):
        result[i] = exp2(x[i])


def computed(x: Any, dtype: str) -> Array:
    """exp2 by the function under test."""
    values = np.asarray(x, dtype)
    result = np.full_like(values, 7)
    every(values, result)
    return result


@pytest.mark.parametrize("dtype", DTYPES)
class TestExp2:
    def test_within_one_and_a_half_units_in_the_last_place(self, dtype: str) -> None:
        lowest = np.finfo(dtype).minexp
        x = np.random.default_rng(1).uniform(lowest, 3, 200_000).astype(dtype)
        exact = np.exp2(x.astype(np.longdouble))
        units = np.abs(computed(x, dtype) - exact) / np.spacing(exact.astype(dtype))
        assert units.max() <= 1.5

    def test_powers_of_two_are_exact(self, dtype: str) -> None:
        whole = np.arange(np.finfo(dtype).minexp, np.finfo(dtype).maxexp)
        assert np.array_equal(computed(whole, dtype), np.ldexp(np.ones(1, dtype), whole))

    def test_below_the_smallest_normal_number_it_is_zero(self, dtype: str) -> None:
        small = np.finfo(dtype).minexp - 1.0
        assert np.array_equal(computed([small, -1e4, -1e30, -np.inf], dtype), np.zeros(4))

    def test_nan_stays_nan(self, dtype: str) -> None:
        assert np.isnan(computed([np.nan], dtype)).all()

    def test_lanes_and_remainder_agree(self, dtype: str) -> None:
        x = np.linspace(-20, 0, 67).astype(dtype)
        alone = np.concatenate([computed([each], dtype) for each in x])
        assert np.array_equal(computed(x, dtype), alone)


def test_outside_numba_it_says_what_to_use() -> None:
    with pytest.raises(TypeError, match=r"numpy\.exp2"):
        exp2(0.5)
