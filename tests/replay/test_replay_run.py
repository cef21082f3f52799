"""Searches against recordings: what is counted, and what comes of it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from tables import ROWS, write

from autotune.model.problem import Candidate, Config
from autotune.replay import Recording, Replayed, read_recordings, replay
from autotune.replay.recording import ALONE, axis, home_of
from autotune.replay.run import Outcome
from autotune.search import Space, Strategy


def bowl(count: int = 16) -> Recording:
    """A smooth valley over two tunables, near a region where nothing runs."""
    axes = [axis(name, list(range(count)), where="test") for name in "xy"]
    configs = [(x, y) for x in range(count) for y in range(count)]
    times = [
        math.nan if x + y > count + 4 else 1e-3 * math.exp(((x - 11) ** 2 + (y - 4) ** 2) / 40)
        for x, y in configs
    ]
    home = home_of(ALONE, axes, configs, None)
    return Recording("bowl", Space((home,)), {ALONE: np.array(times)})


def test_every_config_costs_one_evaluation_failed_or_not(tmp_path: Path) -> None:
    (recording,) = read_recordings(write(tmp_path))
    found = replay(recording, budget=50, seeds=2)
    for outcome in found.outcomes:
        assert len(outcome.over_best) == len(recording) == 6
        assert outcome.over_best[-1] == 1.0
        assert (np.diff(outcome.over_best) <= 0).all()
    assert found.mean(50) == 1.0


def test_it_finds_the_bottom_of_a_valley_in_a_tenth_of_the_space() -> None:
    found = replay(bowl(), budget=26, seeds=3)
    assert found.mean(26) <= 1.03
    assert found.seconds > 0.0


def test_where_it_would_end_is_told_and_what_was_found_by_then_is_good() -> None:
    found = replay(bowl(), budget=200, seeds=2)
    for outcome in found.outcomes:
        assert outcome.settled is not None
        assert outcome.settled < 100
        assert outcome.at(outcome.settled) <= 1.03
        assert len(outcome.over_best) == 200


def test_a_whole_space_may_be_replayed() -> None:
    outcome = replay(bowl(7), budget=60, seeds=1).outcomes[0]
    assert len(outcome.over_best) == 49
    assert outcome.over_best[-1] == 1.0
    assert outcome.settled is not None


def test_starts_from_elsewhere_are_tried_after_the_default_and_are_only_starts() -> None:
    recording = bowl()
    best = recording.fastest(1)
    found = replay(recording, budget=4, seeds=1, starts=best)
    assert found.outcomes[0].over_best[1] == 1.0
    worst = Candidate(ALONE, Config(x=0, y=15))
    assert replay(recording, budget=40, seeds=1, starts=[worst]).mean(40) <= 1.03


def test_what_is_needed_is_counted_from_one() -> None:
    outcomes = [
        Outcome(0, np.array([3.0, 1.05, 1.0]), None, 0.0),
        Outcome(1, np.array([math.inf, 1.5, 1.5]), None, 0.0),
        Outcome(2, np.array([1.0]), None, 0.0),
    ]
    found = Replayed(bowl(), 3, outcomes)
    assert [each.needed(0.1) for each in outcomes] == [2, None, 1]
    assert found.needed(0.1) == 2
    assert found.needed(0.01) == 3
    assert outcomes[2].at(100) == 1.0
    assert Replayed(bowl(), 3, outcomes[1:2]).needed(0.1) is None


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_the_samplers_of_optuna_are_held_to_the_space(method: str) -> None:
    recording = bowl()
    found = replay(recording, budget=30, seeds=1, strategy=Strategy(method=method))
    assert len(found.outcomes[0].over_best) == 30


def test_our_conditional_space_is_nearly_solved_after_a_twentieth() -> None:
    """attention_train on a CPU, every candidate measured once; benchmarks/ has the whole claim."""
    folder = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "recordings"
    (recording,) = read_recordings(folder / "attention_train_cpu_2.csv")
    assert len(recording.space.variants) == 13
    found = replay(recording, budget=100, seeds=2)
    assert all(outcome.needed(0.05) for outcome in found.outcomes)


def test_recordings_of_others_need_few_evaluations(shared: Path) -> None:
    """A fraction of what random search needs: the figures are in benchmarks/results."""
    folder = shared / "search_spaces"
    budgets = {"coulomb3d__RTX_2080_Ti": 30, "convolution__RTX_Titan": 50}
    for name, budget in budgets.items():
        (recording,) = read_recordings(folder / f"{name}.csv.gz")
        assert replay(recording, budget=budget, seeds=2).mean(budget) <= 1.15


def test_a_table_with_no_index_is_searched_too(tmp_path: Path) -> None:
    (recording,) = read_recordings(write(tmp_path, ROWS, about=None))
    assert replay(recording, budget=9, seeds=1).mean(9) == 1.0
