"""Gate and timing on a (fake) GPU: what passes, what does not, and how it is timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from measuring_bench import Lab, lab, random_inputs

from autotune.cuda import bench as cuda_bench


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


@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_error_that_stays_spends_the_process(at_work: Lab, after: int) -> None:
    count = 0

    def poisons(launched: Any, x: int, y: int, size: int) -> None:
        nonlocal count
        count += 1
        if count > after:
            at_work.cupy.fail_with = 700

    at_work.cupy.kernels["honest"] = poisons, "PPq"
    outcome = at_work.measure("honest")
    assert outcome.status in ("crashed", "wrong") if after else ("crashed",)
    if outcome.status == "crashed":
        assert at_work.session.spent
        assert "700" in outcome.reason
