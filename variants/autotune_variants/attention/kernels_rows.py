"""The sweep over blocks of query rows, with A and GS as whole rows, and the sum of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

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

_SOFTMAX, _PROBABILITIES, _OUTPUT = int(Step.SOFTMAX), int(Step.PROBABILITIES), int(Step.OUTPUT)
_SCORE_GRADIENTS, _GRAD_Q = int(Step.SCORE_GRADIENTS), int(Step.GRAD_Q)
_GRAD_K, _GRAD_V = int(Step.GRAD_K), int(Step.GRAD_V)
_A_STORED, _GS_STORED = int(Step.A_STORED), int(Step.GS_STORED)


@njit(**WORKER)
def rows(worker: int, t: Any, s: Any, plan: Any) -> None:
    """The steps of `plan`, in the order of `Step`, for every block of query rows of this worker."""
    batch, heads, queries, _ = t.q.shape
    keys = t.k.shape[2]
    clear_parts(s.key_parts, worker, plan.steps & _GRAD_K)
    clear_parts(s.value_parts, worker, plan.steps & _GRAD_V)
    tasks = batch * heads * blocks_of(queries, plan.block_q)
    first_task, stop, step = share(worker, tasks, plan)
    for task in range(first_task, stop, step):
        b, h, start, count = locate(task, heads, queries, plan.block_q)
        kv = h // (heads // t.k.shape[1])
        k, v = t.k[b, kv], t.v[b, kv]
        end = visible(start + count - 1, queries, keys, plan.causal)
        shape = (count, end, plan.block_k)
        a, gs = s.a_rows[worker], s.gs_rows[worker]
        if plan.steps & _A_STORED:
            a = s.a[b, h, start : start + count]
        if plan.steps & _GS_STORED:
            gs = s.gs[b, h, start : start + count]
        if plan.steps & (_SOFTMAX | _PROBABILITIES):
            pack(s.q_tile[worker], t.q[b, h], start, count)
            scores = s.scores[worker]
            outer_rows(a, s.q_tile[worker], k, (s.k_transposed[worker], scores), shape)
            for i in range(count):
                seen = visible(start + i, queries, keys, plan.causal)
                scale_row(a[i], seen, plan.scale)
                if plan.steps & _SOFTMAX:
                    t.new_lse[b, h, start + i] = softmax(a[i], seen)
                else:
                    exponentials(a[i], seen, t.lse[b, h, start + i])
        if plan.steps & _OUTPUT:
            weighted_sum(s.acc_out[worker], a, v, s.v_tile[worker], shape)
            unpack(t.new_out[b, h], start, count, s.acc_out[worker], 1.0)
        if plan.steps & (_SCORE_GRADIENTS | _GRAD_V):
            pack(s.g_tile[worker], t.grad_out[b, h], start, count)
        if plan.steps & _SCORE_GRADIENTS:
            scores = s.scores[worker]
            outer_rows(gs, s.g_tile[worker], v, (s.v_transposed[worker], scores), shape)
            for i in range(count):
                correction = dot(t.out[b, h, start + i], t.grad_out[b, h, start + i])
                finish_gradients(gs[i], a[i], end, (correction, plan.scale))
        if plan.steps & _GRAD_Q:
            weighted_sum(s.acc_q[worker], gs, k, s.k_tile[worker], shape)
            unpack(t.grad_q[b, h], start, count, s.acc_q[worker], 1.0)
        add_block(worker, t, s, plan, (b, h, start, count), (a, gs, end))


@njit(**INLINED)
def add_block(worker: int, t: Any, s: Any, plan: Any, at: Any, weights: Any) -> None:
    """Add a block's GS^T Q and A^T dO to this worker's parts of GK and GV, if asked for."""
    (b, h, start, count), (a, gs, end) = at, weights
    kv = h // (t.q.shape[1] // t.k.shape[1])
    if plan.steps & _GRAD_K:
        pack(s.q_tile[worker], t.q[b, h], start, count)
        sizes = (end, count, t.q.shape[3])
        multiply_add(s.key_parts[worker, b, kv], gs.T, s.q_tile[worker], sizes)
    if plan.steps & _GRAD_V:
        sizes = (end, count, t.v.shape[3])
        multiply_add(s.value_parts[worker, b, kv], a.T, s.g_tile[worker], sizes)


@njit(**INLINED)
def clear_parts(parts: Any, worker: int, wanted: int) -> None:
    """parts[worker] = 0, if wanted."""
    if wanted:
        for b in range(parts.shape[1]):
            for h in range(parts.shape[2]):
                clear(parts[worker, b, h], parts.shape[3])


@njit(**INLINED)
def outer_rows(target: Any, left: Any, right: Any, tiles: Any, shape: Any) -> None:
    """target[i, j] = left[i] . right[j] for shape (rows, keys, block of keys).

    `tiles` are room for a transposed block of `right` and for a block of the result.
    """
    count, end, block = shape
    transposed, tile = tiles
    for first in range(0, end, block):
        columns = min(block, end - first)
        pack_transposed(transposed, right, first, columns)
        multiply(tile, left, transposed, (count, right.shape[1], columns))
        for i in range(count):
            row = target[i, first : first + columns]
            for j in range(columns):
                row[j] = tile[i, j]


@njit(**INLINED)
def weighted_sum(acc: Any, weights: Any, x: Any, tile: Any, shape: Any) -> None:
    """acc[i] = sum over j of weights[i, j] x[j] for shape (rows, keys, block of keys)."""
    count, end, block = shape
    clear(acc, count)
    for first in range(0, end, block):
        columns = min(block, end - first)
        pack(tile, x, first, columns)
        part = weights[:count, first : first + columns]
        multiply_add(acc, part, tile, (count, columns, x.shape[1]))


@njit(**INLINED)
def softmax(row: Any, seen: int) -> Any:
    """Scores become probabilities, 0 from `seen` on; returns the log of the sum of exponentials."""
    peak = largest(row, seen)
    total = exponentials(row, seen, peak)
    if seen == 0:
        return peak
    scale_row(row, seen, 1 / total)
    return peak + np.log(total)


@njit(**INLINED)
def finish_gradients(gs: Any, a: Any, end: int, terms: Any) -> None:
    """gs = scale * a * (gs - correction) on [0, end), 0 from there on; gs comes in as GA.

    The correction is the sum of out * dO, not of a * GA: where a comes from a rounded lse and does
    not quite sum to 1, the first still matches GA.
    """
    correction, factor = terms[0], gs.dtype.type(terms[1])
    for j in range(end):
        gs[j] = factor * a[j] * (gs[j] - correction)
    for j in range(gs.size - end):
        gs[end + j] = 0


@njit(**WORKER)
def sum_parts(worker: int, t: Any, s: Any, plan: Any) -> None:
    """GK or GV as the sum of the workers' parts, in the order of the workers."""
    parts, target = s.value_parts, t.grad_v
    if plan.steps & _GRAD_K:
        add_parts(worker, plan.threads, s.key_parts, t.grad_k)
    if plan.steps & _GRAD_V:
        add_parts(worker, plan.threads, parts, target)


@njit(**INLINED)
def add_parts(worker: int, threads: int, parts: Any, target: Any) -> None:
    """target = sum over workers of parts."""
    batch, heads, length, features = target.shape
    for row in range(worker, batch * heads * length, threads):
        b, h, i = row // (heads * length), row // length % heads, row % length
        for d in range(features):
            total = parts.dtype.type(0)
            for part in range(parts.shape[0]):
                total += parts[part, b, h, i, d]
            target[b, h, i, d] = total
