"""Measuring candidates that are named, outside of a campaign; each is kept like a campaign's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from autotune.campaign.records import Circumstances
from autotune.device import Device
from autotune.fingerprint import fingerprint, toolchain
from autotune.lock import device_lock
from autotune.model import Candidate, Problem, is_deterministic, workspace_bytes
from autotune.modes import require_mode
from autotune.registry import registry
from autotune.statistics import median_interval
from autotune.store import device_row, open_tuning_db
from autotune.worker.protocol import Job, Mode, Outcome, RaceJob, RaceOutcome
from autotune_policies import Choice
from autotune_tuning_db import Store, TrialRow

MEASURED = ("ok", "disturbed")
"""Statuses of a trial whose times can be used; a disturbed one may only be too long."""


class Measurer(Protocol):
    """The worker as this module uses it."""

    def measure(self, job: Job) -> Outcome: ...

    def check(self, job: Job) -> Outcome: ...

    def race(self, job: RaceJob) -> RaceOutcome: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Trials:
    """A device that is ours for the moment: what is timed on it is in the store at once.

    `label` names the version of the sources that are measured; it is kept with every trial.
    """

    device: Device
    worker: Measurer
    store: Store
    campaign: int
    mode: Mode
    label: str = ""

    def check(self, problem: Problem, candidate: Candidate, **how: Any) -> Outcome:
        """Put a candidate through the gate and time nothing; `how` are fields of the Job."""
        return self.worker.check(self._job(problem, candidate, **how))

    def measure(self, problem: Problem, candidate: Candidate, **how: Any) -> TrialRow:
        """Check and time a candidate; `how` are fields of the Job."""
        job = self._job(problem, candidate, **how)
        outcome = self.worker.measure(job)
        row = self._where(problem).trial(job, outcome, self._source(problem, candidate), {})
        return self._keep(row)

    def race(
        self, problem: Problem, candidates: Sequence[Candidate], *, rounds: int, budget: float
    ) -> RaceOutcome:
        """Time candidates in turn for so many rounds, or about three budgets of seconds."""
        outcome = self.worker.race(
            RaceJob(
                problem=problem.key.text,
                entrants=tuple((each.variant, dict(each.config)) for each in candidates),
                mode=self.mode,
                min_rounds=rounds,
                max_rounds=rounds,
                budget=budget,
            )
        )
        if outcome.samples:
            pairs = zip(candidates, outcome.samples, strict=True)
            entrants = [self._choice(problem, each, samples) for each, samples in pairs]
            for row in self._where(problem).race(entrants, outcome, {}):
                self._keep(replace(row, error=None))  # a race does not report it
        return outcome

    def _job(self, problem: Problem, candidate: Candidate, **how: Any) -> Job:
        config = dict(candidate.config)
        return Job(problem.key.text, candidate.variant, config, mode=self.mode, **how)

    def _where(self, problem: Problem) -> Circumstances:
        return Circumstances(self.campaign, problem.key, self.device.identity, self.mode)

    def _source(self, problem: Problem, candidate: Candidate) -> str:
        return fingerprint(registry.variant(problem.operation, candidate.variant))

    def _choice(self, problem: Problem, candidate: Candidate, samples: Sequence[float]) -> Choice:
        variant = registry.variant(problem.operation, candidate.variant)
        interval = median_interval(samples)
        return Choice(
            variant=candidate.variant,
            config=tuple(candidate.config.items()),
            seconds=interval.median,
            low=interval.low,
            high=interval.high,
            workspace_bytes=workspace_bytes(variant, problem, candidate.config),
            error=0.0,
            deterministic=is_deterministic(variant),
            fingerprint=fingerprint(variant),
            samples=len(samples),
        )

    def _keep(self, row: TrialRow) -> TrialRow:
        known = dict(row.toolchain) or toolchain(self.device.kind)
        circumstances = dict(row.circumstances) | ({"label": self.label} if self.label else {})
        row = replace(row, toolchain=known, circumstances=circumstances)
        self.store.add_trial(row)
        return row


@contextmanager
def trials_on(
    device: Device,
    *,
    command: str,
    mode: Mode,
    label: str = "",
    waiting: Callable[[str], None] = lambda text: None,
    make_worker: Callable[[Device], Measurer] | None = None,
) -> Iterator[Trials]:
    """Hold the device's lock, the store and a worker process.

    `waiting` is told, once, who else is measuring there. Raises UserError for a mode the device
    does not have, StoreUnavailableError when the tuning database cannot be used.
    """
    require_mode(mode, device.kind)
    make = make_worker or worker_for
    with (
        open_tuning_db() as store,
        device_lock(device.lock_name, waiting=waiting),
        closing(make(device)) as worker,
    ):
        store.add_device(device_row(device))
        campaign = store.start_campaign(device.identity, {"command": command, "mode": mode})
        yield Trials(device, worker, store, campaign, mode, label)
        store.end_campaign(campaign)


def worker_for(device: Device) -> Measurer:
    """A worker process for the device, with the plugin files of this process."""
    from autotune.plugins import plugin_files
    from autotune.worker.client import Worker

    return Worker(device, plugin_files=plugin_files())
