"""A measuring process as its parent holds it: pipes, log, patience, and a certain end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import psutil

from autotune.native.library import openmp_that_rests
from autotune.worker.guard import Guard
from autotune.worker.messages import Message, from_line, to_line
from autotune.worker.protocol import NOBODY, Status

STOP_SECONDS = 2.0
POLL_SECONDS = 0.5
LOG_LIMIT_BYTES = 64 << 20
_COMMAND = (sys.executable, "-P", "-u", "-m", "autotune.worker")
_TAIL_BYTES = 4096
_TAIL_CHARACTERS = 200


class EndedError(Exception):
    """The process ended, hung or flooded its log: what to report of it, and of which phase.

    `killed` tells that somebody else ended it, as the system does when memory runs out.
    """

    def __init__(self, status: Status, reason: str, phase: str, *, killed: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.phase, self.killed = status, reason, phase, killed


class Patience:
    """A limit in seconds, of which only the time counts in which this process could look.

    While a laptop sleeps or a shell has stopped its job, clocks go on and candidates do not: that
    is nobody's fault. `clock` counts seconds.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._left, self._clock, self._looked = limit, clock, clock()

    def over(self) -> bool:
        """Whether the limit has passed; to be asked again at least every POLL_SECONDS."""
        now = self._clock()
        self._left -= min(now - self._looked, 2.0 * POLL_SECONDS)
        self._looked = now
        return self._left <= 0.0


@dataclass(slots=True)
class Process:
    """A running process, its pipes, its log, the mark it leaves, and what it said last.

    The mark is one byte of a file that the process has mapped: it costs a write to memory, so that
    it can be set before every call, and outlives the process.
    """

    popen: subprocess.Popen[bytes]
    incoming: int
    outgoing: int
    log: IO[bytes]
    mark: IO[bytes]
    guard: Guard
    unread: bytes = b""
    phase: str = "starting"
    answers: int = 0

    @classmethod
    def start(cls, path: list[str], hello: Message) -> Process:
        """A fresh one (never forked from this one's memory), which has been told `hello`."""
        child_in, outgoing = os.pipe()
        incoming, child_out = os.pipe()
        log = tempfile.TemporaryFile("ab+", buffering=0)  # noqa: SIM115 (closed with the process)
        mark = tempfile.TemporaryFile()  # noqa: SIM115 (the same)
        mark.write(bytes([NOBODY]))
        mark.flush()
        # tempfile opens it without O_APPEND, and a truncated log would be filled up with zeros.
        fcntl.fcntl(log, fcntl.F_SETFL, fcntl.fcntl(log, fcntl.F_GETFL) | os.O_APPEND)
        try:
            popen = subprocess.Popen(
                [*_COMMAND, str(child_in), str(child_out), str(mark.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(child_in, child_out, mark.fileno()),
                start_new_session=True,
                env=_environment(path),
            )
        except BaseException:
            os.close(outgoing)
            os.close(incoming)
            log.close()
            mark.close()
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        process = cls(popen, incoming, outgoing, log, mark, Guard(popen.pid))
        process.send(hello)
        return process

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.popen.poll() is None

    @property
    def at_work(self) -> int | None:
        """Which entrant of a race it is at work on, also when it has died over it."""
        (entrant,) = os.pread(self.mark.fileno(), 1, 0)
        return None if entrant == NOBODY else entrant

    def ask(self, message: Message) -> None:
        """Begin something new: what the last job printed is forgotten."""
        self.log.truncate(0)
        self.phase = "starting"
        self.send(message)

    def send(self, message: Message) -> None:
        """Write all of a message, which may be longer than a pipe holds."""
        line = to_line(message)
        with contextlib.suppress(BrokenPipeError):  # it has died; reading will tell
            while line:
                line = line[os.write(self.outgoing, line) :]

    def answer(self, limit: float) -> dict[str, Any]:
        """Wait for the answer. Whatever it says before renews the limit, or sets another.

        Raises EndedError when it ends, is silent for too long, or prints too much.
        """
        patience = limit
        while True:
            message = self.read(patience)
            if message["say"] != "phase":
                self.answers += 1
                return message
            self.phase = message["phase"]
            patience = message["limit"] or limit

    def read(self, limit: float) -> dict[str, Any]:
        """The next message; EndedError as for `answer`."""
        patience = Patience(limit)
        while b"\n" not in self.unread:
            if _readable(self.incoming):  # first, since it tells the phase that is to blame
                received = os.read(self.incoming, 1 << 16)
                if not received:
                    raise self._ended("crashed", self._how_it_ended())
                self.unread += received
            elif os.fstat(self.log.fileno()).st_size > LOG_LIMIT_BYTES:
                raise self._ended("failed", f"printed more than {LOG_LIMIT_BYTES >> 20} MiB")
            elif patience.over():
                raise self._ended("timeout", f"exceeded its limit of {limit:g} s")
        line, _, self.unread = self.unread.partition(b"\n")
        try:
            return from_line(line)
        except ValueError:
            raise self._ended("crashed", "wrote into the pipe of its process") from None

    def stop(self) -> None:
        """Ask it to end, and wait a moment for that."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.send({"do": "stop"})
            self.popen.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End it at once, its process group, and what was started in groups of their own."""
        started = _descendants(self.popen.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        for each in started:
            with contextlib.suppress(psutil.Error):
                each.kill()
        self.popen.wait()

    def close(self) -> None:
        """End it and give back its pipes and its log."""
        self.kill()
        self.guard.dismiss()
        os.close(self.incoming)
        os.close(self.outgoing)
        self.log.close()
        self.mark.close()

    def _ended(self, status: Status, what: str) -> EndedError:
        reason = f"{what} while {self.phase}{_last_words(self.log)}"
        killed = self.popen.returncode == -signal.SIGKILL
        return EndedError(status, reason, self.phase, killed=killed)

    def _how_it_ended(self) -> str:
        """Of a process that was not told to end."""
        try:
            code = self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code >= 0:
            return f"ended the process with exit status {code}"
        how = f"killed by {_signal_name(-code)}"
        return f"{how} (out of memory?)" if -code == signal.SIGKILL else how


def _environment(path: list[str]) -> Mapping[str, str]:
    """The caller's, with what makes candidates comparable."""
    return {
        **_threads_that_rest(),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "CUPY_TF32": "0",  # a plain implementation in float32 is one
    }


def _threads_that_rest() -> dict[str, str]:
    """Threads of BLAS wait for their next work on CPUs that the next candidate needs, OpenBLAS's
    for 2^26 cycles, MKL's as OpenMP's do, and can make that one many times slower: here for less
    than candidates of different threads rest in between. The user's word goes first.
    """
    return {"OPENBLAS_THREAD_TIMEOUT": "20", **openmp_that_rests()}  # 2^20 cycles


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _readable(descriptor: int) -> bool:
    """Wait a moment for something to read."""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(POLL_SECONDS))


def _last_words(log: IO[bytes]) -> str:
    """The last line a candidate printed, as a clause."""
    # By position: the process shares the file's offset, and may be writing at this moment.
    start = max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES)
    text = os.pread(log.fileno(), _TAIL_BYTES, start).decode(errors="replace")
    printable = "".join(c if c.isprintable() or c == "\n" else " " for c in text)
    last = next((line.strip() for line in reversed(printable.splitlines()) if line.strip()), "")
    return f"; last output: {last[:_TAIL_CHARACTERS]}" if last else ""
