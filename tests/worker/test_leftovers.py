"""What a candidate leaves behind, and that the next one does not meet it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from worker_bench import MEASURED, Bench

from autotune.worker.leftovers import Leftovers


def a_thread() -> Callable[[], None]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join()

    return end


def a_process() -> Callable[[], None]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def end() -> None:
        process.kill()
        process.wait()

    return end


def another_folder() -> Callable[[], None]:
    before = Path.cwd()
    os.chdir("/")
    return lambda: os.chdir(before)


def other_warnings() -> Callable[[], None]:
    before = np.seterr(all="raise")
    return lambda: np.seterr(**before) and None


def a_signal_handler() -> Callable[[], None]:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    return lambda: signal.signal(signal.SIGINT, before) and None


def another_cpu() -> Callable[[], None]:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two CPUs")
    os.sched_setaffinity(0, {min(before)})
    return lambda: os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    "leave",
    [a_thread, a_process, another_folder, other_warnings, a_signal_handler, another_cpu],
)
def test_what_is_left_behind_shows_until_it_is_gone(
    leave: Callable[[], Callable[[], None]],
) -> None:
    before = Leftovers.now()
    assert not Leftovers.now().differ(before)
    undo = leave()
    try:
        assert Leftovers.now().differ(before)
    finally:
        undo()
    assert not Leftovers.now().differ(before)


def test_the_next_candidate_gets_a_fresh_process(bench: Bench) -> None:
    bench.measure("honest")
    assert bench.worker._process is not None
    before = bench.worker._process.popen.pid
    assert bench.measure("forking").status in MEASURED
    assert bench.measure("honest").status in MEASURED
    assert bench.worker._process.popen.pid != before
