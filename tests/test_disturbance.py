"""Whether a measurement is called disturbed, and by what."""

from __future__ import annotations

import random
import time

import pytest

from autotune.device import local_cpu
from autotune.disturbance import (
    Load,
    Reading,
    Watch,
    disturbances,
    seconds_asleep,
    surroundings,
)

QUIET = Load(foreign=0.0, steal=0.0, switches=3, throttled=0)


def steady(scatter: float = 0.01, count: int = 20) -> list[float]:
    rng = random.Random(2)
    return [0.01 * (1 + rng.uniform(-scatter, scatter)) for _ in range(count)]


def test_steady_times_on_a_quiet_machine_are_undisturbed() -> None:
    assert disturbances(steady(), QUIET) == ()


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (Load(0.3, 0.0, 0, 0), "other processes used 30% of the CPUs"),
        (Load(0.0, 0.1, 0, 0), "the hypervisor withheld 10% of the CPUs"),
        (Load(0.0, 0.0, 0, 2), "a CPU was throttled"),
    ],
)
def test_what_others_did_is_named_even_when_times_look_steady(load: Load, reason: str) -> None:
    assert disturbances(steady(), load) == (reason,)


def test_two_levels_of_times_are_a_disturbance() -> None:
    assert disturbances([*steady(), *(2 * t for t in steady())], QUIET) == (
        "the times fall on two levels",
    )


def test_scatter_counts_only_while_it_leaves_the_median_unknown() -> None:
    assert "spreads over" in disturbances(steady(0.5, 12), QUIET)[0]
    assert disturbances(steady(0.2, 400), QUIET) == ()


def test_load_is_what_was_busy_beyond_this_process() -> None:
    before = Reading(wall=0.0, busy=10.0, steal=1.0, own=2.0, switches=5, throttled=0)
    after = Reading(wall=4.0, busy=13.04, steal=1.44, own=4.0, switches=9, throttled=1)
    load = Watch((0, 1), (0, 1)).load(before, after)
    assert load.foreign == pytest.approx(0.25)
    assert load.steal == pytest.approx(0.1)
    assert (load.switches, load.throttled) == (4, 1)


def test_own_work_is_not_foreign() -> None:
    before = Reading(wall=0.0, busy=0.0, steal=0.0, own=0.0, switches=0, throttled=0)
    after = Reading(wall=4.0, busy=3.9, steal=0.0, own=4.0, switches=0, throttled=0)
    assert Watch((0, 1), (0, 1)).load(before, after).foreign == 0.0


def test_clocks_belong_to_cpus_by_number_even_when_some_are_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Times:
        def __init__(self, user: float) -> None:
            self.user = user

    times = [Times(1.0), Times(20.0), Times(300.0)]
    monkeypatch.setattr("psutil.cpu_times", lambda percpu: times)
    assert Watch((5, 7), (0, 5, 7)).read().busy == 320.0


def test_clocks_of_this_machine_can_be_read() -> None:
    watch = Watch(local_cpu().topology.allowed, local_cpu().topology.online)
    before = watch.read()
    until = time.perf_counter() + 0.05
    while time.perf_counter() < until:
        pass
    after = watch.read()
    assert after.wall - before.wall >= 0.05 * len(local_cpu().topology.allowed)
    assert after.own - before.own > 0.0
    assert after.busy >= before.busy
    assert all(isinstance(value, float) for value in surroundings().values())


def test_a_machine_that_slept_is_read_from_its_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {time.CLOCK_MONOTONIC: 100.0, time.CLOCK_BOOTTIME: 100.0}
    monkeypatch.setattr("autotune.disturbance.time.clock_gettime", clocks.__getitem__)
    watch = Watch(local_cpu().topology.allowed, local_cpu().topology.online)
    before = watch.read()
    clocks[time.CLOCK_BOOTTIME] += 1800.0  # the lid was closed
    load = watch.load(before, watch.read())
    assert load.slept == pytest.approx(1800.0)
    assert "the machine slept for 1.8e+03 s" in disturbances(steady(), load)
    assert seconds_asleep() == pytest.approx(1800.0)


def test_a_process_that_was_stopped_in_a_call_shows_in_that_call() -> None:
    stopped = (*steady(0.0), 12.0)
    assert disturbances(stopped, QUIET) == ("one call took 12 s, 1200 times the fastest",)
    assert disturbances((5.0, 6.0, 5.5), QUIET) == ()  # long calls, all alike
