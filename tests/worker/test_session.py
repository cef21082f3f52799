"""What a measuring process keeps between jobs, looked at from inside."""

from __future__ import annotations

from typing import Any

import pytest
from worker_bench import PLUGIN

from autotune.bench import SLOWEST_MEMORY, CpuBench
from autotune.device import local_cpu
from autotune.errors import UserError
from autotune.limits import arithmetic_limit
from autotune.model import Problem
from autotune.plugins import load_file, load_plugins
from autotune.registry import registry
from autotune.worker.failures import failure
from autotune.worker.measure import compile_only, measure
from autotune.worker.protocol import PREPARING, Job, call_limit
from autotune.worker.session import Session


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


def test_a_problem_that_cannot_fit_is_refused_before_anything_is_made(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = session.gate(problem(8), 0)
    monkeypatch.setattr("autotune.device.room.memory_left", lambda: 8 << 20)
    too_large = problem(1 << 20)
    monkeypatch.setattr("autotune.inputs.Guarded", None)
    outcome = measure(session, Job(too_large.key.text, "honest", {}))
    assert (outcome.status, outcome.phase) == ("unavailable", PREPARING)
    assert outcome.reason == (
        "needs at least 24 MiB for inputs, outputs and their float64 copies, and 8 MiB of "
        "memory are left"
    )
    compiled = compile_only(session, Job(too_large.key.text, "honest", {}))
    assert (compiled.status, compiled.reason) == ("unavailable", outcome.reason)
    monkeypatch.undo()
    assert session.gate(problem(8), 0) is not kept


def test_only_large_cold_problems_have_a_physical_limit() -> None:
    bench = CpuBench(local_cpu())
    bench.evictor = FakeEvictor()  # type: ignore[assignment]
    size = 128 << 20
    assert bench.physical_limit(size, "cold") == pytest.approx(size / (SLOWEST_MEMORY * 1e9))
    assert bench.physical_limit(size, "hot") == 0.0
    assert bench.physical_limit(1000, "cold") == 0.0


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "pairs"),
    [(8, 8, False, 64), (8, 8, True, 36), (8, 3, True, 6), (3, 8, True, 21)],
)
def test_a_causal_mask_leaves_fewer_operations_that_cannot_be_avoided(
    queries: int, keys: int, causal: bool, pairs: int
) -> None:
    load_plugins()
    attention = registry.operation("attention")
    sizes = {"B": 1, "H": 1, "Nq": queries, "Nk": keys, "D": 4}
    problem = Problem.of(attention, sizes, "float64", causal=causal)
    bench = CpuBench(local_cpu())
    every = arithmetic_limit(bench, Problem.of(attention, sizes, "float64"))
    assert arithmetic_limit(bench, problem) == pytest.approx(every * pairs / (queries * keys))


def test_phases_are_reported_in_order_with_what_a_call_may_take(session: Session) -> None:
    phases: list[Any] = []
    session._report = lambda *phase: phases.append(phase)
    job = Job("scale N=64 float32 packed", "honest", {}, mode="hot", budget=0.01, retries=0)
    measure(session, job)
    assert phases == [
        ("preparing the problem", 4 * job.time_limit),
        ("building", None),
        *(("checking", 10.0), ("timing", 10.0), ("checking", 10.0)),
    ]


def test_between_calls_the_phase_is_said_anew_now_and_then(session: Session) -> None:
    said: list[Any] = []
    session._report = lambda *phase: said.append(phase)
    session.say("racing", 7.0)
    session.live()
    assert len(said) == 1
    session._said -= 1.0
    session.live()
    session.live()
    assert said == [("racing", 7.0)] * 2


@pytest.mark.parametrize(
    ("limit", "first", "expected"), [(60, 0.001, 10), (60, 1, 20), (60, 9, 60), (2, 0.001, 2)]
)
def test_a_call_may_take_many_times_the_first_within_the_limit(
    limit: float, first: float, expected: float
) -> None:
    assert call_limit(limit, first) == expected


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("one\ntwo"), "raised RuntimeError: one"),
        (SystemExit(3), "raised SystemExit: 3"),
        (KeyError(), "raised KeyError"),
        (MemoryError(), "ran out of memory"),
        (MemoryError("4 GiB"), "ran out of memory (4 GiB)"),
        (OSError(12, "no room"), "ran out of memory ([Errno 12] no room)"),
        (RuntimeError("CUDA out of memory."), "ran out of memory (CUDA out of memory.)"),
        (UserError("no such thing; do that."), "no such thing; do that."),
    ],
)
def test_reasons_are_one_line_and_hold_no_frames(error: BaseException, reason: str) -> None:
    with pytest.raises(type(error)) as caught:
        raise error
    failed = failure(caught.value)
    assert (failed.status, failed.reason) == ("failed", reason)
    assert failed.out_of_memory == reason.startswith("ran out")
    assert error.__traceback__ is None


def test_retries_are_given_up_when_they_do_not_help(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.worker.attempts.PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("autotune.bench.disturbances", lambda *_: ("noise",))
    job = Job("scale N=64 float32 packed", "honest", {}, mode="hot", budget=0.01, retries=2)
    attempts = [measure(session, job).circumstances["attempts"] for _ in range(4)]
    assert attempts == [3, 2, 1, 1]
    monkeypatch.setattr("autotune.bench.disturbances", lambda *_: ())
    quiet = measure(session, job)
    assert (quiet.status, quiet.circumstances["attempts"]) == ("ok", 1)
    assert session.futile_retries == 0
