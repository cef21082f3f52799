"""Cases TIM-1 to TIM-5: what a time must be before it decides anything."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case_lab import (
    CALLS,
    MEASURED,
    SIZE,
    InProcess,
    clean_registry,
    doubling,
    measured,
    session,
    tuned,
    with_variants,
)
from command_line import Run
from filled import choice, keep

from autotune.bench import CpuBench
from autotune.device import local_cpu
from autotune.disturbance import SPREAD_LIMIT, Load, disturbances
from autotune.eviction import EXCESS
from autotune.model import Problem
from autotune.registry import registry, variant
from autotune.worker.protocol import Job, Outcome, RaceJob
from autotune.worker.race import race
from autotune_tuning_db import open_store

__all__ = ["clean_registry"]


def test_tim_1_compiling_at_the_first_call_is_not_run_time(tmp_path: Path) -> None:
    target = with_variants(doubling("tim_1"), "compiles_first", "slow")
    CALLS.clear()
    with open_store(tmp_path / "tuning.db") as store:
        (result,) = tuned(target, store).results
        assert result.policy is not None
        assert result.policy.winner.variant == "compiles_first"
        row = next(r for r in store.trials() if r.variant == "compiles_first")
    assert row.first_call_seconds is not None
    assert row.first_call_seconds >= 0.3
    assert max(row.samples) < 0.1


class _Cache:
    """A cache that is warm after a call, and cold after an eviction."""

    nbytes, seconds, best_rate = 1 << 30, 0.0, 0.0

    def __init__(self) -> None:
        self.warm = False

    def evict(self) -> None:
        self.warm = False


def test_tim_2_cold_is_the_default_and_ranks_as_production_does(
    monkeypatch: pytest.MonkeyPatch, run: Run, toy: str
) -> None:
    target, cache = doubling("tim_2"), _Cache()
    monkeypatch.setattr(CpuBench, "evictor", cache)

    def takes(hot: float, cold: float) -> Any:
        def call(x: Any, y: Any) -> None:
            time.sleep(hot if cache.warm else cold)
            cache.warm = True
            np.multiply(x, 2, out=y)

        return call

    variant(target, "reads_twice")(takes(0.001, 0.008))
    variant(target, "reads_once")(takes(0.003, 0.004))

    def order(**job: Any) -> list[str]:
        at = session()
        medians = {name: measured(target, name, at, **job) for name in registry._variants["tim_2"]}
        return sorted(medians, key=lambda name: medians[name].median or 9.0)

    assert Job("p", "v", {}).mode == "cold"
    assert order(mode="cold") == ["reads_once", "reads_twice"]
    assert order(mode="hot") == ["reads_twice", "reads_once"]
    assert EXCESS > 1.0
    keep(Problem.of(registry.operation("toy_scale"), (64,)), choice("numpy", 1e-6), mode="hot")
    assert "hot cache" in run("show", "toy_scale").flat


class _Timed(InProcess):
    """Notes when it measured."""

    def __init__(self) -> None:
        super().__init__(session())
        self.spans: list[tuple[float, float]] = []

    def measure(self, job: Job) -> Outcome:
        started = time.monotonic()
        outcome = super().measure(job)
        time.sleep(0.02)
        self.spans.append((started, time.monotonic()))
        return outcome


def test_tim_3_two_tuners_of_one_device_take_turns(tmp_path: Path) -> None:
    workers = [_Timed(), _Timed()]

    def work(number: int) -> None:
        target = with_variants(doubling(f"tim_3_{number}"), "honest", "slow")
        with open_store(tmp_path / "tuning.db") as store:
            tuned(target, store, worker=workers[number], budget=0.5)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = sorted((w.spans for w in workers), key=lambda spans: spans[0])
    assert len(first) == len(second) == 2
    assert first[-1][1] <= second[0][0]


def test_tim_3_what_others_do_meanwhile_is_a_disturbance() -> None:
    steady = [0.01] * 20
    quiet = {"foreign": 0.0, "steal": 0.0, "switches": 0, "throttled": 0}
    for field, words in {
        "foreign": "other processes used 30% of the CPUs",
        "steal": "the hypervisor withheld 30% of the CPUs",
        "throttled": "a CPU was throttled",
        "slept": "the machine slept for 0.3 s",
    }.items():
        assert disturbances(steady, Load(**{**quiet, field: 0.3})) == (words,)  # type: ignore[arg-type]
    assert disturbances(steady, Load(**quiet)) == ()  # type: ignore[arg-type]
    assert SPREAD_LIMIT < 1.0


def test_tim_3_real_load_is_seen_and_the_measurement_marked() -> None:
    spinning = [sys.executable, "-c", "while True: pass"]
    count = len(local_cpu().topology.allowed) // 4 + 1
    processes = [subprocess.Popen(spinning) for _ in range(count)]
    try:
        target = with_variants(doubling("tim_3_load"), "slow")
        outcome = measured(target, "slow", budget=0.6, precision=1e-9, max_samples=10**6)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert outcome.status == "disturbed"
    assert "other processes used" in outcome.reason
    assert outcome.circumstances["disturbed"]
    assert outcome.circumstances["foreign_load"] > 0.05


def test_tim_4_inputs_are_random_and_what_needs_constants_is_wrong() -> None:
    target = with_variants(doubling("tim_4"), "constant", "honest")
    at = session()
    outcome = measured(target, "constant", at)
    assert (outcome.status, outcome.samples) == ("wrong", ())
    assert measured(target, "honest", at).status in MEASURED
    problem = Problem.of(target, (SIZE,))
    (x,) = at.gate(problem, 0).buffers.input_arrays
    assert x.shape == (SIZE,)
    assert len(np.unique(x)) > SIZE // 2


@pytest.mark.parametrize("name", ["detached", "detached_later"])
def test_tim_5_what_is_not_done_when_it_returns_is_wrong(name: str) -> None:
    """Also when it begins to do so only after the first check."""
    target = with_variants(doubling("tim_5"), name, "slow")
    CALLS.clear()
    outcome = measured(target, name)
    assert (outcome.status, outcome.samples) == ("wrong", ())
    assert "unwritten" in outcome.reason or "after the call had returned" in outcome.reason
    assert measured(target, "slow").status in MEASURED


def test_tim_5_a_time_that_no_machine_reaches_is_no_time() -> None:
    """As of work that was started and not waited for: a million operations a call in no time."""
    target = with_variants(doubling("tim_5_declared", flops="N * 1000000000000"), "honest")
    outcome = measured(target, "honest")
    assert outcome.status == "failed"
    assert "faster than the physical limit" in outcome.reason


def test_tim_5_nor_is_it_in_a_race() -> None:
    target = with_variants(
        doubling("tim_5_raced", flops="N * 1000000000000"), "honest", "compiles_first"
    )
    key = Problem.of(target, (SIZE,)).key.text
    entrants = (("honest", {}), ("compiles_first", {}))
    outcome = race(session(), RaceJob(key, entrants, mode="hot", min_rounds=3, budget=0.1))
    assert (outcome.status, outcome.culprit, outcome.samples) == ("failed", 0, ())
    assert "faster than the physical limit" in outcome.reason
