"""How fast is the machine now? Candidates are timed in turn with one whose time is known.

A neighbour on the same host can slow a virtual machine for seconds without any trace in the clocks
of the system, by half and more. All that is timed then seems slow, steadily so. What a candidate
takes over what another one takes within the same millisecond hardly moves, and compares with the
ratios of all others. What that holds for, and what not, is in `autotune/in_turn.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from autotune.bench import Bench, Timer
from autotune.execution import Executable
from autotune.in_turn import grounded
from autotune.model import Config
from autotune.registry import registry
from autotune.statistics import fastest_quarter, median_interval, unpaired_ratio
from autotune.timing import Timing
from autotune.verify import Gate
from autotune.worker.protocol import Job

if TYPE_CHECKING:
    from autotune.worker.session import Session


def threads_of(executable: Executable) -> str:
    """Whose threads a candidate runs on, "" for those of most: see `Bench.change_over`."""
    settings = executable.thread_settings
    if settings is None:
        return ""
    if settings.openmp:
        return "" if settings.openmp == "gcc" else settings.openmp  # numba's are GNU's as well
    return "blas" if settings.blas == "parallel" else ""


@dataclass(frozen=True, slots=True)
class Reference:
    """A candidate to time others beside, ready to be called."""

    timer: Timer
    threads: str


def reference_for(session: Session, gate: Gate, job: Job) -> Reference | None:
    """The job's reference, built once; None without one, or where it does not run any more."""
    if job.reference is None or not session.bench.stall_seconds:
        return None
    name, config, _ = job.reference
    key = job.mode, name, tuple(sorted(config.items()))
    if session.reference is None or session.reference[0] != key:
        session.reference = key, _built(session, gate, job, name, Config(dict(config)))
    return session.reference[1]


def _built(session: Session, gate: Gate, job: Job, name: str, config: Config) -> Reference | None:
    try:
        variant = registry.variant(gate.problem.operation, name)
        built = session.build(gate, variant, config, time_limit=job.time_limit)
        if not built.verdict.passed:
            return None
        timer = session.timer(gate, built.executable, job.mode)
        timer()
    except Exception:
        return None  # whatever it is, it is not the fault of the candidate to be timed beside it
    return Reference(timer, threads_of(built.executable))


@dataclass(slots=True)
class InTurn:
    """Samples of a candidate, each right after one of the reference.

    A sample is what the candidate would have taken at the pace at which the reference takes
    `seconds`; `own` has what it took.
    """

    bench: Bench
    timer: Timer
    reference: Timer
    seconds: float
    threads_differ: bool = False
    own: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        if self.threads_differ:
            self.bench.change_over(self.reference)
        self.beside.append(self.reference())
        if self.threads_differ:
            self.bench.change_over(self.timer)
        self.own.append(self.timer())
        return self.own[-1] * self.seconds / self.beside[-1]

    def told(self, timing: Timing, *, busy: bool = False) -> dict[str, Any]:
        """What a timing of these samples says, and by how much the machine was slower.

        On a `busy` machine both have samples of their own that others slowed: then it is what their
        fastest quarters say, and not less than the fastest sample of the candidate's own.
        """
        count = len(timing.samples)
        own, interval = self.own[-count:], timing.interval
        span = interval.median, interval.low, interval.high
        if busy:
            ratio = unpaired_ratio(fastest_quarter(own), fastest_quarter(self.beside[-count:]))
            scaled = [self.seconds * each for each in (ratio.median, ratio.low, ratio.high)]
            span = grounded((scaled[0], scaled[1], scaled[2]), min(own), median_interval(own).high)
        seconds, low, high = span
        slowdown = round(median(own) / seconds, 4)
        return {"seconds": seconds, "low": low, "high": high, "slowdown": slowdown}
