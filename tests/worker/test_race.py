"""The race: rounds in step, an end when it is decided, and who is to blame when it fails."""

from __future__ import annotations

import random
from functools import partial
from time import perf_counter

import pytest
from worker_bench import MEASURED, Bench

from autotune.bench import REST_SECONDS, CpuBench
from autotune.device import local_cpu
from autotune.worker import RaceJob
from autotune.worker.race import decided, least, over


def race_job(bench: Bench, *names: str, **fields: object) -> RaceJob:
    entrants = tuple((name, {}) for name in names)
    defaults = {"mode": "hot", "budget": 0.3, "time_limit": 5.0}
    return RaceJob(bench.key(), entrants, **{**defaults, **fields})  # type: ignore[arg-type]


def test_every_entrant_has_a_sample_in_every_round(bench: Bench) -> None:
    outcome = bench.worker.race(race_job(bench, "honest", "returning", "chatty"))
    assert outcome.status in MEASURED, outcome.reason
    assert (outcome.status == "disturbed") == bool(outcome.circumstances.get("disturbed"))
    assert len(outcome.samples) == 3
    assert len({len(samples) for samples in outcome.samples}) == 1
    assert len(outcome.samples[0]) == outcome.circumstances["rounds"] >= 10
    assert outcome.toolchain


def test_a_clear_winner_ends_the_race_at_the_fewest_rounds(bench: Bench) -> None:
    outcome = bench.worker.race(race_job(bench, "plain_slow", "honest", budget=20.0))
    assert outcome.status in MEASURED, outcome.reason
    assert (outcome.status == "disturbed") == bool(outcome.circumstances.get("disturbed"))
    assert len(outcome.samples[0]) == 10
    slow, fast = outcome.samples
    assert min(slow) > max(fast)


@pytest.mark.parametrize(
    ("bad", "status", "reason"),
    [
        ("zeros", "wrong", "y is off by"),
        ("raising", "failed", "raised RuntimeError"),
        ("aborting", "crashed", "killed by SIGABRT while building"),
        ("endless", "timeout", "exceeded its limit"),
        ("honset", "failed", "did you mean 'honest'"),
    ],
)
def test_a_bad_entrant_is_named(bench: Bench, bad: str, status: str, reason: str) -> None:
    limit = 2.0 if status == "timeout" else 20.0
    outcome = bench.worker.race(race_job(bench, "honest", bad, "returning", time_limit=limit))
    assert outcome.status == status
    assert reason in outcome.reason
    assert outcome.culprit == 1
    assert outcome.samples == ()


def rounds(ratio: float, noise: float, count: int = 30) -> list[list[float]]:
    rng = random.Random(5)
    found = []
    for _ in range(count):
        drift = 1 + rng.random()
        found.append([drift, drift * ratio * (1 + rng.uniform(-noise, noise))])
    return found


@pytest.mark.parametrize(
    ("ratio", "noise", "known"),
    [
        (1.2, 0.05, True),  # slower beyond doubt
        (1.0, 0.005, True),  # as fast beyond doubt
        (1.01, 0.001, True),  # on the edge of the band, but known precisely
        (1.012, 0.1, False),  # could be either
        (1.0, 0.2, False),
    ],
)
def test_it_is_decided_when_every_ratio_is_known(ratio: float, noise: float, known: bool) -> None:
    job = RaceJob("", (), precision=0.005, band=0.01)
    assert decided(rounds(ratio, noise), job) is known


def test_beside_other_programs_the_fastest_sample_has_to_be_possible_too() -> None:
    """A policy's time may come down to it."""
    taken = (1e-9, 1e-3, 1e-3)
    assert least(taken, {"foreign_load": 0.0}) == 1e-3
    assert least(taken, {"foreign_load": 0.4}) == 1e-9


def test_it_does_not_end_within_one_stall_of_the_machine() -> None:
    """Ten rounds of a short kernel take milliseconds: all of them may meet the same stall."""
    job = RaceJob("p", (("a", {}), ("b", {})), max_rounds=20, budget=5.0)
    clear = [[1.0, 2.0]] * 12
    assert over(clear, job, 0.01)
    assert not over(clear, job, 0.01, stall=0.04)
    assert over([[1.0, 2.0]] * 100, job, 0.01, stall=0.04)
    assert over(clear, job, 6.0, stall=0.04)


def test_a_candidate_is_not_timed_while_threads_of_the_one_before_spin() -> None:
    events: list[str] = []
    bench = CpuBench(local_cpu())
    calls = [partial(events.append, name) for name in "ab"]
    started = perf_counter()
    for call in calls:
        timer = bench.timer(call, lambda: None, mode="hot", repeatable=False)
        bench.change_over(timer)
        timer()
    assert events == ["a", "a", "b", "b"]
    assert perf_counter() - started >= 2 * REST_SECONDS
