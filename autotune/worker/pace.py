"""How fast is the machine now? Candidates are timed in turn with one whose time is known.

A neighbour on the same host can slow a virtual machine for seconds without any trace in the clocks
of the system, by half and more. All that is timed then seems slow, steadily so. What a candidate
takes over what another one takes within the same millisecond hardly moves, and compares with the
ratios of all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from autotune.bench import Timer
from autotune.execution import Executable
from autotune.timing import Timing
from autotune.worker.protocol import Mode

LONG_SECONDS = 0.02
"""A call that takes longer sees fast and slow phases both."""

MOST_BYTES = 64 << 20
"""Of temporaries that may be kept for it."""

FASTER = 1.3
"""Times faster that another candidate has to be to take its place."""


def threads_of(executable: Executable) -> str:
    """Whose threads a candidate runs on, "" for those of most: see `Bench.change_over`."""
    settings = executable.thread_settings
    if settings is None:
        return ""
    if settings.openmp:
        return "" if settings.openmp == "gcc" else settings.openmp  # numba's are GNU's as well
    return "blas" if settings.blas == "parallel" else ""


@dataclass(slots=True)
class InTurn:
    """Samples of a candidate, each right after one of the reference.

    A sample is what the candidate would have taken at the pace at which the reference takes
    `seconds`; `own` has what it took.
    """

    timer: Timer
    reference: Timer
    seconds: float
    own: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        beside = self.reference()
        self.own.append(self.timer())
        return self.own[-1] * self.seconds / beside

    def told(self, timing: Timing) -> dict[str, Any]:
        """What a timing of these samples says, and by how much the machine was slower."""
        own, interval = self.own[-len(timing.samples) :], timing.interval
        return {
            "seconds": interval.median,
            "low": interval.low,
            "high": interval.high,
            "slowdown": round(median(own) / interval.median, 4),
        }


@dataclass(slots=True)
class Pace:
    """A candidate of one problem in one mode to time others beside, and what it takes."""

    mode: Mode
    _timer: Timer | None = None
    _seconds: float = 0.0
    _threads: str = ""

    def learn(self, timer: Timer, executable: Executable, seconds: float, nbytes: int) -> None:
        """Another one takes so many seconds at the pace of the first: keep it if much faster.

        Not if a little: of many unsure ratios the smallest would be taken, again and again.
        """
        better = self._timer is None or FASTER * seconds < self._seconds
        if better and seconds <= LONG_SECONDS and nbytes <= MOST_BYTES:
            self._timer, self._seconds = timer, seconds
            self._threads = threads_of(executable)

    def in_turn(self, timer: Timer, executable: Executable) -> InTurn | None:
        """Samples beside the one that is kept; None where there is none on the same threads."""
        if self._timer is None or threads_of(executable) != self._threads:
            return None
        return InTurn(timer, self._timer, self._seconds)
