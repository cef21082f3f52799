"""What a measuring process keeps between jobs: the problem's arrays, its gate, the evictor."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from autotune.bench import Bench, Timer
from autotune.compiled import kept_for, use_of
from autotune.device.threads import ThreadRecord, ThreadSettings
from autotune.errors import AutotuneError
from autotune.execution import Executable
from autotune.inputs import Buffers, make_buffers
from autotune.model import Problem, Variant
from autotune.reach import reach_of
from autotune.registry import registry
from autotune.verify import Gate, Outputs, Verdict, call_arguments, collect_outputs
from autotune.worker.protocol import Mode, Status
from autotune_tuning_db import ProblemKey


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate that was built and checked; seconds to compile, and of its first call."""

    executable: Executable
    verdict: Verdict
    compile_seconds: float
    first_call_seconds: float


class Session:
    """State of a measuring process.

    `report` is told each phase as it begins, and which entrant of a race it is about.
    """

    def __init__(
        self, bench: Bench, report: Callable[[str, int | None], None] = lambda *_: None
    ) -> None:
        self.bench = bench
        self.device = bench.device
        self.spent = False
        self.entrant: int | None = None
        self._report = report
        self._suspect = False
        self._records: dict[ThreadSettings, ThreadRecord | None] = {}
        self._noted: set[str] = set()
        self._unchecked: Buffers | None = None
        self.futile_retries = 0
        self._gate: tuple[tuple[str, int, float, bool], Gate] | None = None

    def say(self, phase: str) -> None:
        """A phase begins: a new time limit holds."""
        self._report(phase, self.entrant)

    def problem(self, text: str) -> Problem:
        """The problem that a key's text names."""
        key = ProblemKey.parse(text)
        return Problem.from_key(registry.operation(key.operation), key)

    def gate(
        self, problem: Problem, seed: int, *, gain: float = 1.0, conditioned: bool = False
    ) -> Gate:
        """The problem's gate; the arrays of the problem before are freed first."""
        key = (problem.key.text, seed, gain, conditioned)
        if self._gate is not None and self._suspect:
            self._gate[1].repair()
        self._suspect = False
        if self._gate is None or self._gate[0] != key:
            self._gate = None
            gc.collect()
            self.bench.memory.release()
            self.say("preparing the problem")
            memory = self.bench.memory
            made = Gate(problem, seed, gain=gain, conditioned=conditioned, memory=memory)
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
            self._unchecked = make_buffers(problem, memory=self.bench.memory)
        return self._unchecked

    def build(self, gate: Gate, variant: Variant, config: Mapping[str, Any]) -> Built:
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
                self.say("checking")
                return result

            verdict = gate.check(executable, timed)
            self._suspect = not verdict.passed
            return Built(executable, verdict, build + compiling(), first)

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

    def recheck(self, gate: Gate, executable: Executable, result: Any) -> Verdict:
        """Judge what the last call left."""
        outputs: Outputs = collect_outputs(executable, gate.buffers, result)
        verdict = gate.judge(outputs)
        self._suspect = not verdict.passed
        return verdict

    def failure(self, error: BaseException) -> tuple[Status, str]:
        """Status and reason for what a candidate raised; frees what it left.

        An error that the device does not recover from spends this process: `spent` tells.
        """
        status, reason = failure(error)
        reason = self.bench.explain(error) or reason
        why = self.bench.broken()
        if why is not None:
            self.spent = True
            return "crashed", why
        self.bench.memory.release()
        return status, reason


def failure(error: BaseException) -> tuple[Status, str]:
    """Status and one-line reason for what a candidate raised; lets go of its frames and arrays."""
    error.__traceback__ = None
    gc.collect()
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, AutotuneError):
        return "failed", text
    if isinstance(error, MemoryError):
        return "failed", f"ran out of memory ({text})" if text else "ran out of memory"
    return "failed", f"raised {type(error).__name__}" + (f": {text}" if text else "")
