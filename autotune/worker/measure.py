"""Measuring one candidate: gate, timing, gate again, and what the machine did meanwhile."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

from autotune.execution import Executable
from autotune.fingerprint import fingerprint
from autotune.in_turn import PACED, credible
from autotune.model import Config, workspace_bytes
from autotune.registry import registry
from autotune.statistics import median_interval
from autotune.verify import Gate, run_once
from autotune.worker.attempts import Attempt, attempts_of
from autotune.worker.pace import reference_for
from autotune.worker.protocol import Job, Outcome, Status
from autotune.worker.session import Built, Session

FAR_BEHIND = 30.0
"""Times the incumbent's median: no mode and no warming up makes up for so much."""

LONG_SECONDS = 0.1
"""Calls that take less are timed in any case: that is soon done."""

UNNOTICED_BYTES = 16 << 20
"""By which the peak of a process moves without any doing of the candidate's."""


def measure(session: Session, job: Job, *, timed: bool = True) -> Outcome:
    """Build, check and time a candidate; whatever it raises becomes the outcome's reason.

    One that is not `timed` has the gate's verdict and no samples. Its memory is given back.
    """
    outcome = _measured(session, job, timed)
    session.tidy()
    return outcome


def _measured(session: Session, job: Job, timed: bool) -> Outcome:
    started = time.perf_counter()
    outcome = Outcome("failed")
    try:
        problem = session.problem(job.problem)
        variant = registry.variant(problem.operation, job.variant)
        missing = variant.unavailable()
        if missing is not None:
            return Outcome("unavailable", missing)
        config = Config(dict(job.config))
        outcome = replace(
            outcome,
            fingerprint=fingerprint(variant),
            toolchain=session.bench.toolchain(),
            workspace_bytes=workspace_bytes(variant, problem, config),
        )
        gate = session.gate(
            problem,
            job.seed,
            gain=job.gain,
            conditioned=job.conditioned,
            time_limit=job.time_limit,
        )
        if timed:
            reference_for(session, gate, job)  # before the candidate, whose outputs are watched
        built = session.build(gate, variant, config, time_limit=job.time_limit)
        session.note_compiled(problem, variant)
        outcome = _with_verdict(outcome, built)
        if built.verdict.passed and timed:
            seconds = _far_behind(built, job)
            if seconds is None:
                outcome = _timed(session, gate, built, job, outcome)
            else:
                outcome = _glanced(session, gate, built, job, outcome, seconds)
        session.bench.synchronize()
    except BaseException as error:
        outcome = _failed(session, outcome, error)
    return replace(outcome, wall_seconds=time.perf_counter() - started)


def _failed(session: Session, outcome: Outcome, error: BaseException) -> Outcome:
    phase, failed = session.phase, session.failure(error)
    return replace(
        outcome,
        status=failed.status,
        reason=failed.reason,
        phase=phase,
        out_of_memory=failed.out_of_memory,
    )


def compile_only(session: Session, job: Job) -> Outcome:
    """Build a candidate and call it once on arrays of the problem, whatever comes out."""
    started = time.perf_counter()
    outcome = Outcome("failed")
    try:
        problem = session.problem(job.problem)
        variant = registry.variant(problem.operation, job.variant)
        outcome = replace(outcome, fingerprint=fingerprint(variant))
        buffers = session.unchecked_buffers(problem)
        session.say("building")
        with session.bench.compile_clock() as compiling:
            begun = time.perf_counter()
            run_once(Executable(variant, problem, job.config, session.device), buffers)
            session.bench.synchronize()
            session.note_compiled(problem, variant)
            spent, compiled = time.perf_counter() - begun, compiling()
        outcome = replace(
            outcome, status="ok", compile_seconds=compiled, first_call_seconds=spent - compiled
        )
    except BaseException as error:
        outcome = _failed(session, outcome, error)
    return replace(outcome, wall_seconds=time.perf_counter() - started)


def _with_verdict(outcome: Outcome, built: Built) -> Outcome:
    verdict = built.verdict
    return replace(
        outcome,
        status="ok" if verdict.passed else "wrong",
        reason=verdict.reason,
        error=verdict.error,
        error_bound=verdict.bound,
        compile_seconds=built.compile_seconds,
        first_call_seconds=built.first_call_seconds,
    )


