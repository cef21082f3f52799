"""A machine that becomes slower without a trace, and candidates that are timed in turn on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from worker_bench import PLUGIN

from autotune.bench import Conditions, CpuBench
from autotune.device import local_cpu
from autotune.device.scope import ThreadSettings
from autotune.model import Problem
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.statistics import median_interval
from autotune.timing import Timing
from autotune.worker.measure import measure
from autotune.worker.pace import InTurn, reference_for, threads_of
from autotune.worker.protocol import Job
from autotune.worker.session import Session

BENCH: Any = SimpleNamespace(change_over=lambda timer: None)


class Machine:
    """Calls take their time, times what the machine is slower."""

    def __init__(self) -> None:
        self.slower = 1.0

    def timer(self, seconds: float) -> Any:
        return lambda: seconds * self.slower


def test_what_a_candidate_takes_in_turn_does_not_move_with_the_machine() -> None:
    machine = Machine()
    turn = InTurn(BENCH, machine.timer(2e-3), machine.timer(1e-3), 1e-3)
    samples = []
    for slower in (1.0, 1.6, 0.8, 1.6, 1.6):
        machine.slower = slower
        samples.append(turn())
    assert samples == pytest.approx([2e-3] * 5)
    assert turn.own == pytest.approx([2e-3, 3.2e-3, 1.6e-3, 3.2e-3, 3.2e-3])
    told = turn.told(Timing(tuple(samples), median_interval(samples), "precise", 1))
    assert told["seconds"] == pytest.approx(2e-3)
    assert told["slowdown"] == pytest.approx(1.6)


def test_on_a_busy_machine_the_samples_count_that_others_left_alone() -> None:
    own, reference = iter([2e-3, 9e-3, 9e-3, 2e-3, 9e-3] * 5), iter([*([4e-3, 1e-3] * 12), 1e-3])
    turn = InTurn(BENCH, own.__next__, reference.__next__, 1e-3)  # type: ignore[arg-type]
    samples = [turn() for _ in range(25)]
    timing = Timing(tuple(samples), median_interval(samples), "samples", 1)
    told = turn.told(timing, busy=True)
    assert [told[name] for name in ("seconds", "low")] == pytest.approx([2e-3, 2e-3])
    assert turn.told(timing)["seconds"] > 2.2e-3


def test_few_samples_on_a_busy_machine_still_have_an_interval() -> None:
    turn = InTurn(BENCH, iter([3e-3, 2e-3, 4e-3, 5e-3, 2.5e-3]).__next__, lambda: 1e-3, 1e-3)
    samples = [turn() for _ in range(5)]
    told = turn.told(Timing(tuple(samples), median_interval(samples), "budget", 1), busy=True)
    assert 0 < told["low"] <= told["seconds"] <= told["high"] < 3.1e-3


def test_those_on_other_threads_let_the_last_ones_rest() -> None:
    """Those wait for work, spinning, on the CPUs that these need."""
    machine, rested = Machine(), []
    bench: Any = SimpleNamespace(change_over=rested.append)
    own, reference = machine.timer(2e-3), machine.timer(1e-3)
    assert InTurn(bench, own, reference, 1e-3, threads_differ=True)() == pytest.approx(2e-3)
    assert rested == [reference, own]


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({}, ""),
        ({"numba": True}, ""),
        ({"numba": True, "blas": "serial"}, ""),
        ({"blas": "parallel"}, "blas"),
        ({"openmp": "gcc"}, ""),
        ({"openmp": "clang"}, "clang"),
    ],
)
def test_whose_threads_a_candidate_runs_on(settings: dict[str, Any], threads: str) -> None:
    given = ThreadSettings(threads=2, **settings) if settings else None
    assert threads_of(SimpleNamespace(thread_settings=given)) == threads  # type: ignore[arg-type]


@pytest.fixture
def quiet() -> Callable[[], Session]:
    """A session whose machine is never disturbed."""
    load_file(PLUGIN)

    def made() -> Session:
        bench = CpuBench(local_cpu())
        bench.conditions = lambda before, after, samples: Conditions()  # type: ignore[method-assign]
        return Session(bench)

    return made


def scale_job(variant: str = "honest", **fields: Any) -> Job:
    key = Problem.of(registry.operation("scale"), (4096,)).key.text
    return Job(key, variant, {}, mode="hot", budget=0.1, retries=0, **fields)


def test_a_candidate_is_timed_in_turn_with_the_reference(quiet: Callable[[], Session]) -> None:
    session = quiet()
    first = measure(session, scale_job())
    assert (first.status, first.reason) == ("ok", "")
    assert "paced" not in first.circumstances
    assert first.median is not None
    again = measure(session, scale_job(reference=("honest", {}, 1.0), incumbent=1.0))
    told = again.circumstances["paced"]
    assert told["low"] <= told["seconds"] <= told["high"]
    assert told["seconds"] == pytest.approx(1.0, rel=0.5)
    assert again.median == median_interval(again.samples).median
    assert again.median / told["seconds"] == pytest.approx(told["slowdown"], rel=1e-2, abs=1e-4)


def test_the_incumbent_is_beaten_by_what_ratios_say(quiet: Callable[[], Session]) -> None:
    """As much as a machine that has become slower makes of it, it costs nobody a chance."""
    session = quiet()
    unreachable = scale_job(incumbent=1e-9, max_samples=100_000)
    assert measure(session, unreachable).status == "dropped"
    on_a_slower_machine = replace(unreachable, reference=("honest", {}, 1e-10))
    assert measure(session, on_a_slower_machine).status == "ok"


@pytest.mark.parametrize("broken", ["zeros", "raising", "unheard_of"])
def test_a_reference_that_does_not_run_any_more_is_no_fault_of_the_candidate(
    quiet: Callable[[], Session], broken: str
) -> None:
    found = measure(quiet(), scale_job(reference=(broken, {}, 1e-3)))
    assert found.status == "ok"
    assert "paced" not in found.circumstances


def test_the_reference_is_built_once_for_a_problem(quiet: Callable[[], Session]) -> None:
    session = quiet()
    job = scale_job(reference=("honest", {}, 1e-3))
    gate = session.gate(session.problem(job.problem), 0)
    kept = reference_for(session, gate, job)
    assert kept is not None
    assert reference_for(session, gate, replace(job, reference=("honest", {}, 2e-3))) is kept
    assert reference_for(session, gate, replace(job, mode="cold")) is not kept
    assert reference_for(session, gate, replace(job, reference=None)) is None
    session.gate(Problem.of(registry.operation("scale"), (9,)), 0)
    assert session.reference is None


def test_a_reference_that_was_slowed_alone_makes_no_time_below_the_fastest_sample() -> None:
    """Another program took the second CPU, on which only the reference has a thread."""
    own = [77e-6 + 1e-6 * (n % 9) for n in range(28)]
    turn = InTurn(BENCH, iter(own).__next__, lambda: 43 * 90e-6, 90e-6)
    samples = [turn() for _ in own]
    timing = Timing(tuple(samples), median_interval(samples), "samples", 1)
    told = turn.told(timing, busy=True)
    assert (told["seconds"], told["low"]) == (77e-6, 77e-6)
    assert told["high"] == median_interval(own).high
    assert turn.told(timing)["seconds"] < 3e-6, "which nobody believes"


def test_a_ratio_that_cannot_be_is_not_kept(quiet: Callable[[], Session]) -> None:
    found = measure(quiet(), scale_job(reference=("honest", {}, 1e-10)))
    assert (found.status, "paced" in found.circumstances) == ("ok", False)


@pytest.mark.parametrize(
    ("known", "limit", "status"), [(1e-10, 1e-9, "ok"), (1.0, 0.5, "failed"), (None, 0.5, "failed")]
)
def test_it_is_the_samples_that_are_held_to_the_physical_limit(
    quiet: Callable[[], Session],
    monkeypatch: pytest.MonkeyPatch,
    known: float | None,
    limit: float,
    status: str,
) -> None:
    """A reference that was slowed is no fault of the candidate's; one that was not, no excuse."""
    monkeypatch.setattr("autotune.worker.attempts.physical_limit", lambda *_: limit)
    reference = None if known is None else ("honest", {}, known)
    found = measure(quiet(), scale_job(reference=reference))
    assert found.status == status
    assert ("faster than the physical limit" in found.reason) == (status == "failed")
