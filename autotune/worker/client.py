"""Worker: the measuring process as its parent sees it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable

from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.worker.definitions import describe
from autotune.worker.messages import Answer, Ask, pack, unpack
from autotune.worker.process import EndedError, Process
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome

START_LIMIT_SECONDS = 120.0


class WorkerError(AutotuneError):
    """The measuring process cannot be started, or cannot load what it has to."""


class Worker:
    """Measures candidates in a process of their own, started fresh when first needed.

    A candidate that crashes, hangs or floods costs one outcome and a new process for the next
    job. One that crashes in a process that has served others is tried once more, alone. Use as a
    context manager, or call `close`. Not for several threads at once. One with `compile_for`, an
    architecture such as "sm_90a", only compiles, and needs no device.
    """

    depth = 1
    """Candidates to have in flight: on a CPU, compiling would disturb the measuring."""

    def __init__(
        self,
        device: Device,
        *,
        plugin_files: Iterable[str] = (),
        compile_for: str | None = None,
    ) -> None:
        self._device = device
        self._compile_for = compile_for
        self._files = tuple(str(file) for file in plugin_files)
        self._process: Process | None = None
        self._culprit: int | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile_ahead(self, jobs: Iterable[Job], *, starting: Callable[[int], None]) -> int:
        """Compile candidates beside this process; see `autotune.worker.ahead.compile_ahead`."""
        from autotune.worker.ahead import compile_ahead

        return compile_ahead(self._device, jobs, plugin_files=self._files, starting=starting)

    def start(self, job: Job) -> None:
        """Nothing: what is compiled ahead was, and the rest is compiled as it is measured."""

    def measure(self, job: Job) -> Outcome:
        """Build, check and time one candidate. Raises WorkerError when no process can be had."""
        return self._outcome(job, "measure")

    def check(self, job: Job) -> Outcome:
        """Build a candidate and put it through the gate; the outcome has no samples."""
        return self._outcome(job, "check")

    def _outcome(self, job: Job, do: str) -> Outcome:
        started = time.perf_counter()
        shared = self._process is not None and self._process.answers > 0
        try:
            answer = self._ask(do, job, job.time_limit)
        except EndedError as ended:
            if ended.status == "crashed" and shared and do != "compile":
                return self._outcome(job, do)  # alone: an earlier candidate may have caused it
            return Outcome(
                ended.status,
                ended.reason,
                phase=ended.phase,
                out_of_memory=ended.killed,
                wall_seconds=time.perf_counter() - started,
            )
        assert isinstance(answer, Outcome)
        return answer

    def compile(self, job: Job) -> Outcome:
        """Build and call a candidate once, unchecked, so that its compiled code is on disk.

        The outcome has the times to compile and of the first call, and no samples.
        """
        return self._outcome(job, "compile")

    def race(self, job: RaceJob) -> RaceOutcome:
        """Time leaders interleaved. Raises WorkerError when no process can be had."""
        started = time.perf_counter()
        try:
            answer = self._ask("race", job, job.time_limit)
        except EndedError as ended:
            return RaceOutcome(
                ended.status,
                ended.reason,
                wall_seconds=time.perf_counter() - started,
                culprit=self._culprit,
            )
        assert isinstance(answer, RaceOutcome)
        return answer

    def renew(self) -> None:
        """Have the next job done by a fresh process."""
        self.close()

    def interrupt(self) -> None:
        """End the process from another thread; the job at work comes back as crashed."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.popen.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process; a new job would start another."""
        if self._process is not None:
            self._process.stop()
            self._kill()

    def _ask(self, do: str, job: Ask, limit: float) -> Answer:
        try:
            process = self._ready()
            process.ask({"do": do, "job": pack(job)})
            message = process.answer(limit)
        except BaseException:  # also KeyboardInterrupt: no process survives its question
            self._culprit = self._process.at_work if self._process is not None else None
            self._kill()
            raise
        if message["spent"]:
            self._kill()
        answer: Answer = unpack(message["answer"])
        return answer

    def _ready(self) -> Process:
        """The running process, or a new one that has loaded everything."""
        if self._process is not None and self._process.running:
            return self._process
        self._kill()
        self._process = process = self._start()
        try:
            message = process.read(START_LIMIT_SECONDS)
        except EndedError as ended:
            raise WorkerError(f"the measuring process did not start: {ended.reason}.") from None
        if message["say"] != "ready":
            raise WorkerError(f"the measuring process cannot work: {message['reason']}")
        return process

    def _start(self) -> Process:
        definitions = describe(self._files)
        hello = {
            "address": self._device.address,
            "identity": self._device.identity,
            "compile_for": self._compile_for,
            "definitions": definitions,
            "parent": os.getpid(),
            # The kernel's promise is bound to the thread that starts the process.
            "die_with_parent": threading.current_thread() is threading.main_thread(),
        }
        return Process.start(definitions["path"], hello)

    def _kill(self) -> None:
        """End the process and all that it started, at once."""
        process, self._process = self._process, None
        if process is not None:
            process.close()
