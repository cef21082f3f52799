"""Attention by tiles of queries: two products per tile of keys, softmax online between them."""

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
    scores_product,
    store_rows,
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
from autotune_variants.fastmath import INNER, exp, full_width_vectors
from autotune_variants.gemm import multiply_transposed


@njit(**INNER)
def hide_future(scores: Any, keys: Any, queries: Any, first_visible: Any) -> Any:
    """Scores of key j are -inf for queries before first_visible + j; scores is (keys, queries)."""
    for j in range(keys):
        for i in range(min(max(first_visible + j, 0), queries)):
            scores[j, i] = -np.inf


@njit(fastmath={"contract", "nsz"}, **INNER)
def raise_peaks(scores: Any, keys: Any, queries: Any, largest: Any) -> Any:
    """largest[i] becomes the maximum of itself and column i of scores; NaN goes unseen.

    Four rows at a time: maxima are so cheap that reading and writing `largest` would be the cost.
    """
    full_width_vectors()
    whole = keys // 4 * 4
    for j in range(0, whole, 4):
        for i in range(queries):
            peak = scores[j, i] if scores[j, i] > largest[i] else largest[i]
            peak = scores[j + 1, i] if scores[j + 1, i] > peak else peak
            peak = scores[j + 2, i] if scores[j + 2, i] > peak else peak
            largest[i] = scores[j + 3, i] if scores[j + 3, i] > peak else peak
    for j in range(whole, keys):
        for i in range(queries):
            largest[i] = scores[j, i] if scores[j, i] > largest[i] else largest[i]


@njit(fastmath={"contract", "nsz"}, **INNER)
def online_softmax(scores: Any, keys: Any, queries: Any, state: Any, accumulated: Any) -> Any:
    """Scores (keys by queries) become weights relative to the running maximum.

    `state` holds per query the running maximum, the running sum, the last correction (by which
    the rows of `accumulated` are rescaled), what is subtracted (the maximum, or 0 for -inf), and
    the sum over this tile: added up apart, since one chain of additions over thousands of keys
    would lose two digits.
    """
    full_width_vectors()
    largest, total, correction, base, part = state[0], state[1], state[2], state[3], state[4]
    zero, one = scores.dtype.type(0), scores.dtype.type(1)
    for i in range(queries):
        correction[i] = largest[i]
    raise_peaks(scores, keys, queries, largest)
    for i in range(queries):
        base[i] = zero if largest[i] == -np.inf else largest[i]
        correction[i] = exp(correction[i] - base[i])
        part[i] = zero
    for j in range(keys):
        for i in range(queries):
            weight = exp(scores[j, i] - base[i])
            scores[j, i] = weight
            part[i] += weight
    for i in range(queries):
        total[i] = total[i] * correction[i] + part[i]
    for i in range(queries):
        if correction[i] != one:
            for d in range(accumulated.shape[1]):
                accumulated[i, d] *= correction[i]


@njit(**INNER)
def normalise(out: Any, place: Any, state: Any, accumulated: Any) -> Any:
    """A tile's rows of out; 0 for those that attend nothing."""
    b, h, first, queries = place
    one = out.dtype.type(1)
    for i in range(queries):
        total = state[1, i]
        scale = one / total if total != 0 else one
        for d in range(accumulated.shape[1]):
            accumulated[i, d] *= scale
    store_rows(out, b, h, first, queries, accumulated)


@njit(**INNER)
def store_lse(lse: Any, place: Any, state: Any) -> Any:
    """A tile's part of lse; -inf for rows that attend nothing."""
    b, h, first, queries = place
    for i in range(queries):
        total = state[1, i]
        lse[b, h, first + i, 0] = state[0, i] + np.log(total) if total != 0 else -np.inf


