"""Compiling ahead for a GPU: in processes without one, once for each, and found again."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from measuring_bench import FakeGpu

from autotune.cuda import CudaSource, nvrtc
from autotune.cuda.ahead import compiling_for
from autotune.errors import AutotuneError
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.settings import settings
from autotune.worker import Job, Worker
from autotune.worker.gpu import GpuWorker

PLUGIN = Path(__file__).parent.parent / "gpu" / "gpu_plugin.py"
KEY = "gpu_scale N=64 float32 packed"


@pytest.fixture
def compiler(private_home: Path) -> None:
    try:
        nvrtc.version()
    except AutotuneError as error:
        pytest.skip(str(error))
    load_file(PLUGIN)


def job(variant: str = "honest", block: int = 64) -> Job:
    return Job(KEY, variant, {"block": block}, time_limit=60.0)


def kept() -> int:
    return len(list((settings().cache / "cuda").glob("*.cubin")))


def test_a_process_without_a_gpu_puts_the_code_on_disk(compiler: None) -> None:
    with Worker(FakeGpu(), plugin_files=[str(PLUGIN)], compile_for="sm_90a") as worker:
        first = worker.compile(job())
        again = worker.compile(job())
        bad = worker.compile(job("uncompilable"))
    assert (first.status, again.status) == ("ok", "ok"), first.reason
    assert first.compile_seconds > 0.0
    assert again.compile_seconds == 0.0
    assert first.samples == ()
    assert kept() == 1
    assert bad.status == "failed"
    assert 'gpu_scale.cu:5: identifier "no_such_name" is undefined' in bad.reason


def test_what_was_compiled_ahead_is_what_the_device_would_compile(
    compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = registry.variant("gpu_scale", "honest")
    from autotune.model import Config, Problem

    problem = Problem.of(variant.operation, (64,))
    with compiling_for("sm_90a"):
        variant.build(problem, Config({"block": 64}))
    assert kept() == 1

    def refuse(*_: object) -> bytes:
        raise AssertionError("compiled twice")

    monkeypatch.setattr(nvrtc, "compile_cubin", refuse)
    source = CudaSource(PLUGIN.parent / "gpu_scale.cu")
    assert source.kernel("scale", {"FACTOR": "2.0f"}).compile("sm_90a")


def test_outside_of_it_nothing_is_compiled_before_its_first_use(compiler: None) -> None:
    CudaSource(PLUGIN.parent / "gpu_scale.cu").kernel("scale", {"FACTOR": "5.0f"})
    assert kept() == 0


def test_a_gpu_worker_compiles_beside_and_ends_its_processes(compiler: None) -> None:
    before = set(psutil.Process().children())
    worker = GpuWorker(FakeGpu(), plugin_files=[str(PLUGIN)], processes=2)
    told: list[int] = []
    assert worker.depth == 3
    try:
        assert worker.compile_ahead([job(block=32), job(block=128)], starting=told.append) == 2
        futures = [worker.start(job(block=block)) for block in (32, 64)]
        assert [each.result(60).status for each in futures] == ["ok", "ok"]
    finally:
        worker.close()
    assert told == [2]
    time.sleep(0.05)
    assert set(psutil.Process().children()) <= before


def test_the_same_code_is_compiled_by_one_process_while_others_wait(compiler: None) -> None:
    jobs = [Job(f"gpu_scale N={size} float32 packed", "honest", {"block": 64}) for size in (8, 9)]
    worker = GpuWorker(FakeGpu(), plugin_files=[str(PLUGIN)], processes=2)
    try:
        outcomes = [each.result(60) for each in [worker.start(job) for job in jobs]]
    finally:
        worker.close()
    assert [outcome.status for outcome in outcomes] == ["ok", "ok"]
    assert kept() == 1
    assert min(outcome.compile_seconds or 0.0 for outcome in outcomes) == 0.0
