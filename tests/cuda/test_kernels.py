"""Dispatch with CuPy arrays and torch tensors: libraries, devices, streams, capture, failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import fake_torch
import gpu_kernels
import numpy as np
import pytest
from gpu_kernels import Gpu, gpu_sum

from autotune import asking, dispatch, serving
from autotune.cuda import streams
from autotune.device import local_cpu
from autotune.errors import CapturingError, DeviceLostError, ShapeError, UserError
from autotune.lookup import forget


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, fake_cupy: Any, compiled: Any) -> Iterator[Any]:
    """A machine with fake GPUs; the fake CuPy."""

    def find_device(name: str | None = None) -> Any:
        return local_cpu() if name == "cpu" else Gpu(int((name or "cuda:0").partition(":")[2] or 0))

    for module in (asking, serving):
        monkeypatch.setattr(module, "find_device", find_device)
    monkeypatch.setattr(serving, "_server", None)
    gpu_kernels.install_kernel(fake_cupy)
    forget()
    yield fake_cupy
    forget()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, gpu: Any) -> fake_torch.FakeTorch:
    """And a fake torch."""
    return fake_torch.install(monkeypatch)


def values(dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal((3, 8)).astype(dtype) for _ in range(2)]


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


def test_torch_tensors_give_torch_tensors_on_torchs_stream(gpu: Any, torch: Any) -> None:
    x, y = values()
    tensors = [torch.on(x), torch.on(y)]
    kernel = dispatch(gpu_sum, *tensors)
    torch.streams[0] = 0x77
    total = kernel(*tensors)
    assert (type(total), total.device) == (torch.Tensor, torch.device("cuda", 0))
    np.testing.assert_allclose(total._array, 2 * (x + y))
    assert gpu.launched[-1].stream == 0x77
    assert torch.made == 3  # total, peak and the temporary
    assert gpu.cuda.get_current_stream().ptr == 0
    assert dispatch(gpu_sum, *tensors) is kernel
    strided = [torch.on(each.T).transpose(0, 1) for each in (x, y)]
    assert dispatch(gpu_sum, *strided).problem.layout == "strided"
    np.testing.assert_allclose(kernel(*strided)._array, 2 * (x + y))


def test_torch_and_cupy_take_turns_on_one_kernel(gpu: Any, torch: Any) -> None:
    x, y = values()
    kernel = dispatch(gpu_sum, (3, 8), dtype="float64", device="cuda")
    for _ in range(2):
        assert isinstance(kernel(gpu.asarray(x), gpu.asarray(y)), gpu.ndarray)
        assert isinstance(kernel(torch.on(x), torch.on(y)), torch.Tensor)
    with pytest.raises(ShapeError, match="on the host, this kernel runs on cuda:0"):
        kernel(torch.on(x, None), torch.on(y, None))
    with pytest.raises(ShapeError, match=r"x is torch.float32, dispatched for torch.float64"):
        kernel(*(torch.on(each.astype("f4")) for each in (x, y)))


def test_torch_in_sixteen_bits(gpu: Any, torch: Any) -> None:
    gpu_kernels.install_kernel(gpu, "float16")
    x, y = values("float16")
    tensors = [torch.on(x), torch.on(y)]
    total, peak = dispatch(gpu_sum, *tensors)(*tensors, residuals=True)
    assert (total.dtype, peak.dtype) == (torch.float16, torch.float32)


@pytest.mark.parametrize("place", [0, None])
def test_a_tensor_whose_gradient_would_be_lost_is_refused(
    gpu: Any, torch: Any, place: int | None
) -> None:
    x, y = values()
    tensors = [torch.on(x, place), torch.on(y, place)]
    kernel = dispatch(gpu_sum, *tensors)
    kernel(*tensors)
    tensors[1].requires_grad = True
    with pytest.raises(UserError, match="an input requires a gradient"):
        kernel(*tensors)
    kernel(tensors[0], tensors[1].detach())
    torch.recording = False
    kernel(*tensors)


def test_cpu_tensors_run_on_their_memory(gpu: Any, torch: Any) -> None:
    x, y = values("float32")
    tensors = [torch.on(x, None), torch.on(y, None)]
    kernel = dispatch(gpu_sum, *tensors)
    assert kernel.device.kind == "cpu"
    total = kernel(*tensors)
    assert isinstance(total, torch.Tensor)
    np.testing.assert_allclose(total.numpy(), 2 * (x + y), rtol=1e-6)
    out = torch.empty((3, 8))
    assert kernel(*tensors, out=out) is out
    np.testing.assert_allclose(out.numpy(), 2 * (x + y), rtol=1e-6)


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


def test_a_workspace_takes_the_place_of_temporaries(gpu: Any, torch: Any) -> None:
    x, y = values()
    arrays, out = [gpu.asarray(x), gpu.asarray(y)], gpu.empty((3, 8))
    kernel = dispatch(gpu_sum, *arrays)
    assert kernel.workspace_bytes == 256  # 3 * 8 * 8, aligned
    kernel(*arrays)
    workspace = gpu.empty(300, np.uint8)
    outputs, before = (out, gpu.empty(3)), gpu.pool.taken
    kernel(*arrays, out=outputs, workspace=workspace)
    assert gpu.pool.taken == before
    np.testing.assert_allclose(workspace.get()[:192].view("f8"), 2 * (x + y).ravel())
    for wrong in (gpu.empty(255, np.uint8), gpu.empty(300, np.float32), np.empty(300, np.uint8)):
        with pytest.raises(ShapeError, match="packed uint8 array of cupy's of at least 256 bytes"):
            kernel(*arrays, workspace=wrong)
    tensors = [torch.on(x), torch.on(y)]
    bytes_of_torch = torch.on(np.zeros(256, np.uint8))
    kernel(*tensors, workspace=bytes_of_torch)
    np.testing.assert_allclose(bytes_of_torch._array[:192].view("f8"), 2 * (x + y).ravel())


def test_no_workspace_is_kept_alive_and_one_at_the_same_address_is_as_good(gpu: Any) -> None:
    x, y = values()
    arrays, out = [gpu.asarray(x), gpu.asarray(y)], (gpu.empty((3, 8)), gpu.empty(3))
    kernel = dispatch(gpu_sum, *arrays)
    kernel(*arrays, out=out)
    idle = gpu.pool.used
    room = gpu.empty(1024, np.uint8)
    for start in (0, 256, 0, 512):  # bytes
        workspace = room[start : start + 256]
        room[...] = 0
        kernel(*arrays, out=out, workspace=workspace, factor=start + 1.0)
        found = workspace.get()[:192].view("f8")
        np.testing.assert_allclose(found, (start + 1.0) * (x + y).ravel())
        assert np.count_nonzero(room.get()) <= 192
    del room, workspace
    assert gpu.pool.used == idle


def captured(gpu: Any, work: Callable[[], Any]) -> tuple[Any, Any]:
    """What `work` returned while a graph was captured, and the graph."""
    stream = gpu.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            result = work()
        finally:
            graph = stream.end_capture()
    return result, graph


def test_dsp_5_a_first_call_during_capture_is_refused_and_leaves_it_intact(gpu: Any) -> None:
    arrays = [gpu.asarray(each) for each in values()]
    with pytest.raises(CapturingError, match=r"cuda_sum.*call it once before the capture"):
        captured(gpu, lambda: dispatch(gpu_sum, *arrays)(*arrays))
    assert not gpu.loaded
    kernel = dispatch(gpu_sum, *arrays)
    assert kernel.variant == "cuda_sum"
    kernel(*arrays)


def test_a_first_call_during_torchs_capture_is_refused(gpu: Any, torch: Any) -> None:
    tensors = [torch.on(each) for each in values()]
    kernel = dispatch(gpu_sum, *tensors)
    torch.streams[0] = 0x77
    gpu.captures[0x77] = []
    with pytest.raises(CapturingError, match="call it once before the capture"):
        kernel(*tensors)
    del gpu.captures[0x77]
    kernel(*tensors)
    gpu.captures[0x77] = work = []
    total = kernel(*tensors)
    del gpu.captures[0x77]
    assert len(work) == 1
    work[0]()
    np.testing.assert_allclose(total._array, 2 * (tensors[0]._array + tensors[1]._array))


def test_dsp_5_nothing_is_tuned_during_capture(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[Any] = []
    monkeypatch.setattr("autotune.tune", lambda *given, **_: tuned.append(given))
    arrays = [gpu.asarray(each) for each in values()]
    kernel, _ = captured(gpu, lambda: dispatch(gpu_sum, *arrays, tune_on_miss=True))
    assert kernel.origin == "predicted"
    assert tuned == []


def test_memory_that_a_graph_writes_to_stays_alive(gpu: Any) -> None:
    x, y = (gpu.asarray(each) for each in values())
    kernel = dispatch(gpu_sum, x, y)
    kernel(x, y)
    idle = gpu.pool.used
    total, graph = captured(gpu, lambda: kernel(x, y))
    x[...] = 1.0
    y[...] = 2.0
    graph.launch()
    assert (total.get() == 6.0).all()
    del total
    held = 3 * 8 * 8 + 256 + 3 * 8  # total, the temporary, and the residual nobody asked for
    assert gpu.pool.used == idle + held
    for _ in range(3):
        kernel(x, y)
    assert gpu.pool.used == idle + held


def test_small_temporaries_stay_with_their_stream(gpu: Any) -> None:
    arrays = [gpu.asarray(each) for each in values()]
    kernel = dispatch(gpu_sum, *arrays)
    out = kernel(*arrays, residuals=True)

    def taken_by_two_calls(stream: Any) -> int:
        before = gpu.pool.taken
        with stream:
            kernel(*arrays, out=out)
            kernel(*arrays, out=out)
        return int(gpu.pool.taken - before)

    one = gpu.cuda.Stream()
    assert taken_by_two_calls(gpu.cuda.Stream.null) == 0  # those of the first call
    assert [taken_by_two_calls(one), taken_by_two_calls(one)] == [1, 0]
    assert taken_by_two_calls(gpu.cuda.ExternalStream(2)) == 2  # another one in every thread


def test_large_temporaries_go_back_to_the_pool(gpu: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("autotune.execution._KEPT_BYTES", 100)
    arrays = [gpu.asarray(each) for each in values()]
    kernel = dispatch(gpu_sum, *arrays)
    idle = gpu.pool.used
    kernel(*arrays)
    assert gpu.pool.used == idle


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


def test_bfloat16_tensors_need_no_ml_dtypes(
    gpu: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)  # importing it fails
    launched: list[Any] = []
    gpu.kernel("sum", gpu_kernels.ARGUMENTS)(lambda *values: launched.append(values))
    tensors = [torch.empty((3, 8), torch.bfloat16, torch.device("cuda", 0)) for _ in range(2)]
    kernel = dispatch(gpu_sum, *tensors)
    total, peak = kernel(*tensors, residuals=True)
    assert (kernel.variant, len(launched)) == ("cuda_sum", 1)
    assert (total.dtype, peak.dtype) == (torch.bfloat16, torch.float32)


def test_residuals_beside_given_outputs_are_made_where_the_arrays_are(gpu: Any) -> None:
    gpu.device_count = 2
    streams.several_devices.cache_clear()
    with gpu.cuda.Device(1):
        arrays = [gpu.asarray(each) for each in values()]
        out = gpu.empty((3, 8))
    total, peak = dispatch(gpu_sum, *arrays)(*arrays, out=out, residuals=True)
    assert total is out
    assert peak.data.device_id == 1


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
