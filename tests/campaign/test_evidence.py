"""What a stored trial says of its candidate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from autotune.campaign.evidence import Evidence, candidate_of, choice_of, gather, seconds_of
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
PACED = {"paced": {"seconds": 2e-3, "low": 1.9e-3, "high": 2.1e-3, "slowdown": 1.5}}
BESIDE = {"beside_anchor": {"seconds": 1e-3, "low": 0.9e-3, "high": 1.1e-3, "rounds": 6}}


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
        ("disturbed", BESIDE, (1e-3, 0.9e-3, 1.1e-3)),
    ],
)
def test_what_was_timed_in_turn_with_another_counts_more_than_times(
    plain: Variant, status: str, circumstances: dict[str, Any], expected: tuple[float, ...]
) -> None:
    row = replace(TRIAL, status=status, circumstances=circumstances)
    choice = choice_of(row, plain)
    assert (choice.seconds, choice.low, choice.high) == expected
    assert seconds_of(row) == expected[0]


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
