"""Measuring on a GPU: one process measures, others compile what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial

from autotune.device import Device
from autotune.memory import allowed_cpus
from autotune.worker.client import Worker
from autotune.worker.pool import CompilePool
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome

MOST_PROCESSES = 32
MOST_IN_FLIGHT = 12
_MEASURING = 2
"""CPUs left for the measuring process and for this one."""


class GpuWorker:
    """As `Worker`; what a candidate compiles is compiled beside the measuring, ahead of it.

    On a GPU every config is a compilation of its own, which takes longer than measuring it, and
    compiling does not disturb the device.
    """

    def __init__(
        self, device: Device, *, plugin_files: Iterable[str] = (), processes: int | None = None
    ) -> None:
        files = tuple(plugin_files)
        self._worker = Worker(device, plugin_files=files)
        count = processes or min(max(allowed_cpus() - _MEASURING, 1), MOST_PROCESSES)
        make = partial(Worker, device, plugin_files=files, compile_for=architecture(device))
        self._pool = CompilePool(make, count)

    @property
    def depth(self) -> int:
        """Candidates to have in flight: one for each compiling process, and one to measure.

        No more than that many: what is asked for early is asked for knowing less.
        """
        return min(self._pool.processes, MOST_IN_FLIGHT) + 1

    def start(self, job: Job) -> Future[Outcome]:
        """Begin to compile a candidate that is measured next."""
        return self._pool.submit(job)

    def compile_ahead(self, jobs: Iterable[Job], *, starting: Callable[[int], None]) -> int:
        """Begin to compile what is measured later; returns at once, with the number of jobs."""
        count = len([self._pool.submit(job, urgent=False) for job in jobs])
        if count:
            starting(count)
        return count

    def measure(self, job: Job) -> Outcome:
        """As `Worker.measure`."""
        return self._worker.measure(job)

    def race(self, job: RaceJob) -> RaceOutcome:
        """As `Worker.race`."""
        return self._worker.race(job)

    def renew(self) -> None:
        """As `Worker.renew`."""
        self._worker.renew()

    def close(self) -> None:
        """End all processes."""
        try:
            self._pool.close()
        finally:
            self._worker.close()


def architecture(device: Device) -> str:
    """What to compile for: "sm_90a" on a device of compute capability 9.0."""
    from autotune.cuda.launch import architecture_of

    return architecture_of(str(device.limits["compute"]))
