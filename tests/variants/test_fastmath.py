"""exp and exp2 for numba code: accuracy, exact cases, limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit

from autotune_variants.fastmath import LN2, exp, exp2, full_width_vectors

Array = np.ndarray[Any, Any]


@njit
def every_exp(x: Array, result: Array) -> None:
    """exp of every element."""
    full_width_vectors()
    for i in range(x.size):
        result[i] = exp(x[i])


@njit
def every_exp2(x: Array, result: Array) -> None:
    """exp2 of every element."""
    full_width_vectors()
    for i in range(x.size):
        result[i] = exp2(x[i])


def computed(function: Callable[..., None], x: Any, dtype: str) -> Array:
    """The function under test, applied to an array."""
    values = np.asarray(x, dtype)
    result = np.full_like(values, 7)
    function(values, result)
    return result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("function", "exact", "unit"),
    [(every_exp, np.exp, LN2), (every_exp2, np.exp2, 1.0)],
    ids=["exp", "exp2"],
)
class TestExponentials:
    def test_within_one_and_a_half_units_in_the_last_place(
        self, function: Any, exact: Any, unit: float, dtype: str
    ) -> None:
        lowest = (np.finfo(dtype).minexp + 0.5) * unit
        for low, high in ((lowest, 3), (-3, 0), (-1e-3, 1e-3)):
            x = np.random.default_rng(1).uniform(low, high, 100_000).astype(dtype)
            right = exact(x.astype(np.longdouble))
            units = np.abs(computed(function, x, dtype) - right) / np.spacing(right.astype(dtype))
            assert units.max() <= 1.5

    def test_zero_gives_one(self, function: Any, exact: Any, unit: float, dtype: str) -> None:
        assert np.array_equal(computed(function, [0.0, -0.0], dtype), [1, 1])

    def test_below_the_smallest_normal_number_it_is_zero(
        self, function: Any, exact: Any, unit: float, dtype: str
    ) -> None:
        small = (np.finfo(dtype).minexp - 1) * unit
        given = [small, -1e4, -1e30, -np.inf]
        assert np.array_equal(computed(function, given, dtype), np.zeros(4))

    def test_nan_stays_nan(self, function: Any, exact: Any, unit: float, dtype: str) -> None:
        assert np.isnan(computed(function, [np.nan], dtype)).all()

    def test_lanes_and_remainder_agree(
        self, function: Any, exact: Any, unit: float, dtype: str
    ) -> None:
        x = np.linspace(-20, 0, 67).astype(dtype)
        alone = np.concatenate([computed(function, [each], dtype) for each in x])
        assert np.array_equal(computed(function, x, dtype), alone)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_two_are_exact(dtype: str) -> None:
    whole = np.arange(np.finfo(dtype).minexp, np.finfo(dtype).maxexp)
    assert np.array_equal(computed(every_exp2, whole, dtype), np.ldexp(np.ones(1, dtype), whole))


def test_outside_numba_they_say_what_to_use() -> None:
    with pytest.raises(TypeError, match=r"numpy\.exp2"):
        exp2(0.5)
    with pytest.raises(TypeError, match=r"numpy\.exp "):
        exp(0.5)
