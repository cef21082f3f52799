"""How fast is the machine now? One candidate's time is taken again beside every other's.

A neighbour on the same host can slow a virtual machine for seconds without any trace in the clocks
of the system. All that is timed then seems slow, steadily so, and only a kernel that is timed again
and again tells. What a trial took over what that one took at the time compares with other trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from autotune.bench import Bench, Timer
from autotune.worker.protocol import Mode

LOOK_SECONDS, LOOK_CALLS = 0.01, 25
"""A look ends after both so many seconds and five calls, or so many calls."""

LONG_SECONDS = 0.02
"""A call that takes longer sees fast and slow phases both, and is not worth repeating."""

MOST_BYTES = 64 << 20
"""Of temporaries that may be kept for it."""

FASTER = 1.3
"""Times faster that another candidate has to be to take its place."""

UNSTEADY = 1.1
"""Two looks that differ by more had a change between them."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Times that the machine was slower than when this problem's first candidate was timed."""

    before: float
    after: float

    @property
    def factor(self) -> float:
        """Over the whole of a timing."""
        return math.sqrt(self.before * self.after)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why times in between say nothing."""
        change = self.after / self.before
        if 1.0 / UNSTEADY <= change <= UNSTEADY:
            return ()
        word = "slower" if change > 1.0 else "faster"
        return (f"the machine became {max(change, 1.0 / change):.2f} times {word} meanwhile",)


class Pace:
    """A candidate of one problem in one mode, ready to be called, and what it takes."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._timer: Timer | None = None
        self._seconds = 0.0

    def learn(self, timer: Timer, seconds: float, nbytes: int) -> None:
        """Another candidate takes so many seconds at the first pace: keep it if much faster."""
        better = self._timer is None or FASTER * seconds < self._seconds
        if better and seconds <= LONG_SECONDS and nbytes <= MOST_BYTES:
            self._timer, self._seconds = timer, seconds

    def look(self, bench: Bench) -> float | None:
        """Times that the machine is slower now; None while there is nothing to tell by."""
        timer = self._timer
        if timer is None:
            return None
        bench.change_over(timer)
        started, times = perf_counter(), list[float]()
        while len(times) < LOOK_CALLS:
            times.append(timer())
            if len(times) >= 5 and perf_counter() - started > LOOK_SECONDS:
                break
        return median(times) / self._seconds
