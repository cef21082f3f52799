"""From the worker's outcomes to rows of the tuning database."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.campaign.events import MEASURED
from autotune.statistics import median_interval
from autotune.worker.protocol import Job, Outcome, RaceOutcome
from autotune_policies import Choice
from autotune_tuning_db import ProblemKey, TrialRow, utc_now


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is the same for every row of one problem in one campaign."""

    campaign: int
    problem: ProblemKey
    device: str
    mode: str

    def trial(
        self, job: Job, outcome: Outcome, fingerprint: str, toolchain: Mapping[str, str]
    ) -> TrialRow:
        """The row of one trial; an "ok" without a time above zero becomes a failure.

        `fingerprint` and `toolchain` stand in for those of a worker that did not live to tell.
        """
        status, reason = outcome.status, one_line(outcome.reason)
        if status in MEASURED and not _has_times(outcome):
            status, reason = "failed", "the worker reported no usable time"
        times = outcome if status in MEASURED else Outcome(status)
        return TrialRow(
            **self._common(outcome.toolchain or toolchain),
            stage="search",
            variant=job.variant,
            fingerprint=outcome.fingerprint or fingerprint,
            config=dict(job.config),
            status=status,
            reason=reason,
            samples=times.samples,
            median=times.median,
            low=times.low if times.low is not None else times.median,
            high=times.high if times.high is not None else times.median,
            compile_seconds=outcome.compile_seconds,
            first_call_seconds=outcome.first_call_seconds,
            error=_finite(outcome.error),
            error_bound=_finite(outcome.error_bound),
            workspace_bytes=outcome.workspace_bytes,
            circumstances=dict(outcome.circumstances) | _how_it_failed(outcome),
            wall_seconds=outcome.wall_seconds,
        )

    def race(
        self, entrants: Sequence[Choice], outcome: RaceOutcome, toolchain: Mapping[str, str]
    ) -> Iterator[TrialRow]:
        """One row for each entrant; equal `race` in their circumstances makes them one race.

        None when the race has no samples.
        """
        if not outcome.samples:
            return
        name = f"{self.campaign}-{time.time_ns()}"
        for lane, (choice, samples) in enumerate(zip(entrants, outcome.samples, strict=True)):
            interval = median_interval(samples)
            yield replace(
                self._entrant(choice, outcome, toolchain),
                samples=samples,
                median=interval.median,
                low=interval.low,
                high=interval.high,
                status="disturbed" if outcome.status == "disturbed" else "ok",
                circumstances={**outcome.circumstances, "race": name, "lane": lane},
                wall_seconds=outcome.wall_seconds / len(entrants),
            )

    def disqualified(
        self, choice: Choice, outcome: RaceOutcome, toolchain: Mapping[str, str]
    ) -> TrialRow:
        """The row of an entrant that ended the race."""
        return self._entrant(choice, outcome, toolchain)

    def _entrant(
        self, choice: Choice, outcome: RaceOutcome, toolchain: Mapping[str, str]
    ) -> TrialRow:
        return TrialRow(
            **self._common(outcome.toolchain or toolchain),
            stage="race",
            variant=choice.variant,
            fingerprint=choice.fingerprint,
            config=dict(choice.config),
            status=outcome.status if outcome.status not in MEASURED else "failed",
            reason=one_line(outcome.reason),
            error=choice.error,
            workspace_bytes=choice.workspace_bytes,
            circumstances=dict(outcome.circumstances),
            wall_seconds=outcome.wall_seconds,
        )

    def _common(self, toolchain: Mapping[str, str]) -> dict[str, Any]:
        return {
            "campaign": self.campaign,
            "problem": self.problem,
            "device": self.device,
            "mode": self.mode,
            "toolchain": dict(toolchain),
            "started": utc_now(),
        }


def _how_it_failed(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {"phase": outcome.phase} if outcome.phase else {}
    return found | ({"out_of_memory": True} if outcome.out_of_memory else {})


def ran_out_of_memory(row: TrialRow) -> bool:
    """Whether it is memory that a stored candidate lacked."""
    return bool(row.circumstances.get("out_of_memory"))


def _has_times(outcome: Outcome) -> bool:
    times = (*outcome.samples, outcome.median)
    return bool(outcome.samples) and all(t is not None and 0 < t < math.inf for t in times)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def one_line(text: str, width: int = 200) -> str:
    """The first line of a reason, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return first if len(first) <= width else f"{first[: width - 3]}..."
