"""The race: leaders timed in turn, round by round, so that whatever drifts hits all alike."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.bench import Timer
from autotune.disturbance import busy
from autotune.limits import physical_limit
from autotune.model import Config
from autotune.registry import registry
from autotune.statistics import ratio_interval
from autotune.timing import impossible
from autotune.verify import Gate
from autotune.worker.pace import threads_of
from autotune.worker.protocol import RaceJob, RaceOutcome
from autotune.worker.session import Built, Session


@dataclass(frozen=True, slots=True)
class Entrant:
    """A candidate in the race; `threads` names a runtime of threads that is not everyone's."""

    built: Built
    timer: Timer
    threads: str


class _DisqualifiedError(Exception):
    """An entrant that failed the gate; carries the outcome."""

    def __init__(self, outcome: RaceOutcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


RECHECKS = 8
"""Of an entrant after the race, while they take little."""

_CHECKS = 16  # for each doubling of the rounds: to see if a race is decided takes time itself

_MOST_IN_A_STALL = 5
"""Times the wanted rounds, of kernels so short that many more fit."""


def race(session: Session, job: RaceJob) -> RaceOutcome:
    """Build and check every entrant, then time them in shuffled rounds until it is decided."""
    outcome = _raced(session, job)
    session.tidy()
    return outcome


def _raced(session: Session, job: RaceJob) -> RaceOutcome:
    started = time.perf_counter()
    current: int | None = None
    try:
        gate = session.gate(session.problem(job.problem), job.seed, time_limit=job.time_limit)
        entrants = []
        for current in range(len(job.entrants)):
            session.work_on(current)
            entrants.append(_enter(session, gate, job, current))
        session.work_on(None)
        session.say("racing", max(entrant.built.limit for entrant in entrants))
        session.bench.settle()
        gc.collect()
        gc.disable()
        before = session.bench.read()
        order = random.Random(job.seed)
        rounds: list[list[float]] = []
        span, threads = time.perf_counter() + session.bench.stall_seconds, ""
        while not over(rounds, job, time.perf_counter() - started, span - time.perf_counter()):
            times = [0.0] * len(entrants)
            for current in order.sample(range(len(entrants)), len(entrants)):
                session.work_on(current)
                session.live()
                if entrants[current].threads != threads:
                    session.bench.change_over(entrants[current].timer)
                    threads = entrants[current].threads
                times[current] = entrants[current].timer()
            session.work_on(None)
            rounds.append(times)
        fastest = min(zip(*rounds, strict=True), key=statistics.median)
        conditions = session.bench.conditions(before, session.bench.read(), fastest)
        limit = physical_limit(session.bench, gate.problem, job.mode)
        for current, (entrant, taken) in enumerate(
            zip(entrants, zip(*rounds, strict=True), strict=True)
        ):
            _check_again(session, gate, job, entrant, current)
            _check_time(least(taken, conditions.facts), limit, current)
        facts = {"mode": job.mode, "rounds": len(rounds), **conditions.facts}
        if conditions.reasons:
            facts["disturbed"] = list(conditions.reasons)
        outcome = RaceOutcome(
            "disturbed" if conditions.reasons else "ok",
            "; ".join(conditions.reasons),
            samples=tuple(zip(*rounds, strict=True)),
            circumstances=facts,
        )
        session.bench.synchronize()
    except _DisqualifiedError as error:
        outcome = error.outcome
    except BaseException as error:
        failed = session.failure(error)
        outcome = RaceOutcome(failed.status, failed.reason, culprit=current)
    finally:
        session.work_on(None)
        gc.enable()
    seconds = time.perf_counter() - started
    return replace(outcome, wall_seconds=seconds, toolchain=session.bench.toolchain())


def _enter(session: Session, gate: Gate, job: RaceJob, position: int) -> Entrant:
    name, config = job.entrants[position]
    variant = registry.variant(gate.problem.operation, name)
    built = session.build(gate, variant, Config(dict(config)), time_limit=job.time_limit)
    if not built.verdict.passed:
        raise _DisqualifiedError(RaceOutcome("wrong", built.verdict.reason, culprit=position))
    timer = session.timer(gate, built.executable, job.mode)
    timer()
    return Entrant(built, timer, threads_of(built.executable))


def _check_again(
    session: Session, gate: Gate, job: RaceJob, entrant: Entrant, position: int
) -> None:
    session.work_on(position)
    again = session.recheck(gate, entrant.built, entrant.timer, job.mode, most=RECHECKS)
    session.work_on(None)
    if not again.verdict.passed:
        reason = f"went wrong under repetition: {again.verdict.reason}"
        raise _DisqualifiedError(RaceOutcome("wrong", reason, culprit=position))


def least(taken: Sequence[float], facts: Mapping[str, Any]) -> float:
    """What a policy may come to say that it takes: beside other programs the fastest sample."""
    return min(taken) if busy(facts) else statistics.median(taken)


def _check_time(seconds: float, limit: float, position: int) -> None:
    if seconds < limit:
        reason = impossible(seconds, limit)
        raise _DisqualifiedError(RaceOutcome("failed", reason, culprit=position))


def over(rounds: Sequence[Sequence[float]], job: RaceJob, spent: float, stall: float = 0.0) -> bool:
    """Whether to end; not while one stall of the machine, `stall` seconds more, may be it all."""
    if len(rounds) < job.min_rounds and spent < 3.0 * job.budget:
        return False
    if stall > 0.0 and spent < job.budget and len(rounds) < _MOST_IN_A_STALL * job.max_rounds:
        return False
    return bool(rounds) and (
        len(rounds) >= job.max_rounds
        or spent >= job.budget
        or (len(rounds) % max(len(rounds) // _CHECKS, 1) == 0 and decided(rounds, job))
    )


def decided(rounds: Sequence[Sequence[float]], job: RaceJob) -> bool:
    """Whether it is known of every entrant if it is as fast as the fastest.

    Known means: the interval of its ratio to the fastest lies above the equivalence band, or
    within it, or is narrower than the wanted precision.
    """
    columns = list(zip(*rounds, strict=True))
    leader = min(columns, key=statistics.median)
    for column in columns:
        ratio = ratio_interval(column, leader)
        within = ratio.high <= 1.0 + job.band and ratio.low >= 1.0 - job.band
        if not (ratio.low > 1.0 + job.band or within or ratio.settled(job.precision)):
            return False
    return True
