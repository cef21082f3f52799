"""Between the worker's outcomes and the rows of the tuning database."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.campaign.beside import Beside
from autotune.campaign.events import MEASURED, Failure
from autotune.model.problem import Candidate, Config
from autotune.model.traits import is_deterministic
from autotune.model.variant import Variant
from autotune.search import Space
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
            circumstances=dict(outcome.circumstances),
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


@dataclass(slots=True)
class Evidence:
    """The latest trial of every candidate whose source and declaration are still the same.

    Trials under another toolchain tell the search what it need not try again, but no policy rests
    on them. `toolchain` is what the worker has loaded, as far as is known.
    """

    variants: Mapping[str, Variant]
    toolchain: Mapping[str, str]
    rows: dict[Candidate, TrialRow] = field(default_factory=dict)

    def add(self, row: TrialRow) -> None:
        """Take a trial in; one under this toolchain replaces one under another."""
        candidate = candidate_of(row)
        old = self.rows.get(candidate)
        if old is None or self.current(row) or not self.current(old):
            self.rows[candidate] = row

    def current(self, row: TrialRow) -> bool:
        """Whether the row was measured with what is loaded now."""
        return dict(row.toolchain) == dict(self.toolchain)

    def choices(self) -> list[Choice]:
        """What was measured with the toolchain of now, fastest first."""
        found = [
            choice_of(row, self.variants[row.variant])
            for row in self.rows.values()
            if row.status in MEASURED and self.current(row)
        ]
        return sorted(found, key=lambda choice: choice.seconds)

    def outdated(self) -> list[Candidate]:
        """Per variant that was measured before but not since the toolchain changed: its fastest."""
        current = {row.variant for row in self.rows.values() if self.current(row)}
        best: dict[str, tuple[float, Candidate]] = {}
        for candidate, row in self.rows.items():
            if row.variant not in current:
                entry = (seconds_of(row) or math.inf, candidate)
                best[row.variant] = min(best.get(row.variant, entry), entry, key=lambda e: e[0])
        return [candidate for _, candidate in sorted(best.values(), key=lambda entry: entry[0])]

    def failures(self) -> tuple[Failure, ...]:
        """Every candidate without a time."""
        return tuple(
            Failure(candidate, row.status, row.reason)  # type: ignore[arg-type]
            for candidate, row in self.rows.items()
            if row.status not in MEASURED
        )


def gather(
    rows: Iterable[TrialRow],
    space: Space,
    variants: Mapping[str, Variant],
    fingerprints: Mapping[str, str],
    toolchain: Mapping[str, str],
) -> Evidence:
    """What earlier campaigns measured that still holds for this space and these sources.

    A timeout does not count, since the machine may have been busy then. When nothing at all could
    be measured, no failure counts: what was broken around the candidates may have been repaired.
    """
    evidence = Evidence(variants, toolchain)
    for row in rows:
        same_source = fingerprints.get(row.variant) == row.fingerprint
        counts = row.stage == "search" or row.status not in MEASURED
        if counts and row.status != "timeout" and same_source and candidate_of(row) in space:
            evidence.add(row)
    if not any(row.status in MEASURED for row in evidence.rows.values()):
        evidence.rows.clear()
    return evidence


def candidate_of(row: TrialRow) -> Candidate:
    """Variant and config of a row."""
    return Candidate(row.variant, Config(dict(row.config)))


def choice_of(row: TrialRow, variant: Variant) -> Choice:
    """A measured trial as policies know it.

    A disturbance only ever adds time, so the interval of a disturbed one reaches down to its
    fastest sample; one that was also timed beside the best takes its time from there.
    """
    median = row.median or math.nan
    low, high, samples = row.low or median, row.high or median, len(row.samples)
    if row.status == "disturbed":
        low = min(low, *row.samples)
    beside = Beside.of(row)
    if beside is not None and beside.seconds < median:
        median, low, high, samples = beside.seconds, beside.low, beside.high, beside.rounds
    return Choice(
        variant=row.variant,
        config=tuple(row.config.items()),
        seconds=median,
        low=min(low, median),
        high=max(high, median),
        workspace_bytes=row.workspace_bytes or 0,
        error=row.error or 0.0,
        deterministic=is_deterministic(variant),
        fingerprint=row.fingerprint,
        samples=max(samples, 1),
    )


def seconds_of(row: TrialRow) -> float | None:
    """The time of a trial, None for one that failed; from beside the best where there is one."""
    if row.status not in MEASURED or row.median is None:
        return None
    beside = Beside.of(row)
    return min(row.median, beside.seconds) if beside is not None else row.median
