"""The third test: is it as fast as a baseline, within a threshold, as far as can be told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from autotune import units
from autotune.accept.baseline import ENOUGH, Baseline, Missing, Stored
from autotune.accept.thresholds import Limits
from autotune.accept.verdict import Check, Status
from autotune.campaign.beside import fair_samples
from autotune.disturbance import busy
from autotune.model import Candidate, Problem
from autotune.spelling import candidate_text
from autotune.statistics import Interval, ratio_interval, unpaired_ratio
from autotune.trials import MEASURED, Trials
from autotune.worker.protocol import RaceOutcome
from autotune_tuning_db import TrialRow

ROUNDS = (15, 15, 30, 60, 120)
"""Of one race after the other, while nothing can be told: each doubles what there is."""

PRECISION = 0.25
"""Sampling of a time that is compared with a stored one ends at this share of the threshold."""

Clock = Callable[[], float]

Pair = tuple[tuple[float, ...], tuple[float, ...]]
"""Equally many samples of the candidate and of its baseline."""


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
    against stored samples it is timed alone. A disturbance only ever adds time: the interval of a
    disturbed side reaches down to its fastest sample, and a failure has to show even then.
    """
    if isinstance(baseline, Missing):
        return Check("not measured", baseline.reason)
    if isinstance(baseline, Stored):
        return _against_stored(trials, problem, candidate, baseline, limits, clock)
    if baseline == candidate:
        return Check("pass", "it is the baseline itself", {"ratio": 1.0})
    return _against_candidate(trials, problem, candidate, baseline, limits, clock)


def keep_for_label(
    trials: Trials, problem: Problem, candidate: Candidate, limits: Limits, check: Check
) -> Check:
    """Time the candidate once, so that a later version finds its label; the verdict stays."""
    row = _time_alone(trials, problem, candidate, limits, limits.seconds)
    if row.status in MEASURED:
        doubt = f", disturbed: {row.reason}" if row.status == "disturbed" else ""
        note = f"{units.seconds(row.median)} kept as {trials.label}{doubt}"
    else:
        note = f"it could not be timed for the label {trials.label}: {row.reason}"
    return replace(check, reason=f"{check.reason}; {note}", facts={**check.facts, "note": note})


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
    quiet: Pair = ((), ())
    every: Pair = ((), ())
    doubt = ""
    check = Check("cannot tell", "no time was left")
    for rounds in ROUNDS:
        left = limits.seconds - (clock() - started)
        if left <= 0.0:
            break
        outcome = trials.race(problem, (candidate, baseline), rounds=rounds, budget=left)
        if not outcome.samples:
            who = "the baseline" if outcome.culprit == 1 else "it"
            return Check("not measured", f"{who} could not be timed: {outcome.reason}")
        disturbance = _disturbance(outcome)
        every = _more(every, fair_samples(outcome))
        if disturbance:
            doubt = disturbance
        else:
            quiet = _more(quiet, outcome.samples)
        if quiet[0]:
            check = _in_turn(quiet, name, limits)
        if doubt and (not quiet[0] or check.status == "cannot tell"):  # the quiet ones come first
            check = _in_turn(every, name, limits, doubt)
        if check.status == "pass" or (check.status == "fail" and "note" not in check.facts):
            break  # a failure in doubt may still meet a quiet moment
    return _with_remedy(check, disturbed=bool(doubt))


def _disturbance(outcome: RaceOutcome) -> str:
    """What makes a race doubtful, in words; "" for one on a quiet machine."""
    if outcome.status == "disturbed" or busy(outcome.circumstances):
        return outcome.reason or "other programs used the machine"
    return ""


def _more(pair: Pair, samples: tuple[tuple[float, ...], ...]) -> Pair:
    return pair[0] + samples[0], pair[1] + samples[1]


def _in_turn(pair: Pair, name: str, limits: Limits, doubt: str = "") -> Check:
    """The verdict on samples taken in turn; in doubt either side may be as fast as it ever was."""
    ratio = ratio_interval(*pair)
    if doubt and decision(ratio, limits.slowdown) != "pass":
        ratio = unpaired_ratio(*pair, disturbed=(True, True))
    status = decision(ratio, limits.slowdown)
    reason, facts = _reason(ratio, name, limits), _facts(ratio, len(pair[0]), name)
    if not doubt:
        return Check(status, reason, facts)
    note = f"disturbed: {doubt}"
    return Check(status, f"{reason}; {note}", {**facts, "note": note})


def _with_remedy(check: Check, *, disturbed: bool) -> Check:
    """Where it cannot be told, with what may help."""
    if check.status != "cannot tell":
        return check
    quiet = ", or another run when the machine is quiet" if disturbed else ""
    remedy = f"more `seconds` in the thresholds may tell{quiet}"
    return replace(check, reason=f"{check.reason}; {remedy}")


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
        row = _time_alone(trials, problem, candidate, limits, left)
        if row.status not in MEASURED:
            return Check("not measured", f"it could not be timed: {row.reason}")
        samples += row.samples
        disturbed = row.reason if row.status == "disturbed" else disturbed
        spoilt = bool(disturbed), baseline.disturbed
        ratio = unpaired_ratio(samples, baseline.samples, disturbed=spoilt)
        status = decision(ratio, limits.slowdown)
        note = "; ".join(filter(None, _doubts(disturbed, baseline)))
        reason = "; ".join(filter(None, (_reason(ratio, baseline.name, limits), note)))
        facts = {**_facts(ratio, len(samples), baseline.name), "note": note}
        check = Check(status, reason, facts)
        if status != "cannot tell":
            break
    few = len(baseline.samples)
    if check.status == "cannot tell" and few < ENOUGH:
        count = f"{few} sample{'s' if few != 1 else ''}"
        remedy = f"the baseline has only {count}, which decide nothing; measure it again"
        return replace(check, reason=f"{check.reason}; {remedy}")
    return _with_remedy(check, disturbed=bool(disturbed) or baseline.disturbed)


def _time_alone(
    trials: Trials, problem: Problem, candidate: Candidate, limits: Limits, left: float
) -> TrialRow:
    return trials.measure(
        problem,
        candidate,
        precision=max(PRECISION * limits.slowdown, 0.005),
        budget=min(left, limits.seconds / len(ROUNDS)),
        min_samples=10,
    )


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
