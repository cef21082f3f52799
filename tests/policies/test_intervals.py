"""The median of a sample and its distribution-free interval."""

from __future__ import annotations

import math
import random
import statistics as reference

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune_policies import median_interval, order_ranks

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


def test_the_samples_of_a_long_race_have_ranks_as_well() -> None:
    rank, coverage = order_ranks(4000)
    assert coverage == pytest.approx(0.95, abs=0.003)
    assert rank == pytest.approx(2000 - 1.96 * math.sqrt(4000) / 2, abs=2)  # of a normal one


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


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_no_median_of_nothing_or_of_nan(values: list[float]) -> None:
    with pytest.raises(ValueError, match="median"):
        median_interval(values)
