"""The measuring process itself: crashes, hangs, floods, signals, and who starts it from where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from worker_bench import MEASURED, PLUGIN, Bench

from autotune.device import CpuDevice, local_cpu
from autotune.plugins import load_file
from autotune.worker import Job, Worker, WorkerError


def process_of(worker: Worker) -> psutil.Process:
    assert worker._process is not None
    return psutil.Process(worker._process.popen.pid)


def test_a_process_that_a_candidate_ends_costs_one_outcome(bench: Bench) -> None:
    """Signals: tests/cases/test_cases_isolation.py."""
    outcome = bench.measure("leaving")
    assert outcome.status == "crashed"
    assert outcome.reason == "ended the process with exit status 0 while building"
    assert bench.measure("honest").status in MEASURED


@pytest.mark.parametrize(
    ("variant", "phase"),
    [("endless", "building"), ("endless_in_c", "building"), ("impatient", "timing")],
)
def test_a_hang_is_ended_at_the_limit_of_its_phase(bench: Bench, variant: str, phase: str) -> None:
    bench.measure("honest")
    process = process_of(bench.worker)
    outcome = bench.measure(variant, time_limit=1.5)
    assert outcome.status == "timeout"
    assert outcome.reason.startswith(f"exceeded its limit of 1.5 s while {phase}")
    assert not process.is_running()
    assert bench.measure("honest").status in MEASURED


def test_a_flood_of_output_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.worker.process.LOG_LIMIT_BYTES", 1 << 20)
    outcome = bench.measure("flooding")
    assert outcome.status == "failed"
    assert outcome.reason.startswith("printed more than 1 MiB while building; last output: xxx")
    assert len(outcome.reason) < 400


def test_what_candidates_print_stays_away_from_our_output(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bench.measure("chatty").status in MEASURED
    assert capfd.readouterr() == ("", "")


def test_one_process_serves_many_jobs_until_a_candidate_leaves_threads_behind(
    bench: Bench,
) -> None:
    pids = [bench.measure("pid").reason.split()[2] for _ in range(2)]
    assert pids[0] == pids[1] == str(process_of(bench.worker).pid)
    assert bench.measure("orphaning").status in MEASURED
    assert bench.measure("pid").reason.split()[2] != pids[0]


def test_a_process_that_died_between_jobs_is_replaced(bench: Bench) -> None:
    bench.measure("honest")
    process = process_of(bench.worker)
    process.kill()
    process.wait()
    assert bench.measure("honest").status in MEASURED


def test_it_runs_in_a_session_of_its_own_and_close_ends_it() -> None:
    load_file(PLUGIN)
    bench = Bench(Worker(local_cpu()))
    with bench.worker:
        assert bench.measure("honest").status in MEASURED
        process = process_of(bench.worker)
        assert os.getsid(process.pid) == process.pid
    assert not process.is_running()
    bench.worker.close()


def test_an_interrupt_of_the_parent_is_not_swallowed() -> None:
    load_file(PLUGIN)
    with Worker(local_cpu()) as worker:
        bench = Bench(worker)
        bench.measure("honest")
        process = process_of(worker)
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            bench.measure("endless")
        timer.join()
        assert not process.is_running()
        assert bench.measure("honest").status in MEASURED


PARENT = """
    import sys
    from autotune.device import local_cpu
    from autotune.plugins import load_file
    from autotune.worker import Job, Worker
    load_file(sys.argv[1])
    worker = Worker(local_cpu())
    worker.measure(Job("scale N=8 float32 packed", "honest", {}, mode="hot", budget=0.01))
    print(worker._process.popen.pid, flush=True)
    worker.measure(Job("scale N=8 float32 packed", "endless_in_c", {}, mode="hot"))
"""


def test_it_dies_with_its_parent_even_when_it_hangs(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    with subprocess.Popen(
        [sys.executable, str(script), str(PLUGIN)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.5)
        parent.kill()
    gone, alive = psutil.wait_procs([worker], timeout=10)
    assert gone
    assert not alive


def test_what_a_candidate_has_started_dies_with_the_parent_too(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT).replace("endless_in_c", "starting_another"))
    with subprocess.Popen(
        [sys.executable, str(script), str(PLUGIN)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        while not (started := worker.children(recursive=True)):
            time.sleep(0.05)
        parent.kill()
    gone, alive = psutil.wait_procs([worker, *started], timeout=10)
    assert len(gone) == 1 + len(started)
    assert not alive


SCRIPT = """
    import numba, numpy as np
    from autotune import operation, variant
    from autotune.device import local_cpu
    from autotune.fingerprint import fingerprint
    from autotune.registry import registry
    from autotune.worker import Job, RaceJob, Worker

    @numba.njit(parallel=PARALLEL)
    def warm(x):
        s = 0.0
        for i in numba.prange(x.size):
            s += x[i]
        return s
    warm(np.ones(1000))

    FACTOR = 2

    @operation(inputs="x[N]", outputs="y[N]")
    def twice(x):
        return x * FACTOR

    @numba.njit
    def kernel(x, y):
        for i in range(x.size):
            y[i] = x[i] * FACTOR

    @variant(twice, "compiled")
    def compiled(x, y):
        kernel(x, y)

    @variant(twice, "direct")
    def direct(x, y, _seen=set()):
        _seen.add(x.shape)
        np.multiply(x, FACTOR, out=y)

    with Worker(local_cpu()) as worker:
        for name in ("compiled", "direct"):
            job = Job("twice N=64 float32 packed", name, {}, mode="hot", budget=0.05, retries=0)
            outcome = worker.measure(job)
            same = outcome.fingerprint == fingerprint(registry.variant("twice", name))
            print(name, outcome.status in ("ok", "disturbed") or outcome.reason, same)
"""


@pytest.mark.parametrize("how", ["script", "command"])
def test_operations_of_a_script_or_command_are_known_without_running_it_again(
    tmp_path: Path, how: str
) -> None:
    # A parallel region in the parent is what breaks workers that are forked; once is enough.
    code = textwrap.dedent(SCRIPT).replace("PARALLEL", str(how == "command"))
    (tmp_path / "script.py").write_text(code)
    arguments = ["script.py"] if how == "script" else ["-c", code]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "compiled True True\ndirect True True\n"


def test_a_plugin_file_that_fails_in_the_process_is_one_clear_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import not_there_at_all\n")
    worker = Worker(local_cpu(), plugin_files=[str(broken)])
    with worker, pytest.raises(WorkerError, match="not_there_at_all"):
        worker.measure(Job("scale N=8 float32 packed", "honest", {}))


def test_a_device_that_is_not_here_is_one_clear_error() -> None:
    device = local_cpu()
    elsewhere = CpuDevice("cpu-elsewhere", device.family, "Elsewhere", device.topology)
    with Worker(elsewhere) as worker, pytest.raises(WorkerError, match="cpu-elsewhere"):
        worker.measure(Job("scale N=8 float32 packed", "honest", {}))
