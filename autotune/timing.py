"""Times a candidate: warm up, sample until the median is known well enough, or give up on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Literal

from autotune.errors import AutotuneError
from autotune.statistics import Interval, median_interval

Clock = Callable[[], int]
Stop = Literal["precise", "budget", "samples", "dropped"]

HOPELESS = 3.0
"""A candidate whose fastest sample is so many times the incumbent's median is given up."""

STEADY = 0.95
"""Warm-up ends when a call takes at least this share of the fastest before it."""

WARM_UP_SHARE = 0.25
WARM_UP_CALLS = 20
OVERRUN = 3.0
SHORTEST_SECONDS = 200e-6


class TimingError(AutotuneError):
    """A time that cannot be: not above zero, not a number, or below the physical limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How precisely to time, and when to stop; seconds.

    Sampling ends when the 95% interval of the median is narrower than `precision` (relative), at
    `max_samples`, or at `budget` once there are `min_samples` (at three budgets regardless). A
    candidate is dropped when its interval lies above `incumbent` by more than `margin`. Nothing is
    concluded before `span` has passed: a few short calls in a row may all meet the same stall.
    """

    precision: float = 0.01
    min_samples: int = 5
    max_samples: int = 200
    budget: float = 2.0
    incumbent: float | None = None
    margin: float = 0.05
    limit: float = 0.0
    span: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Samples in the order taken, the interval of their median, and why sampling ended."""

    samples: tuple[float, ...]
    interval: Interval
    stop: Stop
    warm_up_calls: int


class Sampler:
    """Takes one sample: prepares (restore, poison, evict), then times `batch` calls.

    Returns seconds per call. `clock` counts nanoseconds.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        prepare: Callable[[], None],
        *,
        batch: int = 1,
        clock: Clock = perf_counter_ns,
    ) -> None:
        self.call, self.prepare, self.batch, self.clock = call, prepare, batch, clock
        self.result: Any = None

    def __call__(self) -> float:
        self.result = None
        self.prepare()
        call, clock = self.call, self.clock
        repeats = range(self.batch - 1)
        clock()  # so that reading it is not what meets a cold cache
        started = clock()
        for _ in repeats:
            call()
        self.result = call()
        elapsed = clock() - started
        return checked(elapsed * 1e-9 / self.batch)

    def facts(self) -> dict[str, Any]:
        """How the samples were taken."""
        return {"batch": self.batch}


def batch_size(seconds: float) -> int:
    """Calls per sample so that the clock's resolution and its cost stay below a thousandth."""
    return max(1, math.ceil(SHORTEST_SECONDS / seconds))


def time_candidate(
    sample: Callable[[], float], plan: Plan, clock: Clock = perf_counter_ns
) -> Timing:
    """Warm up and sample; raises TimingError for an impossible time."""
    started = clock()

    def spent() -> float:
        return (clock() - started) * 1e-9

    warm = warm_up(sample, plan, spent)
    if _hopeless(warm, plan, spent()):
        return Timing(warm[-1:], median_interval(warm[-1:]), "dropped", len(warm) - 1)
    samples: list[float] = []
    stop: Stop | None = None
    while stop is None:
        samples.append(sample())
        interval = median_interval(samples)
        stop = _stop(samples, interval, plan, spent())
    require_possible(interval.median, plan.limit)
    return Timing(tuple(samples), interval, stop, len(warm))


def warm_up(
    sample: Callable[[], float], plan: Plan, spent: Callable[[], float]
) -> tuple[float, ...]:
    """Call until times no longer fall; returns the times.

    Ends early after a quarter of the budget, and at once for a candidate that cannot win.
    """
    times = [sample()]
    while (
        len(times) < WARM_UP_CALLS
        and not _hopeless(times, plan, spent())
        and spent() <= WARM_UP_SHARE * plan.budget
    ):
        times.append(sample())
        if times[-1] >= STEADY * min(times[:-1]):
            break
    return tuple(times)


def _hopeless(samples: Sequence[float], plan: Plan, spent: float) -> bool:
    if plan.incumbent is None or spent < plan.span:
        return False
    return min(samples) > HOPELESS * plan.incumbent


def _stop(samples: list[float], interval: Interval, plan: Plan, spent: float) -> Stop | None:
    """Why to stop now, or None to go on."""
    count = len(samples)
    known = count >= plan.min_samples and spent >= plan.span
    if plan.incumbent is not None:
        beaten = known and interval.low > plan.incumbent * (1.0 + plan.margin)
        if beaten or _hopeless(samples, plan, spent):
            return "dropped"
    if known and interval.settled(plan.precision):
        return "precise"
    if count >= plan.max_samples:
        return "samples"
    if spent >= plan.budget and (count >= plan.min_samples or spent >= OVERRUN * plan.budget):
        return "budget"
    return None


def require_possible(seconds: float, limit: float) -> None:
    """Raises TimingError for a time below the physical limit."""
    if seconds < limit:
        raise TimingError(impossible(seconds, limit))


def impossible(seconds: float, limit: float) -> str:
    """What a time below the physical limit says."""
    return (
        f"{seconds:.3g} s is faster than the physical limit of {limit:.3g} s; "
        f"not all of the work was done, or the operation declares too much."
    )


def checked(seconds: float) -> float:
    """A time that can be; raises TimingError for one that cannot."""
    if not (seconds > 0.0 and math.isfinite(seconds)):
        raise TimingError(f"a call took {seconds:.3g} s; that is no time.")
    return seconds
