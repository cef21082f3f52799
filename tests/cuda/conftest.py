"""The fake CuPy, and kernels that need no compiler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fake_cupy as fake
import pytest

from autotune.cuda import CudaSource, nvrtc
from autotune.cuda.launch import CudaFunction


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
