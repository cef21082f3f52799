"""Memory of kernels on a GPU: workspaces, temporaries, and what a captured graph writes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_kernels import gpu_sum, values

from autotune import dispatch
from autotune.cuda import streams
from autotune.errors import CapturingError, ShapeError


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
    with pytest.raises(ShapeError, match="begins at an address that is no multiple of 16"):
        kernel(*arrays, workspace=gpu.empty(300, np.uint8)[1:])
    tensors = [torch.on(x), torch.on(y)]
    bytes_of_torch = torch.on(np.zeros(256, np.uint8))
    with pytest.raises(ShapeError, match="workspace is on the host, the inputs on cuda:0"):
        kernel(*tensors, workspace=torch.on(np.zeros(256, np.uint8), None))
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
    assert taken_by_two_calls(streams.foreign_stream(2, 0)) == 2  # another one in every thread


def test_large_temporaries_go_back_to_the_pool(gpu: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("autotune.execution._KEPT_BYTES", 100)
    arrays = [gpu.asarray(each) for each in values()]
    kernel = dispatch(gpu_sum, *arrays)
    idle = gpu.pool.used
    kernel(*arrays)
    assert gpu.pool.used == idle
