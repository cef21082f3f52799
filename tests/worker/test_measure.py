"""What becomes of good, bad and ugly candidates in the measuring process."""

from __future__ import annotations

import math

import pytest
from worker_bench import MEASURED, Bench

from autotune.fingerprint import fingerprint, toolchain
from autotune.registry import registry

SAFE_FAILURES = {
    "zeros": ("wrong", "y is off by 1 of its magnitude"),
    "half_done": ("wrong", "y has 2048 of 4096 elements unwritten or not a number"),
    "nan": ("wrong", "y has 1 of 4096 elements unwritten or not a number"),
    "cheat": ("wrong", "y is off by"),
    "vandal": ("wrong", "changed its input x"),
    "trespasser": ("wrong", "wrote outside of y"),
    "wide": ("wrong", "y is float64 (4096,), not float32 (4096,)"),
    "moody": ("wrong", "y differs between two runs, but it claims determinism"),
    "tiring": ("wrong", "went wrong under repetition: y is off by"),
    "detached": ("wrong", "unwritten"),
    "raising": ("failed", "raised RuntimeError: no such tile"),
    "exiting": ("failed", "raised SystemExit: 3"),
    "interrupting": ("failed", "raised KeyboardInterrupt"),
    "out_of_memory": ("failed", "ran out of memory"),
    "absent": ("unavailable", "needs a unicorn"),
}


@pytest.mark.parametrize("variant", SAFE_FAILURES)
def test_a_bad_candidate_costs_one_outcome_with_its_reason(bench: Bench, variant: str) -> None:
    status, reason = SAFE_FAILURES[variant]
    outcome = bench.measure(variant)
    assert outcome.status == status
    assert reason in outcome.reason
    assert "\n" not in outcome.reason
    assert outcome.samples == ()
    assert outcome.median is None
    good = bench.measure("honest")
    assert good.status in MEASURED, good.reason


def test_a_builder_that_raises_is_named_with_its_message(bench: Bench) -> None:
    outcome = bench.measure("unbuildable", config={"style": "b"})
    assert (outcome.status, outcome.reason) == ("failed", "raised ValueError: cannot build for b")


@pytest.mark.parametrize("variant", ["honest", "returning", "chatty"])
def test_a_good_candidate_is_measured(bench: Bench, variant: str) -> None:
    outcome = bench.measure(variant)
    assert outcome.status in MEASURED, outcome.reason
    assert outcome.low <= outcome.median <= outcome.high
    assert outcome.median > 0
    assert len(outcome.samples) >= 5
    assert all(math.isfinite(sample) for sample in outcome.samples)
    assert (outcome.error, outcome.workspace_bytes) == (0.0, 0)
    assert outcome.error_bound > 0
    assert outcome.toolchain == toolchain()
    assert outcome.fingerprint == fingerprint(registry.variant("scale", variant))
    assert outcome.circumstances["mode"] == "hot"
    assert outcome.circumstances["cpus"]
    assert outcome.circumstances["batch"] > 1
    assert (outcome.status == "disturbed") == bool(outcome.circumstances.get("disturbed"))


def test_threads_temporaries_and_compilation_are_accounted_for(bench: Bench) -> None:
    outcome = bench.measure("threaded", config={"threads": 1, "style": "a"})
    assert outcome.status in MEASURED, outcome.reason
    assert outcome.workspace_bytes == 4 * 4096
    assert outcome.compile_seconds > 0.1
    assert outcome.circumstances["threads"] == 1
    assert outcome.circumstances["threading_layer"] in ("omp", "tbb", "workqueue")


def test_a_slow_first_call_is_not_run_time(bench: Bench) -> None:
    slow = bench.measure("plain_slow")
    fast = bench.measure("jit_fast")
    assert fast.status in MEASURED
    assert fast.first_call_seconds >= 0.5
    assert max(fast.samples) < 0.5
    assert fast.median < slow.median


def test_a_candidate_that_cannot_win_is_dropped_early(bench: Bench) -> None:
    outcome = bench.measure("plain_slow", incumbent=0.001)
    assert outcome.status == "dropped"
    assert len(outcome.samples) == 1


def test_one_that_is_far_behind_is_not_called_again_to_be_timed(bench: Bench) -> None:
    outcome = bench.measure("very_slow", incumbent=0.001)
    assert (outcome.status, outcome.circumstances["stop"]) == ("dropped", "far behind")
    assert outcome.samples == (outcome.median,)
    assert outcome.median == pytest.approx(0.15, rel=0.5)
    assert bench.measure("very_slow", incumbent=0.1).circumstances["stop"] != "far behind"
    assert bench.measure("very_slow").status in MEASURED


def test_one_bad_first_call_does_not_put_a_candidate_far_behind(bench: Bench) -> None:
    bench.worker.renew()
    outcome = bench.measure("jit_fast", incumbent=0.01)
    assert outcome.first_call_seconds >= 0.5
    assert outcome.status in MEASURED, outcome.reason


def test_in_place_operations_start_from_fresh_inputs_every_time(bench: Bench) -> None:
    for variant in ("multiply", "add"):
        outcome = bench.measure(variant, "double")
        assert outcome.status in MEASURED, outcome.reason
        assert outcome.error == 0.0
        assert outcome.circumstances["batch"] == 1


def test_cold_measurements_evict_more_than_the_last_level_cache(bench: Bench) -> None:
    from autotune.device import local_cpu

    outcome = bench.measure("honest", mode="cold", budget=0.5)
    assert outcome.status in MEASURED, outcome.reason
    assert outcome.circumstances["evicted_bytes"] > local_cpu().last_level_cache_bytes
    assert outcome.circumstances["evict_seconds"] > 0
    assert outcome.circumstances["batch"] == 1


def test_strided_inputs_and_empty_ones_can_be_measured(bench: Bench) -> None:
    for given in ({"layout": "strided"}, {"size": 0}, {"size": 1}):
        outcome = bench.measure("honest", problem=bench.key(**given))
        assert outcome.status in MEASURED, outcome.reason


def test_a_reference_that_cannot_judge_is_the_reason(bench: Bench) -> None:
    outcome = bench.measure("only", "unjudged")
    assert outcome.status == "failed"
    assert outcome.reason == "the reference of unjudged gives NaN in y."


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"variant": "honset"}, "did you mean 'honest'"),
        ({"variant": "honest", "problem": "scael N=8 float32 packed"}, "did you mean 'scale'"),
        ({"variant": "honest", "problem": "nonsense"}, "'nonsense' is not a problem"),
    ],
)
def test_a_job_that_names_nothing_is_a_failed_outcome(
    bench: Bench, fields: dict[str, str], reason: str
) -> None:
    outcome = bench.measure(**fields)
    assert outcome.status == "failed"
    assert reason in outcome.reason
