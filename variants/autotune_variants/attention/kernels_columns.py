"""Column sweeps: what one worker does for blocks of keys, so that GV and GK have one owner."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.kernels_rows import visible
from autotune_variants.attention.kernels_tiles import (
    KERNEL,
    WORKER,
    clear,
    exponentials,
    multiply,
    multiply_add,
    pack,
    pack_transposed,
    unpack,
)

At = tuple[int, int, int, int]


@njit(**KERNEL)
def column_blocks(t: Any, plan: Any) -> int:
    """Number of blocks of keys in the whole problem."""
    batch, heads, length = t.k.shape[0], t.k.shape[1], t.k.shape[2]
    return batch * heads * ((length + plan.block_k - 1) // plan.block_k)


@njit(**KERNEL)
def column_block(t: Any, plan: Any, task: int) -> At:
    """(b, key-value head, first key, keys) of a block of keys."""
    heads, length = t.k.shape[1], t.k.shape[2]
    blocks = (length + plan.block_k - 1) // plan.block_k
    head, block = task // blocks, task % blocks
    start = block * plan.block_k
    return head // heads, head % heads, start, min(plan.block_k, length - start)


@njit(**KERNEL)
def group_of(t: Any, kv: int) -> tuple[int, int]:
    """First query head of key-value head `kv` and the one after its last."""
    size = t.q.shape[1] // t.k.shape[1]
    return kv * size, (kv + 1) * size


@njit(**KERNEL)
def first_row(t: Any, plan: Any, key: int) -> int:
    """First query row that may attend `key`, rounded down to its block of rows."""
    if not plan.causal:
        return 0
    row = max(key + t.q.shape[2] - t.k.shape[2], 0)
    return row // plan.block_q * plan.block_q


@njit(**WORKER)
def grad_v_swept(worker: int, t: Any, plan: Any) -> None:
    """GV from A and dO, features outermost."""
    column_sweep(worker, t, plan, (t.a, t.grad_out, t.grad_v))


@njit(**WORKER)
def grad_k_swept(worker: int, t: Any, plan: Any) -> None:
    """GK from GS and Q, features outermost."""
    column_sweep(worker, t, plan, (t.gs, t.q, t.grad_k))


@njit(**WORKER)
def grad_v_on_chip(worker: int, t: Any, plan: Any) -> None:
    """GV from A and dO, all features of a block of keys at once."""
    column_product(worker, t, plan, (t.a, t.grad_out, t.grad_v), (t.g_tile, t.acc_v))


@njit(**WORKER)
def grad_k_on_chip(worker: int, t: Any, plan: Any) -> None:
    """GK from GS and Q, all features of a block of keys at once."""
    column_product(worker, t, plan, (t.gs, t.q, t.grad_k), (t.q_tile, t.acc_k))


@njit(**KERNEL)
def column_product(worker: int, t: Any, plan: Any, operands: Any, tiles: Any) -> None:
    """target[ic] = sum over rows of weights[ir, ic] x[ir], all features of a block at once.

    `operands` is (weights, x, target), `tiles` (rows of x, accumulators of a block of keys). The
    n x n array is read once, which the study did not try.
    """
    weights, x, target = operands
    x_tile, acc = tiles[0][worker], tiles[1][worker]
    for task in range(worker, column_blocks(t, plan), plan.threads):
        b, kv, first, columns = column_block(t, plan, task)
        clear(acc, columns)
        for h in range(*group_of(t, kv)):
            for start in range(first_row(t, plan, first), x.shape[2], plan.block_q):
                rows = min(plan.block_q, x.shape[2] - start)
                pack(x_tile, x[b, h], start, rows, 1.0)
                block = weights[b, h, start : start + rows, first : first + columns]
                multiply_add(acc, block.T, x_tile, (columns, rows, x.shape[3]))
        unpack(target[b, kv], first, columns, acc, 1.0)


@njit(**KERNEL)
def column_sweep(worker: int, t: Any, plan: Any, operands: Any) -> None:
    """The same sum as the study has it: features outermost, so that each sweeps all of weights."""
    weights, x, target = operands
    line = t.line[worker]
    for task in range(worker, column_blocks(t, plan), plan.threads):
        b, kv, first, columns = column_block(t, plan, task)
        for d in range(x.shape[3]):
            for j in range(columns):
                line[j] = 0
            for h in range(*group_of(t, kv)):
                start = first_row(t, plan, first)
                add_column(line, weights[b, h], x[b, h, :, d], (start, first, columns))
            for j in range(columns):
                target[b, kv, first + j, d] = line[j]


@njit(**KERNEL)
def add_column(line: Any, weights: Any, x: Any, at: tuple[int, int, int]) -> None:
    """line[j] += sum over rows from at[0] of weights[i, at[1] + j] * x[i], four rows at a time."""
    start, first, columns = at
    last = first + columns
    four = start + (x.shape[0] - start) // 4 * 4
    for i in range(start, four, 4):
        w0, w1 = weights[i, first:last], weights[i + 1, first:last]
        w2, w3 = weights[i + 2, first:last], weights[i + 3, first:last]
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(columns):
            line[j] += x0 * w0[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j]
    for i in range(four, x.shape[0]):
        row = weights[i, first:last]
        for j in range(columns):
            line[j] += x[i] * row[j]


@njit(**KERNEL)
def probability_tile(worker: int, t: Any, plan: Any, at: At, keys: Any) -> None:
    """A of one tile, in t.scores, from Q, K and lse; `keys` is (first key, keys).

    The tiles of scale * Q and K^T must be packed.
    """
    b, h, start, rows = at
    first, columns = keys
    a = t.scores[worker]
    multiply(a, t.q_tile[worker], t.k_transposed[worker], (rows, t.q.shape[3], columns))
    for i in range(rows):
        seen = min(max(visible(t, plan, start + i) - first, 0), columns)
        exponentials(a[i, :columns], seen, t.lse[b, h, start + i])


@njit(**KERNEL)
def score_gradient_tile(worker: int, t: Any, at: At, a: Any) -> None:
    """GS / scale of one tile, in t.gradients, from its A; dO and V^T must be packed."""
    b, h, start, rows = at
    gs, columns = t.gradients[worker], a.shape[1]
    multiply(gs, t.g_tile[worker], t.v_transposed[worker], (rows, t.v.shape[3], columns))
    for i in range(rows):
        correction = t.corrections[b, h, start + i]
        row, weights = gs[i, :columns], a[i]
        for j in range(columns):
            row[j] = weights[j] * (row[j] - correction)


@njit(**WORKER)
def key_gradients_from_a(worker: int, t: Any, plan: Any) -> None:
    """GK by columns with GS recomputed from A, dO, V and the corrections."""
    acc = t.acc_k[worker]
    for task in range(worker, column_blocks(t, plan), plan.threads):
        b, kv, first, columns = column_block(t, plan, task)
        clear(acc, columns)
        pack_transposed(t.v_transposed[worker], t.v[b, kv], first, columns)
        for h in range(*group_of(t, kv)):
            for start in range(first_row(t, plan, first), t.q.shape[2], plan.block_q):
                rows = min(plan.block_q, t.q.shape[2] - start)
                pack(t.q_tile[worker], t.q[b, h], start, rows, plan.scale)
                pack(t.g_tile[worker], t.grad_out[b, h], start, rows, 1.0)
                a = t.a[b, h, start : start + rows, first : first + columns]
                score_gradient_tile(worker, t, (b, h, start, rows), a)
                gs = t.gradients[worker].T
                multiply_add(acc, gs, t.q_tile[worker], (columns, rows, t.q.shape[3]))
        unpack(t.grad_k[b, kv], first, columns, acc, 1.0)


@njit(**WORKER)
def key_value_gradients(worker: int, t: Any, plan: Any) -> None:
    """GK and GV by columns with A and GS recomputed: nothing n x n in memory."""
    acc_k, acc_v = t.acc_k[worker], t.acc_v[worker]
    for task in range(worker, column_blocks(t, plan), plan.threads):
        b, kv, first, columns = column_block(t, plan, task)
        clear(acc_k, columns)
        clear(acc_v, columns)
        pack_transposed(t.k_transposed[worker], t.k[b, kv], first, columns)
        pack_transposed(t.v_transposed[worker], t.v[b, kv], first, columns)
        for h in range(*group_of(t, kv)):
            for start in range(first_row(t, plan, first), t.q.shape[2], plan.block_q):
                rows = min(plan.block_q, t.q.shape[2] - start)
                at = (b, h, start, rows)
                pack(t.q_tile[worker], t.q[b, h], start, rows, plan.scale)
                pack(t.g_tile[worker], t.grad_out[b, h], start, rows, 1.0)
                probability_tile(worker, t, plan, at, (first, columns))
                a, gs = t.scores[worker, :rows, :columns], t.gradients[worker].T
                score_gradient_tile(worker, t, at, a)
                multiply_add(acc_v, a.T, t.g_tile[worker], (columns, rows, t.v.shape[3]))
                multiply_add(acc_k, gs, t.q_tile[worker], (columns, rows, t.q.shape[3]))
        unpack(t.grad_k[b, kv], first, columns, acc_k, 1.0)
        unpack(t.grad_v[b, kv], first, columns, acc_v, 1.0)
