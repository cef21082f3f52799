"""`autotune replay`: how few evaluations a search needs, as tables and as a document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from autotune import units
from autotune.replay import Replayed
from autotune.replay.run import WITHIN
from autotune.report.blocks import Block, Heading, Table

STEPS = (10, 25, 50, 100, 200, 400, 800)
"""Budgets shown, as far as the one asked for goes."""


def replay_blocks(found: Sequence[Replayed], method: str) -> list[Block]:
    """Best over optimum by budget, and what it took to get close, for each recording."""
    budget = max(each.budget for each in found)
    seeds = units.number(len(found[0].outcomes), "seed")
    shown = budgets(budget)
    over = [
        (each.recording.name, *(_ratio(each.mean(step), each, step) for step in shown))
        for each in found
    ]
    if len(found) > 1:
        over.append(("geometric mean", *(_shown(_joint(found, step)) for step in shown)))
    blocks: list[Block] = [
        Heading(f"{method}, {seeds}: best found over optimum after so many evaluations"),
        Table(("recording", *(f">{step}" for step in shown)), tuple(over)),
        "",
        Heading("evaluations until so close to the optimum, and the search's own time"),
        Table(
            (
                "recording",
                ">configs",
                ">failed",
                *(f">{share:.0%}" for share in WITHIN),
                ">would end",
                ">own time",
            ),
            tuple(_needs(each) for each in found),
        ),
        "",
        "A config counts one evaluation, failed or not. >: half of the seeds did not get there. "
        "would end: where tuning would have stopped of itself. own time: per evaluation.",
    ]
    missing = [each.recording for each in found if each.recording.missing]
    for recording in missing:
        count = units.number(recording.missing, "admissible config")
        blocks.append(f"{recording.name}: {count} not recorded; they count as inadmissible.")
    return blocks


def replay_document(found: Sequence[Replayed], method: str) -> dict[str, Any]:
    """Every search with its curve."""
    return {
        "method": method,
        "budget": max(each.budget for each in found),
        "geometric_mean": {str(step): _joint(found, step) for step in budgets(found[0].budget)},
        "recordings": [_document(each) for each in found],
    }


def budgets(most: int) -> list[int]:
    """The budgets that are shown up to one."""
    return [*(step for step in STEPS if step < most), most]


def _document(each: Replayed) -> dict[str, Any]:
    return {
        "name": each.recording.name,
        "device": each.recording.device,
        "configs": len(each.recording),
        "failed": each.recording.failed,
        "missing": each.recording.missing,
        "optimum_seconds": each.recording.best,
        "over_optimum": {str(step): _finite(each.mean(step)) for step in budgets(each.budget)},
        "evaluations_within": {str(share): each.needed(share) for share in WITHIN},
        "own_seconds_per_evaluation": each.seconds,
        "seeds": [
            {
                "seed": outcome.seed,
                "settled": outcome.settled,
                "over_optimum": [_finite(value) for value in outcome.over_best.tolist()],
            }
            for outcome in each.outcomes
        ],
    }


def _needs(each: Replayed) -> tuple[str, ...]:
    ends = [outcome.settled or math.inf for outcome in each.outcomes]
    end = median(ends)
    return (
        each.recording.name,
        str(len(each.recording)),
        str(each.recording.failed),
        *(_count(each.needed(share), each.budget) for share in WITHIN),
        _count(end if math.isfinite(end) else None, each.budget),
        units.seconds(each.seconds),
    )


def _count(evaluations: float | None, budget: int) -> str:
    return f">{budget}" if evaluations is None else f"{evaluations:.0f}"


def _ratio(value: float, each: Replayed, step: int) -> str:
    if step > len(each.recording):
        return ""
    return f"{value:.3f}" if math.isfinite(value) else "none ran"


def _joint(found: Sequence[Replayed], step: int) -> float | None:
    """Geometric mean over recordings; None where on one of them nothing ran."""
    means = [each.mean(step) for each in found]
    if not all(map(math.isfinite, means)):
        return None
    return math.exp(sum(map(math.log, means)) / len(means))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(ratio: float | None) -> str:
    return "none ran" if ratio is None else f"{ratio:.3f}"
