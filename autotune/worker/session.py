"""What a measuring process keeps between jobs: the problem's arrays, its gate, the evictor."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from mmap import mmap
from time import perf_counter, sleep
from typing import Any

from autotune.bench import Bench, Timer
from autotune.compiled import kept_for, use_of
from autotune.device.threads import ThreadRecord, ThreadSettings
from autotune.execution import Executable
from autotune.inputs import Buffers, make_buffers
from autotune.model import Problem, Variant
from autotune.reach import reach_of
from autotune.registry import registry
from autotune.room import require_room
from autotune.verify import Gate, Outputs, Run, Verdict, call_arguments, collect_outputs, run_once
from autotune.worker.failures import Failed, failure
from autotune.worker.pace import Reference
from autotune.worker.protocol import NOBODY, PREPARING, Mode, call_limit
from autotune_tuning_db import ProblemKey

BEAT_SECONDS = 0.5
PREPARATION = 4.0
"""Time limits of a candidate that inputs and the reference of a problem may take."""

RECHECKS, RECHECK_SECONDS = 3, 0.02
LATE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate that was built and checked; seconds to compile, and of its first call.

    `later_seconds` are those of the fastest call after it, if there was one.
    """

    executable: Executable
    verdict: Verdict
    compile_seconds: float
    first_call_seconds: float
    limit: float
    """Seconds that a call of it may take from now on."""

    later_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Rechecked:
    """A check after the timing, and the bytes that the call took at most, where that is known."""

    verdict: Verdict
    peak_bytes: int | None


