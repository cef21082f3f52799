"""The search that tuning uses, against a recording: what each evaluation brings."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.model.problem import Candidate
from autotune.replay.recording import Recording
from autotune.search import Search, Strategy

WITHIN = (0.10, 0.05, 0.01)
"""Shares above the optimum for which the evaluations needed are told."""


@dataclass(frozen=True)
class Outcome:
    """One search: the best time over the optimum after each evaluation.

    Before the first config that ran it is infinite. `settled` is after how many evaluations the
    search would have ended of itself (None: not within these). `seconds` is the search's own time
    per evaluation, on the clock.
    """

    seed: int
    over_best: NDArray[np.float64]
    settled: int | None
    seconds: float

    def at(self, budget: int) -> float:
        """Best over optimum after so many evaluations; a search that ended keeps its last."""
        return float(self.over_best[min(budget, len(self.over_best)) - 1])

    def needed(self, within: float) -> int | None:
        """Evaluations until within a share of the optimum, or None."""
        reached = np.flatnonzero(self.over_best <= 1.0 + within)
        return int(reached[0]) + 1 if len(reached) else None


@dataclass(frozen=True)
class Replayed:
    """A recording and what the searches on it came to."""

    recording: Recording
    budget: int
    outcomes: Sequence[Outcome]

    def mean(self, budget: int) -> float:
        """Mean over seeds of the best over the optimum after so many evaluations."""
        return float(np.mean([each.at(budget) for each in self.outcomes]))

    def needed(self, within: float) -> float | None:
        """Median over seeds of the evaluations needed, or None where half did not get there."""
        needed = [each.needed(within) or math.inf for each in self.outcomes]
        middle = float(np.median(needed))
        return middle if math.isfinite(middle) else None

    @property
    def seconds(self) -> float:
        """Mean own time per evaluation."""
        return float(np.mean([each.seconds for each in self.outcomes]))


def replay(
    recording: Recording,
    *,
    budget: int,
    seeds: int,
    strategy: Strategy | None = None,
    starts: Sequence[Candidate] = (),
    first_seed: int = 0,
) -> Replayed:
    """Search a recording with several seeds, up to `budget` evaluations each.

    A config counts one evaluation, failed or not. The searches go on past the point at which they
    would have ended, which is noted. `starts` are winners from elsewhere, as a campaign would
    transfer them.
    """
    chosen = strategy or Strategy()
    outcomes = [
        _one(recording, budget, seed, chosen, starts)
        for seed in range(first_seed, first_seed + seeds)
    ]
    return Replayed(recording, budget, outcomes)


def _one(
    recording: Recording, budget: int, seed: int, strategy: Strategy, starts: Sequence[Candidate]
) -> Outcome:
    search = Search(
        recording.space, seed=seed, seeds=starts, strategy=replace(strategy, endless=True)
    )
    found: list[float] = []
    best, settled, spent = math.inf, None, 0.0
    while len(found) < budget:
        began = time.perf_counter()
        candidate = search.ask()
        spent += time.perf_counter() - began
        if candidate is None:
            break
        seconds = recording.answer(candidate)
        best = min(best, math.inf if seconds is None else seconds)
        found.append(best / recording.best)
        began = time.perf_counter()
        search.tell(candidate, seconds)
        spent += time.perf_counter() - began
        if settled is None and search.settled:
            settled = len(found)
    return Outcome(seed, np.array(found), settled, spent / max(len(found), 1))
