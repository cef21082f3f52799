"""Gate and timing on a (fake) GPU: what passes, what does not, and how it is timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring_bench import Lab, honest, lab, random_inputs

from autotune.cuda import bench as cuda_bench
from autotune.cuda.watch import CardState, CardWatch
from autotune.registry import registry
from autotune.worker.measure import measure
from autotune.worker.protocol import RaceJob
from autotune.worker.race import race


@pytest.fixture
def at_work(
    fake_cupy: Any, compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lab]:
    monkeypatch.setattr(cuda_bench, "LONGEST_HEAT", 0.0)
    monkeypatch.setattr(cuda_bench, "WAKE_SECONDS", 0.0)
    with lab(fake_cupy, tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("wrong", "y is off by"),
        ("lazy", "y has 1 of 4096 elements unwritten or not a number"),
        ("trespasser", "wrote outside of y"),
        ("vandal", "changed its input x"),
    ],
)
def test_a_bad_kernel_is_rejected_and_the_next_is_judged_on_its_own(
    at_work: Lab, variant: str, reason: str
) -> None:
    outcome = at_work.measure(variant)
    assert outcome.status == "wrong"
    assert reason in outcome.reason
    assert outcome.samples == ()
    assert at_work.measure("honest").status == "ok"


def test_a_cold_sample_is_the_device_time_of_one_call(at_work: Lab) -> None:
    outcome = at_work.measure("honest", mode="cold")
    assert outcome.status == "ok", outcome.reason
    assert outcome.median == pytest.approx(1e-5)
    assert outcome.circumstances["batch"] == 1
    assert outcome.circumstances["evicted_bytes"] > 2 * (1 << 20)
    assert outcome.circumstances["host_seconds"] > 0
    assert outcome.workspace_bytes == 4 * 4096


def test_a_hot_sample_is_many_calls_in_a_row(at_work: Lab) -> None:
    outcome = at_work.measure("honest", mode="hot")
    assert outcome.status == "ok", outcome.reason
    assert outcome.median == pytest.approx(1e-5)
    assert outcome.circumstances["batch"] in (100, 101)
    assert "evicted_bytes" not in outcome.circumstances


def test_a_graph_is_captured_once_and_replayed_cold(at_work: Lab) -> None:
    outcome = at_work.measure("honest", mode="graph")
    assert outcome.status == "ok", outcome.reason
    assert outcome.median == pytest.approx(1e-5)
    assert outcome.circumstances["evicted_bytes"] > 2 * (1 << 20)
    assert {launched.name for launched in at_work.cupy.launched} == {"honest"}
    assert at_work.cupy.captures == {}


def test_inputs_are_those_of_a_cpu_and_fresh_for_another_seed(at_work: Lab) -> None:
    gate = at_work.session.gate(at_work.session.problem(at_work.job().problem), 7)
    (x,) = gate.buffers.input_arrays
    assert np.array_equal(x.get(), random_inputs(7, 4096))
    assert not np.array_equal(x.get(), random_inputs(8, 4096))


def test_out_of_memory_costs_the_candidate_and_frees_the_pool(
    at_work: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert at_work.measure("honest").status == "ok"
    pool = at_work.cupy.pool
    monkeypatch.setattr(pool, "limit", pool.used + 100)
    outcome = at_work.measure("honest", config={"block": 128})
    assert outcome.status == "failed"
    assert outcome.reason.startswith("ran out of device memory")
    assert pool.total == pool.used
    monkeypatch.setattr(pool, "limit", 0)
    assert at_work.measure("honest").status == "ok"
    assert not at_work.session.spent


def test_an_unlaunchable_config_fails_and_the_process_goes_on(at_work: Lab) -> None:
    outcome = at_work.measure("honest", config={"block": 2048})
    assert outcome.status == "failed"
    assert "invalid argument" in outcome.reason
    assert not at_work.session.spent
    assert at_work.measure("honest").status == "ok"


@pytest.mark.parametrize("mode", ["cold", "hot", "graph"])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_error_that_stays_spends_the_process(at_work: Lab, after: int, mode: str) -> None:
    count = 0

    def poisons(launched: Any, x: int, y: int, size: int) -> None:
        nonlocal count
        count += 1
        honest(launched, x, y, size)
        if count > after:
            at_work.cupy.fail_with = 700

    at_work.cupy.kernels["honest"] = poisons, "PPq"
    outcome = at_work.measure("honest", mode=mode)
    assert outcome.status == "crashed"
    assert at_work.session.spent
    assert "700" in outcome.reason
    assert outcome.samples == ()


def test_an_error_on_another_stream_is_still_this_candidates(at_work: Lab) -> None:
    synchronize = at_work.session.bench.synchronize
    calls = 0

    def late() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the one at the end of the job
            at_work.cupy.fail_with = 700
        synchronize()

    at_work.session.bench.synchronize = late  # type: ignore[method-assign]
    assert at_work.measure("honest").status == "crashed"
    assert at_work.session.spent


def test_a_card_that_is_slowed_down_disturbs(at_work: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = CardState(sm_mhz=1200, temperature_c=92, throttle=0x40)
    monkeypatch.setattr(CardWatch, "read", lambda self: hot)
    outcome = at_work.measure("honest")
    assert outcome.status == "disturbed"
    assert outcome.reason == "the card was slowed down (hardware thermal slowdown)"
    assert outcome.circumstances["throttle"] == ["hardware thermal slowdown"]
    assert outcome.circumstances["sm_clock_mhz"] == 1200


def test_a_time_faster_than_memory_is_an_error(at_work: Lab) -> None:
    at_work.session.bench.evictor.rate = 1e9  # type: ignore[attr-defined]
    outcome = at_work.measure("honest", size=1 << 20)
    assert outcome.status == "failed"
    assert "faster than the physical limit" in outcome.reason
    assert at_work.measure("honest", size=1 << 20, mode="hot").status == "ok"
    assert at_work.measure("honest", size=1 << 12).status == "ok"


def test_a_time_of_nothing_is_an_error(at_work: Lab) -> None:
    at_work.cupy.costs["honest"] = 0.0
    assert at_work.measure("honest").reason == "a call took 0 s; that is no time."


def test_a_call_that_cannot_be_captured_fails_in_graph_mode_only(at_work: Lab) -> None:
    variant = registry.variant(at_work.operation, "honest")

    def build(problem: Any, config: Any) -> Any:
        run = variant.build(problem, config)

        def run_and_wait(*arrays: Any) -> None:
            run(*arrays)
            at_work.cupy.cuda.get_current_stream().synchronize()

        return run_and_wait

    registry.add_variant(replace(variant, name="waiting", build=build))
    assert at_work.measure("waiting", mode="cold").status == "ok"
    outcome = at_work.measure("waiting", mode="graph")
    assert outcome.status == "failed"
    assert outcome.reason.startswith("cannot be captured in a CUDA graph")
    assert at_work.measure("honest", mode="graph").status == "ok"
    assert not at_work.session.spent


def test_eviction_covers_the_time_that_the_host_needs(at_work: Lab) -> None:
    evictor = at_work.session.bench.evictor  # type: ignore[attr-defined]
    assert evictor.nbytes >= 2 * (1 << 20)
    evictor.seconds = 1e-3
    assert [evictor.sweeps(seconds) for seconds in (0.0, 5e-4, 2.5e-3, 10.0)] == [1, 1, 3, 64]


def test_a_race_times_entrants_in_turn(at_work: Lab) -> None:
    at_work.cupy.costs["honest"] = 1e-5
    key = at_work.job().problem
    entrants = (("honest", {"block": 64}), ("honest", {"block": 128}))
    job = RaceJob(key, entrants, min_rounds=6, max_rounds=8, budget=0.5)
    outcome = race(at_work.session, job)
    assert outcome.status == "ok", outcome.reason
    assert len(outcome.samples[0]) == len(outcome.samples[1]) >= 6
    assert outcome.samples[0][0] == pytest.approx(1e-5)
    lost = RaceJob(key, (("honest", {"block": 64}), ("wrong", {"block": 64})))
    assert race(at_work.session, lost).culprit == 1


def test_large_inputs_are_those_of_a_cpu_too_and_the_gate_judges_them(at_work: Lab) -> None:
    job = at_work.job(gain=16.0, conditioned=True, seed=7)
    outcome = measure(at_work.session, job, timed=False)
    assert (outcome.status, outcome.samples) == ("ok", ())
    problem = at_work.session.problem(job.problem)
    gate = at_work.session.gate(problem, 7, gain=16.0, conditioned=True)
    (x,) = gate.buffers.input_arrays
    assert np.array_equal(x.get(), 16 * random_inputs(7, 4096))
    wrong = measure(at_work.session, replace(job, variant="wrong"), timed=False)
    assert wrong.status == "wrong"
