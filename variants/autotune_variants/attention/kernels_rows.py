"""Row sweeps: what one worker does for blocks of query rows, softmax and its gradient.

`t` is a named tuple of the arrays of the arrangement, `plan` a `Plan`, `at` = (b, h, start, rows)
the block of query rows. The n x n arrays are given as two-dimensional views of the block's rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.attention.kernels_tiles import (
    KERNEL,
    clear,
    copy_columns,
    exponentials,
    largest,
    multiply,
    multiply_add,
    pack,
    pack_transposed,
    scale_row,
    unpack,
)

At = tuple[int, int, int, int]


@njit(**KERNEL)
def row_blocks(t: Any, plan: Any) -> int:
    """Number of blocks of query rows in the whole problem."""
    batch, heads, length = t.q.shape[0], t.q.shape[1], t.q.shape[2]
    return batch * heads * ((length + plan.block_q - 1) // plan.block_q)


@njit(**KERNEL)
def row_block(t: Any, plan: Any, task: int) -> At:
    """(b, h, first row, rows) of a block of query rows."""
    heads, length = t.q.shape[1], t.q.shape[2]
    blocks = (length + plan.block_q - 1) // plan.block_q
    head, block = task // blocks, task % blocks
    start = block * plan.block_q
    return head // heads, head % heads, start, min(plan.block_q, length - start)


@njit(**KERNEL)
def kv_head(t: Any, h: int) -> int:
    """Key-value head of query head h."""
    return h // (t.q.shape[1] // t.k.shape[1])


@njit(**KERNEL)
def visible(t: Any, plan: Any, row: int) -> int:
    """How many keys query `row` may attend; causal masks are aligned bottom-right."""
    keys = t.k.shape[2]
    if not plan.causal:
        return keys
    return min(max(row + 1 + keys - t.q.shape[2], 0), keys)


@njit(**KERNEL)
def score_rows(worker: int, t: Any, plan: Any, at: At, rows2d: Any) -> None:
    """rows2d = scale * Q K^T for the keys that any row of the block may attend."""
    b, h, start, rows = at
    k, depth = t.k[b, kv_head(t, h)], t.q.shape[3]
    tile = t.scores[worker]
    pack(t.q_tile[worker], t.q[b, h], start, rows, plan.scale)
    end = visible(t, plan, start + rows - 1)
    for first in range(0, end, plan.block_k):
        columns = min(plan.block_k, end - first)
        pack_transposed(t.k_transposed[worker], k, first, columns)
        multiply(tile, t.q_tile[worker], t.k_transposed[worker], (rows, depth, columns))
        copy_columns(rows2d, first, tile, (rows, columns))


@njit(**KERNEL)
def softmax_rows(worker: int, t: Any, plan: Any, at: At, a: Any) -> None:
    """A = softmax(scale * Q K^T) of the block's rows, and their lse."""
    b, h, start, rows = at
    score_rows(worker, t, plan, at, a)
    for i in range(rows):
        seen = visible(t, plan, start + i)
        peak = largest(a[i], seen)
        total = exponentials(a[i], seen, peak)
        t.lse[b, h, start + i] = peak + np.log(total) if seen else -np.inf
        if seen:
            scale_row(a[i], 1 / total)


@njit(**KERNEL)
def probability_rows(worker: int, t: Any, plan: Any, at: At, a: Any) -> None:
    """A = exp(scale * Q K^T - lse) of the block's rows."""
    b, h, start, rows = at
    score_rows(worker, t, plan, at, a)
    for i in range(rows):
        exponentials(a[i], visible(t, plan, start + i), t.lse[b, h, start + i])


@njit(**KERNEL)
def output_rows(worker: int, t: Any, plan: Any, at: At, a: Any) -> None:
    """Out = A V of the block's rows."""
    b, h, start, rows = at
    v, acc = t.v[b, kv_head(t, h)], t.acc_out[worker]
    clear(acc, rows)
    end = visible(t, plan, start + rows - 1)
    for first in range(0, end, plan.block_k):
        columns = min(plan.block_k, end - first)
        pack(t.v_tile[worker], v, first, columns, 1.0)
        weights = a[:rows, first : first + columns]
        multiply_add(acc, weights, t.v_tile[worker], (rows, columns, v.shape[1]))
    unpack(t.out[b, h], start, rows, acc, 1.0)


@njit(**KERNEL)
def score_gradient_rows(worker: int, t: Any, plan: Any, at: At, pair: Any) -> None:
    """GS = scale * A * (GA - rowsum(A * GA)) with GA = dO V^T, of the block's rows; pair (A, GS).

    The rows of GS hold GA until the sum is known.
    """
    b, h, start, rows = at
    a, gs = pair
    v, tile = t.v[b, kv_head(t, h)], t.scores[worker]
    pack(t.g_tile[worker], t.grad_out[b, h], start, rows, 1.0)
    end = visible(t, plan, start + rows - 1)
    for first in range(0, end, plan.block_k):
        columns = min(plan.block_k, end - first)
        pack_transposed(t.v_transposed[worker], v, first, columns)
        multiply(tile, t.g_tile[worker], t.v_transposed[worker], (rows, v.shape[1], columns))
        copy_columns(gs, first, tile, (rows, columns))
    for i in range(rows):
        finish_gradient_row(a[i], gs[i], end, plan.scale)


@njit(**KERNEL)
def finish_gradient_row(a: Any, gs: Any, end: int, scale: float) -> None:
    """gs = scale * a * (gs - sum(a * gs)) on [0, end), 0 behind."""
    correction = gs.dtype.type(0)
    for j in range(end):
        correction += a[j] * gs[j]
    factor = gs.dtype.type(scale)
    for j in range(end):
        gs[j] = factor * a[j] * (gs[j] - correction)
    for j in range(gs.size - end):
        gs[end + j] = 0


@njit(**KERNEL)
def query_gradient_rows(worker: int, t: Any, plan: Any, at: At, gs: Any) -> None:
    """GQ = GS K of the block's rows."""
    b, h, start, rows = at
    k, acc = t.k[b, kv_head(t, h)], t.acc_q[worker]
    clear(acc, rows)
    end = visible(t, plan, start + rows - 1)
    for first in range(0, end, plan.block_k):
        columns = min(plan.block_k, end - first)
        pack(t.k_tile[worker], k, first, columns, 1.0)
        weights = gs[:rows, first : first + columns]
        multiply_add(acc, weights, t.k_tile[worker], (rows, columns, k.shape[1]))
    unpack(t.grad_q[b, h], start, rows, acc, 1.0)


@njit(**KERNEL)
def add_to_part(part: Any, weights: Any, tile: Any, rows: int, end: int) -> None:
    """part[:end] += weights[:rows, :end]^T tile[:rows]: this worker's share of GV or GK."""
    multiply_add(part, weights.T, tile, (end, rows, part.shape[1]))
