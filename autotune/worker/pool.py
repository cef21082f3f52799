"""Compiles candidates in processes of their own, while others are measured."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from autotune.model.problem import Config
from autotune.worker.protocol import Job, Outcome

_Key = tuple[str, str, Config]


class Compiler(Protocol):
    """A process that compiles, as `autotune.worker.Worker` is one."""

    def compile(self, job: Job) -> Outcome: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass(order=True, slots=True)
class _Turn:
    """A place in the queue; without a job it tells a thread to end."""

    rank: int
    number: int
    job: Job | None = field(compare=False, default=None)


class CompilePool:
    """Several compilers behind one queue.

    Processes start when there is work for them, at most `processes`. The same candidate is
    compiled once, however often it is asked for; an urgent one goes before all that are not.
    """

    def __init__(self, make: Callable[[], Compiler], processes: int) -> None:
        self._make, self.processes = make, processes
        self._queue: queue.PriorityQueue[_Turn] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._futures: dict[_Key, Future[Outcome]] = {}
        self._waiting: set[_Key] = set()
        self._threads: list[threading.Thread] = []
        self._compilers: list[Compiler] = []
        self._lock = threading.Lock()

    def submit(self, job: Job, *, urgent: bool = True) -> Future[Outcome]:
        """The outcome of compiling a candidate, now or later; it has no samples.

        One that is cancelled before its turn is not compiled, unless it is submitted again.
        """
        key = _key(job)
        with self._lock:
            known = self._futures.get(key)
            new = known is None or known.cancelled()
            future = self._futures[key] = Future() if known is None or new else known
            if new:
                self._waiting.add(key)
            if new or (urgent and key in self._waiting):
                self._queue.put(_Turn(0 if urgent else 1, next(self._numbers), job))
            if new and len(self._threads) < self.processes:
                self._start()
        return future

    def close(self) -> None:
        """End all processes at once; what was not compiled is cancelled."""
        with self._lock:
            for key in self._waiting:
                self._futures[key].cancel()
            self._waiting.clear()
            for _ in self._threads:
                self._queue.put(_Turn(-1, next(self._numbers)))
        for thread in self._threads:
            while thread.is_alive():  # again and again: a process may be starting
                for compiler in tuple(self._compilers):
                    compiler.interrupt()
                thread.join(0.1)

    def _start(self) -> None:
        compiler = self._make()
        self._compilers.append(compiler)
        thread = threading.Thread(target=self._work, args=(compiler,), name="compile", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, compiler: Compiler) -> None:
        while (job := self._queue.get().job) is not None:
            key = _key(job)
            with self._lock:
                if key not in self._waiting:  # queued twice, and taken already
                    continue
                self._waiting.discard(key)
                future = self._futures[key]
                if not future.set_running_or_notify_cancel():
                    continue
            try:
                future.set_result(compiler.compile(job))
            except Exception as error:
                future.set_exception(error)
        compiler.close()


def _key(job: Job) -> _Key:
    return job.problem, job.variant, Config(dict(job.config))
