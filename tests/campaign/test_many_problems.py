"""A campaign over many problems leaves its last ones as much time to search as its first ones."""

from __future__ import annotations

import pytest
from campaign_fakes import Bench, FakeDevice, FakeWorker, bare_operation

from autotune.campaign import Campaign
from autotune.campaign.events import Waiting
from autotune.errors import UserError
from autotune.model import Problem
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


def test_a_problem_without_variants_is_named_and_the_others_are_tuned(bench: Bench) -> None:
    with bare_operation() as bare:
        campaign = bench.campaign((64,), budget=5.0)
        problems = [*campaign.problems, Problem.of(bare, (8,)), Problem.of(bare, (16,))]
        campaign = Campaign(
            problems,
            device=FakeDevice(),
            settings=campaign.settings,
            store=bench.store,
            progress=bench.events.append,
            make_worker=lambda _: bench.worker,
            clock=bench.clock,
        )
        assert [each.problem for each in campaign.run().results] == problems[:1]
        told = [each.message for each in bench.events if isinstance(each, Waiting)]
        assert sum("No variant of fake_bare is made for float32 on a CPU" in m for m in told) == 1


def test_where_no_problem_has_a_variant_nothing_is_started() -> None:
    with bare_operation() as bare, pytest.raises(UserError, match="there is nothing to measure"):
        Campaign([Problem.of(bare, (8,))], device=FakeDevice())
