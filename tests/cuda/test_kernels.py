"""Dispatch with CuPy arrays and torch tensors: libraries, devices, streams, capture, failures."""

from __future__ import annotations

import logging
from typing import Any

import gpu_kernels
import numpy as np
import pytest
from gpu_kernels import Gpu, gpu_sum, values

from autotune import asking, dispatch, serving
from autotune.cuda import streams
from autotune.errors import DeviceLostError, ShapeError


def test_cupy_arrays_give_cupy_arrays(gpu: Any) -> None:
    x, y = values()
    on_gpu = [gpu.asarray(x), gpu.asarray(y)]
    kernel = dispatch(gpu_sum, *on_gpu)
    assert (kernel.variant, kernel.device.kind) == ("cuda_sum", "cuda")
    total = kernel(*on_gpu)
    assert isinstance(total, gpu.ndarray)
    np.testing.assert_allclose(total.get(), 2 * (x + y))
    total, peak = dispatch(gpu_sum, *on_gpu)(*on_gpu, factor=0.5, residuals=True)
    np.testing.assert_allclose(peak.get(), ((x + y) / 2).max(axis=1))
    assert dispatch(gpu_sum, *on_gpu) is kernel


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_dtype_with_wide_residuals(gpu: Any, dtype: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    gpu_kernels.install_kernel(gpu, dtype)
    x, y = values(dtype)
    total, peak = dispatch(gpu_sum, gpu.asarray(x), gpu.asarray(y))(
        gpu.asarray(x), gpu.asarray(y), residuals=True
    )
    assert (total.dtype.name, peak.dtype.name) == (dtype, "float32")
    np.testing.assert_allclose(total.get().astype("f8"), 2.0 * (x + y).astype("f8"), rtol=0.01)


def test_strided_arrays_and_given_outputs(gpu: Any) -> None:
    x, y = (gpu.asarray(each.T.copy()).T for each in values())
    kernel = dispatch(gpu_sum, x, y)
    assert kernel.problem.layout == "strided"
    for out in (gpu.empty((3, 16))[:, ::2], (gpu.empty((3, 16))[:, ::2], gpu.empty(3))):
        for _ in range(2):
            total = kernel(x, y, out=out)
            assert total is (out[0] if isinstance(out, tuple) else out)
            np.testing.assert_allclose(total.get(), 2 * (x + y).get())
            total[...] = 0.0


def test_a_call_that_comes_again_is_not_looked_at_twice(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (gpu.asarray(each) for each in values())
    out, other = gpu.empty((3, 8)), gpu.empty((3, 8))
    kernel = dispatch(gpu_sum, x, y)
    kernel(x, y, out=out)
    with monkeypatch.context() as patch:
        patch.setattr("autotune.kernel.takes", lambda *_: pytest.fail("looked at twice"))
        assert kernel(x, y, out=out) is out
        with pytest.raises(pytest.fail.Exception):  # these arrays are new
            kernel(x, y, out=other)
    np.testing.assert_allclose(out.get(), 2 * (x + y).get())
    with pytest.raises(ShapeError, match="out total"):  # nor is this one what it was
        kernel(x, y, out=out.reshape(8, 3))
    first = x.get()
    kernel(x, y, out=x)
    np.testing.assert_allclose(x.get(), 2 * (first + y.get()))


def test_no_more_calls_are_kept_than_a_loop_has(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.binding._KNOWN", 2)
    x, y = (gpu.asarray(each) for each in values())
    kernel, outputs = dispatch(gpu_sum, x, y), [gpu.empty((3, 8)) for _ in range(5)]
    for out in outputs:
        kernel(x, y, out=out)
    assert 1 <= len(kernel._binding.seen) <= 2


def test_arrays_of_the_wrong_place_are_the_callers_mistake(gpu: Any) -> None:
    x, y = values()
    on_gpu = [gpu.asarray(x), gpu.asarray(y)]
    kernel = dispatch(gpu_sum, (3, 8), dtype="float64", device="cuda:0")
    with pytest.raises(ShapeError, match=r"on the host, this kernel runs on cuda:0"):
        kernel(x, y)
    with pytest.raises(ShapeError, match="arrays of one library, got cupy and numpy"):
        kernel(on_gpu[0], y)
    with pytest.raises(ShapeError, match="arrays of one library, got cupy and numpy"):
        dispatch(gpu_sum, on_gpu[0], y)
    with pytest.raises(ShapeError, match=r"out total.* is numpy's and the inputs cupy's"):
        kernel(*on_gpu, out=np.empty((3, 8)))
    with pytest.raises(ShapeError, match=r"device='cpu' is .* but the arrays are on cuda:0"):
        dispatch(gpu_sum, *on_gpu, device="cpu")
    with pytest.raises(ShapeError, match="got a list among them"):
        kernel([1.0], [2.0])
    assert kernel.variant == "cuda_sum"
    np.testing.assert_allclose(kernel(*on_gpu).get(), 2 * (x + y))


def test_a_name_that_equal_gpus_share_means_the_one_with_the_arrays(gpu: Any) -> None:
    with gpu.cuda.Device(1):
        on_gpu = [gpu.asarray(each) for each in values()]
    for name in (None, "cuda", Gpu().identity, "cuda:1"):
        assert asking.device_of_arrays((on_gpu[0],), name).index == 1
    with pytest.raises(ShapeError, match=r"device='cuda:0' is .* but the arrays are on cuda:1"):
        asking.device_of_arrays((on_gpu[0],), "cuda:0")


def test_host_arrays_are_served_by_the_cpu_beside_a_gpu(gpu: Any) -> None:
    kernel = dispatch(gpu_sum, *values())
    assert kernel.device.kind == "cpu"
    assert kernel.origin == "reference"  # this operation has no variant for CPUs


def test_two_gpus_each_with_its_own_kernel(gpu: Any) -> None:
    gpu.device_count = 2
    streams.several_devices.cache_clear()
    x, y = values()
    with gpu.cuda.Device(1):
        there = [gpu.asarray(x), gpu.asarray(y)]
    here = [gpu.asarray(x), gpu.asarray(y)]
    first, second = dispatch(gpu_sum, *here), dispatch(gpu_sum, *there)
    assert (first.device.index, second.device.index) == (0, 1)
    assert second(*there).data.device_id == 1  # though the current device is 0
    assert dispatch(gpu_sum, *there, device="h200") is second
    with pytest.raises(ShapeError, match="device='cuda:0' is NVIDIA H200, but the arrays are on"):
        dispatch(gpu_sum, *there, device="cuda:0")
    assert gpu.launched[-1].device == 1
    assert gpu.device_id == 0
    for arrays in (there, [here[0], there[1]], [there[0], here[1]]):
        with pytest.raises(ShapeError, match="cuda:1"):
            first(*arrays)
    np.testing.assert_allclose(first(*here).get(), 2 * (x + y))


def test_a_launch_that_fails_sets_the_variant_aside(gpu: Any, caplog: Any) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, 9, 8))
    arrays = [gpu.asarray(x), gpu.asarray(y)]
    kernel = dispatch(gpu_sum, *arrays)
    kernel._seat.served = next(
        s for s in _every(kernel) if s.variant == "cuda_broken"
    )  # as if it had been the fastest
    with caplog.at_level(logging.WARNING, logger="autotune"):
        np.testing.assert_allclose(kernel(*arrays).get(), 2 * (x + y))
    assert kernel.variant == "cuda_sum"
    (record,) = [each for each in caplog.records if "next best" in each.getMessage()]
    assert "kernel sum was not launched" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_a_lost_context_is_no_variants_fault(gpu: Any) -> None:
    arrays = [gpu.asarray(each) for each in values()]
    kernel = dispatch(gpu_sum, *arrays)
    kernel(*arrays)
    gpu.fail_with = 700
    outputs = (gpu.empty((3, 8)), gpu.empty(3))
    for out in (None, outputs[0], outputs):
        with pytest.raises(DeviceLostError, match="an earlier kernel broke the CUDA context"):
            kernel(*arrays, out=out)
    assert kernel.variant == "cuda_sum"
    assert not serving.server().counts["quarantined"]


def _every(kernel: Any) -> list[Any]:
    from dataclasses import replace

    from autotune.model import Config
    from autotune.registry import registry

    return [
        replace(kernel.served, candidate=each, config=Config())
        for each in registry.variants(gpu_sum)
    ]


def test_the_reference_serves_on_the_device_where_nothing_else_can(gpu: Any, torch: Any) -> None:
    from autotune.execution import Executable
    from autotune.fallback import reference_variant
    from autotune.model import Problem

    problem = Problem.of(gpu_sum, (3, 8), "float64")
    executable = Executable(reference_variant(gpu_sum), problem, {}, Gpu())
    x, y = values()
    total, peak = gpu.empty((3, 8)), gpu.empty(3)
    executable(gpu.asarray(x), gpu.asarray(y), total, peak, 2.0)
    np.testing.assert_allclose(total.get(), 2 * (x + y))
    tensors = [torch.on(each) for each in (x, y, np.empty((3, 8)), np.empty(3))]
    executable(*tensors, 2.0)
    np.testing.assert_allclose(tensors[2]._array, 2 * (x + y))


def test_building_compiles_and_loads_and_launches_nothing(gpu: Any) -> None:
    from autotune.execution import Executable
    from autotune.model import Problem
    from autotune.registry import registry

    problem = Problem.of(gpu_sum, (3, 8), "float64")
    Executable(registry.variant(gpu_sum, "cuda_sum"), problem, {}, Gpu())
    assert len(gpu.loaded) == 1
    assert not gpu.launched


def test_what_a_builder_needs_compiled_is_known_without_a_gpu(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from autotune.cuda.launch import collecting
    from autotune.model import Problem
    from autotune.registry import registry

    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    problem = Problem.of(gpu_sum, (3, 8), "float32")
    with collecting() as found:
        registry.variant(gpu_sum, "cuda_sum").build(problem, {})
    for each in found:
        each.function.compile("sm_120")
    ((name, options),) = compiled
    assert name == "toy.cu"
    assert {"--gpu-architecture=sm_120", "-DREAL=float32"} <= set(options)


def test_residuals_beside_given_outputs_are_made_where_the_arrays_are(gpu: Any) -> None:
    gpu.device_count = 2
    streams.several_devices.cache_clear()
    with gpu.cuda.Device(1):
        arrays = [gpu.asarray(each) for each in values()]
        out = gpu.empty((3, 8))
    total, peak = dispatch(gpu_sum, *arrays)(*arrays, out=out, residuals=True)
    assert total is out
    assert peak.data.device_id == 1


def test_an_input_that_is_written_to_is_copied_where_it_is(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.device_count = 2
    streams.several_devices.cache_clear()
    x, y = values()
    with gpu.cuda.Device(1):
        arrays = [gpu.asarray(x), gpu.asarray(y)]
    copied: list[int] = []

    def copy(array: Any) -> Any:
        copied.append(gpu.device_id)
        return gpu.asarray(array.get())

    monkeypatch.setattr(type(arrays[0]), "copy", copy, raising=False)
    dispatch(gpu_sum, *arrays)(*arrays, out=arrays[0])
    assert copied == [1]
    assert gpu.device_id == 0
    np.testing.assert_allclose(arrays[0].get(), 2 * (x + y))


def test_arrays_that_begin_between_vectors_are_of_a_class_of_their_own(gpu: Any) -> None:
    x, y = values()
    aligned, longer = [gpu.asarray(x), gpu.asarray(y)], gpu.empty(x.size + 1)
    between = longer[1:].reshape(x.shape)
    between[...] = gpu.asarray(x)
    for _ in range(2):
        assert dispatch(gpu_sum, *aligned).problem.layout == "packed"
        kernel = dispatch(gpu_sum, between, aligned[1])
        assert kernel.problem.layout == "unaligned"
        np.testing.assert_allclose(kernel(between, aligned[1]).get(), 2 * (x + y))
