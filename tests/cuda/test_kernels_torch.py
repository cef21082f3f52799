"""Dispatch with torch's tensors, on torch's streams and beside CuPy's arrays."""

from __future__ import annotations

from typing import Any

import gpu_kernels
import numpy as np
import pytest
from gpu_kernels import gpu_sum, values

from autotune import dispatch
from autotune.errors import CapturingError, ShapeError, UserError


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


@pytest.mark.filterwarnings("error::DeprecationWarning")
@pytest.mark.parametrize("removed", [False, True])
def test_a_stream_of_torch_in_a_cupy_that_deprecates_or_lacks_external_streams(
    gpu: Any, torch: Any, removed: bool
) -> None:
    if removed:
        del gpu.cuda.ExternalStream
    x, y = values()
    torch.streams[0] = 0x78
    total = dispatch(gpu_sum, torch.on(x), torch.on(y))(torch.on(x), torch.on(y))
    np.testing.assert_allclose(total._array, 2 * (x + y))
    assert gpu.launched[-1].stream == 0x78


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
