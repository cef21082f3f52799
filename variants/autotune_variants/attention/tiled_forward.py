"""Attention by tiles: products by BLAS, softmax online between them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.attention.tiled_rows import (
    carve,
    copy_columns,
    fill,
    matrix,
    owner,
    rows_or_copy,
    visible_keys,
)
from autotune_variants.attention.tiled_table import (
    LSE,
    OUT,
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
from autotune_variants.fastmath import INNER, LOG2E, exp2, full_width_vectors
from autotune_variants.gemm import multiply, multiply_transposed


@njit(**INNER)
def hide_future(scores: Any, keys: Any, queries: Any, first_visible: Any) -> Any:
    """Scores of key j are -inf for queries before first_visible + j; scores is (keys, queries)."""
    for j in range(keys):
        for i in range(min(max(first_visible + j, 0), queries)):
            scores[j, i] = -np.inf


@njit(fastmath={"contract", "nsz"}, **INNER)
def online_softmax(scores: Any, keys: Any, queries: Any, state: Any, accumulated: Any) -> Any:
    """Scores (keys by queries) become weights relative to the running maximum.

    `state` holds per query the running maximum, the running sum and the last correction, by which
    the rows of `accumulated` are rescaled.
    """
    full_width_vectors()
    largest, total, correction = state[0], state[1], state[2]
    zero, log2_e = scores.dtype.type(0), scores.dtype.type(LOG2E)
    for i in range(queries):
        correction[i] = largest[i]
    for j in range(keys):
        for i in range(queries):
            largest[i] = scores[j, i] if scores[j, i] > largest[i] else largest[i]
    changed = False
    for i in range(queries):
        changed |= largest[i] != correction[i]
        base = zero if largest[i] == -np.inf else largest[i]
        correction[i] = exp2((correction[i] - base) * log2_e)
        total[i] *= correction[i]
    for j in range(keys):
        for i in range(queries):
            base = zero if largest[i] == -np.inf else largest[i]
            weight = exp2((scores[j, i] - base) * log2_e)
            scores[j, i] = weight
            total[i] += weight
    if changed:
        for i in range(queries):
            for d in range(accumulated.shape[1]):
                accumulated[i, d] *= correction[i]


@njit(**INNER)
def finish(out: Any, lse: Any, place: Any, state: Any, accumulated: Any) -> Any:
    """Normalise a tile into out and lse; rows that attend nothing give 0 and -inf."""
    b, h, first, queries = place
    one = out.dtype.type(1)
    for i in range(queries):
        total = state[1, i]
        scale = one / total if total != 0 else one
        for d in range(out.shape[3]):
            out[b, h, first + i, d] = accumulated[i, d] * scale
        lse[b, h, first + i, 0] = state[0, i] + np.log(total) if total != 0 else -np.inf


@njit(**INNER)
def forward_scratch(table: Any, address: Any, block_q: Any, block_k: Any, d: Any, dv: Any) -> Any:
    """Matrices of one worker: query columns, scores, state, accumulated, key and value rows."""
    columns, end = carve(table, address, d, block_q)
    scores, end = carve(table, end, block_k, block_q)
    state, end = carve(table, end, 4, block_q)
    accumulated, end = carve(table, end, block_q, dv)
    key_rows, end = carve(table, end, block_k, d)
    value_rows, end = carve(table, end, block_k, dv)
    return columns, scores, state, accumulated, key_rows, value_rows


@njit(**INNER)
def forward_tile(
    gemm: Any, q: Any, k: Any, v: Any, scale: Any, place: Any, causal: Any, scratch: Any
) -> Any:
    """One tile of queries against all its keys; leaves `state` and `accumulated` filled."""
    b, h, first, queries = place
    columns, scores, state, accumulated, key_rows, value_rows = scratch
    one, zero = q.dtype.type(1), q.dtype.type(0)
    factor = q.dtype.type(scale)
    nq, nk = q.shape[2], k.shape[2]
    group = h // (q.shape[1] // k.shape[1])
    block_k = scores.shape[0]
    copy_columns(q, b, h, first, queries, columns)
    fill(accumulated, zero)
    for i in range(queries):
        state[0, i] = -np.inf
        state[1, i] = zero
    for j in range(0, visible_keys(first + queries - 1, nq, nk, causal), block_k):
        keys = min(block_k, nk - j)
        tile = rows_or_copy(k, b, group, j, keys, key_rows)
        size = (keys, queries, q.shape[3])
        multiply(gemm, size, factor, tile, matrix(columns), zero, matrix(scores))
        if causal:
            hide_future(scores, keys, queries, j - first - nk + nq)
        online_softmax(scores, keys, queries, state, accumulated)
        tile = rows_or_copy(v, b, group, j, keys, value_rows)
        size = (queries, v.shape[3], keys)
        multiply_transposed(gemm, size, one, matrix(scores), tile, one, matrix(accumulated))


@njit(**STEP)
def forward_step(w: Any, table: Any) -> Any:
    """Out and lse of the tiles of queries that worker `w` owns: equal shares, in order."""
    gemm, block_q, block_k, workers, causal = settings(table)
    scale = number(table, SETTINGS, 5)
    q, k, v = strided(table, Q), strided(table, K), strided(table, V)
    out, lse = strided(table, OUT), strided(table, LSE)
    mine = forward_scratch(table, own_scratch(table, w), block_q, block_k, q.shape[3], v.shape[3])
    batch, heads, nq, nk = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    total, done = 0, 0
    for first in range(0, nq, block_q):
        total += visible_keys(min(first + block_q, nq) - 1, nq, nk, causal) + block_q
    total *= batch * heads
    for head in range(batch * heads):
        for first in range(0, nq, block_q):
            queries = min(block_q, nq - first)
            cost = visible_keys(first + queries - 1, nq, nk, causal) + block_q
            if owner(done, cost, total, workers) == w:
                place = (head // heads, head % heads, first, queries)
                forward_tile(gemm, q, k, v, scale, place, causal, mine)
                finish(out, lse, place, mine[2], mine[3])
            done += cost
