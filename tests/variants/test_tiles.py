"""Tile helpers: products in registers, rows of exponentials, packing of any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from autotune_variants.attention.kernels_products import multiply_add
from autotune_variants.attention.kernels_tiles import exponentials, largest, pack, pack_transposed

RNG = np.random.default_rng(3)
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
SHAPES = (
    *((1, 1, 1), (1, 7, 64), (1, 8, 65), (2, 3, 5), (3, 70, 17), (4, 0, 64), (5, 9, 8)),
    *((7, 64, 72), (6, 130, 200), (33, 1, 31), (64, 64, 64)),
)


@njit
def add_product(c: Any, a: Any, b: Any, m: int, k: int, n: int) -> None:
    """Entry for `multiply_add`, which only kernels can call."""
    multiply_add(c, a, b, (m, k, n))


@njit
def weigh(row: Any, count: int) -> Any:
    """Entry for `largest` and `exponentials`."""
    peak = largest(row, count)
    return peak, exponentials(row, count, peak)


@njit
def packed(source: Any, tile: Any, transposed: Any, start: int, rows: int) -> None:
    """Entry for `pack` and `pack_transposed`."""
    pack(tile, source, start, rows)
    pack_transposed(transposed, source, start, rows)


@DTYPES
@pytest.mark.parametrize("transposed", [False, True])
def test_products_touch_what_they_should_and_nothing_else(dtype: str, transposed: bool) -> None:
    for m, k, n in SHAPES:
        a = RNG.standard_normal((k, m) if transposed else (m, k)).astype(dtype)
        a = a.T if transposed else a
        b = RNG.standard_normal((k + 1, n + 3)).astype(dtype)
        before = RNG.standard_normal((m + 1, n + 2)).astype(dtype)
        c = before.copy()
        add_product(c, a, b, m, k, n)
        right = before[:m, :n] + a.astype("float64") @ b[:k, :n]
        bound = 4 * np.finfo(dtype).eps * (1 + k**0.5) * (1 + np.abs(right).max())
        assert np.abs(c[:m, :n] - right).max() <= bound, (m, k, n)
        assert (c[m:] == before[m:]).all(), (m, k, n)
        assert (c[:, n:] == before[:, n:]).all(), (m, k, n)


@DTYPES
@pytest.mark.parametrize("count", [0, 1, 7, 8, 16, 17, 50])
def test_exponentials_and_their_sum(dtype: str, count: int) -> None:
    row = (100 * RNG.standard_normal(50)).astype(dtype)
    given = row.astype("float64")[:count]
    peak, total = weigh(row, count)
    assert peak == (given.max() if count else -np.inf)
    right = np.exp(given - given.max(initial=-np.inf)) if count else given
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(row[:count], right, rtol=400 * eps, atol=eps)
    assert total == pytest.approx(right.sum(), rel=50 * eps)
    assert (row[count:] == 0).all()


@DTYPES
def test_packing_reads_any_strides(dtype: str) -> None:
    base = RNG.standard_normal((60, 80)).astype(dtype)
    for source in (base, base[::-1], base[:, ::2], base.T, base[::3, ::-1], base[:, 3:40]):
        rows, width = 11, source.shape[1]
        tile, transposed = np.full((rows, width), np.nan, dtype), np.full((width, 12), 7, dtype)
        packed(source, tile, transposed, 5, rows)
        assert (tile == source[5 : 5 + rows]).all()
        assert (transposed[:, :rows] == source[5 : 5 + rows].T).all()
        assert (transposed[:, rows:] == 7).all()
