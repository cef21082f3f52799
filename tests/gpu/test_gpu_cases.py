"""The cases that need a GPU, on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import dispatch
from autotune.arrays import array_dtype
from autotune.bench import bench_for
from autotune.cuda.memory import DeviceMemory
from autotune.execution import Executable
from autotune.model import Problem
from autotune.model.space import default_config, why_not
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.worker.gpu import GpuWorker
from autotune.worker.measure import measure
from autotune.worker.protocol import Job
from autotune.worker.session import Session

pytestmark = pytest.mark.gpu

PLUGIN = Path(__file__).parent / "gpu_cases_plugin.py"
MEASURED = ("ok", "dropped", "disturbed")


@pytest.fixture(scope="module")
def worker(device: Any) -> Iterator[GpuWorker]:
    load_file(PLUGIN)
    made = GpuWorker(device, plugin_files=[str(PLUGIN)], processes=2)
    yield made
    made.close()


def job(variant: str, *, size: int = 1 << 16, mode: Any = "cold", **config: Any) -> Job:
    given = {"block": 256, **config}
    key = f"gpu_case N={size} float32 packed"
    return Job(key, variant, given, mode=mode, budget=0.2, retries=1, time_limit=60.0)


@pytest.mark.parametrize("variant", ["illegal", "misaligned", "trap"])
def test_iso_1_an_illegal_access_ruins_nothing_but_itself(worker: GpuWorker, variant: str) -> None:
    cupy = import_module("cupy")
    outcome = worker.measure(job(variant))
    assert outcome.status == "crashed", outcome.reason
    for _ in range(2):
        good = worker.measure(job("honest"))
        assert good.status in MEASURED, good.reason
    assert float(cupy.ones(4).sum()) == 4.0  # this process's own context


@pytest.mark.parametrize(
    ("variant", "config", "reason"),
    [
        ("too_much_shared", {}, "shared memory"),
        ("honest", {"block": 2048}, "invalid"),
        ("nameless", {}, "no_such_kernel"),
    ],
)
def test_iso_2_what_cannot_be_built_or_launched_fails_by_itself(
    worker: GpuWorker, variant: str, config: dict[str, Any], reason: str
) -> None:
    outcome = worker.measure(job(variant, **config))
    assert outcome.status == "failed", outcome
    assert reason in outcome.reason
    assert "\n" not in outcome.reason
    assert worker.measure(job("honest")).status in MEASURED


def test_iso_4_tuning_takes_little_more_than_inputs_and_outputs(device: Any) -> None:
    cupy = import_module("cupy")
    load_file(PLUGIN)
    size = 1 << 28  # 1 GiB in, 1 GiB out
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    session = Session(bench_for(device))
    before = pool.used_bytes()
    outcome = measure(session, job("honest", size=size))
    assert outcome.status in MEASURED, outcome.reason
    assert pool.used_bytes() - before < 6 << 30  # the reference is there in float64 as well
    session.gate(session.problem("gpu_case N=8 float32 packed"), 0)
    assert pool.total_bytes() - before < 1 << 30


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 24])
@pytest.mark.parametrize("mode", ["cold", "hot"])
def test_tim_5_work_on_another_stream_is_wrong_however_short(
    device: Any, size: int, mode: str
) -> None:
    load_file(PLUGIN)
    session = Session(bench_for(device))
    outcome = measure(session, job("detached", size=size, mode=mode))
    assert outcome.status == "wrong", outcome
    assert "unwritten" in outcome.reason
    assert measure(session, job("honest", size=size, mode=mode)).status in MEASURED


def test_num_5_a_witness_of_a_large_array_sees_one_element(device: Any) -> None:
    memory, size = DeviceMemory(), (1 << 23) + 3
    array = memory.asarray(np.arange(size, dtype="f4"))
    unchanged = memory.witness(array)
    assert unchanged()
    for place in (0, size // 2, size - 1):
        array[place] += 1
        assert not unchanged()
        array[place] -= 1
        assert unchanged()


def attention_variants(problem: Problem, device: Any) -> Iterator[tuple[str, Executable]]:
    for variant in registry.variants(problem.operation):
        if why_not(variant, problem, device.kind, device.limits) is None:
            config = default_config(variant, problem, device)
            assert config is not None
            yield variant.name, Executable(variant, problem, config, device)


@pytest.mark.parametrize(("dtype", "value"), [("float16", 300.0), ("bfloat16", 1e4)])
def test_num_4_products_beyond_the_range_of_the_dtype(
    device: Any, dtype: str, value: float
) -> None:
    """q = k: all logits are equal, and every row is the mean of v."""
    cupy = import_module("cupy")
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    problem = Problem.of(autotune.attention, (1, 2, 128, 64), dtype)
    q = cupy.full((1, 2, 128, 64), value, "float32").astype(array_dtype(dtype))
    v = cupy.asarray(np.random.default_rng(4).standard_normal((1, 2, 128, 64))).astype(q.dtype)
    mean = v.astype("float64").mean(axis=2, keepdims=True)
    ran = 0
    for name, executable in attention_variants(problem, device):
        fresh = [
            cupy.empty(t.shape(problem.sizes), array_dtype(problem.element_type(t.dtype)))
            for t in problem.operation.fresh_outputs
        ]
        out = executable(q, q, v, *fresh, *problem.scalars())[0].astype("float64")
        assert bool(cupy.isfinite(out).all()), name
        assert float(cupy.abs(out - mean).max()) < 2e-2, name
        ran += 1
    assert ran


def test_num_5_views_give_what_packed_copies_give(device: Any) -> None:
    cupy = import_module("cupy")
    rng = np.random.default_rng(5)
    base = cupy.asarray(rng.standard_normal((2, 33, 2, 64)).astype("f4"))
    wide = cupy.asarray(rng.standard_normal((2, 2, 66, 64)).astype("f4"))
    q, k = base.transpose(0, 2, 1, 3), wide[:, :, ::2]
    v = cupy.asfortranarray(k + 1)[:, :, ::-1]
    packed = [cupy.ascontiguousarray(each) for each in (q, k, v)]
    expected = dispatch(autotune.attention, *packed)(*packed).get()
    out = cupy.empty((2, 33, 2, 64), "f4").transpose(0, 2, 1, 3)
    kernel = dispatch(autotune.attention, q, k, v)
    np.testing.assert_allclose(kernel(q, k, v).get(), expected, atol=1e-5)
    assert kernel(q, k, v, out=out) is out
    np.testing.assert_allclose(out.get(), expected, atol=1e-5)
    kernel(*packed, out=packed[0])  # over an input
    np.testing.assert_allclose(packed[0].get(), expected, atol=1e-5)
