"""Timing a candidate until nothing disturbs it, or until there is no point in trying again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autotune.bench import Conditions, Timer
from autotune.disturbance import busy
from autotune.execution import Executable
from autotune.limits import physical_limit
from autotune.timing import Plan, Timing, require_possible, time_candidate
from autotune.verify import Gate
from autotune.worker.pace import InTurn, Reference, reference_for, threads_of
from autotune.worker.protocol import Job
from autotune.worker.session import Session

PAUSE_SECONDS = 0.2
"""Before a disturbed measurement is repeated."""

BUSY_SAMPLES = 28
"""At least, beside other programs: a quarter counts, and seven tell an interval of 97.5%."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One timing of a candidate and what the machine did meanwhile.

    Of one that was timed in turn with another, `timing` is what the ratios say.
    """

    timing: Timing
    conditions: Conditions
    turn: InTurn | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """What disturbed it."""
        return self.conditions.reasons

    @property
    def busy(self) -> bool:
        """Whether other programs ran beside it."""
        return busy(self.conditions.facts)

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds that it took."""
        count = len(self.timing.samples)
        return tuple(self.turn.own[-count:]) if self.turn else self.timing.samples


def attempts_of(
    session: Session, gate: Gate, timer: Timer, executable: Executable, job: Job
) -> list[Attempt]:
    """Time until undisturbed, or until there is no point in trying again.

    When repeating has not helped the candidates before, the machine is simply busy, and each
    such candidate takes one chance from the next.
    """
    limit = physical_limit(session.bench, gate.problem, job.mode)
    reference = reference_for(session, gate, job)
    attempts: list[Attempt] = []
    for chance in range(max(0, job.retries - session.futile_retries), -1, -1):
        turn = _in_turn(session, timer, executable, reference, job)
        before = session.bench.read()
        timing = time_candidate(
            partial(_sampled, session, turn or timer), _plan(session, job, 0.0 if turn else limit)
        )
        after = session.bench.read()
        conditions = session.bench.conditions(before, after, timing.samples)
        attempts.append(Attempt(timing, conditions, turn))
        if turn is not None:  # what ratios say may come down to the fastest sample, and no further
            require_possible(min(attempts[-1].samples), limit)
        session.busy = attempts[-1].busy
        if not attempts[-1].reasons:
            session.futile_retries = 0
        if not attempts[-1].reasons or not _may_win(timing, job):
            return attempts
        if chance:
            time.sleep(PAUSE_SECONDS)
    session.futile_retries += len(attempts) > 1
    return attempts


def _plan(session: Session, job: Job, limit: float) -> Plan:
    return Plan(
        precision=job.precision,
        min_samples=max(job.min_samples, BUSY_SAMPLES if session.busy else 0),
        max_samples=job.max_samples,
        budget=job.budget,
        incumbent=job.incumbent,
        margin=job.margin,
        limit=limit,
        span=session.bench.stall_seconds,
    )


def _in_turn(
    session: Session,
    timer: Timer,
    executable: Executable,
    reference: Reference | None,
    job: Job,
) -> InTurn | None:
    if reference is None or job.reference is None:
        return None
    differ = threads_of(executable) != reference.threads
    return InTurn(session.bench, timer, reference.timer, job.reference[2], differ)


def _sampled(session: Session, sample: Callable[[], float]) -> float:
    session.live()
    return sample()


def _may_win(timing: Timing, job: Job) -> bool:
    return job.incumbent is None or timing.interval.low < job.incumbent
