"""A caller's NumPy error state and warnings made errors do not reach into what serves."""

from __future__ import annotations

import warnings

import numpy as np

from autotune import dispatch, stats

LARGE = np.float32(3e38)


def test_a_caller_who_has_underflow_raised_is_served_by_the_reference(bench) -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((1, 1, 64, 16)).astype("float16")
    wanted = dispatch("attention", half, half, half)(half, half, half)
    with np.errstate(all="raise"):
        kernel = dispatch("attention", half, half, half)
        assert kernel.origin == "reference"
        np.testing.assert_array_equal(kernel(half, half, half), wanted)
        assert set(np.geterr().values()) == {"raise"}


def test_a_variant_that_meets_a_raised_overflow_runs_again_and_stays(bench) -> None:
    bench.keep((3, 8), {"plain": 1e-6, "roomy": 2e-6})
    kernel = dispatch(bench.operation, (3, 8))
    x = y = np.full((3, 8), LARGE)
    set_aside = stats().quarantines
    with np.errstate(all="raise"):
        for _ in range(2):
            assert np.isinf(kernel(x, y)).all()
    assert kernel.variant == "plain"
    assert stats().quarantines == set_aside


def test_warnings_made_errors_set_nothing_aside(bench) -> None:
    bench.keep((3, 8), {"plain": 1e-6, "roomy": 2e-6})
    kernel = dispatch(bench.operation, (3, 8))
    x = y = np.full((3, 8), LARGE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf(kernel(x, y)).all()
    assert kernel.variant == "plain"


def test_an_update_is_not_left_half_done(bench) -> None:
    kernel = dispatch("served_double", (8,))
    kernel(np.ones(8, np.float32))
    x = np.full(8, LARGE)
    with np.errstate(all="raise"):
        assert np.isinf(kernel(x)).all()
    assert kernel.variant == "in_place"
