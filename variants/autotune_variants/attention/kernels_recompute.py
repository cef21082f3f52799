"""Sweeps that recompute A or GS tile by tile instead of reading them from memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.attention.kernels_columns import first_row
from autotune_variants.attention.kernels_products import multiply, multiply_add
from autotune_variants.attention.kernels_tiles import (
    INLINED,
    WORKER,
    blocks_of,
    clear,
    dot,
    exponentials,
    largest,
    locate,
    pack,
    pack_transposed,
    scale_row,
    share,
    unpack,
    visible,
)
from autotune_variants.attention.plan import Step
from autotune_variants.fastmath import LOG2E, exp2

_A_STORED, _GRAD_V = int(Step.A_STORED), int(Step.GRAD_V)


@njit(**WORKER)
def forward_online(worker: int, t: Any, s: Any, plan: Any) -> None:
    """Out and lse by the online softmax; scores never leave their tile."""
    batch, heads, queries, depth = t.q.shape
    keys, acc, stats = t.k.shape[2], s.acc_out[worker], s.row_stats[worker]
    tasks = batch * heads * blocks_of(queries, plan.block_q)
    first_task, stop, step = share(worker, tasks, plan)
    for task in range(first_task, stop, step):
        b, h, start, count = locate(task, heads, queries, plan.block_q)
        kv = h // (heads // t.k.shape[1])
        pack(s.q_tile[worker], t.q[b, h], start, count)
        clear(acc, count)
        for i in range(count):
            stats[0, i], stats[1, i] = -np.inf, 0
        end = visible(start + count - 1, queries, keys, plan.causal)
        for first in range(0, end, plan.block_k):
            columns = min(plan.block_k, end - first)
            scores, v_tile = s.scores[worker], s.v_tile[worker]
            pack_transposed(s.k_transposed[worker], t.k[b, kv], first, columns)
            pack(v_tile, t.v[b, kv], first, columns)
            multiply(scores, s.q_tile[worker], s.k_transposed[worker], (count, depth, columns))
            for i in range(count):
                seen = min(max(visible(start + i, queries, keys, plan.causal) - first, 0), columns)
                scale_row(scores[i], seen, plan.scale)
                online_step(acc[i], scores[i, :columns], stats[:, i], seen)
            multiply_add(acc, scores, v_tile, (count, columns, v_tile.shape[1]))
        for i in range(count):
            total = stats[1, i]
            if total > 0:
                scale_row(acc[i], acc.shape[1], 1 / total)
            t.new_lse[b, h, start + i] = stats[0, i] + np.log(total) if total > 0 else -np.inf
        unpack(t.new_out[b, h], start, count, acc, 1.0)


@njit(**INLINED)
def online_step(acc: Any, scores: Any, stats: Any, seen: int) -> None:
    """Scores become weights relative to the running maximum; acc and the running sum follow."""
    if seen == 0:
        scale_row(scores, scores.size, 0)
        return
    peak = max(stats[0], largest(scores, seen))
    shrink = exp2((stats[0] - peak) * acc.dtype.type(LOG2E))
    stats[1] = stats[1] * shrink + exponentials(scores, seen, peak)
    stats[0] = peak
    scale_row(acc, acc.size, shrink)


@njit(**WORKER)
def corrections(worker: int, t: Any, s: Any, plan: Any) -> None:
    """corrections[ir] = sum of out * dO over a row, which equals the row's sum of A * GA."""
    batch, heads, queries, _ = t.grad_out.shape
    first, stop, step = share(worker, batch * heads * queries, plan)
    for row in range(first, stop, step):
        b, h, i = row // (heads * queries), row // queries % heads, row % queries
        s.corrections[b, h, i] = dot(t.out[b, h, i], t.grad_out[b, h, i])