@njit(**INNER)
def forward_scratch(table: Any, address: Any, sizes: Any, tiles: Any) -> Any:
    """Matrices of one worker, for weights of `tiles` tiles of keys; and where the next may start.

    `sizes` is (block_q, block_k, D, Dv).
    """
    block_q, block_k, d, dv = sizes
    columns, end = carve(table, address, d, block_q)
    weights, end = carve(table, end, tiles * block_k, block_q)
    peaks, end = carve(table, end, tiles, block_q)
    state, end = carve(table, end, 5, block_q)
    accumulated, end = carve(table, end, block_q, dv)
    key_rows, end = carve(table, end, block_k, d)
    value_rows, end = carve(table, end, block_k, dv)
    return (columns, weights, peaks, state, accumulated, key_rows, value_rows), end


@njit(**INNER)
def forward_tile(gemm: Any, arrays: Any, scale: Any, place: Any, causal: Any, scratch: Any) -> Any:
    """One tile of queries against all its keys; leaves `state` and `accumulated` filled.

    Where there is room for them, the weights of every tile of keys stay too, each relative to the
    maximum so far, which `peaks` keeps.
    """
    q, k, v = arrays
    b, h, first, queries = place
    columns, weights, peaks, state, accumulated, key_rows, value_rows = scratch
    one, zero, factor = q.dtype.type(1), q.dtype.type(0), q.dtype.type(scale)
    nq, nk, block_k = q.shape[2], k.shape[2], key_rows.shape[0]
    group = h // (q.shape[1] // k.shape[1])
    copy_columns(q, b, h, first, queries, columns)
    fill(accumulated, zero)
    for i in range(queries):
        state[0, i] = -np.inf
        state[1, i] = zero
    for j in range(0, visible_keys(first + queries - 1, nq, nk, causal), block_k):
        keys = min(block_k, nk - j)
        kept = j if peaks.shape[0] > 1 else 0
        scores = weights[kept : kept + keys]
        tile = rows_or_copy(k, b, group, j, keys, key_rows)
        area = (keys, queries)
        scores_product(gemm, factor, tile, matrix(columns), q.shape[3], area, scores)
        if causal:
            hide_future(scores, keys, queries, j - first - nk + nq)
        online_softmax(scores, keys, queries, state, accumulated)
        for i in range(queries):
            peaks[kept // block_k, i] = state[0, i]
        tile = rows_or_copy(v, b, group, j, keys, value_rows)
        size = (queries, v.shape[3], keys)
        multiply_transposed(gemm, size, one, matrix(scores), tile, one, matrix(accumulated))


@njit(**INNER)
def query_work(nq: Any, nk: Any, block_q: Any, causal: Any) -> Any:
    """Relative cost of all tiles of queries of one head."""
    total = 0
    for first in range(0, nq, block_q):
        total += visible_keys(min(first + block_q, nq) - 1, nq, nk, causal) + block_q
    return total


@njit(**STEP)
def forward_step(w: Any, table: Any) -> Any:
    """Out and lse of the tiles of queries that worker `w` owns: equal shares, in order."""
    gemm, block_q, block_k, workers, causal = settings(table)
    scale = number(table, SETTINGS, 5)
    arrays = (strided(table, Q), strided(table, K), strided(table, V))
    out, lse = strided(table, OUT), strided(table, LSE)
    batch, heads, nq, d = arrays[0].shape
    nk, dv = arrays[2].shape[2], arrays[2].shape[3]
    mine, _ = forward_scratch(table, own_scratch(table, w), (block_q, block_k, d, dv), 1)
    total, done = query_work(nq, nk, block_q, causal) * batch * heads, 0
    for head in range(batch * heads):
        for first in range(0, nq, block_q):
            queries = min(block_q, nq - first)
            cost = visible_keys(first + queries - 1, nq, nk, causal) + block_q
            if owner(done, cost, total, workers) == w:
                place = (head // heads, head % heads, first, queries)
                forward_tile(gemm, arrays, scale, place, causal, mine)
                normalise(out, place, mine[3], mine[4])
                store_lse(lse, place, mine[3])
            done += cost
