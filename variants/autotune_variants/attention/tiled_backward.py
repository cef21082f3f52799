"""Gradients of attention by tiles of keys: five products per tile, weights recomputed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.attention.tiled_rows import (
    carve,
    clear_rows,
    copy_columns,
    copy_rows,
    fill,
    first_query,
    matrix,
    owner,
    product_to_rows,
    rows_or_copy,
    scores_product,
    sharers,
    store_rows,
)
from autotune_variants.attention.tiled_table import (
    DELTA,
    GRAD_K,
    GRAD_OUT,
    GRAD_Q,
    GRAD_V,
    LSE,
    QUERY_PARTS,
    SETTINGS,
    STEP,
    K,
    Q,
    V,
    number,
    own_scratch,
    settings,
    strided,
)
from autotune_variants.fastmath import INNER, exp, full_width_vectors
from autotune_variants.gemm import multiply, multiply_transposed


@njit(fastmath={"contract", "nsz"}, **INNER)
def weights_and_slopes(scores: Any, slopes: Any, size: Any, lse: Any, delta: Any) -> Any:
    """In place: scores (queries by keys) become weights, slopes their weighted gradient.

    `slopes` comes as grad_out v^T and leaves as weight * (slope - delta).
    """
    full_width_vectors()
    queries, keys = size
    for i in range(queries):
        for j in range(keys):
            weight = exp(scores[i, j] - lse[i])
            scores[i, j] = weight
            slopes[i, j] = weight * (slopes[i, j] - delta[i])


@njit(**INNER)
def drop_future(scores: Any, slopes: Any, size: Any, first_hidden: Any) -> Any:
    """Query i has weight 0 on keys from first_hidden + i on; tiles are (queries, keys)."""
    queries, keys = size
    for i in range(queries):
        for j in range(min(max(first_hidden + i, 0), keys), keys):
            scores[i, j] = 0
            slopes[i, j] = 0


@njit(**INNER)
def row_statistics(
    lse: Any, delta: Any, b: Any, h: Any, first: Any, count: Any, statistics: Any
) -> Any:
    """lse (+inf for rows that attend nothing, so that weights become 0) and delta."""
    for i in range(count):
        value = lse[b, h, first + i, 0]
        statistics[0, i] = np.inf if value == -np.inf else value
        statistics[1, i] = delta[b, h, first + i, 0]


@njit(**INNER)
def backward_scratch(table: Any, address: Any, block_q: Any, block_k: Any, d: Any, dv: Any) -> Any:
    """Matrices of one worker: five per tile of keys, then six per tile of queries."""
    key_rows, end = carve(table, address, block_k, d)
    key_columns, end = carve(table, end, d, block_k)
    value_columns, end = carve(table, end, dv, block_k)
    grad_keys, end = carve(table, end, block_k, d)
    grad_values, end = carve(table, end, block_k, dv)
    scores, end = carve(table, end, block_q, block_k)
    slopes, end = carve(table, end, block_q, block_k)
    statistics, end = carve(table, end, 2, block_q)
    query_rows, end = carve(table, end, block_q, d)
    grad_rows, end = carve(table, end, block_q, dv)
    grad_queries, end = carve(table, end, block_q, d)
    of_keys = (key_rows, key_columns, value_columns, grad_keys, grad_values)
    return of_keys, (scores, slopes, statistics, query_rows, grad_rows, grad_queries)


@njit(**INNER)
def backward_tile(
    gemm: Any, arrays: Any, scale: Any, place: Any, causal: Any, target: Any, scratch: Any
) -> Any:
    """All queries of one head against one tile of keys.

    Adds to the tile's grad_k and grad_v in scratch and to grad_q: `target` is (grad_q or copies of
    it, batch in that, whether there is something to add to).
    """
    q, k, v, lse, delta, grad_out = arrays
    b, h, first_key, keys = place
    key_rows, key_columns, value_columns, grad_keys, grad_values = scratch[0]
    scores, slopes, statistics, query_rows, grad_rows, grad_queries = scratch[1]
    kind = q.dtype.type
    one, zero, factor = kind(1), kind(0), kind(scale)
    nq, nk, d, dv = q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    block_q = scores.shape[0]
    start = first_query(first_key, nq, nk, causal) // block_q * block_q
    for i in range(start, nq, block_q):
        queries = min(block_q, nq - i)
        a = rows_or_copy(q, b, h, i, queries, query_rows)
        g = rows_or_copy(grad_out, b, h, i, queries, grad_rows)
        row_statistics(lse, delta, b, h, i, queries, statistics)
        area = (queries, keys)
        s, t = matrix(scores), matrix(slopes)
        scores_product(gemm, factor, a, matrix(key_columns), d, area, scores)
        multiply(gemm, (*area, dv), one, g, matrix(value_columns), zero, t)
        weights_and_slopes(scores, slopes, area, statistics[0], statistics[1])
        if causal:
            drop_future(scores, slopes, area, i + 1 + nk - nq - first_key)
        multiply_transposed(gemm, (keys, dv, queries), one, s, g, one, matrix(grad_values))
        multiply_transposed(gemm, (keys, d, queries), factor, t, a, one, matrix(grad_keys))
        size = (queries, d, keys)
        into = (target[0], target[1], h, i)
        product_to_rows(gemm, size, factor, t, matrix(key_rows), into, target[2], grad_queries)
    if not target[2]:
        clear_rows(target[0], target[1], h, 0, min(start, nq))


@njit(**INNER)
def tile_cost(first_key: Any, block_k: Any, nq: Any, nk: Any, causal: Any) -> Any:
    """Relative cost of a tile of keys: the queries that meet it, plus the packing."""
    return nq - first_query(first_key, nq, nk, causal) + block_k


@njit(**INNER)
def key_tile(
    gemm: Any, arrays: Any, scale: Any, place: Any, causal: Any, target: Any, scratch: Any
) -> Any:
    """grad_k and grad_v of one tile of keys in scratch, from all query heads of its group."""
    k, v = arrays[1], arrays[2]
    b, kv, first, keys = place
    group = arrays[0].shape[1] // k.shape[1]
    key_rows, key_columns, value_columns, grad_keys, grad_values = scratch[0]
    copy_rows(k, b, kv, first, keys, key_rows)
    copy_columns(k, b, kv, first, keys, key_columns)
    copy_columns(v, b, kv, first, keys, value_columns)
    fill(grad_keys, k.dtype.type(0))
    fill(grad_values, k.dtype.type(0))
    for h in range(kv * group, (kv + 1) * group):
        backward_tile(gemm, arrays, scale, (b, h, first, keys), causal, target, scratch)


@njit(**STEP)
def backward_step(w: Any, table: Any) -> Any:
    """The tiles of keys that worker `w` owns: equal shares of the work, in order.

    Workers that share a head add to grad_q in copies of their own, the first in grad_q itself.
    """
    gemm, block_q, block_k, workers, causal = settings(table)
    scale = number(table, SETTINGS, 5)
    q, k, v, lse = strided(table, Q), strided(table, K), strided(table, V), strided(table, LSE)
    arrays = (q, k, v, lse, strided(table, DELTA), strided(table, GRAD_OUT))
    grad_q, parts = strided(table, GRAD_Q), strided(table, QUERY_PARTS)
    grad_k, grad_v = strided(table, GRAD_K), strided(table, GRAD_V)
    mine = backward_scratch(table, own_scratch(table, w), block_q, block_k, q.shape[3], v.shape[3])
    batch, heads, nq, nk = k.shape[0], k.shape[1], q.shape[2], k.shape[2]
    group = q.shape[1] // max(heads, 1)
    per_head, done = 0, 0
    for first in range(0, nk, block_k):
        per_head += tile_cost(first, block_k, nq, nk, causal)
    for head in range(batch * heads):
        b, kv = head // heads, head % heads
        first_worker, last_worker = sharers(head, batch * heads, workers)
        if w < first_worker or w > last_worker:
            done += per_head
            continue
        array, copy, started = grad_q, b, False
        if w > first_worker:
            array, copy = parts, (w - first_worker - 1) * batch + b
        for first in range(0, nk, block_k):
            cost = tile_cost(first, block_k, nq, nk, causal)
            if owner(done, cost, per_head * batch * heads, workers) == w:
                keys = min(block_k, nk - first)
                place, target = (b, kv, first, keys), (array, copy, started)
                key_tile(gemm, arrays, scale, place, causal, target, mine)
                store_rows(grad_k, b, kv, first, keys, mine[0][3])
                store_rows(grad_v, b, kv, first, keys, mine[0][4])
                started = True
            done += cost
        if not started:
            for h in range(kv * group, (kv + 1) * group):
                clear_rows(array, copy, h, 0, nq)
