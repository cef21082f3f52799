"""Was the machine quiet? What others took of it while a candidate was timed, and how it shows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from autotune.statistics import median_interval, spread, two_levels

FOREIGN_LIMIT = 0.05
STEAL_LIMIT = 0.02
SPREAD_LIMIT = 0.15
WIDTH_LIMIT = 0.1
"""Scatter counts while it leaves the median unknown: short calls scatter on a quiet machine."""
SLEPT_LIMIT = 0.05
STOOD_STILL = 0.5
STANDING_OUT = 20.0
"""A call that takes so many seconds, and so many times the fastest, was no call like the others."""

_TICK_SECONDS = 0.02
"""What CPU accounting may be off by, per CPU: it counts in ticks of 10 ms, at both ends."""

_THROTTLE = "/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"


@dataclass(frozen=True, slots=True)
class Reading:
    """Clocks of the machine and of this process; seconds summed over the CPUs watched."""

    wall: float
    busy: float
    steal: float
    own: float
    switches: int
    throttled: int
    asleep: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """Between two readings: shares of the watched CPUs' time, and counts."""

    foreign: float
    steal: float
    switches: int
    throttled: int
    slept: float = 0.0


class Watch:
    """Reads clocks of some CPUs, of all that are online; the system lists those in order."""

    def __init__(self, cpus: Sequence[int], online: Sequence[int]) -> None:
        self._cpus = tuple(cpus)
        self._places = [online.index(cpu) for cpu in cpus]

    def read(self) -> Reading:
        """Everything now."""
        times = psutil.cpu_times(percpu=True)
        watched = [times[place] for place in self._places if place < len(times)] or times
        return Reading(
            wall=time.perf_counter() * len(watched),
            busy=sum(_busy(each) for each in watched),
            steal=sum(getattr(each, "steal", 0.0) for each in watched),
            own=time.process_time(),
            switches=_involuntary_switches(),
            throttled=sum(_number(_THROTTLE.format(cpu)) for cpu in self._cpus),
            asleep=seconds_asleep(),
        )

    def load(self, before: Reading, after: Reading) -> Load:
        """What happened between two readings."""
        capacity = max(after.wall - before.wall, 1e-9)
        others = (after.busy - before.busy) - (after.own - before.own)
        slack = _TICK_SECONDS * len(self._cpus)
        return Load(
            foreign=max(0.0, others - slack) / capacity,
            steal=max(0.0, after.steal - before.steal - slack) / capacity,
            switches=after.switches - before.switches,
            throttled=after.throttled - before.throttled,
            slept=after.asleep - before.asleep,
        )


def busy(facts: Mapping[str, Any]) -> bool:
    """Whether other programs had more than a little of the CPUs, by circumstances as stored."""
    foreign, steal = facts.get("foreign_load") or 0.0, facts.get("steal") or 0.0
    return bool(foreign > FOREIGN_LIMIT or steal > STEAL_LIMIT)


def disturbances(samples: Sequence[float], load: Load) -> tuple[str, ...]:
    """Why these samples are not to be trusted, in words; nothing when the machine was quiet."""
    found = []
    if load.foreign > FOREIGN_LIMIT:
        found.append(f"other processes used {load.foreign:.0%} of the CPUs")
    if load.steal > STEAL_LIMIT:
        found.append(f"the hypervisor withheld {load.steal:.0%} of the CPUs")
    if load.throttled:
        found.append("a CPU was throttled")
    return (*found, *slept_between(0.0, load.slept), *scatter(samples))


def seconds_asleep() -> float:
    """For how long the machine has been suspended since it started; 0 where that is not told."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    clocks = time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    since_start, awake = map(time.clock_gettime, clocks)
    return round(since_start - awake, 3)  # they are read one after the other


def slept_between(before: float, after: float) -> tuple[str, ...]:
    """Whether the machine was suspended: clocks and caches are not what they were before."""
    slept = after - before
    return (f"the machine slept for {slept:.3g} s",) if slept > SLEPT_LIMIT else ()


def scatter(samples: Sequence[float]) -> tuple[str, ...]:
    """What the times themselves tell of a disturbance, in words."""
    longest, fastest = max(samples, default=0.0), min(samples, default=0.0)
    if longest > max(STOOD_STILL, STANDING_OUT * fastest):
        return (f"one call took {longest:.3g} s, {longest / fastest:.0f} times the fastest",)
    if two_levels(samples) is not None:
        return ("the times fall on two levels",)
    if spread(samples) > SPREAD_LIMIT and median_interval(samples).width > WIDTH_LIMIT:
        return (f"the middle half of the times spreads over {spread(samples):.0%}",)
    return ()


def surroundings() -> dict[str, Any]:
    """What can be read of the machine's state: load average, clock in MHz, temperature in C."""
    found: dict[str, Any] = {}
    if hasattr(os, "getloadavg"):
        found["load_average"] = round(os.getloadavg()[0], 2)
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    if frequency is not None and frequency.current:
        found["clock_mhz"] = round(float(frequency.current), 1)
    sensors = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
    hottest = max((each.current for chip in sensors.values() for each in chip), default=None)
    if hottest is not None:
        found["temperature_c"] = round(float(hottest), 1)
    return found


def _busy(times: Any) -> float:
    names = ("user", "nice", "system", "irq", "softirq")
    return float(sum(getattr(times, name, 0.0) for name in names))


def _involuntary_switches() -> int:
    try:
        import resource
    except ImportError:
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0
