"""What the tiled kernels share: addresses of rows, packing of tiles, who owns which tile."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.attention.tiled_table import contiguous, number_size
from autotune_variants.fastmath import INNER
from autotune_variants.gemm import multiply
from autotune_variants.simd import BYTES, transpose


@njit(**INNER)
def rows(array: Any, b: Any, h: Any, first: Any) -> Any:
    """(address of array[b, h, first, 0], elements from row to row) of an array (B, H, N, D)."""
    offset = b * array.strides[0] + h * array.strides[1] + first * array.strides[2]
    return np.intp(array.ctypes.data) + offset, array.strides[2] // array.itemsize


@njit(**INNER)
def matrix(array: Any) -> Any:
    """(address, elements from row to row) of a C-contiguous matrix."""
    return np.intp(array.ctypes.data), array.shape[1]


@njit(**INNER)
def carve(table: Any, address: Any, height: Any, width: Any) -> Any:
    """(contiguous matrix at `address`, where the next one may start)."""
    size = height * width * number_size(table)
    return contiguous(table, address, height, width), address + size


@njit(**INNER)
def fill(target: Any, value: Any) -> Any:
    """Every element of a matrix becomes `value`."""
    for i in range(target.shape[0]):
        for d in range(target.shape[1]):
            target[i, d] = value


@njit(**INNER)
def has_rows(array: Any) -> Any:
    """Whether BLAS can read array[b, h] in place: unit last stride, forward rows, no overlap."""
    step = array.strides[2]
    size = array.itemsize
    unit = array.strides[3] == size or array.shape[3] <= 1
    return unit and step % size == 0 and step >= array.shape[3] * size


@njit(**INNER)
def in_place(array: Any, b: Any, h: Any, first: Any, count: Any) -> Any:
    """The rows as a C-contiguous matrix, as wide as rows are apart, of an array that `has_rows`."""
    address, step = rows(array, b, h, first)
    return contiguous(array, address, count, step)


@njit(**INNER)
def copy_rows(source: Any, b: Any, h: Any, first: Any, count: Any, target: Any) -> Any:
    """target[i, :] = source[b, h, first + i, :] for `count` rows."""
    for i in range(count):
        for d in range(source.shape[3]):
            target[i, d] = source[b, h, first + i, d]


@njit(**INNER)
def copy_columns(source: Any, b: Any, h: Any, first: Any, count: Any, target: Any) -> Any:
    """target[:, i] = source[b, h, first + i, :] for `count` rows."""
    lanes, width = BYTES // source.itemsize, source.shape[3]
    whole = count // lanes * lanes if has_rows(source) else 0
    squares = width // lanes * lanes
    for i in range(0, whole, lanes):
        address, step = rows(source, b, h, first + i)
        for d in range(0, squares, lanes):
            place = address + d * source.itemsize
            transpose(place, step * source.itemsize, target, d, i)
    for d in range(width):
        for i in range(whole if d < squares else 0, count):
            target[d, i] = source[b, h, first + i, d]


@njit(**INNER)
def rows_or_copy(source: Any, b: Any, h: Any, first: Any, count: Any, target: Any) -> Any:
    """The rows as BLAS takes them: in place where it can read them, else copied to `target`."""
    if has_rows(source):
        return rows(source, b, h, first)
    copy_rows(source, b, h, first, count, target)
    return matrix(target)


@njit(**INNER)
def owner(done: Any, cost: Any, total: Any, workers: Any) -> Any:
    """Worker of a piece of work of size `cost` with `done` before it, out of `total`."""
    return min((2 * done + cost) * workers // (2 * max(total, 1)), workers - 1)


@njit(**INNER)
def visible_keys(query: Any, nq: Any, nk: Any, causal: Any) -> Any:
    """How many keys, from the first on, `query` may attend (bottom-right alignment)."""
    if not causal:
        return nk
    return min(max(query + 1 + nk - nq, 0), nk)


@njit(**INNER)
def first_query(key: Any, nq: Any, nk: Any, causal: Any) -> Any:
    """The first query that may attend `key` (bottom-right alignment); nq if none may."""
    if not causal:
        return 0
    return min(max(key + nq - nk, 0), nq)


@njit(**INNER)
def sharers(head: Any, heads: Any, workers: Any) -> Any:
    """First and last worker that may own tiles of key head `head`: all heads cost the same."""
    return head * workers // heads, ((head + 1) * workers - 1) // heads


@njit(**INNER)
def clear_rows(array: Any, b: Any, h: Any, first: Any, last: Any) -> Any:
    """array[b, h, first : last] = 0."""
    for i in range(first, last):
        for d in range(array.shape[3]):
            array[b, h, i, d] = 0


@njit(**INNER)
def add_rows(target: Any, b: Any, h: Any, first: Any, count: Any, source: Any) -> Any:
    """target[b, h, first + i, :] += source[i, :] for `count` rows."""
    for i in range(count):
        for d in range(target.shape[3]):
            target[b, h, first + i, d] += source[i, d]


@njit(**INNER)
def store_rows(target: Any, b: Any, h: Any, first: Any, count: Any, source: Any) -> Any:
    """target[b, h, first + i, :] = source[i, :] for `count` rows."""
    if has_rows(target):
        tile = in_place(target, b, h, first, count)
        for i in range(count):
            for d in range(target.shape[3]):
                tile[i, d] = source[i, d]
        return
    for i in range(count):
        for d in range(target.shape[3]):
            target[b, h, first + i, d] = source[i, d]


@njit(fastmath={"contract", "nsz", "reassoc"}, **INNER)
def row_products(x: Any, y: Any, place: Any, sums: Any) -> Any:
    """sums[i] = sum over d of x * y, for `place` (b, h, first row, rows)."""
    b, h, first, count = place
    if has_rows(x) and has_rows(y):
        left, right = in_place(x, b, h, first, count), in_place(y, b, h, first, count)
        for i in range(count):
            total = sums.dtype.type(0)
            for d in range(x.shape[3]):
                total += left[i, d] * right[i, d]
            sums[i] = total
        return
    for i in range(count):
        total = sums.dtype.type(0)
        for d in range(x.shape[3]):
            total += x[b, h, first + i, d] * y[b, h, first + i, d]
        sums[i] = total


@njit(**INNER)
def scores_product(gemm: Any, alpha: Any, a: Any, b: Any, depth: Any, size: Any, c: Any) -> Any:
    """c[:m, :n] = alpha a[m, depth] b[depth, n] for `size` (m, n), a and b as for `multiply`.

    In sums of 32 terms: a long chain of additions would cost the scores, and all that follows
    from them, half as much again in rounding errors.
    """
    alone = min(depth, 32)
    one, zero = c.dtype.type(1), c.dtype.type(0)
    multiply(gemm, (size[0], size[1], alone), alpha, a, b, zero, matrix(c))
    for done in range(alone, depth, 32):
        left = (a[0] + done * c.itemsize, a[1])
        right = (b[0] + done * b[1] * c.itemsize, b[1])
        part = (size[0], size[1], min(depth - done, 32))
        multiply(gemm, part, alpha, left, right, one, matrix(c))


@njit(**INNER)
def product_to_rows(
    gemm: Any, size: Any, alpha: Any, a: Any, b: Any, target: Any, add: Any, spare: Any
) -> Any:
    """Store or add alpha a b in rows of an array, through `spare` where BLAS cannot write them.

    `target` is (array, b, h, first row); `size`, a and b are those of `multiply`.
    """
    array, batch, head, first = target
    one, zero = array.dtype.type(1), array.dtype.type(0)
    if has_rows(array):
        beta = one if add else zero
        multiply(gemm, size, alpha, a, b, beta, rows(array, batch, head, first))
        return
    multiply(gemm, size, alpha, a, b, zero, matrix(spare))
    if add:
        add_rows(array, batch, head, first, size[0], spare)
    else:
        store_rows(array, batch, head, first, size[0], spare)
