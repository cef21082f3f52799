"""Passes over blocks of query rows, one call per worker, and the sum of the workers' parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.attention.kernels_columns import probability_tile, score_gradient_tile
from autotune_variants.attention.kernels_rows import (
    add_to_part,
    kv_head,
    output_rows,
    probability_rows,
    query_gradient_rows,
    row_block,
    row_blocks,
    score_gradient_rows,
    softmax_rows,
    visible,
)
from autotune_variants.attention.kernels_tiles import (
    KERNEL,
    WORKER,
    clear,
    clear_part,
    exponentials,
    largest,
    multiply,
    multiply_add,
    pack,
    pack_transposed,
    scale_row,
    unpack,
)
from autotune_variants.fastmath import LOG2E, exp2


@njit(**WORKER)
def forward_stored(worker: int, t: Any, plan: Any) -> None:
    """A, Out and lse; A is kept."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        a = t.a[at[0], at[1], at[2] : at[2] + at[3]]
        softmax_rows(worker, t, plan, at, a)
        output_rows(worker, t, plan, at, a)


@njit(**WORKER)
def probabilities_stored(worker: int, t: Any, plan: Any) -> None:
    """A from Q, K and lse; A is kept."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        probability_rows(worker, t, plan, at, t.a[at[0], at[1], at[2] : at[2] + at[3]])


@njit(**WORKER)
def forward_online(worker: int, t: Any, plan: Any) -> None:
    """Out and lse by the online softmax; scores never leave their tile."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        b, h, start, rows = row_block(t, plan, task)
        kv, acc, stats = kv_head(t, h), t.acc_out[worker], t.row_stats[worker]
        pack(t.q_tile[worker], t.q[b, h], start, rows, plan.scale)
        clear(acc, rows)
        for i in range(rows):
            stats[0, i], stats[1, i] = -np.inf, 0
        end = visible(t, plan, start + rows - 1)
        for first in range(0, end, plan.block_k):
            columns = min(plan.block_k, end - first)
            pack_transposed(t.k_transposed[worker], t.k[b, kv], first, columns)
            pack(t.v_tile[worker], t.v[b, kv], first, columns, 1.0)
            scores = t.scores[worker]
            shape = (rows, t.q.shape[3], columns)
            multiply(scores, t.q_tile[worker], t.k_transposed[worker], shape)
            for i in range(rows):
                seen = min(max(visible(t, plan, start + i) - first, 0), columns)
                rescale_row(acc[i], scores[i, :columns], stats[:, i], seen)
            multiply_add(acc, scores, t.v_tile[worker], (rows, columns, t.v.shape[3]))
        finish_rows(t, (b, h, start, rows), acc, stats)


@njit(**KERNEL)
def rescale_row(acc: Any, scores: Any, stats: Any, seen: int) -> None:
    """One step of the online softmax: scores become weights, acc and the running sum shrink."""
    if seen == 0:
        scale_row(scores, 0)
        return
    peak = max(stats[0], largest(scores, seen))
    shrink = exp2((stats[0] - peak) * acc.dtype.type(LOG2E))
    stats[1] = stats[1] * shrink + exponentials(scores, seen, peak)
    stats[0] = peak
    scale_row(acc, shrink)


@njit(**KERNEL)
def finish_rows(t: Any, at: tuple[int, int, int, int], acc: Any, stats: Any) -> None:
    """Divide by the sums and write out and lse; rows that saw nothing give 0 and -inf."""
    b, h, start, rows = at
    for i in range(rows):
        total = stats[1, i]
        if total > 0:
            scale_row(acc[i], 1 / total)
        t.lse[b, h, start + i] = stats[0, i] + np.log(total) if total > 0 else -np.inf
    unpack(t.out[b, h], start, rows, acc, 1.0)


