"""The two models: what they learn, and that their formulas are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.search.forest import Forest
from autotune.search.gaussian import GaussianProcess
from autotune.search.surrogate import Surrogate, _expected_improvement, relative
from autotune.search.table import Table

Points = NDArray[np.float32]


def drawn(count: int, seed: int = 0) -> tuple[Points, NDArray[np.float64]]:
    """Points in three dimensions, of which the last says nothing; values with a step."""
    draw = np.random.default_rng(seed)
    points = draw.random((count, 3)).astype(np.float32)
    return points, np.sin(4.0 * points[:, 0]) + (points[:, 1] > 0.5) * 1.0


def test_the_process_goes_through_what_it_knows_and_is_unsure_elsewhere() -> None:
    points, values = drawn(60)
    process = GaussianProcess(np.arange(3))
    for _ in range(4):
        process.fit(points.astype(float), values)
    process.condition(points.astype(float), values)
    mean, deviation = process.predict(points)
    assert np.abs(mean - values).mean() < 0.1
    far = np.full((1, 3), 3.0, dtype=np.float32)
    assert process.predict(far)[1][0] > 5.0 * deviation.max()


def test_a_tunable_that_says_nothing_gets_a_long_length() -> None:
    points, values = drawn(80)
    process = GaussianProcess(np.arange(3))
    for _ in range(6):
        process.fit(points.astype(float), values)
    assert process._log_lengths[2] > process._log_lengths[:2].max() + 0.5


def test_the_slope_of_the_likelihood_is_that_of_its_values() -> None:
    points, values = drawn(25)
    points = points.astype(float)
    process = GaussianProcess(np.array([0, 0, 1]))
    process._log_lengths = np.array([-0.3, 0.4])

    def posterior(at: NDArray[np.float64]) -> float:
        process._log_lengths, process._log_noise = at[:2], float(at[2])
        covariance, _ = process._covariance(points)
        variance = values @ np.linalg.solve(covariance, values) / len(values)
        likelihood = 0.5 * (len(values) * math.log(variance) + np.linalg.slogdet(covariance)[1])
        return float(
            likelihood + 0.5 * (at[:2] ** 2).sum() + 0.5 * ((at[2] - math.log(1e-3)) / 1.5) ** 2
        )

    start = np.array([-0.3, 0.4, -5.0])
    steps = np.eye(3) * 1e-5
    numeric = [(posterior(start + s) - posterior(start - s)) / 2e-5 for s in steps]
    posterior(start)
    assert process._gradient(points, values) == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_trees_know_what_they_saw_and_find_the_step() -> None:
    points, values = drawn(200)
    forest = Forest.grown(points, values, seed=1)
    mean, deviation = forest.predict(points)
    assert mean == pytest.approx(values)
    assert deviation.max() < 1e-3
    fresh, truth = drawn(100, seed=1)
    mean, _ = forest.predict(fresh)
    assert np.abs(mean - truth).mean() < 0.25 * np.abs(truth - truth.mean()).mean()


def test_trees_are_the_same_under_a_seed() -> None:
    points, values = drawn(50)
    one, same, other = (Forest.grown(points, values, seed) for seed in (1, 1, 99))
    assert (one.threshold == same.threshold).all()
    assert (one.threshold != other.threshold).any()


def test_equal_values_are_one_leaf() -> None:
    points, _ = drawn(20)
    forest = Forest.grown(points, np.ones(20), seed=0)
    assert (forest.feature == -1).all()
    assert forest.predict(points)[0] == pytest.approx(np.ones(20))


def test_expected_improvement_is_that_of_a_sample() -> None:
    draw = np.random.default_rng(0)
    for mean, deviation, best in ((0.0, 1.0, -0.5), (1.0, 0.5, 1.2), (-3.0, 0.1, 0.0)):
        sample = np.maximum(best - draw.normal(mean, deviation, 200_000), 0.0).mean()
        found = _expected_improvement(np.array([mean]), np.array([deviation]), best)
        assert found[0] == pytest.approx(sample, rel=0.02, abs=1e-4)


def test_times_are_logs_over_the_best_failures_the_slowest_and_hopeless_ones_equal() -> None:
    values = relative([2.0, 1.0, None, 1.5, 1e9])
    assert values == pytest.approx([math.log(2.0), 0.0, 1.0, math.log(1.5), 1.0])
    assert relative([2.0, None, 1.0]) == pytest.approx([math.log(2.0), math.log(2.0), 0.0])
    assert relative([None, None]).tolist() == [0.0, 0.0]


def test_beside_a_pending_point_less_is_to_be_gained() -> None:
    from search_spaces import conditional

    replay = conditional(0, variants=1, hopeless=0)
    table = Table(replay.space)
    rows = list(range(0, 300, 23))
    times = [replay.times["variant0"][row] for row in rows]
    surrogate = Surrogate(table, 0)
    surrogate.learn(rows, times, ())
    unknown = np.setdiff1d(np.arange(300), rows)
    gain = surrogate.smooth_gain(unknown)
    best = int(unknown[np.argmax(gain)])
    surrogate.learn(rows, times, [best])
    assert surrogate.smooth_gain(np.array([best]))[0] < 0.5 * gain.max()
