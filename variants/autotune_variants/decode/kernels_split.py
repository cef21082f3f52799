"""Entry points of the decode kernels: by one thread, and by several."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from autotune_variants.decode.kernels import Tiles, attend_split, combine_head


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
