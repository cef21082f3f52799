"""Compiling a candidate for a GPU in a process that has none."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from autotune.cuda.ahead import compiling_for
from autotune.cuda.nvrtc import compile_clock
from autotune.model import Config, Problem
from autotune.registry import registry
from autotune.worker.failures import failure
from autotune.worker.protocol import Job, Outcome
from autotune_tuning_db import ProblemKey


def precompile(arch: str, report: Callable[[str, float | None], None], job: Job) -> Outcome:
    """Run a candidate's builder, and put what it would compile on disk; no launch is made."""
    started = time.perf_counter()
    outcome = Outcome("failed")
    report("compiling", None)
    try:
        key = ProblemKey.parse(job.problem)
        problem = Problem.from_key(registry.operation(key.operation), key)
        variant = registry.variant(problem.operation, job.variant)
        missing = variant.unavailable()
        if missing is not None:
            return Outcome("unavailable", missing)
        with compile_clock() as compiling, compiling_for(arch):
            variant.build(problem, Config(dict(job.config)))
            outcome = replace(outcome, status="ok", compile_seconds=compiling())
    except BaseException as error:
        failed = failure(error)
        outcome = replace(outcome, status=failed.status, reason=failed.reason, phase="compiling")
    return replace(outcome, wall_seconds=time.perf_counter() - started)
