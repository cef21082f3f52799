"""Timing with a clock of the test's own: when sampling ends, and what is an error."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

import pytest

from autotune.timing import (
    HOPELESS,
    SHORTEST_SECONDS,
    Plan,
    Sampler,
    TimingError,
    batch_size,
    time_candidate,
)


class Machine:
    """A clock that only moves when a call takes its time."""

    def __init__(self, durations: Iterator[float], preparing: float = 0.05) -> None:
        self.preparing = preparing
        self.now = 0
        self.durations = durations
        self.calls = 0
        self.prepared = 0

    def clock(self) -> int:
        return self.now

    def call(self) -> int:
        self.calls += 1
        self.now += round(next(self.durations) * 1e9)
        return self.calls

    def prepare(self) -> None:
        self.prepared += 1
        self.now += round(self.preparing * 1e9)

    def sampler(self, batch: int = 1) -> Sampler:
        return Sampler(self.call, self.prepare, batch=batch, clock=self.clock)


def noisy(median: float, scatter: float = 0.001) -> Iterator[float]:
    rng = random.Random(1)
    return (median * (1 + rng.uniform(-scatter, scatter)) for _ in itertools.count())


def run(durations: Iterator[float], plan: Plan, preparing: float = 0.05) -> tuple[Machine, object]:
    machine = Machine(durations, preparing)
    return machine, time_candidate(machine.sampler(), plan, machine.clock)


def test_preparing_is_not_timed() -> None:
    machine, timing = run(noisy(0.010), Plan())
    assert timing.interval.median == pytest.approx(0.010, rel=0.01)
    assert machine.prepared == machine.calls


def test_sampling_ends_as_soon_as_the_median_is_known() -> None:
    _, timing = run(noisy(0.010), Plan(precision=0.01))
    assert timing.stop == "precise"
    assert len(timing.samples) == 6
    assert timing.interval.width <= 0.01


def test_scattered_times_use_the_budget_up_and_keep_the_least_number_of_samples() -> None:
    machine, timing = run(noisy(0.010, 0.5), Plan(budget=2.0, precision=0.001))
    assert timing.stop == "budget"
    assert machine.now * 1e-9 == pytest.approx(2.0, abs=0.1)
    _, slow = run(noisy(1.0, 0.5), Plan(budget=2.0))
    assert len(slow.samples) == 5
    _, slower = run(noisy(4.0, 0.5), Plan(budget=2.0))
    assert len(slower.samples) == 1


def test_sampling_ends_at_the_largest_number_of_samples() -> None:
    _, timing = run(noisy(1e-3, 0.5), Plan(max_samples=17, precision=0.001, budget=1e3))
    assert (timing.stop, len(timing.samples)) == ("samples", 17)


def test_slow_first_calls_are_warm_up() -> None:
    falling = itertools.chain([1.0, 0.5, 0.2, 0.1], noisy(0.010))
    _, timing = run(falling, Plan(budget=20.0))
    assert max(timing.samples) < 0.011
    assert timing.warm_up_calls >= 5


def test_warm_up_takes_no_more_than_its_share_of_the_budget() -> None:
    ever_faster = (0.1 * 0.9**n for n in itertools.count())
    machine = Machine(ever_faster)
    timing = time_candidate(machine.sampler(), Plan(budget=1.0), machine.clock)
    assert timing.warm_up_calls <= 3


def test_a_hopeless_candidate_costs_one_sample() -> None:
    machine, timing = run(noisy(HOPELESS * 0.010 * 1.1), Plan(incumbent=0.010))
    assert timing.stop == "dropped"
    assert machine.calls == len(timing.samples) == 1


def test_a_stall_does_not_end_a_short_candidate() -> None:
    """As a hypervisor does it: the first calls of a good candidate meet the same 30 ms."""
    stalled = [0.007] * 4
    plan = Plan(incumbent=0.0005, span=0.05)
    _, timing = run(itertools.chain(stalled, noisy(0.0004)), plan, preparing=0.0)
    assert timing.stop == "precise"
    assert timing.interval.median == pytest.approx(0.0004, rel=0.02)
    hasty = Plan(incumbent=0.0005)
    _, without = run(itertools.chain(stalled, noisy(0.0004)), hasty, preparing=0.0)
    assert without.stop == "dropped"


def test_samples_span_more_than_a_stall() -> None:
    machine, timing = run(noisy(0.001), Plan(span=0.05), preparing=0.0)
    assert timing.stop == "precise"
    assert machine.now * 1e-9 >= 0.05
    _, slow = run(noisy(0.2), Plan(incumbent=0.01, span=0.05), preparing=0.0)
    assert (slow.stop, len(slow.samples)) == ("dropped", 1)  # one call is longer than any stall


def test_a_slower_candidate_is_dropped_once_its_interval_says_so() -> None:
    _, timing = run(noisy(0.011), Plan(incumbent=0.010, margin=0.05))
    assert (timing.stop, len(timing.samples)) == ("dropped", 5)


def test_a_candidate_within_the_margin_is_measured_to_the_end() -> None:
    _, timing = run(noisy(0.0102), Plan(incumbent=0.010, margin=0.05))
    assert timing.stop == "precise"


@pytest.mark.parametrize("seconds", [0.0, -0.001])
def test_a_time_that_is_not_above_zero_is_an_error(seconds: float) -> None:
    machine = Machine(itertools.repeat(seconds))
    with pytest.raises(TimingError, match="no time"):
        time_candidate(machine.sampler(), Plan(), machine.clock)


@pytest.mark.parametrize("clock_value", [math.nan, math.inf])
def test_a_clock_gone_mad_is_an_error(clock_value: float) -> None:
    readings = itertools.chain([0, 0], itertools.repeat(clock_value))
    sampler = Sampler(lambda: None, lambda: None, clock=lambda: next(readings))  # type: ignore[arg-type, return-value]
    with pytest.raises(TimingError):
        sampler()


def test_faster_than_the_physical_limit_is_an_error() -> None:
    machine = Machine(noisy(0.001))
    with pytest.raises(TimingError, match="physical limit"):
        time_candidate(machine.sampler(), Plan(limit=0.002), machine.clock)


def test_short_calls_are_timed_in_batches() -> None:
    machine = Machine(noisy(2e-6))
    batch = batch_size(2e-6)
    assert batch * 2e-6 >= SHORTEST_SECONDS
    sampler = machine.sampler(batch)
    assert sampler() == pytest.approx(2e-6, rel=0.01)
    assert (machine.calls, machine.prepared) == (batch, 1)
    assert batch_size(1.0) == 1


def test_the_result_of_the_last_call_is_kept_and_freed_before_the_next() -> None:
    seen: list[object] = []
    sampler: Sampler

    def prepare() -> None:
        seen.append(sampler.result)

    results: Callable[[], int] = itertools.count(1).__next__
    sampler = Sampler(results, prepare, clock=itertools.count(1, 1000).__next__)
    sampler()
    assert sampler.result == 1
    sampler()
    assert (sampler.result, seen) == (2, [None, None])
