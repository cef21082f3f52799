"""Handles of cuBLAS: one for each call at a time, given back whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autotune.cuda import cublas
from autotune.errors import LaunchError


class Blas:
    """Notes what handles are told; `status` is what it answers to a workspace."""

    def __init__(self) -> None:
        self.told: list[tuple[int, ...]] = []
        self.status = 0

    def cublasSetStream_v2(self, handle: int, stream: int) -> int:  # noqa: N802
        """As cuBLAS has it."""
        self.told.append((handle, stream))
        return 0

    def cublasSetWorkspace_v2(self, handle: int, workspace: int, nbytes: int) -> int:  # noqa: N802
        """As cuBLAS has it."""
        self.told.append((handle, workspace, nbytes))
        return self.status


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch, fake_cupy: Any) -> Blas:
    found = Blas()
    handles: Callable[[], int] = iter(range(1, 9)).__next__
    monkeypatch.setattr(cublas, "library", lambda: found)
    monkeypatch.setattr(cublas, "_created", handles)
    monkeypatch.setattr(cublas, "_idle", {})
    return found


def test_a_handle_has_the_stream_and_the_workspace_of_its_call(blas: Blas, fake_cupy: Any) -> None:
    with fake_cupy.cuda.Stream() as stream, cublas.BlasHandle(4096, 512) as handle:
        assert blas.told == [(handle, stream.ptr), (handle, 4096, 512)]
        with cublas.BlasHandle(8192, 512) as another:
            assert another != handle
    with cublas.BlasHandle(4096, 512) as again:
        assert again in (handle, another)


def test_a_handle_comes_back_after_an_error(blas: Blas) -> None:
    with pytest.raises(ValueError, match="inside"), cublas.BlasHandle(4096, 512) as handle:
        raise ValueError("inside")
    blas.status = 7
    with pytest.raises(LaunchError, match="stream and workspace: status 7"):
        cublas.BlasHandle(4096, 512).__enter__()
    blas.status = 0
    with cublas.BlasHandle(4096, 512) as again:
        assert again == handle
