"""From measurements to a policy: who wins, how surely, what is kept."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_values import choice_of

from autotune_policies import (
    Choice,
    Policy,
    PolicyError,
    Race,
    Rules,
    Subject,
    build_policy,
    median_interval,
)
from autotune_policies.build import non_dominated
from autotune_tuning_db import ProblemKey

SUBJECT = Subject(
    ProblemKey("attention", (("N", 512),), "float32"),
    device="cpu:abc",
    family="zen3",
    mode="cold",
    toolchain={"numba": "0.61"},
    created="2026-01-01T00:00:00+00:00",
)


def race_of(noise: float = 0.0, rounds: int = 25, **factors: tuple[Choice, float]) -> Race:
    """A race in which every round has its own speed, and each candidate a factor on it."""
    rng = random.Random(1)
    speeds = [rng.uniform(1.0, 2.0) * 1e-3 for _ in range(rounds)]
    return Race(
        {
            choice.candidate: tuple(
                speed * factor * (1 + noise * rng.uniform(-1, 1)) for speed in speeds
            )
            for choice, factor in factors.values()
        }
    )


def test_a_clear_lead_in_the_race_wins_whatever_the_single_measurements_said() -> None:
    a, b = choice_of("a", 1.0e-3), choice_of("b", 1.05e-3)
    policy = build_policy(SUBJECT, [a, b], race=race_of(0.002, a=(a, 1.05), b=(b, 1.0)))
    assert policy.winner.variant == "b"
    assert policy.verdict.kind == "clear"
    assert policy.verdict.lead == pytest.approx(0.05, abs=0.005)
    assert policy.winner.samples == 25
    assert "b is faster than a" in policy.verdict.reason


def test_the_lead_is_over_the_next_variant_also_where_a_slower_one_was_raced() -> None:
    a, near, far = choice_of("a", 1e-3), choice_of("near", 4e-3), choice_of("far", 6e-3)
    race = Race({a.candidate: (1e-3,) * 9, far.candidate: (6e-3,) * 9})
    policy = build_policy(SUBJECT, [a, near, far], race=race)
    assert policy.runner_up == near
    assert policy.verdict.lead == pytest.approx(3.0)
    assert policy.verdict.reason == "a is faster than near by more than the band"


def test_the_common_drift_of_a_race_does_not_hide_a_lead() -> None:
    a, b = choice_of("a"), choice_of("b")
    race = race_of(0.001, a=(a, 1.0), b=(b, 1.02))
    alone = [median_interval(times) for times in race.rounds.values()]
    assert alone[0].high > alone[1].low  # the two intervals overlap widely
    assert build_policy(SUBJECT, [a, b], race=race).verdict.kind == "clear"


def test_within_the_band_it_is_a_tie() -> None:
    a, b = choice_of("a"), choice_of("b")
    race = race_of(0.001, a=(a, 1.0), b=(b, 1.005))
    assert build_policy(SUBJECT, [a, b], race=race).verdict.kind == "tie"
    sharp = build_policy(SUBJECT, [a, b], race=race, rules=Rules(band=0.001))
    assert sharp.verdict.kind == "clear"
    assert sharp.verdict.band == 0.001


def test_too_few_rounds_decide_nothing() -> None:
    a, b = choice_of("a"), choice_of("b")
    race = race_of(rounds=5, a=(a, 1.0), b=(b, 3.0))
    assert build_policy(SUBJECT, [a, b], race=race).verdict.kind == "undecided"
    race = race_of(rounds=6, a=(a, 1.0), b=(b, 3.0))
    assert build_policy(SUBJECT, [a, b], race=race).verdict.kind == "clear"


def test_a_noisy_race_is_undecided_and_the_smaller_median_serves() -> None:
    """A preference must not overrule a measured difference only because the machine was busy."""
    fast = choice_of("fast", workspace_bytes=1000)
    slow = choice_of("slow", workspace_bytes=0)
    times = {fast: (1e-3,) * 11, slow: (0.9e-3,) * 4 + (12e-3,) * 7}
    race = Race({choice.candidate: samples for choice, samples in times.items()})
    policy = build_policy(SUBJECT, [fast, slow], race=race)
    assert policy.winner.variant == "fast"
    assert policy.verdict.kind == "undecided"
    assert "noisy" in policy.verdict.reason


@pytest.mark.parametrize(
    ("better", "worse", "reason"),
    [
        ({"deterministic": True, "workspace_bytes": 9}, {"deterministic": False}, "deterministic"),
        ({"workspace_bytes": 10}, {"workspace_bytes": 20}, "less workspace"),
        ({"variant": "before"}, {}, "the policy before"),
        ({"variant": "simple"}, {}, "simpler"),
        ({}, {}, "median"),
    ],
)
def test_a_tie_goes_by_the_rules_in_order(
    better: dict[str, Any], worse: dict[str, Any], reason: str
) -> None:
    good = choice_of(**({"variant": "good"} | better))
    bad = choice_of(**({"variant": "bad"} | worse))
    previous = build_policy(SUBJECT, [choice_of("before")])
    faster = 1.0 if reason == "median" else 1.002
    policy = build_policy(
        SUBJECT,
        [good, bad],
        race=race_of(0.0005, good=(good, faster), bad=(bad, 1.0 if faster > 1 else 1.002)),
        previous=previous,
        rules=Rules(simplicity={"simple": 1, "bad": 2, "good": 2, "before": 3}),
    )
    assert policy.winner.variant == good.variant
    assert policy.verdict.kind == "tie"
    assert reason in policy.verdict.reason


def test_of_two_configs_of_the_variant_before_the_same_one_stays() -> None:
    one = choice_of("a", 1.000e-3, config=(("block", 64),))
    two = choice_of("a", 1.001e-3, config=(("block", 128),))
    previous = build_policy(SUBJECT, [two])
    policy = build_policy(SUBJECT, [one, two], previous=previous)
    assert policy.winner.candidate == two.candidate
    assert policy.verdict.kind == "single"


def test_without_a_race_only_separate_intervals_are_clear() -> None:
    a, close, far = choice_of("a", 1e-3), choice_of("b", 1.02e-3), choice_of("c", 2e-3)
    assert build_policy(SUBJECT, [a, close]).verdict.kind == "undecided"
    assert build_policy(SUBJECT, [a, far]).verdict.kind == "clear"


def test_a_faster_candidate_left_out_of_the_race_keeps_the_verdict_open() -> None:
    a, b, left_out = choice_of("a"), choice_of("b"), choice_of("c", 1e-6)
    policy = build_policy(SUBJECT, [a, b, left_out], race=race_of(a=(a, 1.0), b=(b, 2.0)))
    assert policy.winner.variant == "a"
    assert policy.verdict.kind == "undecided"
    assert "c was measured faster" in policy.verdict.reason


def test_every_variant_leaves_its_best_as_evidence() -> None:
    results = [
        choice_of("a", 1e-3),
        choice_of("slow", 9e-3, config=(("block", 1),)),
        choice_of("slow", 5e-3, config=(("block", 2),)),
        choice_of("slow", 7e-3, config=(("block", 3),)),
    ]
    policy = build_policy(SUBJECT, results)
    assert [(c.variant, c.config) for c in policy.variants] == [
        ("a", (("block", 64),)),
        ("slow", (("block", 2),)),
    ]
    assert [c.variant for c in policy.ranking] == ["a"]


def test_the_ranking_answers_constrained_requests() -> None:
    fast = choice_of("fast", 1e-3, deterministic=False, workspace_bytes=100)
    lean = choice_of("lean", 3e-3, deterministic=False, workspace_bytes=0)
    sure = choice_of("sure", 2e-3, workspace_bytes=200)
    exact = choice_of("exact", 9e-3, error=1e-9, deterministic=False, workspace_bytes=300)
    useless = choice_of("useless", 8e-3, deterministic=False, workspace_bytes=300)
    policy = build_policy(SUBJECT, [useless, exact, sure, lean, fast])
    assert [c.variant for c in policy.ranking] == ["fast", "sure", "lean", "exact"]


def test_a_winner_by_tie_break_stands_first_and_once() -> None:
    a, b = choice_of("a", 1e-3), choice_of("b", 1.001e-3)
    previous = build_policy(SUBJECT, [b])
    policy = build_policy(SUBJECT, [a, b], previous=previous)
    assert [c.variant for c in policy.ranking] == ["b", "a"]


def test_no_results_is_an_error() -> None:
    with pytest.raises(PolicyError, match="No candidate was measured for attention"):
        build_policy(SUBJECT, [])


def test_a_race_must_fit_the_results() -> None:
    a, b = choice_of("a"), choice_of("b")
    with pytest.raises(PolicyError, match="b, which has no result"):
        build_policy(SUBJECT, [a], race=race_of(a=(a, 1.0), b=(b, 1.0)))
    with pytest.raises(PolicyError, match="same number of rounds"):
        Race({a.candidate: (1.0,), b.candidate: (1.0, 1.0)})
    with pytest.raises(PolicyError, match="not above zero"):
        Race({a.candidate: (0.0,)})
    with pytest.raises(PolicyError, match="without a time"):
        Race({a.candidate: (), b.candidate: ()})


def test_too_few_rounds_leave_the_ratio_open() -> None:
    a, b = choice_of("a"), choice_of("b")
    five = Race({a.candidate: (1.0,) * 5, b.candidate: (2.0,) * 5})
    assert five.ratio(b.candidate, a.candidate) == (2.0, 0.0, math.inf)
    six = Race({a.candidate: (1.0,) * 6, b.candidate: (2.0,) * 6})
    assert six.ratio(b.candidate, a.candidate) == (2.0, 2.0, 2.0)


costs = st.tuples(
    st.integers(1, 4).map(lambda n: n * 1e-3), st.integers(0, 3), st.integers(0, 3), st.booleans()
)


@given(st.lists(costs, min_size=1, max_size=25))
def test_the_ranking_is_the_non_dominated_set(points: list[tuple[float, int, int, bool]]) -> None:
    choices = [
        Choice(
            variant=f"v{number}",
            config=(),
            seconds=seconds,
            low=seconds,
            high=seconds,
            workspace_bytes=workspace,
            error=float(error),
            deterministic=not atomic,
            fingerprint="f",
            samples=9,
        )
        for number, (seconds, workspace, error, atomic) in enumerate(points)
    ]
    kept = {points[int(choice.variant[1:])] for choice in non_dominated(choices)}

    def dominated(point: tuple[float, int, int, bool]) -> bool:
        return any(
            other != point and all(x <= y for x, y in zip(other, point, strict=True))
            for other in points
        )

    assert kept == {point for point in points if not dominated(point)}
    assert len(non_dominated(choices)) == len(kept)


@given(st.lists(costs, min_size=1, max_size=12), st.randoms())
def test_the_policy_does_not_depend_on_the_order_of_results(
    points: list[tuple[float, int, int, bool]], rng: random.Random
) -> None:
    choices = [
        Choice(f"v{n}", (), s, s, s, w, float(e), not a, "f", 9)
        for n, (s, w, e, a) in enumerate(points)
    ]
    policy = build_policy(SUBJECT, choices)
    rng.shuffle(choices)
    again = build_policy(SUBJECT, choices)
    assert again.winner == policy.winner
    assert Policy.from_json(policy.to_json()) == policy