@njit(**WORKER)
def query_tiles(worker: int, t: Any, s: Any, plan: Any) -> None:
    """GQ by blocks of query rows: GS recomputed, A recomputed too unless it is stored."""
    batch, heads, queries, depth = t.q.shape
    acc, k_tile, gs = s.acc_q[worker], s.k_tile[worker], s.gradients[worker]
    tasks = batch * heads * blocks_of(queries, plan.block_q)
    first_task, stop, step = share(worker, tasks, plan)
    for task in range(first_task, stop, step):
        b, h, start, count = locate(task, heads, queries, plan.block_q)
        kv = h // (heads // t.k.shape[1])
        pack(s.q_tile[worker], t.q[b, h], start, count)
        pack(s.g_tile[worker], t.grad_out[b, h], start, count)
        clear(acc, count)
        end = visible(start + count - 1, queries, t.k.shape[2], plan.causal)
        for first in range(0, end, plan.block_k):
            columns = min(plan.block_k, end - first)
            pack(k_tile, t.k[b, kv], first, columns)
            pack_transposed(s.k_transposed[worker], t.k[b, kv], first, columns)
            pack_transposed(s.v_transposed[worker], t.v[b, kv], first, columns)
            gradient_tile(worker, t, s, plan, (b, h), (start, count, first, columns))
            multiply_add(acc, gs, k_tile, (count, columns, depth))
        unpack(t.grad_q[b, h], start, count, acc, plan.scale)


@njit(**WORKER)
def key_tiles(worker: int, t: Any, s: Any, plan: Any) -> None:
    """GK, and GV if asked for, by blocks of keys: GS recomputed, A too unless it is stored."""
    batch, heads, keys, depth = t.k.shape
    queries, features, group = t.q.shape[2], t.v.shape[3], t.q.shape[1] // max(heads, 1)
    acc_k, acc_v = s.acc_k[worker], s.acc_v[worker]
    a, gs = s.scores[worker].T, s.gradients[worker].T
    first_task, stop, step = share(worker, batch * heads * blocks_of(keys, plan.block_k), plan)
    for task in range(first_task, stop, step):
        b, kv, first, columns = locate(task, heads, keys, plan.block_k)
        clear(acc_k, columns)
        clear(acc_v, columns)
        pack_transposed(s.k_transposed[worker], t.k[b, kv], first, columns)
        pack_transposed(s.v_transposed[worker], t.v[b, kv], first, columns)
        for h in range(kv * group, (kv + 1) * group):
            for start in range(first_row(first, queries, keys, plan), queries, plan.block_q):
                count = min(plan.block_q, queries - start)
                pack(s.q_tile[worker], t.q[b, h], start, count)
                pack(s.g_tile[worker], t.grad_out[b, h], start, count)
                gradient_tile(worker, t, s, plan, (b, h), (start, count, first, columns))
                multiply_add(acc_k, gs, s.q_tile[worker], (columns, count, depth))
                if plan.steps & _GRAD_V:
                    multiply_add(acc_v, a, s.g_tile[worker], (columns, count, features))
        unpack(t.grad_k[b, kv], first, columns, acc_k, plan.scale)
        if plan.steps & _GRAD_V:
            unpack(t.grad_v[b, kv], first, columns, acc_v, 1.0)


@njit(**INLINED)
def gradient_tile(worker: int, t: Any, s: Any, plan: Any, head: Any, at: Any) -> None:
    """A (in s.scores) and GS / scale (in s.gradients) of one tile.

    `at` is (first row, rows, first key, keys); the tiles of Q, dO, K^T and V^T are packed.
    """
    (b, h), (start, count, first, columns) = head, at
    a, gs = s.scores[worker], s.gradients[worker]
    if plan.steps & _A_STORED:
        for i in range(count):
            row = s.a[b, h, start + i, first : first + columns]
            for j in range(columns):
                a[i, j] = row[j]
    else:
        sizes = (count, s.q_tile.shape[2], columns)
        multiply(a, s.q_tile[worker], s.k_transposed[worker], sizes)
        for i in range(count):
            last = visible(start + i, t.q.shape[2], t.k.shape[2], plan.causal)
            seen = min(max(last - first, 0), columns)
            scale_row(a[i], seen, plan.scale)
            exponentials(a[i, :columns], seen, t.lse[b, h, start + i])
    sizes = (count, s.g_tile.shape[2], columns)
    multiply(gs, s.g_tile[worker], s.v_transposed[worker], sizes)
    for i in range(count):
        correction = s.corrections[b, h, start + i]
        for j in range(columns):
            gs[i, j] = a[i, j] * (gs[i, j] - correction)
