"""Pins: what the user chose goes first, as far as it can be followed."""

from __future__ import annotations

from typing import Any

import pytest
from policy_values import DEVICE, answer, choice_of, missing, policy_of, problem_of, request_of

from autotune_policies import Policy, Snapshot
from autotune_tuning_db import PinRow


@pytest.fixture
def exact() -> Policy:
    return policy_of(problem_of(512), {"fused": 1e-3, "separate": 2e-3, "plain": 9e-3})


def test_a_pin_for_the_problem_beats_one_for_the_operation(exact: Policy) -> None:
    pins = (
        PinRow("attention", None, DEVICE, "separate"),
        PinRow("attention", exact.problem, DEVICE, "plain", {"block": 7}),
        PinRow("attention", None, "cpu:other", "fused"),
    )
    found = answer(Snapshot((exact,), pins))
    assert (found.origin, found.variant, found.config) == ("pinned", "plain", (("block", 7),))
    assert found.choice is None
    other = answer(Snapshot((exact,), pins), request_of(problem_of(9999)))
    assert (other.origin, other.variant) == ("pinned", "separate")


def test_a_pin_without_config_takes_the_best_one_measured(exact: Policy) -> None:
    found = answer(Snapshot((exact,), (PinRow("attention", None, DEVICE, "plain"),)))
    assert found.config == (("block", 512),)
    assert found.choice is not None
    assert found.choice.seconds == 9e-3


def test_a_pin_of_something_unmeasured_leaves_the_config_open() -> None:
    found = answer(Snapshot((), (PinRow("attention", None, DEVICE, "own"),)))
    assert (found.origin, found.variant, found.config) == ("pinned", "own", None)


def test_a_pin_outlives_an_edited_source(exact: Policy) -> None:
    pin = PinRow("attention", None, DEVICE, "plain")
    found = answer(Snapshot((exact,), (pin,)), fingerprints=lambda _: "edited")
    assert (found.origin, found.variant, found.choice) == ("pinned", "plain", None)


@pytest.mark.parametrize(
    ("how", "constraints", "note"),
    [
        ({"fingerprints": missing("own")}, {}, "pinned, but it is not registered any more"),
        ({}, {"max_error": 1.0}, "pinned, but its error was not measured"),
        (
            {"admits": lambda variant, _: "it needs a GPU" if variant == "own" else None},
            {},
            "pinned, but it needs a GPU",
        ),
    ],
)
def test_a_pin_that_cannot_be_followed_is_said_so(
    exact: Policy, how: dict[str, Any], constraints: dict[str, Any], note: str
) -> None:
    snapshot = Snapshot((exact,), (PinRow("attention", None, DEVICE, "own"),))
    found = answer(snapshot, request_of(**constraints), **how)
    assert (found.origin, found.variant) == ("tuned", "fused")
    assert note in found.notes[0]


def test_a_pin_does_not_override_a_constraint() -> None:
    choices = (choice_of("fast", 1e-3, deterministic=False), choice_of("sure", 2e-3))
    policy = policy_of(problem_of(512), ranking=choices, variants=choices)
    snapshot = Snapshot((policy,), (PinRow("attention", None, DEVICE, "fast"),))
    assert answer(snapshot).origin == "pinned"
    found = answer(snapshot, request_of(deterministic=True))
    assert (found.origin, found.variant) == ("tuned", "sure")
