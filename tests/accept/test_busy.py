"""What is timed in turn while other programs use the machine: quarters, doubts, quiet moments."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from accept_bench import FakeWorker, candidate, fake_trials, problem

from autotune.accept import Acceptance, Check, Limits
from autotune.accept.performance import check_performance
from autotune.report.acceptance import acceptance_blocks, acceptance_document, junit
from autotune.report.blocks import to_text

OTHERS = "disturbed: other processes used 70% of the CPUs"


def beside_thrice(worker: FakeWorker) -> Check:
    with fake_trials(worker) as trials:
        chosen, other = candidate("numpy"), candidate("thrice", repeats=1)
        return check_performance(trials, problem(), chosen, other, Limits())


def test_on_a_busy_machine_the_fastest_quarters_are_compared() -> None:
    def stalled(number: int) -> float:
        """One call in three is undisturbed, never those of both in one round."""
        return (1.0 if number % 3 == 0 else 9.0) + 0.001 * (number % 7)

    worker = FakeWorker({"numpy": 0.55e-3, "thrice": 1e-3}, noise=stalled, foreign=lambda _: 0.7)
    found = beside_thrice(worker)
    assert (found.status, found.facts["note"]) == ("pass", OTHERS)
    assert found.facts["ratio"] == pytest.approx(0.55, rel=0.02)
    assert found.reason.endswith(OTHERS)
    assert found.facts["samples"] == 8  # a quarter of each of two races: four are too few


def test_what_is_slower_even_at_its_fastest_fails_on_a_busy_machine_too() -> None:
    """Though only after all the time there is: a quiet moment would tell for sure."""
    worker = FakeWorker({"numpy": 9e-3, "thrice": 1e-3}, foreign=lambda _: 0.7)
    found = beside_thrice(worker)
    assert (found.status, found.facts["note"]) == ("fail", OTHERS)
    assert found.facts["low"] > 8.0
    assert found.reason.endswith(OTHERS)
    assert len(worker.races) == 5


def test_slower_on_a_busy_machine_cannot_be_told_if_it_was_ever_as_fast() -> None:
    def stalled(number: int) -> float:
        """One call of `numpy`, the first of each race, was left alone."""
        return 0.11 if number % 1000 == 0 else 1.0 + 0.001 * (number % 7)

    worker = FakeWorker({"numpy": 9e-3, "thrice": 1e-3}, noise=stalled, foreign=lambda _: 0.7)
    found = beside_thrice(worker)
    assert (found.status, found.facts["note"]) == ("cannot tell", OTHERS)
    assert found.facts["low"] < 1.0 < 8.0 < found.facts["ratio"]
    assert OTHERS in found.reason
    assert found.reason.endswith(
        "more `seconds` in the thresholds may tell, or another run when the machine is quiet"
    )


def test_a_quiet_race_after_busy_ones_decides_without_doubt() -> None:
    def others(number: int) -> float:
        return 0.7 if number < 3 else 0.0

    worker = FakeWorker({"numpy": 2e-3, "thrice": 1e-3}, foreign=others)
    found = beside_thrice(worker)
    assert (found.status, "note" in found.facts) == ("fail", False)
    assert found.facts["samples"] == 30
    assert len(worker.races) == 3


@pytest.mark.parametrize(("seconds", "tag"), [(9e-3, "failure"), (0.5e-3, "system-out")])
def test_a_disturbance_is_named_wherever_the_verdict_is(seconds: float, tag: str) -> None:
    worker = FakeWorker({"numpy": seconds, "thrice": 1e-3}, foreign=lambda _: 0.7)
    check = beside_thrice(worker)
    passed = Check("pass")
    found = [Acceptance(problem(), candidate("numpy"), "0" * 16, passed, passed, check)]
    told = " ".join(to_text(acceptance_blocks(found)).split())
    assert f"numpy performance {check.status}:" in told
    assert OTHERS in told
    (result,) = acceptance_document(found, [], {})["results"]
    assert OTHERS in result["performance"]["reason"]
    (mark,) = ElementTree.fromstring(junit(found, [], {})).iter(tag)
    assert OTHERS in f"{mark.get('message')} {mark.text}"
