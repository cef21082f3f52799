"""The toy operation of the sweeps, and a worker that answers from a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.model import Problem
from autotune.registry import registry
from autotune.statistics import median_interval
from autotune.store import open_tuning_db
from autotune.trials import Trials
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome
from autotune_tuning_db import ProblemKey

PLUGIN = Path(__file__).parent / "plugins" / "toy_cube.py"

Seconds = Callable[[int, Job], float | str]
"""Seconds at a size, or the status of a failure."""


@dataclass
class FakeWorker:
    """Every sample within half a percent of what the function says.

    `wall` are the seconds that a job is said to take besides 1.5 for compiling. The job of number
    `stopped` meets Ctrl-C.
    """

    seconds: Seconds
    wall: float = 0.0
    stopped: int = 0
    disturbed: bool = False
    jobs: list[Job] = field(default_factory=list)

    def measure(self, job: Job) -> Outcome:
        self.jobs.append(job)
        if len(self.jobs) == self.stopped:
            raise KeyboardInterrupt
        found = self.seconds(ProblemKey.parse(job.problem).dim("N"), job)
        if isinstance(found, str):
            return Outcome(found, "it did not work")  # type: ignore[arg-type]
        samples = tuple(found * (1.0 + 0.001 * (number % 11 - 5)) for number in range(22))
        interval = median_interval(samples)
        return Outcome(
            "disturbed" if self.disturbed else "ok",
            "other processes used 70% of the CPUs" if self.disturbed else "",
            samples=samples,
            median=interval.median,
            low=interval.low,
            high=interval.high,
            first_call_seconds=0.35,
            compile_seconds=1.5,
            wall_seconds=self.wall + 1.5,
        )

    def check(self, job: Job) -> Outcome:
        raise AssertionError

    def race(self, job: RaceJob) -> RaceOutcome:
        raise AssertionError

    def close(self) -> None: ...


def problem(size: int = 8, rows: int = 2) -> Problem:
    return Problem.of(registry.operation("toy_cube"), (rows, size), "float64")


def trials(device: Any, worker: FakeWorker) -> Trials:
    """Trials of a fake worker in the test's own store."""
    return Trials(device, worker, open_tuning_db(), 1, "cold")
