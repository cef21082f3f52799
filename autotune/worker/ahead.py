"""Compiles ahead of measuring: by several processes at once, while nothing is being timed."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from autotune.compiled import use_of, worth_keeping
from autotune.device import Device
from autotune.reach import reach_of
from autotune.registry import registry
from autotune.worker.client import Worker
from autotune.worker.protocol import Job, Outcome
from autotune_tuning_db import ProblemKey

MOST_PROCESSES = 16

Listener = Callable[[Job, Outcome], None]


def compile_ahead(
    device: Device,
    jobs: Iterable[Job],
    *,
    plugin_files: Sequence[str] = (),
    processes: int | None = None,
    starting: Callable[[int], None] = lambda count: None,
    done: Listener = lambda job, outcome: None,
) -> int:
    """Put the compiled code of candidates on disk, so that measuring them need not compile.

    One job for each variant, dtype and layout is enough: tunables are runtime arguments as a rule.
    Left out are jobs of variants without numba functions, and of those with the code on disk. A
    job that fails here will fail again, with its reason, when it is measured. `done` hears of
    each job in the thread that had it done, `starting` first of their number, if there are any.
    Returns how many jobs were done; raises WorkerError when no process can be had.
    """
    todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
    wanted = [job for job in jobs if _compiles(job)]
    for job in wanted:
        todo.put(job)
    count = min(processes or max(device.thread_counts()), len(wanted), MOST_PROCESSES)
    if count == 0:
        return 0
    starting(len(wanted))
    workers = [Worker(device, plugin_files=plugin_files) for _ in range(count)]

    def work(worker: Worker) -> None:
        with worker:
            while not todo.empty():
                job = _taken(todo)
                if job is not None:
                    done(job, worker.compile(job))

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(work, worker) for worker in workers]
        try:
            for each in running:
                each.result()
        except BaseException:  # also KeyboardInterrupt: nothing is left running
            while _taken(todo) is not None:
                pass
            for worker in workers:
                worker.interrupt()
            raise
    return len(wanted)


def _taken(todo: queue.SimpleQueue[Job]) -> Job | None:
    try:
        return todo.get_nowait()
    except queue.Empty:
        return None


def _compiles(job: Job) -> bool:
    key = ProblemKey.parse(job.problem)
    variant = registry.variant(registry.operation(key.operation), job.variant)
    return worth_keeping(reach_of(variant), use_of(key, job.variant))
