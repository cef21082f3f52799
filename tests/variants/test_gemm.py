"""Matrix products by NumPy's BLAS and in vector registers, called by address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numba import njit

from autotune_variants import blas
from autotune_variants.gemm import multiply, multiply_transposed, register_gemm

Array = np.ndarray[Any, Any]
SIZES = [
    (m, n, k)
    for m in (1, 2, 5, 6, 7, 13, 64)
    for n in (1, 7, 16, 17, 33, 64, 72, 100)
    for k in (0, 1, 3, 64)
]


@njit
def by_rows(gemm: int, alpha: Any, a: Array, b: Array, beta: Any, c: Array) -> None:
    """c = alpha a b + beta c; the arrays may be parts of wider ones."""
    size = a.itemsize
    left = (np.intp(a.ctypes.data), a.strides[0] // size)
    right = (np.intp(b.ctypes.data), b.strides[0] // size)
    result = (np.intp(c.ctypes.data), c.strides[0] // size)
    multiply(gemm, (a.shape[0], b.shape[1], a.shape[1]), alpha, left, right, beta, result)


@njit
def by_columns(gemm: int, alpha: Any, a: Array, b: Array, beta: Any, c: Array) -> None:
    """c = alpha a^T b + beta c."""
    size = a.itemsize
    left = (np.intp(a.ctypes.data), a.strides[0] // size)
    right = (np.intp(b.ctypes.data), b.strides[0] // size)
    result = (np.intp(c.ctypes.data), c.strides[0] // size)
    multiply_transposed(
        gemm, (a.shape[1], b.shape[1], a.shape[0]), alpha, left, right, beta, result
    )


def part(rng: Any, rows: int, columns: int, dtype: str) -> Array:
    """A matrix inside a wider one, so that its rows are not adjacent."""
    wide = np.empty((rows, columns + 5), dtype)
    wide[...] = rng.standard_normal(wide.shape)
    return wide[:, 2 : 2 + columns]


def gemms(dtype: str) -> Iterator[tuple[str, int]]:
    """The addresses under test."""
    if blas.needs_blas.missing() is None:
        yield "blas", blas.blas_gemm(dtype)
    yield "registers", register_gemm(dtype)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
class TestProducts:
    def test_every_size_and_nothing_around_it(self, dtype: str, transposed: bool) -> None:
        rng, call = np.random.default_rng(2), by_columns if transposed else by_rows
        number = np.dtype(dtype).type
        for (m, n, k), (name, gemm) in ((s, g) for s in SIZES for g in gemms(dtype)):
            a, b = part(rng, *((k, m) if transposed else (m, k)), dtype), part(rng, k, n, dtype)
            around = np.full((m + 2, n + 9), 7, dtype)
            c = around[1:-1, 4:-5]
            c[...] = 2
            for beta in (1, 0):
                call(gemm, number(0.5), a, b, number(beta), c)
                exact = 0.5 * ((a.T if transposed else a).astype(float) @ b) + 2 * beta
                error = np.abs(c - exact).max(initial=0)
                assert error <= 8 * max(k, 1) * np.finfo(dtype).eps, (name, m, n, k, beta)
            c[...] = 7
            assert (around == 7).all(), (name, m, n, k)

    def test_beta_zero_ignores_what_was_there(self, dtype: str, transposed: bool) -> None:
        call, number = by_columns if transposed else by_rows, np.dtype(dtype).type
        a, b = np.ones((6, 6), dtype), np.ones((6, 20), dtype)
        for name, gemm in gemms(dtype):
            c = np.full((6, 20), np.nan, dtype)
            call(gemm, number(1), a, b, number(0), c)
            assert (c == 6).all(), name


class TestWhichBlas:
    def test_numpy_wheels_bring_one(self) -> None:
        found = blas.numpy_blas()
        if found is None:
            pytest.skip("this NumPy's BLAS exports no gemm under a known name")
        assert found.sgemm
        assert found.dgemm
        assert found.sgemm != found.dgemm

    def test_without_one_the_reason_is_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(blas, "_loaded", lambda: iter([("/no/such/library.so", "none")]))
        blas.numpy_blas.cache_clear()
        try:
            assert "gemm" in (blas.needs_blas.missing() or "")
            with pytest.raises(OSError, match="gemm"):
                blas.blas_gemm("float32")
        finally:
            blas.numpy_blas.cache_clear()
