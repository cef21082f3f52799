"""The measuring process as its parent holds it: what time counts, whose call it was, its end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from worker_bench import MEASURED, Bench

from autotune.device import local_cpu
from autotune.worker import RaceJob, Worker
from autotune.worker.guard import Guard
from autotune.worker.process import POLL_SECONDS, EndedError, Patience, Process


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_counts_in_which_the_tuner_could_look() -> None:
    clock = Clock()
    patience = Patience(2.0, clock)
    looks = 0
    while not patience.over():
        clock.now += POLL_SECONDS
        looks += 1
    assert looks == 4


def test_time_asleep_or_stopped_is_nobodys_fault() -> None:
    clock = Clock()
    patience = Patience(3.0, clock)
    clock.now += 3600.0
    assert not patience.over()
    clock.now += 0.5
    assert not patience.over()
    clock.now += 3600.0
    assert not patience.over()
    for _ in range(2):
        clock.now += POLL_SECONDS
    assert patience.over()


def process_with(code: str) -> Process:
    """A process with our pipes that runs something else."""
    child_in, outgoing = os.pipe()
    incoming, child_out = os.pipe()
    log, mark = (Path(os.devnull).open("r+b", buffering=0) for _ in range(2))  # noqa: SIM115
    popen = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(child_out)],
        pass_fds=(child_out,),
        start_new_session=True,
    )
    os.close(child_in)
    os.close(child_out)
    return Process(popen, incoming, outgoing, log, mark, Guard(popen.pid))


@pytest.fixture
def made() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for each in processes:
        each.close()


def test_whatever_it_says_renews_its_limit_and_may_set_another(made: list[Process]) -> None:
    made.append(
        process_with("""
        import json, os, sys, time
        def say(**message):
            os.write(int(sys.argv[1]), json.dumps(message).encode() + b"\\n")
        for _ in range(6):
            time.sleep(0.2)
            say(say="phase", phase="timing", limit=0.75)
        time.sleep(60)
        """)
    )
    started = time.monotonic()
    with pytest.raises(EndedError) as ended:
        made[0].answer(20.0)
    assert (ended.value.status, ended.value.phase) == ("timeout", "timing")
    assert ended.value.reason == "exceeded its limit of 0.75 s while timing"
    assert 1.5 < time.monotonic() - started < 10.0


@pytest.mark.parametrize(
    ("given", "blas", "openmp"),
    [
        ({}, "20", "1"),
        ({"OPENBLAS_THREAD_TIMEOUT": "28", "KMP_BLOCKTIME": "7"}, "28", "7"),
        ({"OMP_WAIT_POLICY": "active"}, "20", None),
    ],
)
def test_idle_threads_of_blas_rest_unless_told_otherwise(
    given: dict[str, str],
    blas: str,
    openmp: str | None,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENBLAS_THREAD_TIMEOUT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    before = set(psutil.Process().children())
    with Worker(local_cpu()) as worker:
        assert Bench(worker).measure("honest").status in MEASURED
        started = set(psutil.Process().children()) - before
        (seen,) = [each.environ() for each in started if "autotune.worker" in each.cmdline()]
    assert seen["OPENBLAS_THREAD_TIMEOUT"] == blas
    assert seen.get("KMP_BLOCKTIME") == openmp


def test_nonsense_in_the_pipe_is_a_crash(made: list[Process]) -> None:
    made.append(process_with("import os, sys; os.write(int(sys.argv[1]), b'hello\\n')"))
    with pytest.raises(EndedError, match="wrote into the pipe") as ended:
        made[0].answer(20.0)
    assert ended.value.status == "crashed"


def test_killed_by_somebody_else_is_told_apart(made: list[Process]) -> None:
    made.append(process_with("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    with pytest.raises(EndedError, match=r"killed by SIGKILL \(out of memory\?\)") as ended:
        made[0].answer(20.0)
    assert ended.value.killed


def test_the_end_reaches_what_was_started_in_groups_of_their_own(made: list[Process]) -> None:
    made.append(
        process_with("""
        import os, subprocess, sys, time
        sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
        subprocess.Popen(sleeping)
        subprocess.Popen(sleeping, start_new_session=True)
        os.write(int(sys.argv[1]), b'{"say": "ready"}\\n')
        time.sleep(60)
        """)
    )
    assert made[0].read(20.0) == {"say": "ready"}
    children = psutil.Process(made[0].popen.pid).children(recursive=True)
    assert len(children) == 2
    made[0].kill()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_who_ends_a_race_is_known(bench: Bench) -> None:
    """Its third call and those after it are in the race itself."""
    entrants = (("honest", {}), ("dies_later", {}), ("returning", {}))
    job = RaceJob(bench.key(), entrants, mode="cold", budget=5.0, time_limit=30.0)
    outcome = bench.worker.race(job)
    assert outcome.status == "crashed"
    assert "killed by SIGSEGV while racing" in outcome.reason
    assert outcome.culprit == 1
    assert bench.measure("honest").status in MEASURED
