"""What all problems of one campaign share: device, worker, store, clock and listener."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from autotune.campaign.events import Listener
from autotune.device import Device
from autotune.worker.protocol import Job, Mode, Outcome, RaceJob, RaceOutcome
from autotune_tuning_db import Store


class Measurer(Protocol):
    """The worker as a campaign uses it."""

    @property
    def depth(self) -> int:
        """Candidates to have in flight."""
        ...

    def start(self, job: Job) -> Future[Outcome] | None:
        """Begin what has to be done before a candidate can be measured; None: nothing has."""
        ...

    def measure(self, job: Job) -> Outcome: ...

    def race(self, job: RaceJob) -> RaceOutcome: ...

    def renew(self) -> None:
        """Have the next job done by a fresh process."""
        ...

    def compile_ahead(self, jobs: Iterable[Job], *, starting: Callable[[int], None]) -> int: ...

    def close(self) -> None: ...


LEAST_SECONDS = 30.0
"""Compiling may take so long on a busy machine."""

SLOWEST = 500.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How a campaign measures and chooses.

    `budget` in seconds is for all problems together; `trials` is the most candidates to measure
    for one problem (the default of every variant is measured whatever the budget). A candidate is
    sampled until its median is known to `precision`; the race is what tells leaders apart. Leaders
    are the candidates within `leaders_within` of the fastest, at most `leaders`; of more than
    `finalists` a heat decides which. A winner is declared when it leads by more than `band`.
    `patience` is how many seconds to wait for another process that measures on the device (None:
    until it is done).
    """

    budget: float = 60.0
    mode: Mode = "cold"
    trials: int | None = None
    seed: int = 0
    band: float = 0.01
    precision: float = 0.02
    leaders: int = 24
    finalists: int = 4
    leaders_within: float = 0.25
    time_limit: float = 60.0
    patience: float | None = None

    def candidate_seconds(self, share: float, expected: float) -> float:
        """The longest that a candidate may take to be built and called once.

        By what a problem has, `share` seconds, and by what a call is expected to take: predictions
        are off by far, and threads in the wrong places were seen to cost a factor of five hundred.
        An infinite one says nothing.
        """
        longest = SLOWEST * expected if expected < math.inf else 0.0
        return min(self.time_limit, max(share, LEAST_SECONDS)) + longest

    def trial_seconds(self, share: float) -> float:
        """The longest that timing one candidate may take when a problem has `share` seconds."""
        return min(max(share / 80.0, 0.1), 1.5)

    def race_seconds(self, share: float, *, fixed: float = 0.0, left: float = 0.0) -> float:
        """The part of a problem's share that is kept for its race.

        Half at most of what its `fixed` costs leave. More when the search has ended early and
        leaves so much, but not all: what is left in the end is for the problems to come.
        """
        part = min(0.3 * share, 15.0, 0.5 * (share - fixed))
        return max(part, 0.3, min(left, 0.6 * share))


@dataclass(slots=True)
class Session:
    """One campaign at work."""

    device: Device
    worker: Measurer
    store: Store
    campaign: int
    settings: Settings
    clock: Callable[[], float]
    emit: Listener
    toolchain: Mapping[str, str]
