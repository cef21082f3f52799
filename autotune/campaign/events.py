"""What a campaign reports while it runs and when it is over; times in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.model.problem import Candidate, Problem
from autotune.worker.protocol import Mode, Status
from autotune_policies import Policy
from autotune_tuning_db import rows

MEASURED: frozenset[Status] = frozenset(rows.MEASURED)
"""Statuses of a candidate that passed the gate and has times."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A candidate without a time, and why, in one line."""

    candidate: Candidate
    status: Status
    reason: str

    def __str__(self) -> str:
        return f"{self.candidate}: {self.status}, {self.reason or 'no reason given'}"


@dataclass(frozen=True, slots=True)
class ProblemResult:
    """What became of one problem.

    `counts` has the trials of this run by status, `failures` every candidate of this or an earlier
    run that has no time, `skipped` the variants that cannot serve the problem here. `known` is the
    number of candidates taken over from earlier runs. `policy` is the one in force afterwards, or
    None when nothing could be measured; `renewed` tells whether this run wrote it.
    """

    problem: Problem
    policy: Policy | None
    renewed: bool
    counts: Mapping[Status, int]
    failures: tuple[Failure, ...]
    skipped: Mapping[str, str]
    known: int
    candidates: int
    stopped: str
    seconds: float
    measuring_seconds: float

    @property
    def tried(self) -> int:
        """Candidates measured or attempted in this run."""
        return sum(self.counts.values())

    @property
    def dropped(self) -> int:
        """Candidates that were stopped early because they could no longer win."""
        return self.counts.get("dropped", 0)

    @property
    def failed(self) -> int:
        """Candidates that raised, crashed, hung or could not be started."""
        return sum(
            count
            for status, count in self.counts.items()
            if status not in MEASURED and status != "wrong"
        )

    @property
    def wrong(self) -> int:
        """Candidates whose output was not the operation's."""
        return self.counts.get("wrong", 0)

    def summary(self) -> str:
        """One line: 41 tried: 12 dropped, 1 failed; 2 variants skipped; 8 known before."""
        parts = [f"{self.tried} tried"]
        parts += [
            f"{count} {word}"
            for word, count in (
                ("dropped", self.dropped),
                ("wrong", self.wrong),
                ("failed", self.failed),
            )
            if count
        ]
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped")
        if self.known:
            parts.append(f"{self.known} known before")
        return ", ".join(parts)

    def reasons(self) -> tuple[str, ...]:
        """One line for every variant skipped, and for every way in which candidates failed."""
        lines = [f"{name}: skipped, {why}" for name, why in self.skipped.items()]
        alike: dict[tuple[str, Status, str], list[Failure]] = {}
        for failure in self.failures:
            key = (failure.candidate.variant, failure.status, failure.reason)
            alike.setdefault(key, []).append(failure)
        for first, *more in alike.values():
            others = f" (and {len(more)} more of its configs)" if more else ""
            lines.append(f"{first}{others}")
        return tuple(lines)


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The results of all problems, in order."""

    device: str
    mode: Mode
    results: tuple[ProblemResult, ...]
    seconds: float

    @property
    def empty(self) -> tuple[ProblemResult, ...]:
        """Problems for which nothing could be measured."""
        return tuple(result for result in self.results if result.policy is None)


@dataclass(frozen=True, slots=True)
class CampaignStarted:
    """The device is ours and the worker is ready to start."""

    device: str
    label: str
    problems: int
    budget: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is waited for, or left out: a busy device, compiling, a problem without variants."""

    message: str


@dataclass(frozen=True, slots=True)
class ProblemStarted:
    """One problem begins: how much there is to try and how long it may take."""

    problem: Problem
    index: int
    candidates: int
    variants: tuple[str, ...]
    skipped: Mapping[str, str]
    known: int
    budget: float


@dataclass(frozen=True, slots=True)
class TrialStarted:
    """A candidate goes to the worker."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A candidate came back; `lead` is how much slower the best other variant is (0.12: 12%)."""

    candidate: Candidate
    status: Status
    reason: str
    seconds: float | None
    best: Candidate | None
    best_seconds: float | None
    lead: float | None
    left: float
    counts: Mapping[Status, int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class RaceStarted:
    """The leaders are measured again, in turn."""

    entrants: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class ProblemEnded:
    """One problem is done."""

    result: ProblemResult


@dataclass(frozen=True, slots=True)
class CampaignEnded:
    """Everything is done."""

    result: CampaignResult


Event = (
    CampaignStarted
    | Waiting
    | ProblemStarted
    | TrialStarted
    | TrialEnded
    | RaceStarted
    | ProblemEnded
    | CampaignEnded
)
Listener = Callable[[Event], None]


def silent(_: Event) -> None:
    """Listens to nothing."""
