"""Intervals of medians and of paired ratios, scatter and two levels."""

from __future__ import annotations

import math
import random
import statistics as reference

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.statistics import (
    median_interval,
    order_ranks,
    ratio_interval,
    spread,
    two_levels,
)

times = st.floats(min_value=1e-9, max_value=1e3, allow_nan=False)
samples = st.lists(times, min_size=1, max_size=120)


@given(samples)
def test_the_interval_holds_the_median_and_lies_within_the_samples(values: list[float]) -> None:
    found = median_interval(values)
    assert found.median == reference.median(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


@given(samples, st.randoms())
def test_the_order_of_samples_does_not_matter(values: list[float], rng: random.Random) -> None:
    mixed = rng.sample(values, len(values))
    assert median_interval(values) == median_interval(mixed)


@given(st.integers(6, 200))
def test_the_coverage_is_at_least_95_percent_and_the_next_rank_would_miss_it(count: int) -> None:
    rank, coverage = order_ranks(count)
    below = sum(math.comb(count, k) for k in range(rank)) / 2**count
    assert coverage == pytest.approx(1 - 2 * below)
    assert coverage >= 0.95
    tighter = below + math.comb(count, rank) / 2**count
    assert 1 - 2 * tighter < 0.95 or rank == (count + 1) // 2


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (50, 18)])
def test_ranks_are_those_of_published_tables(count: int, rank: int) -> None:
    assert order_ranks(count)[0] == rank


def test_few_samples_say_that_they_do_not_cover_95_percent() -> None:
    found = median_interval([1.0, 1.0, 1.0, 1.0, 1.0])
    assert found.coverage == pytest.approx(0.9375)
    assert not found.settled(0.01)
    assert median_interval([1.0] * 6).settled(0.01)
    assert median_interval([1.0]).coverage == 0.0


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(2000):
        found = median_interval([rng.expovariate(1.0) for _ in range(15)])
        hits += found.low <= math.log(2.0) <= found.high
    _, coverage = order_ranks(15)
    assert hits / 2000 == pytest.approx(coverage, abs=0.015)


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


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_no_median_of_nothing_or_of_nan(values: list[float]) -> None:
    with pytest.raises(ValueError, match="median"):
        median_interval(values)


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


def test_spread_is_the_distance_of_the_quartiles_over_the_median() -> None:
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2.0 / 3.0)
    assert spread([1.0, 9.0]) == 0.0
