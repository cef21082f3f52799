"""Intervals of paired ratios, scatter and two levels."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.statistics import (
    fastest_quarter,
    median_interval,
    ratio_interval,
    spread,
    two_levels,
    unpaired_ratio,
)

times = st.floats(min_value=1e-9, max_value=1e3, allow_nan=False)
samples = st.lists(times, min_size=1, max_size=120)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=60))
def test_the_ratio_the_other_way_is_the_reciprocal(pairs: list[tuple[float, float]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    there, back = ratio_interval(one, other), ratio_interval(other, one)
    assert there.median == pytest.approx(1.0 / back.median)
    assert there.low == pytest.approx(1.0 / back.high)


def test_pairing_cancels_what_slows_both() -> None:
    drift = [1.0 + 0.5 * math.sin(n) for n in range(30)]
    fast = [0.010 * slow for slow in drift]
    slow = [0.011 * slow for slow in drift]
    found = ratio_interval(slow, fast)
    assert found.low == pytest.approx(1.1)
    assert found.high == pytest.approx(1.1)
    assert median_interval(slow).low < median_interval(fast).high


@pytest.mark.parametrize(("one", "other"), [([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([], [])])
def test_no_ratio_of_unequal_or_impossible_times(one: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match="ratio"):
        ratio_interval(one, other)


def test_two_levels_are_found_and_a_single_slow_sample_is_not_one() -> None:
    rng = random.Random(3)
    low = [2.1 + rng.gauss(0, 0.01) for _ in range(12)]
    high = [3.2 + rng.gauss(0, 0.01) for _ in range(10)]
    middle = two_levels(low + high)
    assert middle is not None
    assert 2.2 < middle < 3.1
    assert two_levels([*low, 3.2]) is None
    assert two_levels(low) is None
    assert two_levels([2.0, 3.0]) is None


@pytest.mark.parametrize(
    ("samples", "quarter"),
    [([], ()), ([3.0], (3.0,)), ([5.0, 2.0, 4.0, 6.0, 1.0], (2.0, 1.0)), ([2.0] * 4, (2.0,))],
)
def test_the_fastest_quarter_keeps_the_order(
    samples: list[float], quarter: tuple[float, ...]
) -> None:
    assert fastest_quarter(samples) == quarter


def test_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.0 / 3.0)
    assert spread([1.0, 9.0]) == 0.0


def test_samples_taken_apart_give_the_ratio_of_medians_and_the_outer_ends() -> None:
    slow, fast = [2.0, 2.2, 2.1, 2.3, 2.4, 1.9, 2.05], [1.0, 1.1, 1.05, 0.9, 0.95, 1.02, 1.01]
    found = unpaired_ratio(slow, fast)
    assert found.median == pytest.approx(2.1 / 1.01)
    assert (found.low, found.high) == pytest.approx((1.9 / 1.1, 2.4 / 0.9))
    assert found.coverage == pytest.approx(1.0 - 4.0 * 2.0**-7)
    assert not unpaired_ratio(slow[:5], fast).covers
    with pytest.raises(ValueError, match="above zero"):
        unpaired_ratio([], fast)


@given(samples, samples)
def test_a_ratio_of_samples_taken_apart_lies_in_its_interval(
    one: list[float], other: list[float]
) -> None:
    found = unpaired_ratio(one, other)
    assert found.low <= found.median * (1 + 1e-12)
    assert found.median <= found.high * (1 + 1e-12)
