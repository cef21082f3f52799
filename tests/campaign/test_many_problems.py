"""A campaign over many problems leaves its last ones as much time to search as its first ones."""

from __future__ import annotations

import pytest
from campaign_fakes import Bench, FakeWorker

from autotune.worker.protocol import Job, Outcome

COSTS = [25.0, 3.0, 5.0, 8.0, 4.0, 7.0, 6.0, 20.0, 3.0, 5.0, 8.0, 4.0, 7.0, 6.0, 5.0, 4.0]
"""Seconds that each problem takes to be prepared, which no declaration tells."""

PACE = 0.3


class Preparing(FakeWorker):
    """The first measurement of a problem takes what preparing it does."""

    def __init__(self, worker: FakeWorker) -> None:
        super().__init__(worker.answer, worker.clock, pace=PACE)
        self.costs = iter(COSTS)
        self.prepared = ""

    def measure(self, job: Job) -> Outcome:
        if job.problem != self.prepared:
            self.prepared = job.problem
            self.clock.now += next(self.costs)
        return super().measure(job)


def trials(bench: Bench, count: int, budget: float) -> list[int]:
    """Of each of the first `count` problems."""
    campaign = bench.campaign(tuple(64 * (n + 1) for n in range(count)), budget=budget)
    campaign._make_worker = lambda _: Preparing(bench.worker)
    return [sum(result.counts.values()) for result in campaign.run().results]


def test_no_problem_is_starved_by_what_others_took(bench: Bench) -> None:
    budget = 200.0
    tried = trials(bench, len(COSTS), budget)
    assert min(tried) >= 4, list(tried)
    assert sum(tried[-5:]) >= 0.5 * sum(tried[:5])
    assert bench.clock.now == pytest.approx(budget, rel=0.05)


def test_one_problem_may_use_all(bench: Bench) -> None:
    assert trials(bench, 1, 33.0)[0] >= 12
