"""Tiles: packing blocks of strided arrays, products of tiles, exponentials of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.fastmath import LOG2E, exp2, full_width_vectors
from autotune_variants.simd import highest, load, maximum, store

# Sums may be regrouped for vector lanes; NaN and infinity keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
# Reached by pointer, once per worker; views only, so that there is nothing to count references of.
WORKER: dict[str, Any] = {
    **{"nogil": True, "fastmath": FAST, "error_model": "numpy"},
    **{"_nrt": False, "no_cpython_wrapper": True},
}
# Called by other kernels only.
KERNEL: dict[str, Any] = {**WORKER, "no_cfunc_wrapper": True}
# Inlined before LLVM sees it: each level of calls that is not costs another round of optimising.
INLINED: dict[str, Any] = {**KERNEL, "inline": "always"}


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


@njit(**INLINED)
def share(worker: int, tasks: int, plan: Any) -> tuple[int, int, int]:
    """(first, stop, step) of a worker's tasks: every so many, or a run of them.

    Which of the two does not depend on timing, and so neither do sums.
    """
    if plan.consecutive:
        size = (tasks + plan.threads - 1) // plan.threads
        return worker * size, min((worker + 1) * size, tasks), 1
    return worker, tasks, plan.threads


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
def copy_columns(target: Any, first: int, tile: Any, shape: tuple[int, int]) -> None:
    """target[:m, first : first + n] = tile[:m, :n] for shape (m, n)."""
    for i in range(shape[0]):
        row = target[i, first : first + shape[1]]
        for j in range(shape[1]):
            row[j] = tile[i, j]


@njit(**KERNEL)
def dot(x: Any, y: Any) -> Any:
    """Sum of products of two rows of any strides."""
    total = x.dtype.type(0)
    for d in range(x.size):
        total += x[d] * y[d]
    return total


@njit(**KERNEL)
def scale_row(row: Any, count: int, factor: float) -> None:
    """row[:count] *= factor, in the row's dtype."""
    x = row.dtype.type(factor)
    for j in range(count):
        row[j] *= x


@njit(**KERNEL)
def pack(tile: Any, source: Any, start: int, rows: int) -> None:
    """tile[i, d] = source[start + i, d] for rows of any strides."""
    width = source.shape[1]
    lanes = 64 // tile.itemsize
    whole = width // lanes * lanes if source.strides[1] == source.itemsize else 0
    for i in range(rows):
        row, target = source[start + i], tile[i]
        for d in range(0, whole, lanes):
            store(target, d, load(row, d))
        for d in range(whole, width):
            target[d] = row[d]


@njit(**KERNEL)
def pack_transposed(tile: Any, source: Any, start: int, rows: int) -> None:
    """tile[d, i] = source[start + i, d] for rows of any strides."""
    width = source.shape[1]
    for i in range(0, rows // 4 * 4, 4):
        r0, r1 = source[start + i], source[start + i + 1]
        r2, r3 = source[start + i + 2], source[start + i + 3]
        for d in range(width):
            column = tile[d]
            column[i], column[i + 1], column[i + 2], column[i + 3] = r0[d], r1[d], r2[d], r3[d]
    for i in range(rows // 4 * 4, rows):
        for d in range(width):
            tile[d, i] = source[start + i, d]


@njit(**KERNEL)
def unpack(target: Any, start: int, rows: int, tile: Any, factor: float) -> None:
    """target[start + i, d] = factor * tile[i, d] into rows of any strides."""
    x = tile.dtype.type(factor)
    for i in range(rows):
        for d in range(target.shape[1]):
            target[start + i, d] = x * tile[i, d]