@njit(**WORKER)
def corrections(worker: int, t: Any, plan: Any) -> None:
    """corrections[ir] = sum of out * dO over a row, which equals the row's sum of A * GA."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        b, h, start, rows = row_block(t, plan, task)
        for i in range(start, start + rows):
            total = t.corrections.dtype.type(0)
            for d in range(t.v.shape[3]):
                total += t.out[b, h, i, d] * t.grad_out[b, h, i, d]
            t.corrections[b, h, i] = total


@njit(**WORKER)
def score_gradients_stored(worker: int, t: Any, plan: Any) -> None:
    """GS from A, dO and V; GS is kept."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        b, h, first, end = at[0], at[1], at[2], at[2] + at[3]
        pair = (t.a[b, h, first:end], t.gs[b, h, first:end])
        score_gradient_rows(worker, t, plan, at, pair)


@njit(**WORKER)
def query_gradients(worker: int, t: Any, plan: Any) -> None:
    """GQ from the stored GS."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        query_gradient_rows(worker, t, plan, at, t.gs[at[0], at[1], at[2] : at[2] + at[3]])


@njit(**WORKER)
def query_key_gradients(worker: int, t: Any, plan: Any) -> None:
    """GQ from the stored GS, and this worker's part of GK."""
    clear_part(t.key_parts[worker])
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        gs = t.gs[at[0], at[1], at[2] : at[2] + at[3]]
        query_gradient_rows(worker, t, plan, at, gs)
        add_key_part(worker, t, plan, at, gs)


@njit(**KERNEL)
def add_key_part(worker: int, t: Any, plan: Any, at: Any, gs: Any) -> None:
    """Add a block's GS^T Q to this worker's part of GK."""
    b, h, start, rows = at
    pack(t.q_tile[worker], t.q[b, h], start, rows, 1.0)
    part = t.key_parts[worker, b, kv_head(t, h)]
    add_to_part(part, gs, t.q_tile[worker], rows, visible(t, plan, start + rows - 1))


@njit(**WORKER)
def query_gradients_from_a(worker: int, t: Any, plan: Any) -> None:
    """GQ with GS recomputed, a tile at a time, from the stored A."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        b, h, start, rows = at
        acc = t.acc_q[worker]
        start_query_gradient(worker, t, plan, at)
        end = visible(t, plan, start + rows - 1)
        for first in range(0, end, plan.block_k):
            columns = min(plan.block_k, end - first)
            pack_keys_and_values(worker, t, at, (first, columns))
            a = t.a[b, h, start : start + rows, first : first + columns]
            score_gradient_tile(worker, t, at, a)
            shape = (rows, columns, t.q.shape[3])
            multiply_add(acc, t.gradients[worker], t.k_tile[worker], shape)
        unpack(t.grad_q[b, h], start, rows, acc, plan.scale)


@njit(**WORKER)
def query_gradients_recomputed(worker: int, t: Any, plan: Any) -> None:
    """GQ with A and GS recomputed, a tile at a time."""
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        b, h, start, rows = at
        acc = t.acc_q[worker]
        start_query_gradient(worker, t, plan, at)
        end = visible(t, plan, start + rows - 1)
        for first in range(0, end, plan.block_k):
            keys = (first, min(plan.block_k, end - first))
            pack_keys_and_values(worker, t, at, keys)
            pack_transposed(t.k_transposed[worker], t.k[b, kv_head(t, h)], first, keys[1])
            probability_tile(worker, t, plan, at, keys)
            score_gradient_tile(worker, t, at, t.scores[worker, :rows, : keys[1]])
            shape = (rows, keys[1], t.q.shape[3])
            multiply_add(acc, t.gradients[worker], t.k_tile[worker], shape)
        unpack(t.grad_q[b, h], start, rows, acc, plan.scale)


@njit(**KERNEL)
def start_query_gradient(worker: int, t: Any, plan: Any, at: Any) -> None:
    """Pack the block's rows of scale * Q and dO; clear its accumulators."""
    b, h, start, rows = at
    pack(t.q_tile[worker], t.q[b, h], start, rows, plan.scale)
    pack(t.g_tile[worker], t.grad_out[b, h], start, rows, 1.0)
    clear(t.acc_q[worker], rows)


