"""Ceilings of a (fake) GPU: what is launched, and what follows from the times."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cupy import FakeCupy, ndarray
from measuring_bench import FakeGpu

from autotune.cuda import bench as cuda_bench
from autotune.cuda import nvrtc
from autotune.roofline import gpu

PRODUCT_SECONDS = {8: 4e-3, 4: 2e-3, 2: 1e-3}


@pytest.fixture
def card(fake_cupy: FakeCupy, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    """A card on which every kernel, copy and product takes a known time."""
    monkeypatch.setattr(cuda_bench, "LONGEST_HEAT", 0.0)
    monkeypatch.setattr(cuda_bench, "WAKE_SECONDS", 0.0)
    monkeypatch.setattr(gpu, "SQUARE", 16)
    for entry, arguments in (
        *(("read_stream", "PqP"), ("chain_float64", "Pi")),
        *(("chain_float32", "Pi"), ("product_tf32", "Pi")),
    ):
        fake_cupy.kernel(entry, arguments)(lambda launched, *values: None)
        fake_cupy.costs[entry] = 2e-3

    def copyto(target: ndarray, source: ndarray) -> None:
        fake_cupy.clock += 4e-3

    def matmul(left: ndarray, right: ndarray, out: ndarray) -> ndarray:
        fake_cupy.clock += PRODUCT_SECONDS[left.itemsize]
        return out

    monkeypatch.setattr(fake_cupy, "copyto", copyto, raising=False)
    monkeypatch.setattr(fake_cupy, "matmul", matmul, raising=False)
    return fake_cupy


def test_rates_follow_from_bytes_operations_and_device_time(card: FakeCupy) -> None:
    found = gpu.measure_gpu(FakeGpu())
    streamed = 8 * (1 << 20)  # read once, or half of it copied to the other half
    assert found["read"] == pytest.approx(streamed / 2e-3)
    assert found["copy"] == pytest.approx(streamed / 4e-3)
    threads, rounds, chains = 2 * 132 * 512, 4096, 8
    assert found["vector float32"] == pytest.approx(threads * rounds * chains * 2 / 2e-3)
    warps = threads // 32
    assert found["matrix tf32"] == pytest.approx(warps * rounds * chains * 2 * 16 * 8 * 8 / 2e-3)
    assert found["matrix float64"] == pytest.approx(2 * 16**3 / 4e-3)
    assert found["matrix bfloat16"] == pytest.approx(2 * 16**3 / 1e-3)
    assert found["matrix float16"] == pytest.approx(2 * 16**3 / 1e-3)


def test_one_multiprocessor_reads_alone(card: FakeCupy) -> None:
    gpu.measure_gpu(FakeGpu())
    grids = {each.grid[0]: each.values[1] for each in card.launched if each.name == "read_stream"}
    assert set(grids) == {1, 264}
    assert grids[1] < grids[264]


def test_a_product_that_the_library_lacks_is_left_out(
    card: FakeCupy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def matmul(left: ndarray, right: ndarray, out: ndarray) -> ndarray:
        if left.dtype.name == "bfloat16":
            raise TypeError("no matmul for bfloat16")
        card.clock += 1e-3
        return out

    monkeypatch.setattr(card, "matmul", matmul, raising=False)
    found = gpu.measure_gpu(FakeGpu())
    assert "matrix bfloat16" not in found
    assert "matrix float16" in found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_the_kernels_compile(arch: str) -> None:
    try:
        nvrtc.library()
    except nvrtc.CompileError as error:
        pytest.skip(str(error))
    assert gpu.SOURCE.compile(arch=arch)
