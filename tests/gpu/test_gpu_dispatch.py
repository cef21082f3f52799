"""Dispatch on a real GPU: CuPy and torch, streams, threads, capture, workspaces."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import dispatch
from autotune.errors import CapturingError, LaunchError, ShapeError
from autotune_variants.attention.reference import forward

pytestmark = pytest.mark.gpu

DTYPES = ("float64", "float32", "float16", "bfloat16")
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@pytest.fixture
def cupy(device: Any) -> Any:
    return import_module("cupy")


@pytest.fixture
def torch(device: Any) -> Any:
    return pytest.importorskip("torch", reason="needs torch")


def inputs(n: int = 65, d: int = 64) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal((2, 2, n, d)) for _ in range(3)]


def expected(arrays: list[Any]) -> Any:
    return forward(*arrays, scale=arrays[0].shape[3] ** -0.5)[0]


def on_gpu(cupy: Any, arrays: list[Any], dtype: str) -> list[Any]:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 arrays need ml_dtypes")
    return [cupy.asarray(each).astype(dtype) for each in arrays]


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_arrays(cupy: Any, dtype: str) -> None:
    arrays = on_gpu(cupy, inputs(), dtype)
    kernel = dispatch(autotune.attention, *arrays)
    assert kernel.device.kind == "cuda"
    out, lse = kernel(*arrays, residuals=True)
    assert (str(out.dtype), lse.dtype) == (dtype, "float64" if dtype == "float64" else "float32")
    wide = [each.astype("float64").get() for each in arrays]
    np.testing.assert_allclose(
        out.astype("float64").get(), expected(wide), atol=TOLERANCE[dtype], rtol=0
    )
    assert kernel.origin != "reference"


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_on_a_stream_of_their_own(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    tensors = [torch.as_tensor(each).to("cuda", kind) for each in inputs()]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = dispatch(autotune.attention, *tensors)(*tensors)
    stream.synchronize()
    assert (out.dtype, out.device) == (kind, tensors[0].device)
    wide = [each.double().cpu().numpy() for each in tensors]
    np.testing.assert_allclose(
        out.double().cpu().numpy(), expected(wide), atol=TOLERANCE[dtype], rtol=0
    )


def test_strided_torch_tensors(torch: Any) -> None:
    made = [torch.as_tensor(each).to("cuda").transpose(1, 2).contiguous() for each in inputs()]
    tensors = [each.transpose(1, 2) for each in made]
    kernel = dispatch(autotune.attention, *tensors)
    assert kernel.problem.layout == "strided"
    np.testing.assert_allclose(
        kernel(*tensors).cpu().numpy(), expected(inputs()), atol=1e-12, rtol=0
    )


def test_the_current_stream_orders_the_call(cupy: Any) -> None:
    """What a stream computes before and after is seen in order, without a synchronisation."""
    arrays = on_gpu(cupy, inputs(), "float64")
    kernel = dispatch(autotune.attention, *arrays)
    right = kernel(*arrays).copy()
    slow = cupy.ones((3000, 3000))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        late = [cupy.zeros_like(each) for each in arrays]
        for _ in range(5):
            slow @ slow
        for target, source in zip(late, arrays, strict=True):
            target[...] = source
        out = kernel(*late)
        out *= 2
    stream.synchronize()
    assert bool((out == 2 * right).all())


def test_threads_share_a_kernel(cupy: Any) -> None:
    arrays = on_gpu(cupy, inputs(), "float64")
    kernel = dispatch(autotune.attention, *arrays)
    right = kernel(*arrays)
    cupy.cuda.runtime.deviceSynchronize()
    wrong: list[Any] = []

    def work() -> None:
        try:
            for _ in range(20):
                if not bool(cupy.allclose(kernel(*arrays), right, rtol=0, atol=1e-13)):
                    wrong.append("differs")
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_graph_of_cupy_replays_on_new_inputs(cupy: Any) -> None:
    arrays = on_gpu(cupy, inputs(129), "float32")
    kernel = dispatch(autotune.attention, *arrays)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        kernel(*arrays)
        stream.begin_capture()
        out = kernel(*arrays)
        graph = stream.end_capture()
        arrays[0] *= 0.5
        graph.launch(stream)
        for _ in range(3):
            kernel(*[each + 1 for each in arrays])  # must not write where the graph does
        replayed = out.copy()
        right = kernel(*arrays)
    stream.synchronize()
    np.testing.assert_allclose(replayed.get(), right.get(), atol=1e-6, rtol=0)


def test_a_first_call_in_a_capture_leaves_it_intact(cupy: Any) -> None:
    arrays = on_gpu(cupy, inputs(77), "float32")
    out, stream = cupy.empty_like(arrays[0]), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(CapturingError, match="call it once before the capture"):
            dispatch(autotune.attention, *arrays)(*arrays, out=out)
        out[...] = 3.0
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    assert bool((out == 3).all())


def test_a_graph_of_torch(torch: Any) -> None:
    tensors = [torch.as_tensor(each).to("cuda", torch.float32) for each in inputs(129)]
    kernel = dispatch(autotune.attention, *tensors)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        kernel(*tensors)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel(*tensors)
    tensors[0] *= 0.5
    graph.replay()
    torch.testing.assert_close(out, kernel(*tensors), atol=1e-6, rtol=0)


def test_a_workspace_and_outputs_allocate_nothing(cupy: Any) -> None:
    arrays = on_gpu(cupy, inputs(200), "float32")
    kernel = dispatch(autotune.attention_train, *arrays, arrays[0])
    right = kernel(*arrays, arrays[0])
    out = tuple(cupy.empty_like(each) for each in right)
    workspace = cupy.empty(max(kernel.workspace_bytes, 1), "uint8")
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes()
    kernel(*arrays, arrays[0], out=out, workspace=workspace)
    assert pool.used_bytes() == before
    for one, other in zip(out, right, strict=True):
        np.testing.assert_allclose(one.get(), other.get(), atol=1e-4, rtol=1e-4)


def test_mistakes_are_sentences_and_cost_no_variant(cupy: Any) -> None:
    host = [each.astype("float32") for each in inputs()]
    arrays = on_gpu(cupy, host, "float32")
    kernel = dispatch(autotune.attention, *arrays)
    variant = kernel.variant
    with pytest.raises(ShapeError, match="on the host, this kernel runs on cuda"):
        kernel(*host)
    with pytest.raises(ShapeError, match="one library"):
        kernel(*arrays[:2], host[2])
    assert kernel.variant == variant
    assert dispatch(autotune.attention, *host).device.kind == "cpu"


def test_a_launch_that_cannot_be_is_one_line(cupy: Any, tmp_path: Any) -> None:
    from autotune.cuda import CudaSource

    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(int* x) { x[0] = 1; }')
    function = CudaSource(tmp_path / "k.cu").kernel("k")
    usage = function.usage()
    assert 0 < usage.registers < 64
    assert usage.local_bytes == 0
    for block, shared in ((4096, 0), (32, 10**6)):
        launch = function.launcher(grid=(1,), block=(block,), shared=shared, arguments="P")
        with pytest.raises(LaunchError, match=r"^kernel k (was not|cannot).*$") as caught:
            launch(0)
        assert "\n" not in str(caught.value)
    x = cupy.zeros(1, "int32")
    function.launcher(grid=(1,), block=(1,), arguments="P")(x.data.ptr)
    assert int(x[0]) == 1
