"""Tiles: packing blocks of strided arrays, products of tiles, exponentials of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.fastmath import LOG2E, exp2, full_width_vectors

# Sums may be regrouped for vector lanes; NaN and infinity keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
WORKER: dict[str, Any] = {"nogil": True, "fastmath": FAST, "error_model": "numpy"}
# Called by other kernels only, and on views only: no entry from Python, no reference counts.
KERNEL: dict[str, Any] = {
    **WORKER,
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


@njit(**KERNEL)
def exponentials(row: Any, count: int, shift: Any) -> Any:
    """row[:count] = exp(row[:count] - shift), the rest 0; returns their sum."""
    full_width_vectors()
    total, log2_e = row.dtype.type(0), row.dtype.type(LOG2E)
    for j in range(count):
        weight = exp2((row[j] - shift) * log2_e)
        row[j] = weight
        total += weight
    for j in range(row.size - count):
        row[count + j] = 0
    return total


@njit(nogil=True, error_model="numpy", fastmath=FAST | {"nnan"})
def largest(row: Any, count: int) -> Any:
    """Maximum of row[:count], -inf if there is none."""
    full_width_vectors()
    peak = row.dtype.type(-np.inf)
    for j in range(count):
        peak = max(peak, row[j])
    return peak


@njit(**KERNEL)
def clear(tile: Any, rows: int) -> None:
    """tile[:rows] = 0."""
    for i in range(rows):
        for d in range(tile.shape[1]):
            tile[i, d] = 0


@njit(**KERNEL)
def clear_part(part: Any) -> None:
    """part[...] = 0 for a worker's part of GK or GV."""
    for b in range(part.shape[0]):
        for h in range(part.shape[1]):
            clear(part[b, h], part.shape[2])


@njit(**KERNEL)
def copy_columns(target: Any, first: int, tile: Any, shape: tuple[int, int]) -> None:
    """target[:m, first : first + n] = tile[:m, :n] for shape (m, n)."""
    for i in range(shape[0]):
        row = target[i, first : first + shape[1]]
        for j in range(shape[1]):
            row[j] = tile[i, j]


@njit(**KERNEL)
def scale_row(row: Any, factor: Any) -> None:
    """row *= factor."""
    for j in range(row.size):
        row[j] *= factor


@njit(**KERNEL)
def pack(tile: Any, source: Any, start: int, rows: int, factor: float) -> None:
    """tile[i, d] = factor * source[start + i, d] for rows of any strides."""
    for i in range(rows):
        for d in range(source.shape[1]):
            tile[i, d] = factor * source[start + i, d]


@njit(**KERNEL)
def pack_transposed(tile: Any, source: Any, start: int, rows: int) -> None:
    """tile[d, i] = source[start + i, d] for rows of any strides."""
    for i in range(rows):
        for d in range(source.shape[1]):
            tile[d, i] = source[start + i, d]


@njit(**KERNEL)
def unpack(target: Any, start: int, rows: int, tile: Any, factor: float) -> None:
    """target[start + i, d] = factor * tile[i, d] into rows of any strides."""
    for i in range(rows):
        for d in range(target.shape[1]):
            target[start + i, d] = factor * tile[i, d]


@njit(**KERNEL)
def multiply_add(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C[:m, :n] += A[:m, :k] @ B[:k, :n] for shape (m, k, n); rows of c and b are contiguous.

    Two rows by four terms at a time, so that each vector of B is used twice and each vector of C
    is loaded and stored once in four products.
    """
    full_width_vectors()
    m, k, n = shape
    k4 = k // 4 * 4
    for i in range(0, m - 1, 2):
        for p in range(0, k4, 4):
            x0, x1, x2, x3 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            y0, y1, y2, y3 = a[i + 1, p], a[i + 1, p + 1], a[i + 1, p + 2], a[i + 1, p + 3]
            for j in range(n):
                b0, b1, b2, b3 = b[p, j], b[p + 1, j], b[p + 2, j], b[p + 3, j]
                c[i, j] += x0 * b0 + x1 * b1 + x2 * b2 + x3 * b3
                c[i + 1, j] += y0 * b0 + y1 * b1 + y2 * b2 + y3 * b3
        for p in range(k4, k):
            for j in range(n):
                c[i, j] += a[i, p] * b[p, j]
                c[i + 1, j] += a[i + 1, p] * b[p, j]
    if m % 2:
        for p in range(k):
            x = a[m - 1, p]
            for j in range(n):
                c[m - 1, j] += x * b[p, j]


@njit(**KERNEL)
def multiply(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C[:m, :n] = A[:m, :k] @ B[:k, :n]."""
    for i in range(shape[0]):
        for j in range(shape[2]):
            c[i, j] = 0
    multiply_add(c, a, b, shape)
