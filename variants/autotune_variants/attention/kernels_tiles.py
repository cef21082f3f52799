"""Tiles: packing blocks of strided arrays, products of tiles, exponentials of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.fastmath import LOG2E, exp2, full_width_vectors
from autotune_variants.simd import fma, highest, load, maximum, splat, store

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


@njit(**KERNEL)
def largest(row: Any, count: int) -> Any:
    """Maximum of row[:count], -inf if there is none; a NaN may go unseen. The row is contiguous."""
    lanes = 64 // row.itemsize
    whole = count // lanes * lanes
    peak = row.dtype.type(-np.inf)
    if whole:
        peaks = load(row, 0)
        for j in range(lanes, whole, lanes):
            peaks = maximum(load(row, j), peaks)
        peak = highest(peaks)
    for j in range(whole, count):
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

    Four rows by four vectors of C stay in registers while k passes; a ragged end of rows repeats
    the last row, which comes out the same, and one of columns takes the last vector of the row,
    summed from what C held before.
    """
    m, k, n = shape
    lanes = 64 // c.itemsize
    if n < lanes:
        multiply_add_narrow(c, a, b, shape)
        return
    for i in range(0, m, 4):
        quad = (i, min(i + 1, m - 1), min(i + 2, m - 1), min(i + 3, m - 1))
        rest = n // (4 * lanes) * 4 * lanes
        none = splat(c.dtype.type(0))
        ragged = (none, none, none, none)
        if n % lanes:
            ragged = strip(c, a, b, (quad, k, n - lanes))
        for j in range(0, rest, 4 * lanes):
            if i == m - 1:
                add_row(c[i], a[i], b, (k, j))
            else:
                add_tile(c, a, b, (quad, k, j))
        for j in range(rest, n - lanes + 1, lanes):
            put(c, quad, j, strip(c, a, b, (quad, k, j)))
        if n % lanes:
            put(c, quad, n - lanes, ragged)


@njit(**KERNEL)
def add_tile(c: Any, a: Any, b: Any, at: Any) -> None:
    """Four rows by four vectors of C += A B for at = (rows, k, first column)."""
    (i0, i1, i2, i3), k, j = at
    c0, c1, c2, c3 = c[i0], c[i1], c[i2], c[i3]
    l1 = 64 // c.itemsize
    l2, l3 = 2 * l1, 3 * l1
    c00, c01, c02, c03 = load(c0, j), load(c0, j + l1), load(c0, j + l2), load(c0, j + l3)
    c10, c11, c12, c13 = load(c1, j), load(c1, j + l1), load(c1, j + l2), load(c1, j + l3)
    c20, c21, c22, c23 = load(c2, j), load(c2, j + l1), load(c2, j + l2), load(c2, j + l3)
    c30, c31, c32, c33 = load(c3, j), load(c3, j + l1), load(c3, j + l2), load(c3, j + l3)
    for p in range(k):
        row = b[p]
        b0, b1, b2, b3 = load(row, j), load(row, j + l1), load(row, j + l2), load(row, j + l3)
        x = splat(a[i0, p])
        c00, c01, c02, c03 = fma(x, b0, c00), fma(x, b1, c01), fma(x, b2, c02), fma(x, b3, c03)
        x = splat(a[i1, p])
        c10, c11, c12, c13 = fma(x, b0, c10), fma(x, b1, c11), fma(x, b2, c12), fma(x, b3, c13)
        x = splat(a[i2, p])
        c20, c21, c22, c23 = fma(x, b0, c20), fma(x, b1, c21), fma(x, b2, c22), fma(x, b3, c23)
        x = splat(a[i3, p])
        c30, c31, c32, c33 = fma(x, b0, c30), fma(x, b1, c31), fma(x, b2, c32), fma(x, b3, c33)
    put_row(c0, j, (c00, c01, c02, c03))
    put_row(c1, j, (c10, c11, c12, c13))
    put_row(c2, j, (c20, c21, c22, c23))
    put_row(c3, j, (c30, c31, c32, c33))


@njit(**KERNEL)
def add_row(c: Any, a: Any, b: Any, at: tuple[int, int]) -> None:
    """Four vectors of one row, c += a B for at = (k, first column); two terms at a time."""
    k, j = at
    l1 = 64 // c.itemsize
    l2, l3 = 2 * l1, 3 * l1
    s0, s1, s2, s3 = load(c, j), load(c, j + l1), load(c, j + l2), load(c, j + l3)
    none = splat(c.dtype.type(0))
    one = splat(c.dtype.type(1))
    t0, t1, t2, t3 = none, none, none, none
    for p in range(0, k - 1, 2):
        x, row = splat(a[p]), b[p]
        s0, s1 = fma(x, load(row, j), s0), fma(x, load(row, j + l1), s1)
        s2, s3 = fma(x, load(row, j + l2), s2), fma(x, load(row, j + l3), s3)
        x, row = splat(a[p + 1]), b[p + 1]
        t0, t1 = fma(x, load(row, j), t0), fma(x, load(row, j + l1), t1)
        t2, t3 = fma(x, load(row, j + l2), t2), fma(x, load(row, j + l3), t3)
    if k % 2:
        x, row = splat(a[k - 1]), b[k - 1]
        s0, s1 = fma(x, load(row, j), s0), fma(x, load(row, j + l1), s1)
        s2, s3 = fma(x, load(row, j + l2), s2), fma(x, load(row, j + l3), s3)
    put_row(c, j, (fma(one, t0, s0), fma(one, t1, s1), fma(one, t2, s2), fma(one, t3, s3)))


@njit(**KERNEL)
def strip(c: Any, a: Any, b: Any, at: Any) -> Any:
    """Four rows by one vector of C + A B for at = (rows, k, first column), not yet stored."""
    (i0, i1, i2, i3), k, j = at
    s0, s1, s2, s3 = load(c[i0], j), load(c[i1], j), load(c[i2], j), load(c[i3], j)
    for p in range(k):
        y = load(b[p], j)
        s0, s1 = fma(splat(a[i0, p]), y, s0), fma(splat(a[i1, p]), y, s1)
        s2, s3 = fma(splat(a[i2, p]), y, s2), fma(splat(a[i3, p]), y, s3)
    return s0, s1, s2, s3


@njit(**KERNEL)
def put(c: Any, rows: Any, j: int, vectors: Any) -> None:
    """Store one vector into each of four rows."""
    store(c[rows[0]], j, vectors[0])
    store(c[rows[1]], j, vectors[1])
    store(c[rows[2]], j, vectors[2])
    store(c[rows[3]], j, vectors[3])


@njit(**KERNEL)
def put_row(row: Any, j: int, vectors: Any) -> None:
    """Store four vectors side by side."""
    lanes = 64 // row.itemsize
    store(row, j, vectors[0])
    store(row, j + lanes, vectors[1])
    store(row, j + 2 * lanes, vectors[2])
    store(row, j + 3 * lanes, vectors[3])


@njit(**KERNEL)
def multiply_add_narrow(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """The same for fewer columns than a vector has lanes."""
    m, k, n = shape
    for i in range(m):
        for p in range(k):
            for j in range(n):
                c[i, j] += a[i, p] * b[p, j]


@njit(**KERNEL)
def multiply(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C[:m, :n] = A[:m, :k] @ B[:k, :n]."""
    for i in range(shape[0]):
        for j in range(shape[2]):
            c[i, j] = 0
    multiply_add(c, a, b, shape)
