"""What a stored trial says of its candidate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from autotune.campaign.evidence import (
    Evidence,
    candidate_of,
    choice_of,
    gather,
    rank_of,
    seconds_of,
)
from autotune.in_turn import told_in_turn
from autotune.model import Operation, Variant
from autotune.registry import registry
from autotune.search import Space
from autotune_tuning_db import ProblemKey, TrialRow

TRIAL = TrialRow(
    campaign=1,
    problem=ProblemKey("toy", (("N", 4096),), "float32"),
    device="cpu-a",
    mode="hot",
    stage="search",
    variant="plain",
    fingerprint="one",
    config={},
    status="ok",
    started="2026-11-30T00:00:00+00:00",
    samples=(2e-3, 3e-3, 4e-3),
    median=3e-3,
    low=2.5e-3,
    high=3.5e-3,
    toolchain={},
    circumstances={},
)
BUSY = {"foreign_load": 0.4}


def around(seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "low": seconds - 1e-4, "high": seconds + 1e-4}


def paced(seconds: float) -> dict[str, Any]:
    return {"paced": {**around(seconds), "slowdown": 3e-3 / seconds}}


def beside(seconds: float, **more: float) -> dict[str, Any]:
    return {"beside_anchor": {**around(seconds), "rounds": 6, **more}}


PACED, BESIDE = paced(2e-3), beside(1e-3)


@pytest.fixture
def plain(operation: Operation) -> Variant:
    return registry.variant(operation, "plain")


@pytest.mark.parametrize(
    ("status", "circumstances", "expected"),
    [
        ("ok", {}, (3e-3, 2.5e-3, 3.5e-3)),
        ("disturbed", {}, (3e-3, 2e-3, 3.5e-3)),
        ("ok", PACED, (2e-3, 1.9e-3, 2.1e-3)),
        ("disturbed", PACED, (2e-3, 1.9e-3, 2.1e-3)),
        ("disturbed", BESIDE, (2e-3, 2e-3, 3.5e-3)),
        ("disturbed", beside(2.2e-3), (2.2e-3, 2.1e-3, 2.3e-3)),
        ("disturbed", beside(1e-3, fastest=0.95e-3), (1e-3, 0.95e-3, 1.1e-3)),
        ("disturbed", beside(1e-3, alike=True), (1e-3, 0.9e-3, 1.1e-3)),
        ("disturbed", beside(0.5e-3, alike=True), (2e-3, 2e-3, 3.5e-3)),
        ("ok", paced(1.2e-3), (1.2e-3, 1.1e-3, 1.3e-3)),
        ("ok", paced(1.2e-3) | BUSY, (2e-3, 2e-3, 3.5e-3)),
        ("ok", paced(0.5e-3), (3e-3, 2.5e-3, 3.5e-3)),
    ],
)
def test_what_was_timed_in_turn_with_another_counts_more_than_times(
    plain: Variant, status: str, circumstances: dict[str, Any], expected: tuple[float, ...]
) -> None:
    row = replace(TRIAL, status=status, circumstances=circumstances)
    choice = choice_of(row, plain)
    assert (choice.seconds, choice.low, choice.high) == pytest.approx(expected)
    assert rank_of(row) == choice.seconds


@pytest.mark.parametrize("seconds", [0.03e-3, 0.5e-3, 1.2e-3, 2.5e-3])
@pytest.mark.parametrize("told", [paced, beside])
def test_no_time_lies_below_the_fastest_sample(
    plain: Variant, told: Callable[[float], dict[str, Any]], seconds: float
) -> None:
    """The other candidate was slowed, and this one was not: such ratios may say anything."""
    row = replace(TRIAL, status="disturbed", circumstances=told(seconds))
    assert (seconds_of(row) or 0.0) >= min(row.samples)
    evidence = Evidence({"plain": plain}, {})
    evidence.add(row)
    (seen,) = evidence.seen().values()
    assert (seen.fastest, seen.high) == (2e-3, 3.5e-3)


def test_a_ratio_that_no_neighbour_can_explain_is_not_believed() -> None:
    assert told_in_turn(replace(TRIAL, circumstances=paced(0.5e-3))) is None
    assert told_in_turn(replace(TRIAL, circumstances=paced(0.8e-3))) is not None


def test_a_candidate_that_failed_has_no_time() -> None:
    assert seconds_of(replace(TRIAL, status="wrong", circumstances=PACED)) is None


def test_the_reference_is_the_first_that_will_do_or_one_much_faster(plain: Variant) -> None:
    evidence = Evidence({"plain": plain}, {})

    def add(tile: int, seconds: float, **changes: Any) -> int | None:
        evidence.add(replace(TRIAL, config={"tile": tile}, median=seconds, **changes))
        found = evidence.reference()
        return None if found is None else int(dict(found.config)["tile"])

    assert evidence.reference() is None
    assert add(1, 1.0) is None  # too long
    assert add(2, 1e-3, workspace_bytes=1 << 30) is None
    assert add(3, 1e-3, status="disturbed") is None
    assert add(4, 5e-3) == 4
    assert add(5, 4.5e-3) == 4
    assert add(6, 2e-3) == 6
    assert add(7, 3e-3) == 6
    assert add(8, 1e-3, toolchain={"numpy": "0"}) == 6


class Everything:
    """A space that admits whatever was tried."""

    def __contains__(self, candidate: object) -> bool:
        return True


def test_variants_of_which_only_disturbed_times_are_left_are_timed_again_once(
    plain: Variant,
) -> None:
    disturbed = {"status": "disturbed", "reason": "other processes used 40% of the CPUs"}
    rows = [
        replace(TRIAL, variant="quiet", config={"tile": 1}, **disturbed),
        replace(TRIAL, variant="quiet", config={"tile": 2}),
        replace(TRIAL, variant="busy", config={"tile": 1}, **disturbed),
        replace(TRIAL, variant="busy", config={"tile": 2}, median=2e-3, **disturbed),
        replace(TRIAL, variant="lost", status="failed", reason="RuntimeError: no"),
    ]
    variants = dict.fromkeys(("quiet", "busy", "lost"), plain)
    prints = dict.fromkeys(variants, "one")
    evidence = gather(rows, cast(Space, Everything()), variants, prints, {})
    assert evidence.outdated() == [candidate_of(rows[3])], "the fastest of the doubtful variant"
    evidence.add(replace(rows[3], median=2.5e-3))
    assert evidence.outdated() == [], "disturbed again, but in this campaign"
    assert gather(rows[:2], cast(Space, Everything()), variants, prints, {}).outdated() == []
