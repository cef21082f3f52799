"""Candidates in flight: order, what is ready first, what is let go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from campaign_fakes import Bench, FakeWorker, tiled_wins

from autotune.campaign.campaign import CampaignInterrupted
from autotune.campaign.proposals import Proposals
from autotune.model.problem import Candidate, Config
from autotune.worker.protocol import Job, Outcome


def candidate(number: int) -> Candidate:
    return Candidate("v", Config(tile=number))


class Compiles:
    """A worker that compiles three ahead, and is done when the test says so."""

    def __init__(self, depth: int = 3) -> None:
        self.depth = depth
        self.futures: dict[int, Future[Outcome]] = {}

    def start(self, job: Job) -> Future[Outcome]:
        return self.futures.setdefault(int(job.config["tile"]), Future())

    def done(self, number: int, status: str = "ok") -> None:
        self.futures[number].set_result(Outcome(status, compile_seconds=2.0))  # type: ignore[arg-type]


def proposals(worker: Compiles, count: int = 6) -> Proposals:
    numbers: Iterator[int] = iter(range(count))

    def ask() -> Candidate | None:
        number = next(numbers, None)
        return None if number is None else candidate(number)

    def job(each: Candidate) -> Job:
        return Job("p", each.variant, dict(each.config))

    return Proposals(worker, ask, job)  # type: ignore[arg-type]


def test_as_many_as_wanted_are_in_flight_and_the_first_ready_comes_first() -> None:
    worker = Compiles()
    ahead = proposals(worker)
    threading.Timer(0.05, lambda: worker.done(1)).start()
    first = ahead.next()
    assert first is not None
    assert first.candidate == candidate(1)
    assert list(worker.futures) == [0, 1, 2]
    worker.done(0)
    worker.done(2)
    assert [each.candidate for each in (ahead.next(), ahead.next()) if each] == [
        candidate(0),
        candidate(2),
    ]
    assert list(worker.futures) == [0, 1, 2, 3, 4]


def test_what_is_not_wanted_any_more_is_let_go() -> None:
    worker = Compiles()
    ahead = proposals(worker, 3)
    threading.Timer(0.05, lambda: worker.done(0)).start()
    ahead.next()
    ahead.keep(lambda each: each == candidate(2))
    assert worker.futures[1].cancelled()
    worker.done(2)
    last = ahead.next()
    assert last is not None
    assert last.candidate == candidate(2)
    assert ahead.next() is None


def finished(outcome: Outcome) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    future.set_result(outcome)
    return future


def with_depth(worker: FakeWorker) -> None:
    worker.depth = 4
    worker.compiles = lambda job: finished(Outcome("ok", compile_seconds=2.0))


def test_a_campaign_measures_each_once_and_finds_the_same(bench: Bench) -> None:
    result = bench.campaign(prepare=with_depth, budget=30.0).run()
    policy = result.results[0].policy
    assert policy is not None
    assert policy.winner.variant == "tiled"
    measured = [(job.variant, tuple(job.config.items())) for job in bench.worker.jobs]
    assert len(set(measured)) == len(measured)
    assert len(bench.worker.started) >= len(measured)
    assert all(row.compile_seconds == 2.0 for row in bench.store.trials() if row.stage == "search")


def test_what_does_not_compile_is_a_failed_trial_and_is_not_measured(bench: Bench) -> None:
    def compiles(job: Job) -> Future[Outcome]:
        bad = job.variant == "plain"
        return finished(Outcome("failed", "x.cu:3: no such name") if bad else Outcome("ok"))

    def prepare(worker: FakeWorker) -> None:
        worker.depth, worker.compiles = 3, compiles

    result = bench.campaign(prepare=prepare, budget=10.0).run().results[0]
    assert [f.reason for f in result.failures if f.candidate.variant == "plain"] == [
        "x.cu:3: no such name"
    ]
    assert "plain" not in {job.variant for job in bench.worker.jobs}


def test_past_the_budget_only_defaults_are_taken_from_what_is_in_flight(bench: Bench) -> None:
    def slow(job: Job) -> float | str:
        bench.clock.now += 100.0
        return tiled_wins(job)

    result = bench.campaign(answer=slow, prepare=with_depth, budget=5.0).run().results[0]
    defaults = {"plain", "tiled"}
    assert {job.variant for job in bench.worker.jobs} == defaults
    assert result.tried == len(defaults)


def test_an_interrupt_while_compiling_keeps_what_was_measured(bench: Bench) -> None:
    def compiles(job: Job) -> Future[Outcome]:
        if len(bench.worker.jobs) >= 2:
            raise KeyboardInterrupt
        return finished(Outcome("ok"))

    def prepare(worker: FakeWorker) -> None:
        worker.depth, worker.compiles = 2, compiles

    with pytest.raises(CampaignInterrupted, match="kept 2 measurements"):
        bench.campaign(prepare=prepare, budget=30.0).run()
    assert bench.worker.closed
    assert len(bench.store.trials()) == 2


def test_no_longer_than_there_is_patience() -> None:
    worker = Compiles()
    ahead = proposals(worker)
    assert ahead.next(lambda: 0.0) is None
    assert ahead.pending == 3
    assert ahead.keep(candidate(1).__eq__) == [candidate(0), candidate(2)]
    assert worker.futures[0].cancelled()
    worker.done(1)
    assert ahead.next(lambda: 0.0) is not None