def _far_behind(built: Built, job: Job) -> float | None:
    """What a call takes of a candidate so slow that the calls for the gate tell enough.

    Two calls at least say so: the first may have compiled, or met a stall.
    """
    if job.incumbent is None or built.later_seconds is None:
        return None
    fastest = min(built.first_call_seconds, built.later_seconds)
    behind = fastest > max(FAR_BEHIND * job.incumbent, LONG_SECONDS)
    return built.later_seconds if behind else None


def _glanced(
    session: Session, gate: Gate, built: Built, job: Job, outcome: Outcome, seconds: float
) -> Outcome:
    """A candidate that is far behind: neither warmed up nor sampled, which takes seconds a call."""
    late = session.written_late(gate, built)
    if late is not None:
        return replace(outcome, status="wrong", reason=f"went wrong under repetition: {late}")
    facts = {"mode": job.mode, "seed": job.seed, "stop": "far behind", "warm_up_calls": 1}
    return replace(
        outcome,
        status="dropped",
        samples=(seconds,),
        median=seconds,
        low=seconds,
        high=seconds,
        circumstances=facts,
    )


def _timed(session: Session, gate: Gate, built: Built, job: Job, outcome: Outcome) -> Outcome:
    """Time a candidate that has passed, then check one more call."""
    session.say("timing", built.limit)
    session.bench.settle()
    gc.collect(1)  # a full one walks all of numba's and LLVM's objects
    gc.disable()
    try:
        timer = session.timer(gate, built.executable, job.mode)
        attempts = attempts_of(session, gate, timer, built.executable, job)
    finally:
        gc.enable()
    again = session.recheck(gate, built, timer, job.mode)
    best = min(attempts, key=lambda each: (bool(each.reasons), each.timing.interval.width))
    circumstances = _circumstances(session, built.executable, job, best)
    circumstances |= {"attempts": len(attempts), **timer.facts()}
    if again.peak_bytes is not None:
        circumstances["peak_bytes"] = again.peak_bytes
    outcome = replace(
        outcome,
        circumstances=circumstances,
        workspace_bytes=_workspace(outcome.workspace_bytes, again.peak_bytes),
    )
    if not again.verdict.passed:
        reason = f"went wrong under repetition: {again.verdict.reason}"
        return replace(outcome, status="wrong", reason=reason, error=again.verdict.error)
    status, interval = _status(best), median_interval(best.samples)
    return replace(
        outcome,
        status=status,
        reason="; ".join(best.reasons),
        samples=best.samples,
        median=interval.median,
        low=interval.low,
        high=interval.high,
    )


def _workspace(declared: int | None, peak: int | None) -> int | None:
    """What a candidate declares, or what it was seen to take if that is clearly more."""
    if declared is None or peak is None or peak <= declared + UNNOTICED_BYTES:
        return declared
    return peak


def _status(attempt: Attempt) -> Status:
    if attempt.timing.stop == "dropped":
        return "dropped"
    return "disturbed" if attempt.reasons else "ok"


def _circumstances(
    session: Session, executable: Executable, job: Job, attempt: Attempt
) -> dict[str, Any]:
    """What a measurement was taken under, as plain values."""
    timing = attempt.timing
    found: dict[str, Any] = {
        "mode": job.mode,
        "seed": job.seed,
        "stop": timing.stop,
        "warm_up_calls": timing.warm_up_calls,
        "coverage": round(timing.interval.coverage, 4),
        **attempt.conditions.facts,
    }
    if attempt.turn is not None:
        told = attempt.turn.told(timing, busy=attempt.busy)
        if credible(told["seconds"], min(attempt.samples)):
            found[PACED] = told
    if attempt.reasons:
        found["disturbed"] = list(attempt.reasons)
    record = session.thread_record(executable)
    if record is not None:
        found["threads"] = record.threads
        found["cpus"] = list(record.asked or record.used)
        found["pinning"] = record.pinning
        found["threading_layer"] = record.layer
    return found
