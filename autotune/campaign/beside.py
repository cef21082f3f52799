"""Fairness on a busy machine: a disturbed candidate is timed once more beside an anchor.

A time taken while other programs ran says little against one taken in a quiet moment; the ratio
of two candidates timed in turn does. The anchor is the fastest candidate with a time of its own:
a chain of ratios would drift, since of many unsure ones the smallest is taken. What others do to
the anchor they need not do to a candidate with other threads: what is inferred of that does not
lie below the fastest sample of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from autotune.campaign.seen import Named, Seen
from autotune.campaign.session import Session
from autotune.disturbance import busy
from autotune.in_turn import alike, credible, grounded, told_in_turn
from autotune.model.problem import Problem
from autotune.statistics import fastest_quarter, ratio_interval
from autotune.worker.protocol import RaceJob, RaceOutcome
from autotune_policies import Choice, Race
from autotune_policies.intervals import CONFIDENCE
from autotune_tuning_db import TrialRow

HOPELESS = 30.0
"""A disturbed candidate that was so many times slower than the best is slower in any case."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What a candidate takes, inferred from its ratio to the anchor; seconds.

    `fastest` is the shortest sample it had there; infinite where that was not kept. `alike` tells
    whether it has the threads of the anchor.
    """

    seconds: float
    low: float
    high: float
    rounds: int
    fastest: float = math.inf
    alike: bool = False

    @classmethod
    def of(cls, row: TrialRow) -> Beside | None:
        """What a stored trial has of it, as far as it can be believed."""
        found = row.circumstances.get("beside_anchor")
        if not isinstance(found, Mapping):
            return None
        return cls(**found).believed(min(row.samples, default=0.0), row.high or 0.0)

    def believed(self, fastest: float, high: float) -> Beside:
        """The same with the fastest sample there is: mostly nothing below it counts."""
        fastest = min(self.fastest, fastest)
        span = self.seconds, self.low, self.high
        if not (self.alike and credible(self.seconds, fastest)):
            span = grounded(span, fastest, high)
        return Beside(*span, self.rounds, fastest, self.alike)

    def onto(self, row: TrialRow) -> TrialRow:
        """The trial with this added to its circumstances; its samples stay as they were taken."""
        facts: dict[str, Any] = {
            "seconds": self.seconds,
            "low": self.low,
            "high": self.high,
            "rounds": self.rounds,
            "fastest": self.fastest,
            "alike": self.alike,
        }
        return replace(row, circumstances={**row.circumstances, "beside_anchor": facts})


def needs_comparison(row: TrialRow, anchor: Choice) -> bool:
    """Whether a trial was disturbed, and neither timed in turn with another nor hopeless."""
    disturbed = row.status in ("dropped", "disturbed") and bool(row.reason)
    if not disturbed or told_in_turn(row) is not None:
        return False
    return row.median is not None and row.median <= HOPELESS * anchor.seconds


def time_beside(
    session: Session, problem: Problem, anchor: Choice, other: Choice, seconds: float
) -> tuple[Beside | None, RaceOutcome]:
    """Time `other` in turn with `anchor` for about so many seconds.

    None when that failed, or gave too few rounds to say anything: one slow sample of the anchor
    would make the other candidate the winner.
    """
    settings = session.settings
    outcome = session.worker.race(
        RaceJob(
            problem=problem.key.text,
            entrants=((anchor.variant, dict(anchor.config)), (other.variant, dict(other.config))),
            mode=settings.mode,
            seed=settings.seed,
            precision=4.0 * settings.precision,
            band=settings.leaders_within,
            min_rounds=6,
            max_rounds=30,
            budget=seconds,
            time_limit=settings.time_limit,
        )
    )
    if not outcome.samples:
        return None, outcome
    ratio = ratio_interval(outcome.samples[1], outcome.samples[0])
    if ratio.coverage < CONFIDENCE:
        return None, outcome
    found = Beside(
        seconds=anchor.seconds * ratio.median,
        low=anchor.seconds * ratio.low,
        high=anchor.seconds * ratio.high,
        rounds=len(outcome.samples[0]),
        fastest=min(outcome.samples[1]),
        alike=alike(dict(anchor.config), dict(other.config)),
    )
    return found, outcome


def fair_samples(outcome: RaceOutcome) -> tuple[tuple[float, ...], ...]:
    """Of a race beside other programs the samples that each entrant had for itself, or nearly so.

    All have as many; no two of them are of one round any more.
    """
    if not busy(outcome.circumstances):
        return outcome.samples
    return tuple(map(fastest_quarter, outcome.samples))


def fair_race(entrants: list[Choice], outcome: RaceOutcome, seen: Mapping[Named, Seen]) -> Race:
    """The race as a policy takes it.

    A race on a busy machine tells the ratios; its times are brought to the scale of what the
    entrants took by themselves, so that they compare with those of candidates that did not race:
    as far down as no entrant falls below the fastest sample that was `seen` of it.
    """
    scale, pairs = 1.0, list(zip(entrants, fair_samples(outcome), strict=True))
    if busy(outcome.circumstances):
        own = median(choice.seconds / median(samples) for choice, samples in pairs)
        least = max(seen[choice.candidate].fastest / median(samples) for choice, samples in pairs)
        scale = min(1.0, max(own, least))
    return Race({choice.candidate: tuple(scale * s for s in samples) for choice, samples in pairs})
