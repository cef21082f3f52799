"""A machine that has become slower without a trace, and what is timed on it then."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from worker_bench import PLUGIN

from autotune.bench import Conditions, CpuBench
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.statistics import Interval
from autotune.timing import Timing
from autotune.worker.measure import measure
from autotune.worker.pace import LONG_SECONDS, MOST_BYTES, Pace, slowed
from autotune.worker.protocol import Job
from autotune.worker.session import Session

BENCH: Any = SimpleNamespace(change_over=lambda timer: None)


def timer(*seconds: float) -> Any:
    """Takes these times in turn, the last one again and again."""
    left = list(seconds)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_nothing_is_known_before_a_candidate_was_timed() -> None:
    assert Pace("hot").slowdown(BENCH) == 1.0


def test_the_fastest_candidate_tells_how_much_slower_the_machine_is() -> None:
    pace = Pace("hot")
    pace.learn(timer(9.0), 2e-3, 0)
    pace.learn(timer(1.5e-3), 1e-3, 0)
    pace.learn(timer(9.0), 3e-3, 0)
    assert pace.slowdown(BENCH) == pytest.approx(1.5)


def test_one_stalled_call_is_no_slow_machine() -> None:
    pace = Pace("hot")
    pace.learn(timer(1e-3, 50e-3, 1e-3, 1e-3, 1e-3), 1e-3, 0)
    assert pace.slowdown(BENCH) == 1.0


def test_a_machine_that_was_slow_at_first_is_measured_by_its_best() -> None:
    pace = Pace("hot")
    pace.learn(timer(*[1e-3] * 5, 2e-3), 2e-3, 0)
    assert pace.slowdown(BENCH) == 1.0
    assert pace.slowdown(BENCH) == pytest.approx(2.0)


@pytest.mark.parametrize(("seconds", "nbytes"), [(2 * LONG_SECONDS, 0), (1e-3, 2 * MOST_BYTES)])
def test_what_is_long_or_large_is_not_kept(seconds: float, nbytes: int) -> None:
    pace = Pace("hot")
    pace.learn(timer(9.0), seconds, nbytes)
    assert pace.slowdown(BENCH) == 1.0


@pytest.mark.parametrize(
    ("low", "slowdown", "incumbent", "matters"),
    [
        (1.6, 1.5, 1.0, True),
        (1.8, 1.5, 1.0, False),
        (1.05, 1.05, 1.0, False),
        (1.6, 1.5, None, False),
    ],
)
def test_it_matters_for_candidates_that_may_be_among_the_best(
    low: float, slowdown: float, incumbent: float | None, matters: bool
) -> None:
    timing = Timing((low,) * 9, Interval(low, low, low, 0.95), "dropped", 1)
    assert bool(slowed(timing, slowdown, incumbent)) == matters


def test_a_candidate_timed_on_a_slowed_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    load_file(PLUGIN)
    bench = CpuBench(local_cpu())
    monkeypatch.setattr(bench, "conditions", lambda before, after, samples: Conditions())
    session = Session(bench)
    key = Problem.of(registry.operation("scale"), (4096,)).key.text
    job = Job(key, "honest", {}, mode="hot", budget=0.1, retries=0)
    first = measure(session, job)
    assert first.status == "ok"
    assert "slowdown" not in first.circumstances
    monkeypatch.setattr(Pace, "slowdown", lambda self, bench: 1.4)
    found = measure(session, replace(job, incumbent=first.median))
    assert found.circumstances["slowdown"] == 1.4
    assert found.status in ("disturbed", "dropped")
    assert found.reason == "the best candidate took 1.40 times as long at that moment"
    monkeypatch.setattr(Pace, "slowdown", lambda self, bench: 1.02)
    calm = measure(session, replace(job, incumbent=first.median))
    assert (calm.reason, calm.circumstances["slowdown"]) == ("", 1.02)


def test_another_problem_begins_without_the_last_ones_pace() -> None:
    load_file(PLUGIN)
    session = Session(CpuBench(local_cpu()))
    one, other = (Problem.of(registry.operation("scale"), (n,)) for n in (8, 9))
    session.gate(one, 0)
    kept = session.pace("hot")
    assert session.pace("hot") is kept
    assert session.pace("cold") is not kept
    kept = session.pace("cold")
    session.gate(other, 0)
    assert session.pace("cold") is not kept
