"""The fake CuPy and torch, and kernels that need no compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fake_cupy as fake
import fake_torch
import gpu_kernels
import pytest

from autotune import asking, serving
from autotune.cuda import CudaSource, nvrtc
from autotune.cuda.launch import CudaFunction
from autotune.device import local_cpu
from autotune.lookup import forget


@pytest.fixture
def fake_cupy(monkeypatch: pytest.MonkeyPatch) -> fake.FakeCupy:
    """`import cupy` is a fake; see fake_cupy.py."""
    return fake.install(monkeypatch)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """A compiler that only notes (name, options) and gives some bytes."""
    calls: list[tuple[str, tuple[str, ...]]] = []

    def compile_cubin(text: str, name: str, options: Sequence[str]) -> bytes:
        calls.append((name, tuple(options)))
        return b"cubin of " + text.encode() + repr(options).encode()

    monkeypatch.setattr(nvrtc, "compile_cubin", compile_cubin)
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
    return calls


@pytest.fixture
def scale(tmp_path: Path, fake_cupy: Any, compiled: Any) -> CudaFunction:
    """y = x * factor, elementwise."""
    file = tmp_path / "scale.cu"
    file.write_text("kernel")

    @fake_cupy.kernel("scale", "PPqd")
    def run(launched: Any, x: int, y: int, count: int, factor: float) -> None:
        fake.at(y, count, "f8")[...] = fake.at(x, count, "f8") * factor

    return CudaSource(file).kernel("scale", {"REAL": "double"})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, fake_cupy: Any, compiled: Any) -> Iterator[Any]:
    """A machine with fake GPUs; the fake CuPy."""

    def find_device(name: str | None = None) -> Any:
        return (
            local_cpu()
            if name == "cpu"
            else gpu_kernels.Gpu(int((name or "cuda:0").partition(":")[2] or 0))
        )

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
