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
from autotune.worker.measure import measure
from autotune.worker.pace import LONG_SECONDS, MOST_BYTES, Pace, Slowdown
from autotune.worker.protocol import Job
from autotune.worker.session import Session

BENCH: Any = SimpleNamespace(change_over=lambda timer: None)


def timer(*seconds: float) -> Any:
    """Takes these times in turn, the last one again and again."""
    left = list(seconds)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_nothing_is_known_before_a_candidate_was_timed() -> None:
    assert Pace("hot").look(BENCH) is None


def test_a_candidate_timed_before_tells_how_much_slower_the_machine_is() -> None:
    pace = Pace("hot")
    pace.learn(timer(1.5e-3), 1e-3, 0)
    assert pace.look(BENCH) == pytest.approx(1.5)


def test_one_stalled_call_is_no_slow_machine() -> None:
    pace = Pace("hot")
    pace.learn(timer(1e-3, 50e-3, 1e-3), 1e-3, 0)
    assert pace.look(BENCH) == pytest.approx(1.0)


def test_another_takes_its_place_only_if_much_faster() -> None:
    """Else of many unsure ratios the smallest would be taken, again and again."""
    pace = Pace("hot")
    pace.learn(timer(1.5e-3), 1e-3, 0)
    pace.learn(timer(9.0), 0.9e-3, 0)
    assert pace.look(BENCH) == pytest.approx(1.5)
    pace.learn(timer(1e-3), 0.5e-3, 0)
    assert pace.look(BENCH) == pytest.approx(2.0)


@pytest.mark.parametrize(("seconds", "nbytes"), [(2 * LONG_SECONDS, 0), (1e-3, 2 * MOST_BYTES)])
def test_what_is_long_or_large_is_not_kept(seconds: float, nbytes: int) -> None:
    pace = Pace("hot")
    pace.learn(timer(9.0), seconds, nbytes)
    assert pace.look(BENCH) is None


@pytest.mark.parametrize(
    ("before", "after", "factor", "words"),
    [
        (1.5, 1.5, 1.5, ""),
        (2.0, 1.0, 2.0**0.5, "2.00 times faster"),
        (1.0, 1.2, 1.2**0.5, "slower"),
    ],
)
def test_a_change_between_two_looks_disturbs(
    before: float, after: float, factor: float, words: str
) -> None:
    slowdown = Slowdown(before, after)
    assert slowdown.factor == pytest.approx(factor)
    assert words in "".join(slowdown.reasons)
    assert bool(slowdown.reasons) == bool(words)


def test_what_a_slowed_machine_times_is_judged_by_the_slower_incumbent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_file(PLUGIN)
    bench = CpuBench(local_cpu())
    monkeypatch.setattr(bench, "conditions", lambda before, after, samples: Conditions())
    session = Session(bench)
    key = Problem.of(registry.operation("scale"), (4096,)).key.text
    job = Job(key, "honest", {}, mode="hot", budget=0.1, retries=0)
    first = measure(session, job)
    assert (first.status, first.reason) == ("ok", "")
    assert "slowdown" not in first.circumstances
    assert first.median is not None
    much_faster = replace(job, incumbent=first.median / 5.0)
    assert measure(session, much_faster).status == "dropped"
    monkeypatch.setattr(Pace, "look", lambda self, bench: 10.0)
    found = measure(session, much_faster)
    assert (found.status, found.circumstances["slowdown"]) == ("ok", 10.0)
    looks = iter([1.0, 1.3])
    monkeypatch.setattr(Pace, "look", lambda self, bench: next(looks))
    changed = measure(session, replace(job, incumbent=first.median))
    assert changed.reason == "the machine became 1.30 times slower meanwhile"
    assert changed.status in ("disturbed", "dropped")


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
