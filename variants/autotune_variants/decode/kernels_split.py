"""Entry points of the decode kernels: by one thread, and by several."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit, prange, types

from autotune_variants.attention.kernels_tiles import WORKER
from autotune_variants.decode.kernels import Tiles, attend_split, combine_head
from autotune_variants.signatures import Pointer, array_kind, compile_only


@njit(**WORKER)
def attend_worker(
    worker: int,
    ahead: int,
    q: Any,
    k: Any,
    v: Any,
    parts: Any,
    stats: Any,
    queries: Any,
    weights: Any,
    sums: Any,
    keys: Any,
    values: Any,
    scale: float,
) -> None:
    """This worker's share of the splits of all heads, of as many workers as there are tiles."""
    tiles = Tiles(queries[worker], weights[worker], sums[worker], keys[worker], values[worker])
    splits = parts.shape[0] * parts.shape[1] * parts.shape[2]
    for task in range(worker, splits, queries.shape[0]):
        attend_split(task, (q, k, v), (parts, stats), tiles, (scale, ahead))


@njit(nogil=True, error_model="numpy")
def serial(
    ahead: int,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    parts: Any,
    stats: Any,
    queries: Any,
    weights: Any,
    sums: Any,
    keys: Any,
    values: Any,
    scale: float,
) -> None:
    """All splits of all heads, one after another."""
    worker = np.int64(0)
    rest = (parts, stats, queries, weights, sums, keys, values, scale)
    attend_worker(worker, ahead, q, k, v, *rest)
    for head in range(parts.shape[0] * parts.shape[1]):
        combine_head(head, out, (parts, stats))


@njit(parallel=True, nogil=True, error_model="numpy")
def parallel(
    work: Any,
    ahead: int,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    parts: Any,
    stats: Any,
    queries: Any,
    weights: Any,
    sums: Any,
    keys: Any,
    values: Any,
    scale: float,
) -> None:
    """The splits dealt out to the workers, then the combine; `work` points to `attend_worker`."""
    for index in prange(queries.shape[0]):
        worker = np.int64(index)
        work(worker, ahead, q, k, v, parts, stats, queries, weights, sums, keys, values, scale)
    for head in range(parts.shape[0] * parts.shape[1]):
        combine_head(head, out, (parts, stats))


@cache
def kernel(dtype: str, threads: int, ahead: int) -> Callable[..., None]:
    """The entry for one thread or for several, compiled for a dtype.

    `ahead` is how many keys ahead to prefetch; 0 leaves that to the hardware.
    """
    read = [array_kind(dtype, dims, any_layout=True, readonly=True) for dims in (3, 4, 4)]
    out = array_kind(dtype, 3, any_layout=True)
    rest = [*(array_kind(dtype, dims) for dims in (5, 5, 3, 3, 3, 3, 3)), types.float64]
    if threads == 1:
        compile_only(serial, [types.int64, *read, out, *rest])
        return partial(serial, ahead)
    pointer = Pointer(attend_worker, types.void(types.int64, types.int64, *read, *rest))
    kind = types.FunctionType(pointer.signature())
    compile_only(parallel, [kind, types.int64, *read, out, *rest])
    return partial(parallel, pointer, ahead)
