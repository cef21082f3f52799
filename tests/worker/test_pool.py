"""The pool of compiling processes: what goes first, once for each, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest

from autotune.worker.pool import CompilePool
from autotune.worker.protocol import Job, Outcome


class Slow:
    """Compiles when it is let; notes what it was given."""

    def __init__(self, given: list[int], go: threading.Event) -> None:
        self.given, self.go = given, go
        self.closed = self.interrupted = False

    def compile(self, job: Job) -> Outcome:
        self.given.append(int(job.config["tile"]))
        while not self.go.wait(0.01):
            if self.interrupted:
                return Outcome("crashed", "interrupted")
        if job.config["tile"] == 99:
            raise RuntimeError("no process can be had")
        return Outcome("ok", compile_seconds=1.0)

    def interrupt(self) -> None:
        self.interrupted = True

    def close(self) -> None:
        self.closed = True


def job(number: int) -> Job:
    return Job("p", "v", {"tile": number})


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


class Scene:
    """A pool of slow compilers."""

    def __init__(self, processes: int) -> None:
        self.given: list[int] = []
        self.go = threading.Event()
        self.made: list[Slow] = []
        self.pool = CompilePool(self.make, processes)

    def make(self) -> Slow:
        self.made.append(Slow(self.given, self.go))
        return self.made[-1]


def test_urgent_work_overtakes_and_nothing_is_compiled_twice() -> None:
    scene = Scene(1)
    first = scene.pool.submit(job(0), urgent=False)
    until(lambda: scene.given == [0])
    later = [scene.pool.submit(job(number), urgent=False) for number in (1, 2, 3)]
    urgent = scene.pool.submit(job(3))
    assert urgent is later[2]
    assert scene.pool.submit(job(0)) is first
    scene.go.set()
    assert [each.result(5).status for each in (first, *later)] == ["ok"] * 4
    assert scene.given == [0, 3, 1, 2]
    scene.pool.close()
    assert len(scene.made) == 1
    assert scene.made[0].closed


def test_what_is_cancelled_before_its_turn_is_not_compiled_unless_it_is_wanted_again() -> None:
    scene = Scene(1)
    first = scene.pool.submit(job(0))
    until(lambda: scene.given == [0])
    dropped, other, wanted = (scene.pool.submit(job(number)) for number in (1, 2, 3))
    assert dropped.cancel()
    assert other.cancel()
    again = scene.pool.submit(job(2))
    scene.go.set()
    assert [each.result(5).status for each in (first, again, wanted)] == ["ok"] * 3
    assert scene.given == [0, 2, 3]
    scene.pool.close()


def test_as_many_processes_as_there_is_work_for() -> None:
    scene = Scene(3)
    for number in range(2):
        scene.pool.submit(job(number))
    until(lambda: len(scene.given) == 2)
    assert len(scene.made) == 2
    for number in range(2, 9):
        scene.pool.submit(job(number))
    until(lambda: len(scene.given) == 3)
    scene.go.set()
    until(lambda: len(scene.given) == 9)
    scene.pool.close()
    assert len(scene.made) == 3


def test_closing_ends_what_is_at_work_and_cancels_the_rest() -> None:
    scene = Scene(1)
    working, waiting = scene.pool.submit(job(0)), scene.pool.submit(job(1))
    until(lambda: scene.given == [0])
    scene.pool.close()
    assert working.result(0).status == "crashed"
    with pytest.raises(CancelledError):
        waiting.result(0)
    assert scene.made[0].closed
    assert scene.given == [0]


def test_a_compiler_that_cannot_work_says_so_and_the_pool_goes_on() -> None:
    scene = Scene(1)
    scene.go.set()
    bad, good = scene.pool.submit(job(99)), scene.pool.submit(job(1))
    with pytest.raises(RuntimeError, match="no process"):
        bad.result(5)
    assert good.result(5).status == "ok"
    scene.pool.close()
