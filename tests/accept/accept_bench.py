"""The toy operation of the acceptance tests, rows of it as a store has them, and a fake worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.device import local_cpu
from autotune.fingerprint import fingerprint
from autotune.model import Candidate, Config, Problem
from autotune.registry import registry
from autotune.statistics import median_interval
from autotune.store import open_tuning_db
from autotune.trials import Trials
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome
from autotune_policies import Choice, Subject, build_policy
from autotune_tuning_db import TrialRow, utc_now

PLUGIN = Path(__file__).parent / "plugins" / "toy_sum.py"


def problem(size: int = 9, dtype: str = "float32") -> Problem:
    return Problem.of(registry.operation("toy_sum"), (4, size), dtype)


def candidate(variant: str, **config: Any) -> Candidate:
    return Candidate(variant, Config(config))


def spread_around(seconds: float, count: int = 20) -> tuple[float, ...]:
    """Samples a percent apart at most."""
    return tuple(seconds * (1.0 + 0.001 * (number % 10 - 4.5)) for number in range(count))


def keep(seconds: float, variant: str = "numpy", **changes: Any) -> TrialRow:
    """Put a trial of the toy operation into the store; `label` goes where labels are kept."""
    samples = spread_around(seconds)
    interval = median_interval(samples)
    label = changes.pop("label", "")
    given = {
        "problem": problem().key,
        "device": local_cpu().identity,
        "mode": "cold",
        "stage": "search",
        "variant": variant,
        "fingerprint": fingerprint(registry.variant("toy_sum", variant)),
        "config": {},
        "status": "ok",
        "started": utc_now(),
        "samples": samples,
        "median": interval.median,
        "low": interval.low,
        "high": interval.high,
        "toolchain": {"numba": "0.1"},
        "circumstances": {"label": label} if label else {},
    } | changes
    with open_tuning_db() as store:
        row = TrialRow(campaign=store.start_campaign(given["device"], {}), **given)
        store.add_trial(row)
    return row


def keep_policy(variant: str, **config: Any) -> None:
    """Make a candidate the policy of the toy problem."""
    source = fingerprint(registry.variant("toy_sum", variant))
    values = tuple(config.items())
    choice = Choice(variant, values, 1e-3, 0.9e-3, 1.1e-3, 0, 1e-7, True, source, 20)
    cpu = local_cpu()
    subject = Subject(
        problem=problem().key,
        device=cpu.identity,
        family=cpu.family,
        mode="cold",
        toolchain={},
        created=utc_now(),
    )
    with open_tuning_db() as store:
        store.put_policy(build_policy(subject, [choice]).to_row())


@dataclass
class FakeWorker:
    """Answers with the seconds of a variant, scattered by `noise`, and keeps what it was asked.

    `foreign` is what other programs had of the CPUs in each race.
    """

    seconds: dict[str, float]
    noise: Callable[[int], float] = lambda number: 1.0 + 0.001 * (number % 7 - 3)
    disturbed: bool = False
    foreign: Callable[[int], float] = lambda number: 0.0
    wrong: Callable[[Job], str] = lambda job: ""
    checks: list[Job] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    races: list[RaceJob] = field(default_factory=list)

    def check(self, job: Job) -> Outcome:
        self.checks.append(job)
        reason = self.wrong(job)
        status = reason.partition(" ")[0] if reason else "ok"
        return Outcome(status, reason.partition(" ")[2], error=1e-7, error_bound=1e-6)  # type: ignore[arg-type]

    def measure(self, job: Job) -> Outcome:
        self.jobs.append(job)
        samples = tuple(self.seconds[job.variant] * self.noise(n) for n in range(20))
        interval = median_interval(samples)
        return Outcome(
            "disturbed" if self.disturbed else "ok",
            "others used 70% of the CPUs" if self.disturbed else "",
            samples=samples,
            median=interval.median,
            low=interval.low,
            high=interval.high,
            first_call_seconds=0.25,
            compile_seconds=0.5,
        )

    def race(self, job: RaceJob) -> RaceOutcome:
        self.races.append(job)
        first = 1000 * len(self.races)
        samples = tuple(
            tuple(self.seconds[name] * self.noise(first + r + lane) for r in range(job.min_rounds))
            for lane, (name, _) in enumerate(job.entrants)
        )
        load = self.foreign(len(self.races))
        if not load:
            return RaceOutcome("ok", samples=samples)
        reason = f"other processes used {load:.0%} of the CPUs"
        facts = {"foreign_load": load, "disturbed": [reason]}
        return RaceOutcome("disturbed", reason, samples=samples, circumstances=facts)

    def close(self) -> None: ...


@contextmanager
def fake_trials(worker: FakeWorker, mode: Any = "cold") -> Iterator[Trials]:
    """Trials of a fake worker in the test's own store."""
    with open_tuning_db() as store:
        yield Trials(local_cpu(), worker, store, 1, mode)
