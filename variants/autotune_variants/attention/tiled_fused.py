"""Forward and backward in one sweep over tiles of queries: weights computed once, kept in cache."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_forward import (
    forward_scratch,
    forward_tile,
    normalise,
    query_work,
)
from autotune_variants.attention.tiled_rows import (
    carve,
    clear_rows,
    copy_columns,
    fill,
    matrix,
    owner,
    product_to_rows,
    row_products,
    rows_or_copy,
    sharers,
    store_rows,
    visible_keys,
)
from autotune_variants.attention.tiled_table import (
    GRAD_K,
    GRAD_OUT,
    GRAD_Q,
    GRAD_V,
    KEY_PARTS,
    OUT,
    SETTINGS,
    STEP,
    VALUE_PARTS,
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
def final_weights(weights: Any, slopes: Any, size: Any, factor: Any, delta: Any) -> Any:
    """In place: weights times `factor`, and slopes become weight * (slope - delta)."""
    full_width_vectors()
    keys, queries = size
    for j in range(keys):
        for i in range(queries):
            weight = weights[j, i] * factor[i]
            weights[j, i] = weight
            slopes[j, i] = weight * (slopes[j, i] - delta[i])


@njit(fastmath={"contract", "nsz"}, **INNER)
def final_factors(state: Any, peaks: Any, queries: Any, factor: Any) -> Any:
    """What turns weights relative to `peaks` into normalised ones; 0 where nothing is attended."""
    total, base = state[1], state[3]
    zero = factor.dtype.type(0)
    for i in range(queries):
        scale = exp(peaks[i] - base[i])
        factor[i] = scale / total[i] if total[i] != zero else zero


@njit(**INNER)
def gradient_scratch(table: Any, address: Any, sizes: Any) -> Any:
    """Matrices of one worker for the gradients; `sizes` is (block_q, block_k, D, Dv)."""
    block_q, block_k, d, dv = sizes
    columns, end = carve(table, address, dv, block_q)
    slopes, end = carve(table, end, block_k, block_q)
    rows, end = carve(table, end, 2, block_q)
    query_rows, end = carve(table, end, block_q, d)
    grad_rows, end = carve(table, end, block_q, dv)
    grad_queries, end = carve(table, end, block_q, d)
    spare_keys, end = carve(table, end, block_k, d)
    spare_values, end = carve(table, end, block_k, dv)
    return columns, slopes, rows, query_rows, grad_rows, grad_queries, spare_keys, spare_values


@njit(**INNER)
def gradient_tile(
    gemm: Any, arrays: Any, scale: Any, place: Any, causal: Any, targets: Any, scratch: Any
) -> Any:
    """Gradients of one tile of queries against all its keys, whose weights are in scratch.

    `targets` is (grad_k or copies of it, grad_v or copies, batch in them, how many keys have
    something to add to); the gradient of the queries stays in scratch, where delta is.
    """
    q, k, v, grad_out = arrays
    b, h, first, queries = place
    _, weights, peaks, state, _, key_rows, value_rows = scratch[0]
    columns, slopes, lines, query_rows, grad_rows, grad_queries, spare_k, spare_v = scratch[1]
    one, zero, factor = q.dtype.type(1), q.dtype.type(0), q.dtype.type(scale)
    nq, nk, block_k = q.shape[2], k.shape[2], key_rows.shape[0]
    d, dv = q.shape[3], v.shape[3]
    group = h // (q.shape[1] // k.shape[1])
    copy_columns(grad_out, b, h, first, queries, columns)
    a = rows_or_copy(q, b, h, first, queries, query_rows)
    g = rows_or_copy(grad_out, b, h, first, queries, grad_rows)
    fill(grad_queries, zero)
    for j in range(0, visible_keys(first + queries - 1, nq, nk, causal), block_k):
        keys = min(block_k, nk - j)
        tile = weights[j : j + keys]
        t, s = matrix(slopes), matrix(tile)
        right = rows_or_copy(v, b, group, j, keys, value_rows)
        multiply(gemm, (keys, queries, dv), one, right, matrix(columns), zero, t)
        final_factors(state, peaks[j // block_k], queries, lines[0])
        final_weights(tile, slopes, (keys, queries), lines[0], lines[1])
        add = j < targets[3]
        into = (targets[1], targets[2], group, j)
        product_to_rows(gemm, (keys, dv, queries), one, s, g, into, add, spare_v)
        into = (targets[0], targets[2], group, j)
        product_to_rows(gemm, (keys, d, queries), factor, t, a, into, add, spare_k)
        right = rows_or_copy(k, b, group, j, keys, key_rows)
        size = (queries, d, keys)
        multiply_transposed(gemm, size, factor, t, right, one, matrix(grad_queries))


@njit(**STEP)
def fused_step(w: Any, table: Any) -> Any:
    """Everything about the tiles of queries that worker `w` owns: equal shares, in order.

    Workers that share a head of keys add to grad_k and grad_v in copies of their own, the first
    in the outputs themselves.
    """
    gemm, block_q, block_k, workers, causal = settings(table)
    scale = number(table, SETTINGS, 5)
    q, k, v = strided(table, Q), strided(table, K), strided(table, V)
    grad_out = strided(table, GRAD_OUT)
    inputs = (q, k, v, grad_out)
    out, grad_q = strided(table, OUT), strided(table, GRAD_Q)
    sizes = (block_q, block_k, q.shape[3], v.shape[3])
    tiles = -(-k.shape[2] // block_k)
    forward, end = forward_scratch(table, own_scratch(table, w), sizes, tiles)
    scratch = (forward, gradient_scratch(table, end, sizes))
    batch, kv_heads, nq, nk = k.shape[0], k.shape[1], q.shape[2], k.shape[2]
    group = q.shape[1] // max(kv_heads, 1)
    per_head, done = query_work(nq, nk, block_q, causal), 0
    for head in range(batch * kv_heads):
        b, kv = head // kv_heads, head % kv_heads
        first_worker, last_worker = sharers(head, batch * kv_heads, workers)
        if w < first_worker or w > last_worker:
            done += per_head * group
            continue
        arrays, copy, filled = (strided(table, GRAD_K), strided(table, GRAD_V)), b, 0
        if w > first_worker:
            arrays = (strided(table, KEY_PARTS), strided(table, VALUE_PARTS))
            copy = (w - first_worker - 1) * batch + b
        for h in range(kv * group, (kv + 1) * group):
            for first in range(0, nq, block_q):
                place = (b, h, first, min(block_q, nq - first))
                seen = visible_keys(first + place[3] - 1, nq, nk, causal)
                cost = seen + block_q
                if owner(done, cost, per_head * batch * q.shape[1], workers) == w:
                    forward_tile(gemm, (q, k, v), scale, place, causal, forward)
                    normalise(out, place, forward[3], forward[4])
                    row_products(out, grad_out, place, scratch[1][2][1])
                    targets = (arrays[0], arrays[1], copy, filled)
                    gradient_tile(gemm, inputs, scale, place, causal, targets, scratch)
                    store_rows(grad_q, b, h, first, place[3], scratch[1][5])
                    filled = max(filled, min(-(-seen // block_k) * block_k, nk))
                done += cost
        clear_rows(arrays[0], copy, kv, filled, nk)
        clear_rows(arrays[1], copy, kv, filled, nk)
