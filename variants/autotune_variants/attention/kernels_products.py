"""Products of tiles: four rows by four vectors of the result in registers."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.kernels_tiles import INLINED, KERNEL
from autotune_variants.simd import add, fma, load, splat, store
from autotune_variants.views import any_strides


@njit(**INLINED)
def multiply_add(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C[:m, :n] += A[:m, :k] @ B[:k, :n] for shape (m, k, n); rows of c and b are contiguous.

    Compiled once, whatever the layouts of a and b.
    """
    add_product(c, any_strides(a), any_strides(b), shape)


@njit(**KERNEL)
def add_product(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C += A B; terms are summed from 0 in runs of 64 before they are added to C.

    So rounding errors stay those of short sums.
    """
    m, k, n = shape
    for start in range(0, k, 64):
        terms = (start, min(start + 64, k))
        if n < 64 // c.itemsize:
            add_narrow(c, a, b, (m, n, terms))
        else:
            add_run(c, a, b, (m, n, terms))


@njit(**INLINED)
def add_run(c: Any, a: Any, b: Any, shape: Any) -> None:
    """C += A B over a run of terms, four rows by four vectors of C in registers.

    A ragged end of rows repeats the last row, which comes out the same, and one of columns takes
    the last vector of the row, summed from what C held before.
    """
    m, n, terms = shape
    lanes = 64 // c.itemsize
    rest = n // (4 * lanes) * 4 * lanes
    none = splat(c.dtype.type(0))
    for i in range(0, m, 4):
        quad = (i, min(i + 1, m - 1), min(i + 2, m - 1), min(i + 3, m - 1))
        ragged = (none, none, none, none)
        if n % lanes:
            ragged = strip(c, a, b, (quad, terms, n - lanes))
        for j in range(0, rest, 4 * lanes):
            if i == m - 1:
                add_row(c[i], a[i], b, (terms, j))
            else:
                add_tile(c, a, b, (quad, terms, j))
        for j in range(rest, n - lanes + 1, lanes):
            put(c, quad, j, strip(c, a, b, (quad, terms, j)))
        if n % lanes:
            put(c, quad, n - lanes, ragged)


@njit(**KERNEL)
def add_tile(c: Any, a: Any, b: Any, at: Any) -> None:
    """Four rows by four vectors of C += A B for at = (rows, terms, first column)."""
    (i0, i1, i2, i3), (first, last), j = at
    l1 = 64 // c.itemsize
    l2, l3 = 2 * l1, 3 * l1
    none = splat(c.dtype.type(0))
    c00, c01, c02, c03 = none, none, none, none
    c10, c11, c12, c13 = none, none, none, none
    c20, c21, c22, c23 = none, none, none, none
    c30, c31, c32, c33 = none, none, none, none
    for p in range(first, last):
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
    # Repeated rows get the same sum twice: read all before writing any.
    r0, r1 = sum_row(c[i0], j, (c00, c01, c02, c03)), sum_row(c[i1], j, (c10, c11, c12, c13))
    r2, r3 = sum_row(c[i2], j, (c20, c21, c22, c23)), sum_row(c[i3], j, (c30, c31, c32, c33))
    put_row(c[i0], j, r0)
    put_row(c[i1], j, r1)
    put_row(c[i2], j, r2)
    put_row(c[i3], j, r3)


@njit(**KERNEL)
def add_row(c: Any, a: Any, b: Any, at: Any) -> None:
    """Four vectors of one row, c += a B for at = (terms, first column); two terms at a time."""
    (first, last), j = at
    l1 = 64 // c.itemsize
    l2, l3 = 2 * l1, 3 * l1
    none = splat(c.dtype.type(0))
    s0, s1, s2, s3 = none, none, none, none
    t0, t1, t2, t3 = none, none, none, none
    for p in range(first, last - 1, 2):
        x, row = splat(a[p]), b[p]
        s0, s1 = fma(x, load(row, j), s0), fma(x, load(row, j + l1), s1)
        s2, s3 = fma(x, load(row, j + l2), s2), fma(x, load(row, j + l3), s3)
        x, row = splat(a[p + 1]), b[p + 1]
        t0, t1 = fma(x, load(row, j), t0), fma(x, load(row, j + l1), t1)
        t2, t3 = fma(x, load(row, j + l2), t2), fma(x, load(row, j + l3), t3)
    if (last - first) % 2:
        x, row = splat(a[last - 1]), b[last - 1]
        s0, s1 = fma(x, load(row, j), s0), fma(x, load(row, j + l1), s1)
        s2, s3 = fma(x, load(row, j + l2), s2), fma(x, load(row, j + l3), s3)
    put_row(c, j, sum_row(c, j, (add(s0, t0), add(s1, t1), add(s2, t2), add(s3, t3))))


@njit(**KERNEL)
def strip(c: Any, a: Any, b: Any, at: Any) -> Any:
    """Four rows by one vector of C + A B for at = (rows, terms, column), not yet stored."""
    (i0, i1, i2, i3), (first, last), j = at
    s0 = splat(c.dtype.type(0))
    s1, s2, s3 = s0, s0, s0
    for p in range(first, last):
        y = load(b[p], j)
        s0, s1 = fma(splat(a[i0, p]), y, s0), fma(splat(a[i1, p]), y, s1)
        s2, s3 = fma(splat(a[i2, p]), y, s2), fma(splat(a[i3, p]), y, s3)
    s0, s1 = add(load(c[i0], j), s0), add(load(c[i1], j), s1)
    return s0, s1, add(load(c[i2], j), s2), add(load(c[i3], j), s3)


@njit(**INLINED)
def sum_row(row: Any, j: int, vectors: Any) -> Any:
    """Four vectors of a row from column j on, plus `vectors`."""
    lanes = 64 // row.itemsize
    v0, v1 = add(load(row, j), vectors[0]), add(load(row, j + lanes), vectors[1])
    v2, v3 = add(load(row, j + 2 * lanes), vectors[2]), add(load(row, j + 3 * lanes), vectors[3])
    return v0, v1, v2, v3


@njit(**INLINED)
def put(c: Any, rows: Any, j: int, vectors: Any) -> None:
    """Store one vector into each of four rows."""
    store(c[rows[0]], j, vectors[0])
    store(c[rows[1]], j, vectors[1])
    store(c[rows[2]], j, vectors[2])
    store(c[rows[3]], j, vectors[3])


@njit(**INLINED)
def put_row(row: Any, j: int, vectors: Any) -> None:
    """Store four vectors side by side."""
    lanes = 64 // row.itemsize
    store(row, j, vectors[0])
    store(row, j + lanes, vectors[1])
    store(row, j + 2 * lanes, vectors[2])
    store(row, j + 3 * lanes, vectors[3])


@njit(**KERNEL)
def add_narrow(c: Any, a: Any, b: Any, shape: Any) -> None:
    """C += A B over a run of terms, for fewer columns than a vector has lanes."""
    m, n, (first, last) = shape
    for i in range(m):
        for j in range(n):
            total = c.dtype.type(0)
            for p in range(first, last):
                total += a[i, p] * b[p, j]
            c[i, j] += total


@njit(**KERNEL)
def multiply(c: Any, a: Any, b: Any, shape: tuple[int, int, int]) -> None:
    """C[:m, :n] = A[:m, :k] @ B[:k, :n]."""
    for i in range(shape[0]):
        for j in range(shape[2]):
            c[i, j] = 0
    multiply_add(c, a, b, shape)
