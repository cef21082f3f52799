"""Compiling ahead: what is on disk is not compiled again, and failures wait for their turn."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from worker_bench import PLUGIN, Bench

from autotune.device import local_cpu
from autotune.plugins import load_file
from autotune.worker import Job, Outcome, Worker
from autotune.worker.ahead import compile_ahead

KEY = "scale N=64 float32 packed"
THREADED = Job(KEY, "threaded", {"threads": 1, "style": "a"}, mode="hot", budget=0.02, retries=0)


@pytest.fixture(autouse=True)
def plugin() -> None:
    load_file(PLUGIN)


def test_what_was_compiled_ahead_is_loaded_when_it_is_measured(private_home: Path) -> None:
    heard: list[tuple[Job, Outcome]] = []
    jobs = [THREADED, Job(KEY, "honest", {})]
    count = compile_ahead(local_cpu(), jobs, done=lambda job, outcome: heard.append((job, outcome)))
    assert count == 1
    ((job, outcome),) = heard
    assert job is THREADED
    assert outcome.status == "ok", outcome.reason
    assert outcome.compile_seconds > 0.1
    assert outcome.samples == ()
    with Worker(local_cpu()) as worker:
        measured = worker.measure(THREADED)
    assert measured.compile_seconds < outcome.compile_seconds / 4
    assert compile_ahead(local_cpu(), jobs) == 0


def test_each_dtype_and_layout_is_compiled_once(private_home: Path) -> None:
    def job(dtype: str, layout: str = "packed") -> Job:
        return replace(THREADED, problem=f"scale N=64 {dtype} {layout}")

    assert compile_ahead(local_cpu(), [job("float32")]) == 1
    rest = [job("float64"), job("float32", "strided")]
    heard: list[Outcome] = []
    assert compile_ahead(local_cpu(), rest, done=lambda _, outcome: heard.append(outcome)) == 2
    assert all(outcome.compile_seconds > 0.1 for outcome in heard)
    assert compile_ahead(local_cpu(), [job("float32"), *rest]) == 0


def test_what_was_measured_need_not_be_compiled_ahead(private_home: Path) -> None:
    with Worker(local_cpu()) as worker:
        assert worker.measure(THREADED).status != "failed"
    assert compile_ahead(local_cpu(), [THREADED]) == 0


def test_failures_are_told_and_do_not_end_it() -> None:
    heard: dict[str, str] = {}
    job = Job(KEY, "endless_in_c", {}, time_limit=2.0)
    assert (
        compile_ahead(local_cpu(), [job], done=lambda j, o: heard.update({j.variant: o.status}))
        == 1
    )
    assert heard == {"endless_in_c": "timeout"}


def test_an_interrupt_leaves_nothing_running() -> None:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(4.0, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        compile_ahead(local_cpu(), [Job(KEY, "endless_in_c", {}, time_limit=60.0)])
    timer.join()
    assert set(psutil.Process().children()) <= before


def test_compiling_needs_no_reference_that_can_judge(bench: Bench) -> None:
    outcome = bench.worker.compile(Job(bench.key("unjudged"), "only", {}))
    assert outcome.status == "ok"
    assert bench.worker.compile(Job(bench.key(), "raising", {})).reason.startswith("raised Runtime")
