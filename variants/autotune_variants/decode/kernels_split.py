"""Entry points of the decode kernels: by one thread, and by several."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, prange, types

from autotune_variants.decode.kernels import Tiles, attend_split, combine_head
from autotune_variants.signatures import array_kind, compile_only


@njit(nogil=True, error_model="numpy")
def serial(
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
    tiles = Tiles(queries[0], weights[0], sums[0], keys[0], values[0])
    heads, splits = parts.shape[0] * parts.shape[1], parts.shape[2]
    for task in range(heads * splits):
        attend_split(task, (q, k, v), (parts, stats), tiles, scale)
    for head in range(heads):
        combine_head(head, out, (parts, stats))


@njit(parallel=True, nogil=True, error_model="numpy")
def parallel(
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
    """The splits dealt out to as many workers as there are tiles; then the combine."""
    heads, splits, threads = parts.shape[0] * parts.shape[1], parts.shape[2], queries.shape[0]
    for index in prange(threads):
        worker = np.int64(index)
        tiles = Tiles(queries[worker], weights[worker], sums[worker], keys[worker], values[worker])
        for task in range(worker, heads * splits, threads):
            attend_split(task, (q, k, v), (parts, stats), tiles, scale)
    for head in range(heads):
        combine_head(head, out, (parts, stats))


@cache
def kernel(dtype: str, threads: int) -> Callable[..., None]:
    """The entry for one thread or for several, compiled for a dtype."""
    entry: Any = serial if threads == 1 else parallel
    read = [array_kind(dtype, dims, any_layout=True, readonly=True) for dims in (3, 4, 4)]
    written = [array_kind(dtype, 3, any_layout=True)]
    temporaries = [array_kind(dtype, dims) for dims in (5, 5, 3, 3, 3, 3, 3)]
    compile_only(entry, [*read, *written, *temporaries, types.float64])
    run: Callable[..., None] = entry
    return run
