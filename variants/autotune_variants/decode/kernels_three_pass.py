"""Decode as the study has it: scores and maximum, exponentials and sum, then feature by feature."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit, prange, types

from autotune_variants.attention.kernels_products import multiply_add
from autotune_variants.attention.kernels_tiles import (
    KERNEL,
    WORKER,
    clear,
    exponentials,
    largest,
    pack,
)
from autotune_variants.decode.kernels import dot_products, pack_scaled
from autotune_variants.signatures import Pointer, array_kind, compile_only
from autotune_variants.views import any_strides

_ROWS = 512  # summed from 0 before they are added to the rest, so that rounding errors stay small


@njit(**WORKER)
def stage_worker(
    worker: int,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    scores: Any,
    peaks: Any,
    totals: Any,
    queries: Any,
    sums: Any,
    rows: Any,
    scale: float,
    stage: int,
) -> None:
    """This worker's share of stage 0, 1 or 2."""
    if stage == 0:
        score(worker, (q, k), scores, peaks, (queries[worker], rows[worker]), scale)
    elif stage == 1:
        exponentiate(worker, scores, peaks, totals, k.shape[2])
    else:
        gather(worker, v, out, (scores, totals), (sums[worker], rows[worker]))


@njit(parallel=True, nogil=True)
def three_pass(
    work: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    scores: Any,
    peaks: Any,
    totals: Any,
    queries: Any,
    sums: Any,
    rows: Any,
    scale: float,
    stage: int,
) -> None:
    """One stage by as many workers as there are tiles; `work` points to `stage_worker`."""
    for index in prange(queries.shape[0]):
        worker = np.int64(index)
        work(worker, q, k, v, out, scores, peaks, totals, queries, sums, rows, scale, stage)


@cache
def kernel(dtype: str) -> Callable[..., None]:
    """`three_pass`, compiled for a dtype."""
    read = [array_kind(dtype, dims, any_layout=True, readonly=True) for dims in (3, 4, 4)]
    out = array_kind(dtype, 3, any_layout=True)
    temporaries = [array_kind(dtype, dims) for dims in (4, 4, 4, 3, 4, 3)]
    kinds = [*read, out, *temporaries, types.float64, types.int64]
    pointer = Pointer(stage_worker, types.void(types.int64, *kinds))
    compile_only(three_pass, [types.FunctionType(pointer.signature()), *kinds])
    return partial(three_pass, pointer)


@njit(**KERNEL)
def part_of(worker: int, workers: int, length: int) -> tuple[int, int]:
    """(first, end) of a worker's contiguous share, a multiple of 8 but for the last."""
    share = ((length + workers - 1) // workers + 7) // 8 * 8
    first = min(worker * share, length)
    return first, min(first + share, length)


@njit(**KERNEL)
def score(worker: int, inputs: Any, scores: Any, peaks: Any, tiles: Any, scale: float) -> None:
    """Scores of this worker's keys for every head, and their maximum."""
    q, k = inputs
    queries, packed = tiles
    batch, heads, length, _ = k.shape
    group = queries.shape[0]
    first, end = part_of(worker, peaks.shape[0], length)
    for task in range(batch * heads):
        b, kv = task // heads, task % heads
        pack_scaled(queries, q[b], kv * group, scale)
        for start in range(first, end, packed.shape[0]):
            count = min(packed.shape[0], end - start)
            line = scores[b, kv, :, start : start + count]
            if k.strides[3] == k.itemsize:
                keys = any_strides(k[b, kv, start : start + count])
                dot_products(line, queries, keys, keys, 0)
            else:
                pack(packed, k[b, kv], start, count)
                keys = any_strides(packed[:count, : k.shape[3]])
                dot_products(line, queries, keys, keys, 0)
        for g in range(group):
            peaks[worker, b, kv, g] = largest(scores[b, kv, g, first:end], end - first)


@njit(**KERNEL)
def exponentiate(worker: int, scores: Any, peaks: Any, totals: Any, length: int) -> None:
    """Scores become exp(score - maximum over all workers), 0 behind the last; their sum."""
    batch, heads, group, padded = scores.shape
    workers = peaks.shape[0]
    first, end = part_of(worker, workers, length)
    stop = padded if worker == workers - 1 else end
    for task in range(batch * heads * group):
        b, kv, g = task // (heads * group), task // group % heads, task % group
        peak = peaks[0, b, kv, g]
        for other in range(1, workers):
            peak = max(peak, peaks[other, b, kv, g])
        line = scores[b, kv, g, first:stop]
        totals[worker, b, kv, g] = exponentials(line, end - first, peak)


@njit(**KERNEL)
def gather(worker: int, v: Any, out: Any, weights: Any, tiles: Any) -> None:
    """out[d] = sum of weights * V[:, d] / total for this worker's blocks of features."""
    (scores, totals), (sums, packed) = weights, tiles
    batch, heads, length, features = v.shape
    group, block = sums.shape[1], sums.shape[2]
    blocks = (features + block - 1) // block
    for task in range(worker, batch * heads * blocks, totals.shape[0]):
        b, kv, d0 = task // (heads * blocks), task // blocks % heads, task % blocks * block
        width = min(block, features - d0)
        clear(sums[0], group)
        for start in range(0, length, _ROWS):
            count = min(_ROWS, length - start)
            line = scores[b, kv, :, start:]
            values = v[b, kv, start : start + count, d0 : d0 + width]
            clear(sums[1], group)
            shape = (group, count, width)
            if v.strides[3] == v.itemsize:
                multiply_add(sums[1], line, any_strides(values), shape)
            else:
                pack(packed, values, 0, count)
                multiply_add(sums[1], line, any_strides(packed[:count]), shape)
            for g in range(group):
                for d in range(width):
                    sums[0, g, d] += sums[1, g, d]
        for g in range(group):
            total = scores.dtype.type(0)
            for other in range(totals.shape[0]):
                total += totals[other, b, kv, g]
            for d in range(width):
                out[b, kv * group + g, d0 + d] = sums[0, g, d] / total if total != 0 else 0
