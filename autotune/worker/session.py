"""What a measuring process keeps between jobs: the problem's arrays, its gate, the evictor."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

from autotune.device import CpuDevice
from autotune.disturbance import Watch
from autotune.errors import AutotuneError
from autotune.eviction import Evictor
from autotune.execution import Executable
from autotune.inputs import Buffers, make_buffers
from autotune.model import Problem, Variant
from autotune.registry import registry
from autotune.timing import Sampler, batch_size
from autotune.verify import Gate, Outputs, Verdict, call_arguments, collect_outputs
from autotune.worker.protocol import Mode, Status
from autotune_tuning_db import ProblemKey

SLOWEST_MEMORY = 10.0
"""A call that moves its compulsory bytes so many times faster than the sweep is impossible."""

LIMIT_BYTES = 16 << 20


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
        self, device: CpuDevice, report: Callable[[str, int | None], None] = lambda *_: None
    ) -> None:
        self.device = device
        self.entrant: int | None = None
        self._report = report
        self._suspect = False
        self._unchecked: Buffers | None = None
        self.cpus = device.topology.allowed
        self.watch = Watch(self.cpus, device.topology.online)
        self.futile_retries = 0
        self._gate: tuple[tuple[str, int], Gate] | None = None

    def say(self, phase: str) -> None:
        """A phase begins: a new time limit holds."""
        self._report(phase, self.entrant)

    @cached_property
    def evictor(self) -> Evictor:
        """Made for the first cold measurement."""
        return Evictor(self.device.last_level_cache_bytes, self.cpus)

    def problem(self, text: str) -> Problem:
        """The problem that a key's text names."""
        key = ProblemKey.parse(text)
        return Problem.from_key(registry.operation(key.operation), key)

    def gate(self, problem: Problem, seed: int) -> Gate:
        """The problem's gate; the arrays of the problem before are freed first."""
        key = (problem.key.text, seed)
        if self._gate is not None and self._suspect:
            self._gate[1].repair()
        self._suspect = False
        if self._gate is None or self._gate[0] != key:
            self._gate = None
            gc.collect()
            self.say("preparing the problem")
            self._gate = key, Gate(problem, seed)
        return self._gate[1]

    def unchecked_buffers(self, problem: Problem) -> Buffers:
        """Arrays to call a candidate on without judging what comes out."""
        if self._unchecked is None or self._unchecked.problem != problem:
            self._unchecked = None
            self._unchecked = make_buffers(problem)
        return self._unchecked

    def build(self, gate: Gate, variant: Variant, config: Mapping[str, Any]) -> Built:
        """Build and check a candidate; raises whatever it raises."""
        self.say("building")
        self._suspect = True
        with compile_clock() as compiling:
            started = perf_counter()
            executable = Executable(variant, gate.problem, config, self.device)
            build = perf_counter() - started - compiling()
            first = 0.0

            def timed(call: Callable[[], Any]) -> Any:
                nonlocal first
                before, begun = compiling(), perf_counter()
                result = call()
                first = perf_counter() - begun - (compiling() - before)
                self.say("checking")
                return result

            verdict = gate.check(executable, timed)
            self._suspect = not verdict.passed
            return Built(executable, verdict, build + compiling(), first)

    def sampler(self, gate: Gate, executable: Executable, mode: Mode) -> Sampler:
        """Takes samples in a mode: cold evicts before each, hot batches what is too short."""
        arguments = call_arguments(executable, gate.buffers)
        call = executable.call

        def run() -> Any:
            return call(*arguments)

        if mode == "cold":
            evict, reset = self.evictor.evict, gate.buffers.reset

            def prepare() -> None:
                reset()
                evict()

            return Sampler(run, prepare)
        sampler = Sampler(run, gate.buffers.reset)
        if not gate.problem.operation.updated:
            sampler.batch = batch_size(min(sampler(), sampler()))
        return sampler

    def recheck(self, gate: Gate, executable: Executable, result: Any) -> Verdict:
        """Judge what the last call left."""
        outputs: Outputs = collect_outputs(executable, gate.buffers, result)
        verdict = gate.judge(outputs)
        self._suspect = not verdict.passed
        return verdict

    def physical_limit(self, problem: Problem, mode: Mode) -> float:
        """Seconds that no cold call can beat: its compulsory bytes at ten times the sweep's rate.

        0 (no limit) for hot calls and for problems small enough to hide in caches.
        """
        compulsory = sum(problem.compulsory_bytes)
        if mode != "cold" or compulsory < LIMIT_BYTES or not self.evictor.best_rate:
            return 0.0
        return compulsory / (SLOWEST_MEMORY * self.evictor.best_rate)


@contextmanager
def compile_clock() -> Iterator[Callable[[], float]]:
    """Seconds numba has spent compiling so far, inside the context."""
    if "numba" not in sys.modules:
        yield lambda: 0.0
        return
    from numba.core.event import install_timer

    with install_timer("numba:compile", lambda _: None) as timer:
        yield lambda: float(timer.duration) if timer.done else 0.0


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