class Session:
    """State of a measuring process.

    `report` is told each phase as it begins, and the seconds that it, or a call in it, may take
    (None: those of the job). `mark` holds the entrant of a race that is at work.
    """

    def __init__(
        self,
        bench: Bench,
        report: Callable[[str, float | None], None] = lambda *_: None,
        mark: mmap | bytearray | None = None,
    ) -> None:
        self.bench = bench
        self.device = bench.device
        self.spent = False
        self.phase = ""
        self._report = report
        self._mark = bytearray(1) if mark is None else mark
        self._limit: float | None = None
        self._said = perf_counter()
        self._suspect = False
        self._records: dict[ThreadSettings, ThreadRecord | None] = {}
        self._noted: set[str] = set()
        self._unchecked: Buffers | None = None
        self.futile_retries = 0
        self.busy = False  # whether other programs ran beside the last candidate
        self._gate: tuple[tuple[str, int, float, bool], Gate] | None = None
        self.reference: tuple[object, Reference | None] | None = None

    def say(self, phase: str, limit: float | None = None) -> None:
        """A phase begins: a new time limit holds."""
        self.phase, self._limit, self._said = phase, limit, perf_counter()
        self._report(phase, limit)

    def live(self) -> None:
        """Between two calls: what limits a phase begins anew, said now and then."""
        if perf_counter() - self._said > BEAT_SECONDS:
            self.say(self.phase, self._limit)

    def work_on(self, entrant: int | None) -> None:
        """Whose fault it is if this process ends now."""
        self._mark[0] = NOBODY if entrant is None else entrant

    def problem(self, text: str) -> Problem:
        """The problem that a key's text names."""
        key = ProblemKey.parse(text)
        return Problem.from_key(registry.operation(key.operation), key)

    def gate(
        self,
        problem: Problem,
        seed: int,
        *,
        gain: float = 1.0,
        conditioned: bool = False,
        time_limit: float | None = None,
    ) -> Gate:
        """The problem's gate; the arrays of the problem before are freed first.

        Raises NoRoomError, before anything is made, for one that cannot fit the memory left.

        `time_limit` is a candidate's; making a gate, which is no candidate's work, may take more.
        """
        key = (problem.key.text, seed, gain, conditioned)
        if self._gate is not None and self._suspect:
            self._gate[1].repair()
        self._suspect = False
        if self._gate is None or self._gate[0] != key:
            self._gate = self.reference = None
            gc.collect()
            self.bench.memory.release()
            self.say(PREPARING, PREPARATION * time_limit if time_limit else None)
            memory, occupy = self.bench.memory, self.bench.occupy
            require_room(problem, memory.left())
            made = Gate(
                problem, seed, gain=gain, conditioned=conditioned, memory=memory, occupy=occupy
            )
            self._gate = key, made
        return self._gate[1]

    def note_compiled(self, problem: Problem, variant: Variant) -> None:
        """A candidate was called: what it compiled need not be compiled ahead any more."""
        use = use_of(problem.key, variant.name)
        if use not in self._noted:
            self._noted.add(use)
            kept_for(reach_of(variant), use)

    def unchecked_buffers(self, problem: Problem) -> Buffers:
        """Arrays to call a candidate on without judging what comes out."""
        if self._unchecked is None or self._unchecked.problem != problem:
            self._unchecked = None
            require_room(problem, self.bench.memory.left())
            self._unchecked = make_buffers(problem, memory=self.bench.memory)
        return self._unchecked

    def build(
        self, gate: Gate, variant: Variant, config: Mapping[str, Any], *, time_limit: float
    ) -> Built:
        """Build and check a candidate; raises whatever it raises."""
        self.say("building")
        self._suspect = True
        with self.bench.compile_clock() as compiling:
            started = perf_counter()
            executable = Executable(variant, gate.problem, config, self.device)
            build = perf_counter() - started - compiling()
            first = 0.0

            def timed(call: Callable[[], Any]) -> Any:
                nonlocal first
                before, begun = compiling(), perf_counter()
                result = call()
                self.bench.synchronize()
                first = perf_counter() - begun - (compiling() - before)
                self.say("checking", call_limit(time_limit, first))
                return result

            later: list[float] = []
            wait = None if gate.memory.concurrent else self.bench.synchronize
            timed_later = _timing(later, wait)
            verdict = gate.check(executable, timed, timed_later)
            self._suspect = not verdict.passed
            limit = call_limit(time_limit, first)
            seconds = min(later, default=None)
            return Built(executable, verdict, build + compiling(), first, limit, seconds)

    def thread_record(self, executable: Executable) -> ThreadRecord | None:
        """Where a candidate's threads run; asked once for each setting, which takes a while."""
        settings = executable.thread_settings
        if settings is None:
            return None
        if settings not in self._records:
            self._records[settings] = executable.thread_record()
        return self._records[settings]

    def timer(self, gate: Gate, executable: Executable, mode: Mode) -> Timer:
        """Takes samples of a candidate on the gate's arrays, in a mode."""
        arguments = call_arguments(executable, gate.buffers)
        call = executable.call

        def run() -> Any:
            return call(*arguments)

        repeatable = not gate.problem.operation.updated
        return self.bench.timer(run, gate.buffers.reset, mode=mode, repeatable=repeatable)

    def recheck(
        self, gate: Gate, built: Built, timer: Timer, mode: Mode, *, most: int = RECHECKS
    ) -> Rechecked:
        """Judge more calls, after the timing: what each leaves when it returns, and no later.

        One at least, and `most` while they take little: what fails now and then is found here.
        """
        late = self.written_late(gate, built)
        if late is not None:
            return Rechecked(replace(built.verdict, passed=False, reason=late), None)
        started, peak, verdict = perf_counter(), None, built.verdict
        for _ in range(most):
            self.live()
            outputs, peak = self._once_more(gate, built.executable, timer, mode)
            verdict = gate.judge_again(outputs, built.verdict)
            self._suspect = not verdict.passed
            if self._suspect or perf_counter() - started > RECHECK_SECONDS:
                break
        return Rechecked(verdict, peak)

    def written_late(self, gate: Gate, built: Built) -> str | None:
        """What a candidate still writes to now that its calls have returned, in words."""
        self.say("checking", built.limit)
        late = gate.written_late(self._wait)
        if late is not None:
            self._suspect = True
        return late

    def _wait(self) -> None:
        """Until what calls have started and not waited for shows."""
        self.bench.synchronize()
        sleep(LATE_SECONDS)

    def _once_more(
        self, gate: Gate, executable: Executable, timer: Timer, mode: Mode
    ) -> tuple[Outputs, int | None]:
        """Outputs of one more call, and the bytes that it took at most, where that is known."""
        if mode == "graph":  # it is the replay that is served
            timer()
            return collect_outputs(executable, gate.buffers, timer.result), None
        peak: int | None = None

        def watched(call: Callable[[], Any]) -> Any:
            nonlocal peak
            result, peak = self.bench.memory.peak(call)
            return result

        outputs = run_once(executable, gate.buffers, watched)
        if peak is not None and not executable.takes_outputs:
            peak = max(peak - sum(each.nbytes for each in outputs), 0)
        return outputs, peak

    def tidy(self) -> None:
        """Give back what a candidate that is gone has left in the pool."""
        if not self.spent:
            self.bench.memory.release()

    def failure(self, error: BaseException) -> Failed:
        """What a candidate that raised comes to; frees what it left.

        An error that the device does not recover from spends this process: `spent` tells.
        """
        failed = failure(error)
        explained = self.bench.explain(error)
        if explained is not None:
            failed = replace(failed, reason=explained)
        why = self.bench.broken()
        if why is not None:
            self.spent = True
            return Failed("crashed", why)
        self.bench.memory.release()
        return failed


def _timing(into: list[float], wait: Callable[[], None] | None) -> Callable[[Run], Outputs]:
    """Watches runs for the seconds of their calls; `wait` for a device that works beside."""

    def watch(run: Run) -> Outputs:
        times: list[float] = []

        def stamped(call: Callable[[], Any]) -> Any:
            times.append(perf_counter())
            result = call()
            times.append(perf_counter())
            return result

        outputs = run(stamped)
        if wait is not None:  # after the copies: before them it would hide what comes too late
            wait()
            times.append(perf_counter())
        into.append(times[-1] - times[0])
        return outputs

    return watch
