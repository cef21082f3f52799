"""The end of `autotune tune`: who won, by how much, what fell out, and what to try next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from autotune import units
from autotune.campaign.events import CampaignResult, ProblemResult
from autotune.report.blocks import Block, Heading, Table, Verbatim
from autotune.report.document import problem_document
from autotune.report.entries import Loss
from autotune.report.policies import loss_line
from autotune.spelling import dispatch_call, short_flags, short_shape
from autotune_policies import Choice, Policy

PLAIN = ("numpy", "plain")
"""Names of the plain implementation of an operation: the floor that others are held against."""

_NO_WINNER = ("nothing could be measured", "-", "", "-")
_SHOWN = 20


def campaign_blocks(campaign: CampaignResult, plugin_files: Sequence[str] = ()) -> list[Block]:
    """The whole summary of a campaign."""
    blocks: list[Block] = []
    for title, group in groupby(campaign.results, key=lambda r: _title(r, campaign.mode)):
        blocks += [Heading(title), _table(list(group)), ""]
    blocks += [_counts(campaign), *_lost(campaign.results)]
    won = [result for result in campaign.results if result.policy is not None]
    if won:
        blocks += ["", Heading("to use it, in Python"), *_python(won[-1], campaign, plugin_files)]
        blocks += ["", "autotune show tells all this again; --explain tells why."]
    return blocks


def campaign_document(campaign: CampaignResult) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "device": campaign.device,
        "mode": campaign.mode,
        "seconds": campaign.seconds,
        "problems": [_result_document(result) for result in campaign.results],
    }


def _result_document(result: ProblemResult) -> dict[str, Any]:
    policy = result.policy
    return {
        "problem": problem_document(result.problem.key),
        "winner": policy.winner.to_json() if policy else None,
        "verdict": policy.verdict if policy else None,
        "renewed": result.renewed,
        "candidates": result.candidates,
        "tried": result.tried,
        "dropped": result.dropped,
        "failed": result.failed,
        "wrong": result.wrong,
        "known_before": result.known,
        "counts": dict(result.counts),
        "failures": [
            {
                "variant": failure.candidate.variant,
                "config": dict(failure.candidate.config),
                "status": failure.status,
                "reason": failure.reason,
            }
            for failure in result.failures
        ],
        "skipped": dict(result.skipped),
        "stopped": result.stopped,
        "seconds": result.seconds,
        "measuring_seconds": result.measuring_seconds,
    }


def _title(result: ProblemResult, mode: str) -> str:
    problem = result.problem
    flags = short_flags(problem.operation, problem.flags)
    parts = (problem.operation.name, problem.dtype, flags, f"{mode} cache")
    return "  ".join(part for part in parts if part)


def _table(results: Iterable[ProblemResult]) -> Table:
    titles = ("shape", "winner", ">time", "runner-up", ">plain NumPy")
    rows = []
    for result in results:
        shape = short_shape(result.problem.operation, result.problem.sizes) or "-"
        rows.append((shape, *(_cells(result.policy) if result.policy else _NO_WINNER)))
    if all(row[-1] == "-" for row in rows):  # no plain variant on this kind of device
        return Table(titles[:-1], tuple(row[:-1] for row in rows))
    return Table(titles, tuple(rows))


def _cells(policy: Policy) -> tuple[str, str, str, str]:
    winner, rival, plain = policy.winner, policy.runner_up, plain_choice(policy)
    second = "none measured"
    if rival is not None and policy.verdict.kind in ("tie", "undecided"):
        second = f"{rival.variant} ({policy.verdict.kind})"
    elif rival is not None:
        second = f"{rival.variant} {units.behind(policy.verdict.lead)}"
    if plain is None:
        floor = "-"
    else:
        floor = "it won" if plain is winner else units.behind(plain.seconds / winner.seconds - 1)
    return winner.variant, units.seconds(winner.seconds), second, floor


def plain_choice(policy: Policy) -> Choice | None:
    """The best choice of the plain implementation, if one was measured."""
    if policy.winner.variant in PLAIN:
        return policy.winner
    return next((choice for choice in policy.variants if choice.variant in PLAIN), None)


def _counts(campaign: CampaignResult) -> str:
    results = campaign.results
    tried = units.number(sum(r.tried for r in results), "candidate")
    always = (
        (sum(r.dropped for r in results), "dropped early as too slow"),
        (sum(r.wrong for r in results), "wrong"),
        (sum(r.failed for r in results), "failed"),
        (sum(len(r.skipped) for r in results), "skipped"),
    )
    at_times = (
        (sum(r.counts.get("disturbed", 0) for r in results), "disturbed by other programs"),
        (sum(r.known for r in results), "known from before"),
    )
    words = (*always, *(each for each in at_times if each[0]))
    parts = ", ".join(f"{amount} {word}" for amount, word in words)
    return f"tried {tried} in {units.duration(campaign.seconds)}: {parts}."


def _lost(results: Iterable[ProblemResult]) -> list[Block]:
    """Failures and skips over all problems, equal ones on one line."""
    seen: dict[tuple[str, str, str], int] = {}
    for result in results:
        name = result.problem.operation.name
        for failure in result.failures:
            place = (f"{name}/{failure.candidate.variant}", str(failure.status), failure.reason)
            seen[place] = seen.get(place, 0) + 1
        for variant, reason in result.skipped.items():
            seen.setdefault((f"{name}/{variant}", "skipped", reason), 1)
    lines = [loss_line(Loss(*place, count)) for place, count in seen.items()]
    more = len(lines) - _SHOWN
    blocks: list[Block] = [f"  {line}" for line in lines[:_SHOWN]]
    return blocks + ([f"  and {more} more: autotune show --failures"] if more > 0 else [])


def _python(
    result: ProblemResult, campaign: CampaignResult, plugin_files: Sequence[str]
) -> list[Block]:
    operation = result.problem.operation
    call = dispatch_call(result.problem, mode=campaign.mode)
    names = ", ".join(tensor.name for tensor in operation.inputs)
    outputs = [t.name for t in operation.outputs if t.name not in operation.residuals]
    lines = ["from autotune import dispatch"]
    if plugin_files:
        lines += [f"import {path.rpartition('/')[2].removesuffix('.py')}" for path in plugin_files]
    lines += [f"kernel = {call}", f"{', '.join(outputs)} = kernel({names})"]
    return [Verbatim(f"  {line}") for line in lines]
