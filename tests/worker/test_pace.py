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
from autotune.worker.pace import LONG_SECONDS, MOST_BYTES, InTurn, Pace, threads_of
from autotune.worker.protocol import Job
from autotune.worker.session import Session


class Machine:
    """Calls take their time, times what the machine is slower."""

    def __init__(self) -> None:
        self.slower = 1.0

    def timer(self, seconds: float) -> Any:
        return lambda: seconds * self.slower


def executable(**settings: Any) -> Any:
    given = ThreadSettings(threads=2, **settings) if settings else None
    return SimpleNamespace(thread_settings=given)


def test_there_is_nothing_to_time_beside_at_first() -> None:
    assert Pace("hot").in_turn(Machine().timer(1.0), executable()) is None


def test_what_a_candidate_takes_in_turn_does_not_move_with_the_machine() -> None:
    machine, pace = Machine(), Pace("hot")
    pace.learn(machine.timer(1e-3), executable(), 1e-3, 0)
    turn = pace.in_turn(machine.timer(2e-3), executable())
    assert turn is not None
    samples = []
    for slower in (1.0, 1.6, 0.8, 1.6, 1.6):
        machine.slower = slower
        samples.append(turn())
    assert samples == pytest.approx([2e-3] * 5)
    assert turn.own == pytest.approx([2e-3, 3.2e-3, 1.6e-3, 3.2e-3, 3.2e-3])
    told = turn.told(Timing(tuple(samples), median_interval(samples), "precise", 1))
    assert told["seconds"] == pytest.approx(2e-3)
    assert told["slowdown"] == pytest.approx(1.6)


def test_another_takes_its_place_only_if_much_faster() -> None:
    machine, pace = Machine(), Pace("hot")
    for seconds, kept in ((1e-3, 1e-3), (0.9e-3, 1e-3), (0.5e-3, 0.5e-3), (2e-3, 0.5e-3)):
        pace.learn(machine.timer(seconds), executable(), seconds, 0)
        turn = pace.in_turn(machine.timer(1.0), executable())
        assert turn is not None
        assert turn.reference() == turn.seconds == kept


@pytest.mark.parametrize(("seconds", "nbytes"), [(2 * LONG_SECONDS, 0), (1e-3, 2 * MOST_BYTES)])
def test_what_is_long_or_large_is_not_kept(seconds: float, nbytes: int) -> None:
    pace = Pace("hot")
    pace.learn(Machine().timer(seconds), executable(), seconds, nbytes)
    assert pace.in_turn(Machine().timer(1.0), executable()) is None


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
def test_only_those_on_the_same_threads_are_timed_in_turn(
    settings: dict[str, Any], threads: str
) -> None:
    """Others wait for theirs, spinning, on the CPUs that these need."""
    found = executable(**settings)
    assert threads_of(found) == threads
    pace = Pace("hot")
    pace.learn(Machine().timer(1e-3), executable(numba=True), 1e-3, 0)
    assert (pace.in_turn(Machine().timer(1.0), found) is None) == bool(threads)


@pytest.fixture
def quiet() -> Callable[[], Session]:
    """A session whose machine is never disturbed."""
    load_file(PLUGIN)

    def made() -> Session:
        bench = CpuBench(local_cpu())
        bench.conditions = lambda before, after, samples: Conditions()  # type: ignore[method-assign]
        return Session(bench)

    return made


def test_trials_after_the_first_are_timed_in_turn(quiet: Callable[[], Session]) -> None:
    session = quiet()
    key = Problem.of(registry.operation("scale"), (4096,)).key.text
    job = Job(key, "honest", {}, mode="hot", budget=0.1, retries=0)
    first = measure(session, job)
    assert (first.status, first.reason) == ("ok", "")
    assert "paced" not in first.circumstances
    assert first.median is not None
    again = measure(session, replace(job, incumbent=first.median))
    told = again.circumstances["paced"]
    assert told["low"] <= told["seconds"] <= told["high"]
    assert told["seconds"] == pytest.approx(first.median, rel=0.5)
    assert again.median == median_interval(again.samples).median
    assert again.median / told["seconds"] == pytest.approx(told["slowdown"], rel=1e-3)


def test_a_slower_machine_costs_no_candidate_its_chance(
    quiet: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = quiet()
    key = Problem.of(registry.operation("scale"), (4096,)).key.text
    job = Job(key, "honest", {}, mode="hot", budget=0.1, retries=0)
    first = measure(session, job)
    assert first.median is not None
    beaten = replace(job, incumbent=first.median / 5.0)
    assert measure(session, beaten).status == "dropped"
    monkeypatch.setattr(InTurn, "__call__", _ten_times_slower)
    found = measure(session, beaten)
    assert (found.status, found.reason) == ("ok", "")
    assert found.circumstances["paced"]["slowdown"] > 5.0


def _ten_times_slower(turn: InTurn) -> float:
    """As if the machine had become a hundred times slower and the candidate ten times faster."""
    turn.own.append(turn.timer() * 10.0)
    return turn.own[-1] * turn.seconds / (turn.reference() * 100.0)


def test_another_problem_begins_without_the_last_ones_pace(quiet: Callable[[], Session]) -> None:
    session = quiet()
    one, other = (Problem.of(registry.operation("scale"), (n,)) for n in (8, 9))
    session.gate(one, 0)
    kept = session.pace("hot")
    assert session.pace("hot") is kept
    assert session.pace("cold") is not kept
    kept = session.pace("cold")
    session.gate(other, 0)
    assert session.pace("cold") is not kept
