"""Whose threads are varied where no variant was named."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Run
from scaling_bench import FakeWorker, trials
from test_sweep import Numa

from autotune.errors import UserError
from autotune.model import Candidate, Config, Problem
from autotune.plugins import load_file
from autotune.rates import nominal_rates
from autotune.registry import registry
from autotune.scaling import threaded
from autotune.scaling.threaded import threaded_candidate

PLUGIN = Path(__file__).parent / "plugins" / "toy_threads.py"


@pytest.fixture(autouse=True)
def doubling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation, without measuring this machine's rates."""
    load_file(PLUGIN)
    monkeypatch.setattr(threaded, "device_rates", lambda device: nominal_rates(device.kind))


def doubled(rows: int) -> Problem:
    return Problem.of(registry.operation("toy_double"), (rows, 4096), "float64")


def serve(monkeypatch: pytest.MonkeyPatch, variant: str, **config: int) -> None:
    served = Candidate(variant, Config(config))
    monkeypatch.setattr(threaded, "served_candidate", lambda *given: served)


def test_what_is_served_is_taken_where_its_threads_can_vary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve(monkeypatch, "by_rows", threads=2)
    candidate, grounds = threaded_candidate(doubled(2), Numa(), "cold")
    assert candidate == Candidate("by_rows", Config(threads=2))
    assert grounds == "by_rows is what dispatch serves"


@pytest.mark.parametrize("served", ["by_rows", "alone", "reference"])
def test_else_the_one_that_is_predicted_to_be_fastest(
    monkeypatch: pytest.MonkeyPatch, served: str
) -> None:
    serve(monkeypatch, served, **({"threads": 1} if served == "by_rows" else {}))
    candidate, grounds = threaded_candidate(doubled(1), Numa(), "cold")
    assert candidate.variant == "fast"
    assert grounds == (
        "fast is the fastest predicted variant whose threads can vary here; dispatch serves "
        f"{served}, whose cannot"
    )


def test_what_was_measured_counts_more_than_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, "alone")
    problem, worker = doubled(1), FakeWorker(lambda size, job: 1e-3)
    measured = Candidate("slow", Config(threads=4))
    trials(Numa(), worker).measure(problem, measured, budget=1.0, precision=0.02, min_samples=8)
    candidate, grounds = threaded_candidate(problem, Numa(), "cold")
    assert candidate == measured
    assert "slow is the fastest measured variant" in grounds


def test_where_nothing_can_vary_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, "alone")
    monkeypatch.setattr(Numa, "thread_counts", lambda self: (1,))
    with pytest.raises(UserError, match="with more than one thread count"):
        threaded_candidate(doubled(1), Numa(), "cold")


def test_the_command_says_which_and_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, "by_rows", threads=1)
    worker = FakeWorker(lambda size, job: 1e-3)
    monkeypatch.setattr("autotune.trials.worker_for", lambda device: worker)
    monkeypatch.setattr("autotune.device.find_device", lambda *given: Numa())
    ended = run("threads", "toy_double", "--shape", "1x64", "--plugin", PLUGIN, "--json")
    told = [line for line in ended.err.splitlines() if "dispatch serves by_rows" in line]
    assert len(told) == 1
    assert [job.config["threads"] for job in worker.jobs] == [1, 2, 4]
