"""Why dispatch answers as it does: the words, and one message for a key that is missed."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

import autotune
from autotune import explain
from autotune.device import local_cpu
from autotune.model import Problem
from autotune_policies import Choice, Policy, Resolution, Skipped, Snapshot, Subject, build_policy

CPU = local_cpu()


def problem(size: int = 1024, dtype: str = "float32") -> Problem:
    return Problem.of(autotune.attention, (2, 1, size, 64), dtype)


def policy(of: Problem, *, variants: tuple[str, ...] = ("online", "stored")) -> Policy:
    choices = [
        Choice(name, (("threads", 1),), 1e-3 * n, 0.99e-3 * n, 1.01e-3 * n, 0, 1e-7, True, "0", 20)
        for n, name in enumerate(variants, 1)
    ]
    day = "2026-01-31T12:00:00+00:00"
    return build_policy(Subject(of.key, CPU.identity, CPU.family, "cold", {}, day), choices)


def test_a_tuned_answer_tells_time_interval_lead_and_date() -> None:
    made = policy(problem())
    winner = made.winner
    text = explain.explain_resolution(
        problem(),
        CPU,
        Resolution("tuned", winner.variant, winner.config, winner, made, notes=("passed over x",)),
    )
    assert text.splitlines() == [
        f"attention B=2,H=1,N=1024,D=64 float32 on {CPU.label} ({CPU.identity})",
        "online [threads=1]: measured for exactly this problem on this device",
        "1.00 ms (95% interval 990 us to 1.01 ms, 20 samples)",
        "the next variant takes 2.00x as long: online is faster than stored by more than the band",
        "measured 2026-01-31, cold cache, tuned",
        "note: passed over x",
    ]


def test_few_samples_give_no_interval() -> None:
    made = policy(problem())
    winner = replace(made.winner, samples=1)
    resolution = Resolution("tuned", winner.variant, winner.config, winner, made)
    text = explain.explain_resolution(problem(), CPU, resolution)
    assert "1.00 ms (1 sample, too few for an interval)" in text


def test_an_interpolated_answer_names_its_nearest_measurement() -> None:
    made = policy(problem(512))
    winner = made.winner
    text = explain.explain_resolution(
        problem(),
        CPU,
        Resolution("interpolated", winner.variant, winner.config, winner, made),
    )
    assert "interpolated from other sizes that were measured on this device\n" in text
    assert "nearest measurement: 1.00 ms" in text
    assert "Nq=512" in text
    assert "the next variant" not in text


def test_an_answer_from_beyond_the_tuned_sizes_says_how_far() -> None:
    winner = (made := policy(problem(512))).winner
    found = Resolution("interpolated", winner.variant, winner.config, winner, made, beyond=2.0)
    text = explain.explain_resolution(problem(), CPU, found)
    assert "sizes that were measured on this device, 2 times outside their range\n" in text


def test_a_pin_without_a_measurement() -> None:
    text = explain.explain_resolution(problem(), CPU, Resolution("pinned", "online"))
    assert "online: pinned by you" in text
    assert "interval" not in text


@pytest.mark.parametrize(
    ("variants", "told"), [(("online",), "no other variant"), (("a", "b"), "2.00x as long")]
)
def test_verdicts(variants: tuple[str, ...], told: str) -> None:
    assert told in explain.verdict_text(policy(problem(), variants=variants))


def test_the_next_variant_and_the_ratio_belong_together() -> None:
    made = policy(problem(), variants=("a", "b", "c"))
    other = replace(made.verdict, lead=5.7, reason="a is faster than c by more than the band")
    assert explain.verdict_text(replace(made, verdict=other)) == (
        "the next variant, b, takes 2.00x as long"
    )


def test_a_tuned_problem_whose_choices_break_a_constraint_is_not_to_be_tuned_again() -> None:
    snapshot = Snapshot((policy(problem()), policy(problem(512))))
    skipped = Skipped("online", (), "constraint", "its error 1e-07 is above max_error=1e-08")
    missed = explain.miss_message(problem(), CPU, Resolution(skipped=(skipped,)), snapshot)
    assert missed == (
        f"nothing that was measured for attention B=2,H=1,N=1024,D=64 float32 on {CPU.identity} "
        "may serve; online: its error 1e-07 is above max_error=1e-08."
    )
    stale = Skipped("online", (), "stale", "its source changed since it was measured")
    missed = explain.miss_message(problem(), CPU, Resolution(skipped=(stale,)), snapshot)
    assert "()" not in missed
    assert "Measure it: autotune tune attention" in missed


def test_a_missed_key_gets_nearest_difference_and_command() -> None:
    snapshot = Snapshot((policy(problem(512)), policy(problem(1024, "float64"))))
    skipped = Skipped("fast", (), "stale", "its source changed since it was measured")
    missed = explain.miss_message(
        problem(), CPU, Resolution(skipped=(skipped,)), snapshot, mode="hot"
    )
    assert f"attention B=2,H=1,N=1024,D=64 float32 on {CPU.identity}" in missed
    assert "fast: its source changed since it was measured" in missed
    assert "dim Nq: 512 -> 1024" in missed
    assert "dtype: float64 -> float32" in missed
    command = "autotune tune attention --shape B=2,H=1,N=1024,D=64 --dtype float32 --mode hot"
    assert missed.endswith(f"Measure it: {command}")
    assert "\n" not in missed


def test_a_missed_key_of_an_operation_never_tuned() -> None:
    missed = explain.miss_message(problem(), CPU, Resolution(), Snapshot())
    assert "no policy of attention is cached" in missed


def test_where_no_variant_is_made_for_the_dtype_there_is_nothing_to_measure() -> None:
    missed = explain.miss_message(problem(dtype="float16"), CPU, Resolution(), Snapshot())
    assert "autotune tune" not in missed
    assert missed.endswith(
        "No variant of attention is made for float16 on a CPU, so there is nothing to measure: "
        "autotune variants attention"
    )


def test_dispatch_says_it_once_for_each_key(
    private_home: object, caplog: pytest.LogCaptureFixture
) -> None:
    from autotune.serving import Server

    server = Server()
    with caplog.at_level(logging.WARNING, "autotune"):
        for _ in range(3):
            for size in (64, 96):
                kernel = server.kernel("attention", ((1, 1, size, 8),), "float32", {})
    assert kernel.origin == "predicted"
    assert "predicted" in kernel.explain()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "autotune tune attention --shape B=1,H=1,N=64,D=8 --dtype float32" in told[0]


def test_when_only_the_reference_is_left() -> None:
    text = explain.explain_reference(problem(), CPU)
    assert "float64 reference" in text
    assert "autotune variants attention --shape B=2,H=1,N=1024,D=64 --dtype float32" in text
