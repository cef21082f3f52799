"""What a measuring process keeps between jobs, looked at from inside."""

from __future__ import annotations

from typing import Any

import pytest
from worker_bench import PLUGIN

from autotune.bench import SLOWEST_MEMORY, CpuBench
from autotune.device import local_cpu
from autotune.errors import UserError
from autotune.model import Problem
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.worker.measure import measure
from autotune.worker.protocol import Job
from autotune.worker.session import Session, failure


class FakeEvictor:
    """Swept memory at one gigabyte per second."""

    best_rate = 1e9


@pytest.fixture
def session() -> Session:
    load_file(PLUGIN)
    return Session(CpuBench(local_cpu()))


def problem(size: int) -> Problem:
    return Problem.of(registry.operation("scale"), (size,))


def test_the_problem_is_prepared_once_and_freed_for_the_next(session: Session) -> None:
    one = session.gate(problem(8), 0)
    assert session.gate(problem(8), 0) is one
    assert session.gate(problem(8), 1) is not one
    assert session.gate(problem(9), 0) is not one


def test_only_large_cold_problems_have_a_physical_limit() -> None:
    bench = CpuBench(local_cpu())
    bench.evictor = FakeEvictor()  # type: ignore[assignment]
    size = 128 << 20
    assert bench.physical_limit(size, "cold") == pytest.approx(size / (SLOWEST_MEMORY * 1e9))
    assert bench.physical_limit(size, "hot") == 0.0
    assert bench.physical_limit(1000, "cold") == 0.0


def test_phases_are_reported_in_order_with_the_entrant(session: Session) -> None:
    phases: list[Any] = []
    session._report = lambda *phase: phases.append(phase)
    job = Job("scale N=64 float32 packed", "honest", {}, mode="hot", budget=0.01, retries=0)
    measure(session, job)
    assert [phase for phase, _ in phases] == [
        *("preparing the problem", "building", "checking", "timing", "checking")
    ]
    session.entrant = 3
    session.say("building")
    assert phases[-1] == ("building", 3)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("one\ntwo"), "raised RuntimeError: one"),
        (SystemExit(3), "raised SystemExit: 3"),
        (KeyError(), "raised KeyError"),
        (MemoryError(), "ran out of memory"),
        (MemoryError("4 GiB"), "ran out of memory (4 GiB)"),
        (UserError("no such thing; do that."), "no such thing; do that."),
    ],
)
def test_reasons_are_one_line_and_hold_no_frames(error: BaseException, reason: str) -> None:
    with pytest.raises(type(error)) as caught:
        raise error
    assert failure(caught.value) == ("failed", reason)
    assert error.__traceback__ is None


def test_retries_are_given_up_when_they_do_not_help(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.worker.measure.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("autotune.bench.disturbances", lambda *_: ("noise",))
    job = Job("scale N=64 float32 packed", "honest", {}, mode="hot", budget=0.01, retries=2)
    attempts = [measure(session, job).circumstances["attempts"] for _ in range(4)]
    assert attempts == [3, 2, 1, 1]
    monkeypatch.setattr("autotune.bench.disturbances", lambda *_: ())
    quiet = measure(session, job)
    assert (quiet.status, quiet.circumstances["attempts"]) == ("ok", 1)
    assert session.futile_retries == 0
