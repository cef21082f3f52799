"""Tiles: packing blocks of strided arrays, products of tiles, exponentials of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.fastmath import LOG2E, exp2, full_width_vectors

# Sums may be regrouped for vector lanes; NaN and infinity keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
# Reached by pointer, once per worker; views only, so that there is nothing to count references of.
WORKER: dict[str, Any] = {
    **{"nogil": True, "fastmath": FAST, "error_model": "numpy"},
    **{"_nrt": False, "no_cpython_wrapper": True},
}
# Called by other kernels only.
KERNEL: dict[str, Any] = {**WORKER, "no_cfunc_wrapper": True}


@njit(**KERNEL)
def blocks_of(length: int, size: int) -> int:
    """Number of blocks of `size` that cover `length`."""
    return (length + size - 1) // size


@njit(**KERNEL)
def locate(task: int, heads: int, length: int, size: int) -> tuple[int, int, int, int]:
    """(batch, head, start, count) of the block that is number `task` in the whole problem."""
    blocks = blocks_of(length, size)
    start = task % blocks * size
    return task // blocks // heads, task // blocks % heads, start, min(size, length - start)


@njit(**KERNEL)
def visible(row: int, queries: int, keys: int, causal: bool) -> int:
    """How many keys query `row` may attend; causal masks are aligned bottom-right."""
    return min(max(row + 1 + keys - queries, 0), keys) if causal else keys


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
    is loaded and stored once in four products. A ragged end repeats the last row or term with
    weight 0: no second loop to compile.
    """
    full_width_vectors()
    m, k, n = shape
    none = c.dtype.type(0)
    for i in range(0, m, 2):
        i1 = min(i + 1, m - 1)
        for p in range(0, k, 4):
            p1, p2, p3 = min(p + 1, k - 1), min(p + 2, k - 1), min(p + 3, k - 1)
            x0, y0 = a[i, p], a[i1, p]
            x1, y1 = (a[i, p1], a[i1, p1]) if p + 1 < k else (none, none)
            x2, y2 = (a[i, p2], a[i1, p2]) if p + 2 < k else (none, none)
            x3, y3 = (a[i, p3], a[i1, p3]) if p + 3 < k else (none, none)
            if i1 == i:
                y0 = y1 = y2 = y3 = none
            for j in range(n):
                b0, b1, b2, b3 = b[p, j], b[p1, j], b[p2, j], b[p3, j]
                c[i, j] += x0 * b0 + x1 * b1 + x2 * b2 + x3 * b3
                c[i1, j] += y0 * b0 + y1 * b1 + y2 * b2 + y3 * b3


@njit(**KERNEL)
def multiply(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C[:m, :n] = A[:m, :k] @ B[:k, :n]."""
    for i in range(shape[0]):
        for j in range(shape[2]):
            c[i, j] = 0
    multiply_add(c, a, b, shape)
