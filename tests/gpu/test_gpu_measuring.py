"""Measuring on a real GPU: what good and bad kernels come to, cold, hot and as a graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from autotune.bench import bench_for
from autotune.campaign import Campaign, Settings
from autotune.cuda.memory import DeviceMemory
from autotune.inputs import make_buffers
from autotune.model import Problem
from autotune.plugins import load_file, load_plugins
from autotune.registry import registry
from autotune.verify import Gate
from autotune.worker.gpu import GpuWorker
from autotune.worker.measure import measure
from autotune.worker.protocol import Job, Outcome
from autotune.worker.session import Session
from autotune_tuning_db import open_store

pytestmark = pytest.mark.gpu

PLUGIN = Path(__file__).parent / "gpu_plugin.py"
MEASURED = ("ok", "dropped", "disturbed")


@pytest.fixture(scope="module")
def worker(device: Any) -> Iterator[GpuWorker]:
    """A measuring process, and two that compile."""
    load_file(PLUGIN)
    made = GpuWorker(device, plugin_files=[str(PLUGIN)], processes=2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def session(device: Any) -> Session:
    """What a measuring process has, in this one."""
    load_file(PLUGIN)
    return Session(bench_for(device))


def job(variant: str = "honest", *, size: int = 1 << 16, mode: Any = "cold", **config: Any) -> Job:
    given = {"block": 256, **({"repeats": 1} if variant == "honest" else {}), **config}
    key = f"gpu_scale N={size} float32 packed"
    return Job(key, variant, given, mode=mode, budget=0.3, retries=1, time_limit=60.0)


BAD = {
    "wrong": ("wrong", "y is off by"),
    "beyond": ("wrong", "wrote outside of y"),
    "uncompilable": ("failed", 'identifier "no_such_name" is undefined'),
    "greedy": ("failed", "ran out of device memory"),
    "illegal": ("crashed", "ILLEGAL"),
    "trap": ("crashed", ""),
}


@pytest.mark.parametrize("variant", BAD)
def test_a_bad_kernel_costs_one_outcome_with_its_reason(worker: GpuWorker, variant: str) -> None:
    status, reason = BAD[variant]
    outcome = worker.measure(job(variant))
    assert outcome.status == status, outcome.reason
    assert reason.lower() in outcome.reason.lower()
    assert outcome.samples == ()
    good = worker.measure(job())
    assert good.status in MEASURED, good.reason


def test_a_block_that_cannot_be_launched_fails(worker: GpuWorker) -> None:
    outcome = worker.measure(job(block=2048))
    assert outcome.status == "failed", outcome
    assert worker.measure(job()).status in MEASURED


def seconds(session: Session, **fields: Any) -> float:
    outcome: Outcome = measure(session, job(**fields))
    assert outcome.status in MEASURED, outcome.reason
    return median(outcome.samples)


def test_a_large_copy_moves_bytes_at_the_rate_of_memory(session: Session) -> None:
    size = 1 << 27
    bench: Any = session.bench
    rate = 2 * 4 * size / seconds(session, size=size)
    assert 0.5 * bench.evictor.rate < rate < 1.2 * bench.evictor.rate


def test_what_fits_the_cache_is_slower_cold_than_hot(session: Session) -> None:
    bench: Any = session.bench
    size = bench.device.last_level_cache_bytes // 16
    cold, hot = (seconds(session, size=size, mode=mode) for mode in ("cold", "hot"))
    assert cold > 1.1 * hot
    assert bench.evictor.nbytes > 2 * bench.device.last_level_cache_bytes


def test_a_graph_takes_what_its_kernel_takes(session: Session) -> None:
    cold, graph = (
        seconds(session, size=1 << 22, repeats=200, mode=mode) for mode in ("cold", "graph")
    )
    assert graph == pytest.approx(cold, rel=0.1)


def test_launching_is_not_part_of_device_time(session: Session) -> None:
    outcome = measure(session, job(size=1 << 10))
    assert outcome.status in MEASURED, outcome.reason
    assert median(outcome.samples) < 20e-6
    assert outcome.circumstances["host_seconds"] > 0


def test_clocks_and_temperature_are_recorded(session: Session) -> None:
    pytest.importorskip("pynvml")
    found = measure(session, job()).circumstances
    assert 200 < found["sm_clock_mhz"] < 5000
    assert 10 < found["temperature_c"] < 120


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_inputs_are_those_of_a_cpu(device: Any, dtype: str) -> None:
    load_plugins()
    problem = Problem.of(registry.operation("attention"), (1, 2, 65, 40), dtype, layout="strided")
    here, there = make_buffers(problem, 3, memory=DeviceMemory()), make_buffers(problem, 3)
    for one, other in zip(here.input_arrays, there.input_arrays, strict=True):
        assert np.array_equal(one.get().astype("f8"), other.astype("f8"))
    assert here.damage() is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["attention", "attention_train", "attention_backward", "decode"])
def test_the_gate_has_bounds_in_every_dtype(device: Any, name: str, dtype: str) -> None:
    load_plugins()
    operation = registry.operation(name)
    if dtype not in operation.dtypes:
        pytest.skip(f"{name} has no {dtype}")
    gate = Gate(Problem.of(operation, (2, 2, 300, 64), dtype), memory=DeviceMemory())
    leasts = {"float64": 1e-16, "float32": 1e-8, "float16": 1e-4, "bfloat16": 1e-3}
    for expected in gate.expected:
        least = leasts[expected.dtype.name]  # of lse in 16 bits: that of float32
        assert least < expected.bound < 3e4 * least, (expected.name, expected.bound)
    assert gate.buffers.damage() is None


def test_a_campaign_finds_the_right_kernel(device: Any, tmp_path: Path) -> None:
    load_file(PLUGIN)
    problem = Problem.of(registry.operation("gpu_scale"), (1 << 20,))
    with open_store(tmp_path / "tuning.db") as store:
        campaign = Campaign(
            [problem],
            device=device,
            settings=Settings(budget=15.0),
            store=store,
            make_worker=lambda found: GpuWorker(found, plugin_files=[str(PLUGIN)]),
        )
        (result,) = campaign.run().results
        assert result.policy is not None
        assert result.policy.winner.variant == "honest"
        assert dict(result.policy.winner.config)["repeats"] == 1
        failed = {failure.candidate.variant for failure in result.failures}
        assert failed >= {"wrong", "beyond", "uncompilable", "greedy", "illegal", "trap"}
