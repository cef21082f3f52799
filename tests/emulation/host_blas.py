"""cuBLAS on the host: matrices column by column at addresses, as its manual describes them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from autotune.arrays import array_dtype
from autotune.cuda import cublas

_KINDS = {1: "float64", 0: "float32", 2: "float16", 14: "bfloat16"}


class HostBlas:
    """`cublasGemmEx` by NumPy, in what the compute type says; `calls` are (m, n, k)."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def cublasGemmEx(self, *arguments: Any) -> int:  # noqa: N802
        """As cuBLAS has it."""
        plain = [each.value if isinstance(each, ctypes.c_void_p) else each for each in arguments]
        _, op_a, op_b, m, n, k, *rest = plain
        alpha, a, kind, lda, b, _, ldb, beta, c, _, ldc, compute, _ = rest
        self.calls.append((m, n, k))
        scalar, wide = (
            (ctypes.c_double, np.float64) if compute == 70 else (ctypes.c_float, np.float32)
        )
        assert compute in (68, 70)
        assert (compute == 70) == (_KINDS[kind] == "float64")
        left = _columns(a, kind, lda, (k, m) if op_a else (m, k))
        right = _columns(b, kind, ldb, (n, k) if op_b else (k, n))
        target = _columns(c, kind, ldc, (m, n))
        left, right = (left.T if op_a else left), (right.T if op_b else right)
        result = scalar.from_address(alpha).value * (left.astype(wide) @ right.astype(wide))
        factor = scalar.from_address(beta).value
        if factor:
            result = result + factor * target.astype(wide)
        target[...] = result.astype(target.dtype)
        return 0


def _columns(address: int, kind: int, leading: int, shape: tuple[int, int]) -> Any:
    """A matrix of so many rows and columns, whose columns start `leading` elements apart."""
    rows, columns = shape
    assert leading >= max(rows, 1)
    dtype = array_dtype(_KINDS[kind])
    count = (columns - 1) * leading + rows
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    flat = np.frombuffer(memory, dtype, count)
    return np.lib.stride_tricks.as_strided(
        flat, shape, (dtype.itemsize, leading * dtype.itemsize), writeable=True
    )


@contextmanager
def _handle(workspace: int, nbytes: int) -> Iterator[int]:
    yield 1


def host_blas(monkeypatch: pytest.MonkeyPatch) -> HostBlas:
    """Have products run on the host."""
    blas = HostBlas()
    monkeypatch.setattr(cublas, "library", lambda: blas)
    for user in ("mlp.cuda.whole", "block.cuda.parts"):
        monkeypatch.setattr(f"autotune_variants.{user}.BlasHandle", _handle)
    return blas
