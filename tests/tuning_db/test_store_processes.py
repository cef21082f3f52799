"""Many users of one store at once: processes, threads, forks, and kills at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from autotune_tuning_db import Store, TrialRow

Trial = Callable[..., TrialRow]
PROGRAM = Path(__file__).with_name("processes.py")


def run(job: str, folder: Path, rounds: int) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), job, str(folder), str(rounds)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


def test_db1_sixteen_processes_start_on_an_empty_store(tmp_path: Path) -> None:
    assert run("together", tmp_path, 2) == ["16 16 1 ()"] * 2


def test_kill_loses_no_trial_that_was_kept(tmp_path: Path) -> None:
    lines = run("killed", tmp_path, 30)
    assert len(lines) == 30
    assert all(line.endswith(" 0 ()") for line in lines), lines
    assert sum(int(line.split()[0]) for line in lines) > 30
    assert not list(tmp_path.glob("*.damaged-*"))


def test_a_forked_child_uses_a_connection_of_its_own(tmp_path: Path) -> None:
    assert run("inherited", tmp_path, 5) == ["15 ()"]


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(
    store: Store, make_trial: Trial
) -> None:
    store.add_trial(make_trial())
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with store._lock:
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    number = os.fork()
    if number == 0:
        os._exit(0 if len(store.trials()) == 1 else 1)
    deadline, ended = time.monotonic() + 5, 0
    while ended == 0 and time.monotonic() < deadline:
        ended, status = os.waitpid(number, os.WNOHANG)
        time.sleep(0.01)
    release.set()
    holder.join()
    if ended == 0:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
    assert ended == number
    assert status == 0


def test_db6_threads_share_one_store(store: Store, make_trial: Trial) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work(name: str) -> None:
        try:
            start.wait()
            for _ in range(10):
                store.add_trial(make_trial(variant=name))
                assert store.trials()
                store.generation()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"v{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    counts = [row.variant for row in store.trials()]
    assert {name: counts.count(name) for name in set(counts)} == {f"v{n}": 10 for n in range(8)}


def test_threads_first_opening_one_store_each(path: Path, make_trial: Trial) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work() -> None:
        try:
            start.wait()
            with Store(path) as own:
                own.add_trial(make_trial())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Store(path) as store:
        assert len(store.trials()) == 8