@njit(**KERNEL)
def pack_keys_and_values(worker: int, t: Any, at: Any, keys: tuple[int, int]) -> None:
    """Pack K and V^T of a block of keys."""
    b, kv = at[0], kv_head(t, at[1])
    pack(t.k_tile[worker], t.k[b, kv], keys[0], keys[1], 1.0)
    pack_transposed(t.v_transposed[worker], t.v[b, kv], keys[0], keys[1])


@njit(**WORKER)
def query_key_gradients_from_a(worker: int, t: Any, plan: Any) -> None:
    """GQ and this worker's part of GK, GS being a temporary of one block of rows."""
    clear_part(t.key_parts[worker])
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        a, gs = t.a[at[0], at[1], at[2] : at[2] + at[3]], t.gs_rows[worker]
        score_gradient_rows(worker, t, plan, at, (a, gs))
        query_gradient_rows(worker, t, plan, at, gs)
        add_key_part(worker, t, plan, at, gs)


@njit(**WORKER)
def everything(worker: int, t: Any, plan: Any) -> None:
    """One sweep over the rows: Out, lse, GQ, and this worker's parts of GV and GK.

    A and GS are temporaries of one block of rows.
    """
    clear_part(t.key_parts[worker])
    clear_part(t.value_parts[worker])
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        softmax_rows(worker, t, plan, at, t.a_rows[worker])
        output_rows(worker, t, plan, at, t.a_rows[worker])
        gradients_of_rows(worker, t, plan, at)


@njit(**WORKER)
def all_gradients(worker: int, t: Any, plan: Any) -> None:
    """The same for the gradients alone, A coming from lse."""
    clear_part(t.key_parts[worker])
    clear_part(t.value_parts[worker])
    for task in range(worker, row_blocks(t, plan), plan.threads):
        at = row_block(t, plan, task)
        probability_rows(worker, t, plan, at, t.a_rows[worker])
        gradients_of_rows(worker, t, plan, at)


@njit(**KERNEL)
def gradients_of_rows(worker: int, t: Any, plan: Any, at: Any) -> None:
    """GQ of a block of rows and its shares of GV and GK, from the temporary rows of A."""
    b, h, start, rows = at
    a, gs = t.a_rows[worker], t.gs_rows[worker]
    score_gradient_rows(worker, t, plan, at, (a, gs))
    part = t.value_parts[worker, b, kv_head(t, h)]
    add_to_part(part, a, t.g_tile[worker], rows, visible(t, plan, start + rows - 1))
    query_gradient_rows(worker, t, plan, at, gs)
    add_key_part(worker, t, plan, at, gs)


@njit(**WORKER)
def sum_grad_k(worker: int, t: Any, plan: Any) -> None:
    """GK, the sum of the workers' parts."""
    sum_parts(worker, plan, t.key_parts, t.grad_k)


@njit(**WORKER)
def sum_grad_v(worker: int, t: Any, plan: Any) -> None:
    """GV, the sum of the workers' parts."""
    sum_parts(worker, plan, t.value_parts, t.grad_v)


@njit(**KERNEL)
def sum_parts(worker: int, plan: Any, parts: Any, target: Any) -> None:
    """target = sum over workers of parts, in the order of the workers."""
    batch, heads, length = target.shape[0], target.shape[1], target.shape[2]
    for row in range(worker, batch * heads * length, plan.threads):
        b, h, i = row // (heads * length), row // length % heads, row % length
        for d in range(target.shape[3]):
            total = parts.dtype.type(0)
            for part in range(parts.shape[0]):
                total += parts[part, b, h, i, d]
            target[b, h, i, d] = total
