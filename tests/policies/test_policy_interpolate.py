"""Untuned sizes: the time curves, their crossover, and which neighbours count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_values import policy_of, problem_of

from autotune_policies import Policy
from autotune_policies.interpolate import Estimate, estimates, neighbours
from autotune_tuning_db import ProblemKey

AXES = (("N",), ("B",))


def ask(policies: list[Policy], wanted: ProblemKey) -> list[Estimate]:
    found = neighbours(policies, wanted, AXES, mode="cold")
    assert found is not None
    return estimates(found, wanted)


def power_law(at_1024: float, exponent: float, n: int) -> float:
    return at_1024 * (n / 1024) ** exponent


@pytest.mark.parametrize("n", [600, 700, 1000, 1500, 2000, 3000])
def test_a_crossover_between_tuned_sizes_is_respected(n: int) -> None:
    laws = {"small": (1e-3, 2.0), "large": (1.5e-3, 1.4)}
    policies = [
        policy_of(problem_of(size), {name: power_law(*law, size) for name, law in laws.items()})
        for size in (4096, 512)
    ]
    first, second = ask(policies, problem_of(n))
    crossover = 1024 * 1.5 ** (1 / 0.6)
    assert first.variant == ("small" if n < crossover else "large")
    for estimate in (first, second):
        assert estimate.complete
        assert estimate.seconds == pytest.approx(power_law(*laws[estimate.variant], n))


@given(
    st.lists(st.tuples(st.floats(1e-6, 1e-1), st.floats(0.1, 3.0)), min_size=1, max_size=5),
    st.integers(128, 32768),
)
def test_power_laws_come_back_exactly_and_in_order(laws: list[tuple[float, float]], n: int) -> None:
    named = {f"v{number}": law for number, law in enumerate(laws)}
    policies = [
        policy_of(problem_of(size), {name: power_law(*law, size) for name, law in named.items()})
        for size in (256, 1024, 16384)
    ]
    answers = ask(policies, problem_of(n))
    for answer in answers:
        assert answer.seconds == pytest.approx(power_law(*named[answer.variant], n), rel=1e-6)
    assert [answer.seconds for answer in answers] == sorted(answer.seconds for answer in answers)


def test_the_config_comes_from_the_nearest_size_first() -> None:
    policies = [policy_of(problem_of(size), {"a": 1e-6 * size}) for size in (512, 1024, 4096)]
    (estimate,) = ask(policies, problem_of(1500))
    assert [dict(choice.config)["block"] for choice in estimate.choices] == [1024, 4096, 512]


def test_extrapolation_stops_at_its_factor() -> None:
    laws = {"a": (1e-3, 2.0), "b": (1.1e-3, 1.9)}
    policies = [
        policy_of(problem_of(size), {name: power_law(*law, size) for name, law in laws.items()})
        for size in (512, 1024)
    ]
    at_4096, at_a_million = (
        {e.variant: e.seconds for e in ask(policies, problem_of(n))} for n in (4096, 2**20)
    )
    assert at_4096["b"] == pytest.approx(power_law(*laws["b"], 4096))
    assert at_4096["b"] < at_4096["a"]
    assert at_a_million == pytest.approx(at_4096)


@pytest.mark.parametrize("n", [1, 64, 128])
def test_a_steep_curve_does_not_win_far_below_what_was_tuned(n: int) -> None:
    """The forward of attention on an H200: launches alone take longer than the lines would say."""
    policies = [
        policy_of(problem_of(512), {"fast": 18.0e-6, "slow": 51.1e-6}),
        policy_of(problem_of(2048), {"fast": 69.4e-6, "slow": 667e-6}),
    ]
    assert [each.variant for each in ask(policies, problem_of(n))] == ["fast", "slow"]


def test_one_tuned_size_answers_for_all() -> None:
    policies = [policy_of(problem_of(1024), {"a": 2e-3, "b": 1e-3})]
    for n in (1, 1000, 10**6):
        assert [estimate.variant for estimate in ask(policies, problem_of(n))] == ["b", "a"]


def test_a_variant_measured_at_small_sizes_only_does_not_win_the_large_ones() -> None:
    policies = [
        policy_of(problem_of(512), {"tiny": 1e-5, "a": 2e-5}),
        policy_of(problem_of(1024), {"a": 8e-5}),
        policy_of(problem_of(4096), {"a": 1.3e-3}),
    ]
    answers = ask(policies, problem_of(3000))
    assert [(answer.variant, answer.complete) for answer in answers] == [
        ("a", True),
        ("tiny", False),
    ]
    assert answers[1].seconds > 1e-4
    assert ask(policies, problem_of(512))[0].variant == "tiny"


def test_a_variant_measured_at_the_largest_size_only_does_not_win_beyond_it() -> None:
    policies = [
        policy_of(problem_of(512), {"a": 2e-5}),
        policy_of(problem_of(4096), {"a": 1.3e-3, "late": 1.4e-3}),
    ]
    assert ask(policies, problem_of(16384))[0].variant == "a"


def test_a_gap_in_a_curve_is_bridged() -> None:
    policies = [
        policy_of(problem_of(256), {"a": 1e-3, "b": 2e-3}),
        policy_of(problem_of(1024), {"a": 4e-3}),
        policy_of(problem_of(4096), {"a": 16e-3, "b": 8e-3}),
    ]
    b = next(answer for answer in ask(policies, problem_of(1024)) if answer.variant == "b")
    assert b.seconds == pytest.approx(4e-3)
    assert not b.complete


@pytest.mark.parametrize(
    "other",
    [
        problem_of(512, dtype="float64"),
        problem_of(512, causal=True),
        ProblemKey("attention", (("B", 2), ("N", 512)), "float32", (), "packed"),
        ProblemKey("decode", (("B", 2), ("N", 512)), "float32", (("causal", False),)),
        ProblemKey("attention", (("B", 2), ("N", 512)), "float32", (("causal", False),), "strided"),
        ProblemKey("attention", (("B", 2), ("N", 512), ("D", 64)), "float32", (("causal", False),)),
    ],
)
def test_only_problems_alike_are_neighbours(other: ProblemKey) -> None:
    assert neighbours([policy_of(other)], problem_of(700), AXES, mode="cold") is None
    hot = policy_of(problem_of(512), mode="hot")
    assert neighbours([hot], problem_of(700), AXES, mode="cold") is None


def test_dims_outside_the_axes_must_be_equal() -> None:
    with_head = [ProblemKey("op", (("N", 512), ("D", size)), "float32") for size in (64, 128)]
    found = neighbours(
        [policy_of(key) for key in with_head],
        ProblemKey("op", (("N", 700), ("D", 64)), "float32"),
        AXES[:1],
        mode="cold",
    )
    assert found is not None
    assert [policy.problem.dim("D") for policy in found.policies] == [64]


def test_the_nearest_group_answers_and_groups_do_not_mix() -> None:
    policies = [
        policy_of(problem_of(n, b=b), {winner: 1e-3, "z": 2e-3})
        for n in (512, 2048)
        for b, winner in ((1, "one"), (16, "sixteen"))
    ]
    assert ask(policies, problem_of(1000, b=2))[0].variant == "one"
    assert ask(policies, problem_of(1000, b=12))[0].variant == "sixteen"
    found = neighbours(policies, problem_of(1000, b=12), AXES, mode="cold")
    assert found is not None
    assert [policy.problem.dim("B") for policy in found.policies] == [16, 16]
    assert found.distance == pytest.approx(0.415, abs=0.001)


def test_a_group_with_the_size_in_its_range_beats_one_far_outside() -> None:
    policies = [
        policy_of(problem_of(64, b=4), {"far": 1e-3}),
        policy_of(problem_of(4096, b=2), {"near": 1e-3}),
        policy_of(problem_of(16384, b=2), {"near": 1e-3}),
    ]
    assert ask(policies, problem_of(8192, b=4))[0].variant == "near"


def test_proportions_on_a_size_axis_of_two_dims_separate_groups() -> None:
    axes = (("Nq", "Nk"),)

    def key(nq: int, nk: int) -> ProblemKey:
        return ProblemKey("attention", (("Nq", nq), ("Nk", nk)), "float32")

    policies = [
        policy_of_pair(key(512, 512), "square"),
        policy_of_pair(key(4096, 4096), "square"),
        policy_of_pair(key(1, 4096), "flat"),
    ]
    for wanted, winner in ((key(700, 700), "square"), (key(1, 8192), "flat")):
        found = neighbours(policies, wanted, axes, mode="cold")
        assert found is not None
        assert estimates(found, wanted)[0].variant == winner


def policy_of_pair(key: ProblemKey, winner: str) -> Policy:
    one = policy_of(problem_of(512), {winner: 1e-3})
    return Policy(
        key, one.device, one.family, one.mode, one.ranking, one.variants, one.verdict, {}, "now"
    )


def test_empty_dims_and_no_axes_are_no_trouble() -> None:
    policies = [policy_of(problem_of(size)) for size in (0, 1, 2)]
    assert ask(policies, problem_of(0))[0].variant == "fused"
    found = neighbours(policies[:1], problem_of(0), (), mode="cold")
    assert found is not None
    assert estimates(found, problem_of(0))[0].variant == "fused"


def test_where_no_size_is_declared_it_is_what_the_tuned_problems_differ_in() -> None:
    def key(m: int, n: int) -> ProblemKey:
        return ProblemKey("op", (("M", m), ("N", n)), "float32")

    along_n = [policy_of_pair(key(512, n), winner) for n, winner in ((64, "low"), (4096, "high"))]
    along_m = [policy_of_pair(key(m, 8), winner) for m, winner in ((64, "low"), (4096, "high"))]
    for wanted, size in ((key(512, 128), "N"), (key(512, 2048), "N"), (key(128, 8), "M")):
        found = neighbours([*along_n, *along_m], wanted, ((), ("M",), ("N",)), mode="cold")
        assert found is not None
        assert (found.axes[0], found.distance, len(found.policies)) == ((size,), 0.0, 2)
    assert neighbours(along_n, key(512, 128), ((),), mode="cold") is None
