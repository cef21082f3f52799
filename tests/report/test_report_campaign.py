"""Progress and summary of a campaign, from events that never ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import autotune
from autotune.campaign.events import (
    CampaignEnded,
    CampaignResult,
    CampaignStarted,
    Failure,
    ProblemEnded,
    ProblemResult,
    ProblemStarted,
    RaceStarted,
    TrialEnded,
    TrialStarted,
)
from autotune.model import Candidate, Config, Problem
from autotune.report.blocks import to_text
from autotune.report.campaign import campaign_blocks, campaign_document
from autotune.report.document import to_json
from autotune.report.progress import Progress, ended_line, status_lines
from autotune_policies import Choice, Policy, Subject, build_policy

ONLINE = Candidate("online", Config(block_q=64))


def problem(size: int = 1024, **flags: Any) -> Problem:
    return Problem.of(autotune.attention, (2, 1, size, 64), **flags)


def choice(variant: str, seconds: float) -> Choice:
    bounds = (seconds, seconds * 0.999, seconds * 1.001)
    return Choice(variant, (), *bounds, 0, 1e-7, True, "0" * 16, 20)


def policy(*choices: Choice) -> Policy:
    subject = Subject(problem().key, "cpu-x", "cpu", "cold", {}, "2026-01-31T12:00:00+00:00")
    return build_policy(subject, choices)


def result(won: Policy | None, **changes: Any) -> ProblemResult:
    given = {
        "problem": problem(),
        "policy": won,
        "renewed": True,
        "counts": Counter(ok=10, dropped=5, failed=1, wrong=1, disturbed=2),
        "failures": (Failure(ONLINE, "failed", "raised ValueError: no"),),
        "skipped": {"gpu_only": "runs on cuda, not on cpu"},
        "known": 0,
        "candidates": 40,
        "stopped": "the time was up",
        "seconds": 30.0,
        "measuring_seconds": 28.0,
    }
    return ProblemResult(**(given | changes))


def summary(*results: ProblemResult) -> str:
    campaign = CampaignResult("cpu-x", "cold", results, 61.0)
    return to_text(campaign_blocks(campaign))


def test_the_table_has_time_runner_up_and_the_plain_one() -> None:
    won = policy(choice("online", 1e-3), choice("stored", 1.5e-3), choice("numpy", 8e-3))
    text = summary(result(won))
    flat = " ".join(text.split())
    assert "B=2,H=1,N=1024,D=64 online 1.00 ms stored +50% 8.00x" in flat
    assert "19 candidates in 1 min 01 s: 5 dropped early as too slow, 1 wrong, 1 failed" in flat
    assert "1 skipped, 2 disturbed by other programs" in flat
    assert "attention/online failed: raised ValueError: no" in flat
    assert "attention/gpu_only skipped: runs on cuda, not on cpu" in flat
    assert "kernel = dispatch('attention', (2, 1, 1024, 64), dtype='float32')" in text
    assert "out = kernel(q, k, v)" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("choices", "row"),
    [
        ((choice("numpy", 1e-3),), "numpy 1.00 ms none measured it won"),
        ((choice("a", 1e-3), choice("b", 1e-3)), "1.00 ms b (tie) tried"),
        ((choice("a", 1e-3), choice("b", 5e-3)), "a 1.00 ms b 5.00x tried"),
    ],
)
def test_rows(choices: tuple[Choice, ...], row: str) -> None:
    assert row in " ".join(summary(result(policy(*choices))).split())


def test_a_column_nobody_fills_is_left_out() -> None:
    assert "plain NumPy" not in summary(result(policy(choice("a", 1e-3))))
    assert "plain NumPy" in summary(result(policy(choice("a", 1e-3), choice("numpy", 2e-3))))


def test_a_problem_without_a_winner_and_an_endless_list_of_failures() -> None:
    failures = tuple(
        Failure(Candidate(f"v{number}", Config()), "failed", "no") for number in range(30)
    )
    text = " ".join(summary(result(None, failures=failures)).split())
    assert "nothing could be measured" in text
    assert "11 more: autotune show --failures" in text
    assert "in Python" not in text


def test_the_same_failure_is_said_once() -> None:
    again = result(policy(choice("a", 1e-3)))
    text = " ".join(summary(again, replace(again, problem=problem(2048))).split())
    assert text.count("raised ValueError: no") == 1
    assert "attention/online failed (2 candidates)" in text


def test_the_document_holds_it_all() -> None:
    campaign = CampaignResult("cpu-x", "cold", (result(policy(choice("a", 1e-3))),), 61.0)
    document = campaign_document(campaign)
    (entry,) = document["problems"]
    assert (entry["tried"], entry["dropped"], entry["failed"], entry["wrong"]) == (19, 5, 1, 1)
    assert entry["failures"][0]["config"] == {"block_q": 64}
    assert '"reason": "raised ValueError: no"' in to_json(document)


def test_status_lines_tell_tried_best_lead_and_time_left() -> None:
    now = ProblemStarted(problem(), 1, 40, ("online",), {}, 0, 30.0)
    counts = Counter(ok=3, dropped=2, wrong=1, timeout=1)
    last = TrialEnded(ONLINE, "ok", "", 1e-3, ONLINE, 1e-3, 0.12, 7.5, counts)
    first, second = status_lines(now, last, "measuring online", 8)
    assert first == "[2/8] attention B=2,H=1,N=1024,D=64 float32  [############....]  7.5 s left"
    assert second == (
        "  7 of 40 tried, 2 dropped, 1 wrong, 1 failed; best online 1.00 ms, 12% ahead; "
        "measuring online"
    )


def test_in_a_pipe_each_problem_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    won = result(policy(choice("a", 1e-3), choice("b", 2e-3)))
    campaign = CampaignResult("cpu-x", "cold", (won,), 61.0)
    events = (
        CampaignStarted("cpu-x", "Some CPU", 1, 60.0),
        ProblemStarted(problem(), 0, 40, ("online",), {}, 0, 30.0),
        TrialStarted(ONLINE),
        TrialEnded(ONLINE, "ok", "", 1e-3, ONLINE, 1e-3, None, 7.5, Counter(ok=1)),
        RaceStarted((ONLINE,)),
        ProblemEnded(won),
        CampaignEnded(campaign),
    )
    with Progress() as progress:
        for event in events:
            progress(event)
    captured = capsys.readouterr()
    assert progress.result is campaign
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "tuning 1 problem on Some CPU, about 1 min 00 s",
        ended_line(won, 1, 1),
    ]
    assert ended_line(won, 1, 1).startswith(
        "[1/1] attention B=2,H=1,N=1024,D=64 float32: a 1.00 ms, 2.00x ahead; 19 tried"
    )
