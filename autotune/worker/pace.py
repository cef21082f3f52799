"""Is the machine as fast as it was? The fastest candidate so far is called again beside others.

A neighbour of a virtual machine can halve its speed for seconds without any trace in the clocks of
the system: what is timed then seems slow, steadily so, and only a kernel whose time is known tells.
"""

from __future__ import annotations

import math
from statistics import median

from autotune.bench import Bench, Timer
from autotune.timing import Timing
from autotune.worker.protocol import Mode

CALLS = 5
LONG_SECONDS = 0.02
"""A call that takes longer sees fast and slow phases both, and is not worth repeating."""

MOST_BYTES = 64 << 20
"""Of temporaries that may be kept for it."""

SLOWER = 1.1
WITHIN = 0.15
"""What a candidate may be behind the best to be worth measuring again."""


class Pace:
    """The fastest candidate of one problem in one mode, ready to be called, and what it takes."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self._timer: Timer | None = None
        self._seconds = math.inf

    def learn(self, timer: Timer, seconds: float, nbytes: int) -> None:
        """Another candidate was timed undisturbed: keep it if it is the fastest."""
        if seconds < self._seconds and seconds <= LONG_SECONDS and nbytes <= MOST_BYTES:
            self._timer, self._seconds = timer, seconds

    def slowdown(self, bench: Bench) -> float:
        """Times that the machine is slower than it was at its fastest; 1 if nothing is known."""
        if self._timer is None:
            return 1.0
        bench.change_over(self._timer)
        seconds = median(self._timer() for _ in range(CALLS))
        self._seconds = min(self._seconds, seconds)
        return seconds / self._seconds


def slowed(timing: Timing, slowdown: float, incumbent: float | None) -> tuple[str, ...]:
    """Why a timing says nothing, if the machine was slower by so much and it may matter."""
    if slowdown <= SLOWER or incumbent is None:
        return ()
    if timing.interval.low > slowdown * (1.0 + WITHIN) * incumbent:
        return ()
    return (f"the best candidate took {slowdown:.2f} times as long at that moment",)
