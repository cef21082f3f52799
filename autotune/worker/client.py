"""Worker: the measuring process as its parent sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any

from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.worker.definitions import describe
from autotune.worker.messages import Answer, Ask, from_line, pack, to_line, unpack
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome, Status

START_LIMIT_SECONDS = 120.0
STOP_SECONDS = 2.0
POLL_SECONDS = 0.5
LOG_LIMIT_BYTES = 64 << 20
_COMMAND = (sys.executable, "-P", "-u", "-m", "autotune.worker")
_TAIL_BYTES = 4096
_TAIL_CHARACTERS = 200


class WorkerError(AutotuneError):
    """The measuring process cannot be started, or cannot load what it has to."""


class _EndedError(Exception):
    """The process ended, hung or flooded its log: what to report of it."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(slots=True)
class _Process:
    """A running process, its pipes, its log, and what it said last."""

    popen: subprocess.Popen[bytes]
    incoming: int
    outgoing: int
    log: IO[bytes]
    unread: bytes = b""
    phase: str = "starting"
    entrant: int | None = None


class Worker:
    """Measures candidates in a process of their own, started fresh when first needed.

    A candidate that crashes, hangs or floods costs one outcome and a new process for the next
    job. Use as a context manager, or call `close`. Not for several threads at once. One with
    `compile_for`, an architecture such as "sm_90a", only compiles, and needs no device.
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
        self._process: _Process | None = None
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
        try:
            answer = self._ask(do, job, job.time_limit)
        except _EndedError as ended:
            return Outcome(ended.status, ended.reason, wall_seconds=time.perf_counter() - started)
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
        except _EndedError as ended:
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
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                os.write(process.outgoing, to_line({"do": "stop"}))
                process.popen.wait(STOP_SECONDS)
            self._kill()

    def _ask(self, do: str, job: Ask, limit: float) -> Answer:
        try:
            process = self._ready()
            process.log.truncate(0)
            process.phase, process.entrant = "starting", None
            _write(process, to_line({"do": do, "job": pack(job)}))
            message = self._answer(process, limit)
        except BaseException:  # also KeyboardInterrupt: no process survives its question
            self._culprit = self._process.entrant if self._process is not None else None
            self._kill()
            raise
        if message["spent"]:
            self._kill()
        answer: Answer = unpack(message["answer"])
        return answer

    def _answer(self, process: _Process, limit: float) -> dict[str, Any]:
        """Wait for the answer; each phase has the whole limit."""
        deadline = time.monotonic() + limit
        while True:
            message = self._read(process, deadline, limit)
            if message["say"] != "phase":
                return message
            process.phase, process.entrant = message["phase"], message["entrant"]
            deadline = time.monotonic() + limit

    def _read(self, process: _Process, deadline: float, limit: float) -> dict[str, Any]:
        while b"\n" not in process.unread:
            if time.monotonic() > deadline:
                reason = f"exceeded its limit of {limit:g} s while {process.phase}"
                raise _EndedError("timeout", reason + _last_words(process.log))
            if os.fstat(process.log.fileno()).st_size > LOG_LIMIT_BYTES:
                reason = f"printed more than {LOG_LIMIT_BYTES >> 20} MiB while {process.phase}"
                raise _EndedError("failed", reason + _last_words(process.log))
            if _readable(process.incoming):
                received = os.read(process.incoming, 1 << 16)
                if not received:
                    raise _EndedError("crashed", _obituary(process))
                process.unread += received
        line, _, process.unread = process.unread.partition(b"\n")
        return from_line(line)

    def _ready(self) -> _Process:
        """The running process, or a new one that has loaded everything."""
        if self._process is not None and self._process.popen.poll() is None:
            return self._process
        self._kill()
        self._process = process = self._start()
        try:
            message = self._read(
                process, time.monotonic() + START_LIMIT_SECONDS, START_LIMIT_SECONDS
            )
        except _EndedError as ended:
            raise WorkerError(f"the measuring process did not start: {ended.reason}.") from None
        if message["say"] != "ready":
            raise WorkerError(f"the measuring process cannot work: {message['reason']}")
        return process

    def _start(self) -> _Process:
        definitions = describe(self._files)
        child_in, outgoing = os.pipe()
        incoming, child_out = os.pipe()
        log = tempfile.TemporaryFile("ab+", buffering=0)  # noqa: SIM115 (closed with the process)
        # tempfile opens it without O_APPEND, and a truncated log would be filled up with zeros.
        fcntl.fcntl(log, fcntl.F_SETFL, fcntl.fcntl(log, fcntl.F_GETFL) | os.O_APPEND)
        try:
            popen = subprocess.Popen(
                [*_COMMAND, str(child_in), str(child_out)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(child_in, child_out),
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(definitions["path"]),
                    "CUPY_TF32": "0",  # a plain implementation in float32 is one
                },
            )
        except BaseException:
            os.close(outgoing)
            os.close(incoming)
            log.close()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        process = _Process(popen, incoming, outgoing, log)
        hello = {
            "address": self._device.address,
            "identity": self._device.identity,
            "compile_for": self._compile_for,
            "definitions": definitions,
            "parent": os.getpid(),
            # The kernel's promise is bound to the thread that starts the process.
            "die_with_parent": threading.current_thread() is threading.main_thread(),
        }
        _write(process, to_line(hello))
        return process

    def _kill(self) -> None:
        """End the process and all that it started, at once."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.popen.pid, signal.SIGKILL)
        process.popen.wait()
        os.close(process.incoming)
        os.close(process.outgoing)
        process.log.close()


def _write(process: _Process, line: bytes) -> None:
    """Write all of a line, which may be longer than a pipe holds."""
    with contextlib.suppress(BrokenPipeError):  # it has died; reading will tell
        while line:
            line = line[os.write(process.outgoing, line) :]


def _readable(descriptor: int) -> bool:
    """Wait a moment for something to read."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(POLL_SECONDS))


def _obituary(process: _Process) -> str:
    """How a process ended that was not told to."""
    try:
        code = process.popen.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        return f"closed its pipe while {process.phase}" + _last_words(process.log)
    if code < 0:
        how = f"killed by {signal.Signals(-code).name}"
        if -code == signal.SIGKILL:
            how += " (out of memory?)"
    else:
        how = f"ended the process with exit status {code}"
    return f"{how} while {process.phase}" + _last_words(process.log)


def _last_words(log: IO[bytes]) -> str:
    """The last line a candidate printed, as a clause."""
    # By position: the process shares the file's offset, and may be writing at this moment.
    start = max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES)
    text = os.pread(log.fileno(), _TAIL_BYTES, start).decode(errors="replace")
    last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
    return f"; last output: {last[:_TAIL_CHARACTERS]}" if last else ""
