"""The third test: is it as fast as a baseline, within a threshold, as far as can be told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from autotune.accept.baseline import Baseline, Stored
from autotune.accept.thresholds import Limits
from autotune.accept.verdict import Check, Status
from autotune.model import Candidate, Problem
from autotune.spelling import candidate_text
from autotune.statistics import Interval, ratio_interval, unpaired_ratio
from autotune.trials import MEASURED, Trials

ROUNDS = (15, 15, 30, 60, 120)
"""Of one race after the other, while nothing can be told: each doubles what there is."""

PRECISION = 0.25
"""Sampling of a time that is compared with a stored one ends at this share of the threshold."""

Clock = Callable[[], float]


def check_performance(
    trials: Trials,
    problem: Problem,
    candidate: Candidate,
    baseline: Baseline,
    limits: Limits,
    clock: Clock = time.monotonic,
) -> Check:
    """Compare with the baseline, taking more samples while it cannot be told, up to the limit.

    Beside another candidate it is timed in turn, so that what disturbs the machine meets both;
    against stored samples it is timed alone, and the interval of a disturbed side reaches down to
    its fastest sample, since a disturbance only ever adds time.
    """
    if baseline is None:
        return Check("not measured", "the baseline has no measurement of this problem")
    if isinstance(baseline, Stored):
        return _against_stored(trials, problem, candidate, baseline, limits, clock)
    if baseline == candidate:
        return Check("pass", "it is the baseline itself", {"ratio": 1.0})
    return _against_candidate(trials, problem, candidate, baseline, limits, clock)


def decision(ratio: Interval, slowdown: float) -> Status:
    """Time over the baseline's: a fail or a pass only where the whole interval says so."""
    if not ratio.covers:
        return "cannot tell"
    if ratio.low > 1.0 + slowdown:
        return "fail"
    return "pass" if ratio.high <= 1.0 + slowdown else "cannot tell"


def _against_candidate(
    trials: Trials,
    problem: Problem,
    candidate: Candidate,
    baseline: Candidate,
    limits: Limits,
    clock: Clock,
) -> Check:
    started, name = clock(), candidate_text(baseline.variant, baseline.config)
    mine: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    check = Check("cannot tell", "no time was left")
    for rounds in ROUNDS:
        left = limits.seconds - (clock() - started)
        if left <= 0.0:
            break
        outcome = trials.race(problem, (candidate, baseline), rounds=rounds, budget=left)
        if not outcome.samples:
            who = "the baseline" if outcome.culprit == 1 else "it"
            return Check("not measured", f"{who} could not be timed: {outcome.reason}")
        mine, others = mine + outcome.samples[0], others + outcome.samples[1]
        ratio = ratio_interval(mine, others)
        status = decision(ratio, limits.slowdown)
        check = Check(status, _reason(ratio, name, limits), _facts(ratio, len(mine), name))
        if status != "cannot tell":
            break
    return check


def _against_stored(
    trials: Trials,
    problem: Problem,
    candidate: Candidate,
    baseline: Stored,
    limits: Limits,
    clock: Clock,
) -> Check:
    started, disturbed = clock(), ""
    samples: tuple[float, ...] = ()
    check = Check("cannot tell", "no time was left")
    for _ in ROUNDS:
        left = limits.seconds - (clock() - started)
        if left <= 0.0:
            break
        row = trials.measure(
            problem,
            candidate,
            precision=max(PRECISION * limits.slowdown, 0.005),
            budget=min(left, limits.seconds / len(ROUNDS)),
            min_samples=10,
        )
        if row.status not in MEASURED:
            return Check("not measured", f"it could not be timed: {row.reason}")
        samples += row.samples
        disturbed = row.reason if row.status == "disturbed" else disturbed
        spoilt = bool(disturbed), baseline.disturbed
        ratio = unpaired_ratio(samples, baseline.samples, disturbed=spoilt)
        status = decision(ratio, limits.slowdown)
        parts = (_reason(ratio, baseline.name, limits), *_doubts(disturbed, baseline))
        reason = "; ".join(filter(None, parts))
        facts = {**_facts(ratio, len(samples), baseline.name), "note": baseline.note}
        check = Check(status, reason, facts)
        if status != "cannot tell":
            break
    return check


def _doubts(disturbed: str, baseline: Stored) -> tuple[str, ...]:
    return (
        f"disturbed: {disturbed}" if disturbed else "",
        "the baseline was disturbed" if baseline.disturbed else "",
        baseline.note,
    )


def _reason(ratio: Interval, name: str, limits: Limits) -> str:
    return f"{interval_text(ratio)} of {name}, allowed {1.0 + limits.slowdown:g}"


def interval_text(ratio: Interval) -> str:
    """A ratio with its interval: 1.03 (1.01 to 1.05)."""
    return f"{ratio.median:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"


def _facts(ratio: Interval, samples: int, name: str) -> Mapping[str, Any]:
    return {
        "baseline": name,
        "ratio": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
        "coverage": ratio.coverage,
        "samples": samples,
    }
