"""Which choice answers a request, and what is said about the ones passed over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from policy_values import (
    DEVICE,
    TOOLCHAIN,
    answer,
    choice_of,
    missing,
    policy_of,
    problem_of,
    request_of,
)

from autotune_policies import (
    Policy,
    Snapshot,
    closest,
    grade,
    nearest,
)
from autotune_policies.request import Config, Fingerprints
from autotune_tuning_db import PinRow, ProblemKey


@pytest.fixture
def exact() -> Policy:
    return policy_of(problem_of(512), {"fused": 1e-3, "separate": 2e-3, "plain": 9e-3})


def test_an_empty_snapshot_has_no_answer() -> None:
    found = answer(Snapshot())
    assert (found.origin, found.choice, found.notes) == (None, None, ())


def test_the_exact_policy_answers_with_its_winner(exact: Policy) -> None:
    found = answer(Snapshot((exact,)))
    assert (found.origin, found.variant, found.policy) == ("tuned", "fused", exact)
    assert found.config == (("block", 512),)
    assert found.grade.level == "fresh"
    assert found.notes == ()


@pytest.mark.parametrize(
    ("size", "beyond"), [(512, 1.0), (256, 1.0), (300, 1.0), (1024, 1.0), (4096, 4.0), (64, 4.0)]
)
def test_how_far_a_size_lies_beyond_the_tuned_ones(exact: Policy, size: int, beyond: float) -> None:
    tuned = (policy_of(problem_of(n), {"fused": 1e-3}) for n in (256, 1024))
    found = answer(Snapshot((exact, *tuned)), request_of(problem_of(size)))
    assert found.beyond == pytest.approx(beyond)


def test_what_was_measured_in_another_mode_comes_last(exact: Policy) -> None:
    asked = replace(request_of(), mode="graph")
    found = answer(Snapshot((exact,)), asked)
    assert (found.origin, found.variant) == ("interpolated", "fused")
    assert found.grade.changed == ("mode: cold -> graph",)
    assert not found.applies("graph")
    assert found.applies("cold")
    neighbour = policy_of(problem_of(256), {"neighbour": 1e-3}, mode="graph")
    found = answer(Snapshot((exact, neighbour)), asked)
    assert (found.origin, found.variant) == ("interpolated", "neighbour")
    assert found.applies("graph")
    assert not answer(Snapshot(), asked).applies("graph")


def test_the_order_is_pin_exact_neighbours_family(exact: Policy) -> None:
    pin = PinRow("attention", None, DEVICE, "plain")
    tuned = [exact]
    neighbours = [policy_of(problem_of(n), {"neighbour": 1e-3}) for n in (256, 1024)]
    family = [policy_of(problem_of(512), {"relative": 1e-3}, device="cpu:other")]
    stranger = [policy_of(problem_of(512), {"x": 1e-3}, device="gpu", family="h200")]
    layers: list[Any] = [tuned, neighbours, family]
    found = answer(Snapshot((*tuned, *neighbours, *family, *stranger), (pin,)))
    assert (found.origin, found.variant) == ("pinned", "plain")
    for origin, variant in (
        ("tuned", "fused"),
        ("interpolated", "neighbour"),
        ("family", "relative"),
    ):
        found = answer(Snapshot(tuple(policy for layer in layers for policy in layer)))
        assert (found.origin, found.variant) == (origin, variant)
        layers.pop(0)
    assert answer(Snapshot(tuple(stranger))).origin is None


def test_dev2_another_device_is_a_miss_even_in_the_same_box() -> None:
    other = policy_of(problem_of(512), device="gpu:0", family="sm90")
    request = replace(request_of(), device="gpu:1", family="sm80")
    assert answer(Snapshot((other,)), request).origin is None


def test_devices_without_a_family_are_not_relatives() -> None:
    other = policy_of(problem_of(512), device="cpu:other", family="")
    assert answer(Snapshot((other,)), replace(request_of(), family="")).origin is None


def test_dsp2_dsp3_another_dtype_or_flag_is_a_miss(exact: Policy) -> None:
    snapshot = Snapshot((exact,))
    for wanted in (problem_of(512, dtype="float64"), problem_of(512, causal=True)):
        assert answer(snapshot, request_of(wanted)).origin is None


def test_dsp4_every_size_between_is_answered_without_tuning() -> None:
    snapshot = Snapshot(tuple(policy_of(problem_of(n)) for n in (1024, 2048)))
    origins = {answer(snapshot, request_of(problem_of(n))).origin for n in range(1000, 1200)}
    assert origins == {"tuned", "interpolated"}


def test_dsp6_a_variant_that_is_gone_is_passed_over_and_named(exact: Policy) -> None:
    found = answer(Snapshot((exact,)), fingerprints=missing("fused"))
    assert (found.origin, found.variant) == ("tuned", "separate")
    assert found.notes == ("passed over fused: it is not registered any more",)


def test_db5_an_edited_source_is_never_served_from_old_times(exact: Policy) -> None:
    found = answer(Snapshot((exact,)), fingerprints=edited("fused"))
    assert found.variant == "separate"
    assert found.notes == ("passed over fused: its source changed since it was measured",)
    assert answer(Snapshot((exact,)), fingerprints=lambda _: "new").origin is None


def edited(*variants: str) -> Fingerprints:
    """As if the sources of these had changed."""
    return lambda variant: "new" if variant in variants else f"source of {variant}"


def test_db5_what_is_left_of_a_policy_does_not_serve_if_it_was_far_slower(exact: Policy) -> None:
    """As after an upgrade: the fast kernels are new, and only the slowest were left as they are."""
    found = answer(Snapshot((exact,)), fingerprints=edited("fused", "separate"))
    assert found.origin is None
    assert found.notes[-1] == (
        "passed over plain: fused, whose source changed, was 9 times as fast"
    )
    at_all_sizes = Snapshot((exact, policy_of(problem_of(1024), {"fused": 1e-3, "plain": 9e-3})))
    found = answer(at_all_sizes, request_of(problem_of(700)), fingerprints=edited("fused"))
    assert (found.origin, found.variant) == ("interpolated", "separate")
    pinned = Snapshot((exact,), (PinRow("attention", None, DEVICE, "plain"),))
    found = answer(pinned, fingerprints=edited("fused", "separate"))
    assert (found.origin, found.variant) == ("pinned", "plain")
    assert answer(Snapshot((exact,)), fingerprints=missing("fused", "separate")).variant == "plain"


def test_db5_what_could_not_have_answered_anyway_outdoes_nobody() -> None:
    fast = choice_of("atomic", 1e-3, deterministic=False, workspace_bytes=1 << 20)
    slow = choice_of("quiet", 3e-3)
    snapshot = Snapshot((policy_of(problem_of(512), ranking=(fast, slow), variants=(fast, slow)),))
    changed = edited("atomic")
    for wish in ({"deterministic": True}, {"max_workspace": 0}):
        found = answer(snapshot, request_of(**wish), fingerprints=changed)
        assert (found.origin, found.variant) == ("tuned", "quiet")
    assert answer(snapshot, fingerprints=changed).origin is None
    refused = {"atomic": "needs another device"}
    found = answer(snapshot, fingerprints=changed, admits=lambda name, _: refused.get(name))
    assert found.variant == "quiet"


def test_db4_a_changed_toolchain_is_served_and_named(exact: Policy) -> None:
    found = answer(Snapshot((exact,)), toolchain={**TOOLCHAIN, "driver": "560.2", "new": "1"})
    assert (found.origin, found.variant) == ("tuned", "fused")
    assert found.grade.level == "revalidate"
    assert found.grade.changed == ("driver: 550.1 -> 560.2",)
    assert found.notes == ("to be measured again, changed: driver: 550.1 -> 560.2",)


def test_a_family_answer_is_to_be_measured_again() -> None:
    relative = policy_of(problem_of(512), device="cpu:other")
    found = answer(Snapshot((relative,)))
    assert found.origin == "family"
    assert found.grade.changed == ("device: cpu:other -> cpu:abc",)


def test_the_family_member_with_the_nearest_problem_answers() -> None:
    far = policy_of(problem_of(8), {"far": 1e-3}, device="cpu:1")
    near = policy_of(problem_of(600), {"near": 1e-3}, device="cpu:2")
    assert answer(Snapshot((far, near))).variant == "near"


def test_grade_tells_what_changed(exact: Policy) -> None:
    def level(fingerprint: str | None, **versions: str) -> Any:
        return grade(
            exact,
            exact.winner,
            fingerprints=lambda _: fingerprint,
            toolchain=TOOLCHAIN | versions,
        )

    assert level("source of fused").level == "fresh"
    assert level("source of fused", numba="0.62").changed == ("numba: 0.61 -> 0.62",)
    assert level("edited").level == "stale"
    assert "source of fused" in level("edited").changed[0]
    assert level(None).changed == ("variant fused: not registered any more",)


@pytest.mark.parametrize(
    ("constraints", "variant"),
    [
        ({}, "fast"),
        ({"deterministic": True}, "sure"),
        ({"max_workspace": 50}, "lean"),
        ({"max_error": 1e-7}, "exact"),
        ({"deterministic": True, "max_workspace": 250}, "sure"),
    ],
)
def test_constraints_are_answered_from_the_ranking(
    constraints: dict[str, Any], variant: str
) -> None:
    choices = (
        choice_of("fast", 1e-3, deterministic=False, workspace_bytes=100),
        choice_of("sure", 2e-3, workspace_bytes=200),
        choice_of("lean", 3e-3, deterministic=False),
        choice_of("exact", 9e-3, error=1e-9, deterministic=False, workspace_bytes=300),
    )
    policy = policy_of(problem_of(512), ranking=choices, variants=choices)
    assert answer(Snapshot((policy,)), request_of(**constraints)).variant == variant


def test_a_constraint_nothing_satisfies_is_refused_with_the_closest() -> None:
    choices = (
        choice_of("big", 1e-3, workspace_bytes=4000),
        choice_of("huge", 2e-3, workspace_bytes=90000),
        choice_of("close", 3e-3, workspace_bytes=1100),
    )
    policy = policy_of(problem_of(512), ranking=choices, variants=choices)
    found = answer(Snapshot((policy,)), request_of(max_workspace=1000))
    assert found.origin is None
    assert [item.variant for item in closest(found, 2)] == ["close", "big"]
    assert "1100 bytes is above 1000" in closest(found)[0].reason


def test_the_workspace_at_another_size_is_asked_of_the_declaration() -> None:
    choices = (choice_of("grows", 1e-3, workspace_bytes=10), choice_of("flat", 2e-3))
    policies = tuple(
        policy_of(problem_of(n), ranking=choices, variants=choices) for n in (512, 1024)
    )

    def admits(variant: str, config: Config) -> str | None:
        return "its workspace of 5000 bytes is above 1000" if variant == "grows" else None

    found = answer(
        Snapshot(policies), request_of(problem_of(700), max_workspace=1000), admits=admits
    )
    assert (found.origin, found.variant) == ("interpolated", "flat")
    only = answer(
        Snapshot(policies),
        request_of(problem_of(700), max_workspace=1000),
        admits=lambda *_: "its workspace of 5000 bytes is above 1000",
    )
    assert only.origin is None
    assert {item.variant for item in closest(only)} == {"grows", "flat"}


def test_a_config_that_does_not_fit_falls_through_to_the_next_size() -> None:
    policies = tuple(policy_of(problem_of(n), {"a": 1e-6 * n}) for n in (512, 1024, 4096))

    def admits(variant: str, config: Config) -> str | None:
        return "block is too large" if dict(config)["block"] > 600 else None  # type: ignore[operator]

    found = answer(Snapshot(policies), request_of(problem_of(1500)), admits=admits)
    assert found.config == (("block", 512),)
    assert found.policy is policies[0]


def test_a_miss_names_the_nearest_entries_and_what_differs(exact: Policy) -> None:
    others = (
        exact,
        policy_of(problem_of(4096)),
        policy_of(problem_of(512, dtype="float64")),
        policy_of(ProblemKey("decode", (("N", 512),), "float32")),
    )
    near = nearest(Snapshot(others), request_of(problem_of(600)))
    assert [item.differs for item in near] == [
        ("dim N: 512 -> 600",),
        ("dim N: 4096 -> 600",),
        ("dim N: 512 -> 600", "dtype: float64 -> float32"),
    ]
    elsewhere = policy_of(problem_of(600), device="cuda-sm90")
    assert nearest(Snapshot((elsewhere,)), request_of(problem_of(600))) == ()


def test_an_error_is_promised_only_where_it_was_measured() -> None:
    """Errors grow with the size: what a neighbour was off by is no promise."""
    snapshot = Snapshot(tuple(policy_of(problem_of(n)) for n in (256, 1024)))
    assert answer(snapshot, request_of(problem_of(512))).origin == "interpolated"
    refused = answer(snapshot, request_of(problem_of(512), max_error=1.0))
    assert refused.origin is None
    assert {item.reason for item in closest(refused)} == {"its error was not measured at this size"}
    assert answer(snapshot, request_of(problem_of(1024), max_error=1.0)).origin == "tuned"
    assert answer(snapshot, request_of(problem_of(1024), max_error=1e-9)).origin is None
