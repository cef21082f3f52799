"""Sweeps over blocks of keys that read stored A or GS, so that GV and GK have one owner each."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.kernels_products import multiply_add
from autotune_variants.attention.kernels_tiles import (
    INLINED,
    KERNEL,
    WORKER,
    blocks_of,
    clear,
    locate,
    pack,
    share,
    unpack,
)
from autotune_variants.attention.plan import Step

_GRAD_K, _GRAD_V = int(Step.GRAD_K), int(Step.GRAD_V)


@njit(**WORKER)
def columns_on_chip(worker: int, t: Any, s: Any, plan: Any) -> None:
    """GV from A and dO, or GK from GS and Q, all features of a block of keys at once.

    The n x n array is read once, which the study did not try.
    """
    if plan.steps & _GRAD_V:
        tiles = (s.g_tile[worker], s.acc_v[worker])
        column_product(worker, plan, (s.a, t.grad_out, t.grad_v), tiles)
    if plan.steps & _GRAD_K:
        tiles = (s.q_tile[worker], s.acc_k[worker])
        column_product(worker, plan, (s.gs, t.q, t.grad_k), tiles)


@njit(**WORKER)
def columns_swept(worker: int, t: Any, s: Any, plan: Any) -> None:
    """The same sums as the study has them: features outermost, each of which sweeps A or GS."""
    if plan.steps & _GRAD_V:
        column_sweep(worker, plan, (s.a, t.grad_out, t.grad_v), s.line[worker])
    if plan.steps & _GRAD_K:
        column_sweep(worker, plan, (s.gs, t.q, t.grad_k), s.line[worker])


@njit(**KERNEL)
def first_row(key: int, queries: int, keys: int, plan: Any) -> int:
    """First query row that may attend `key`, rounded down to its block of rows."""
    row = max(key + queries - keys, 0) if plan.causal else 0
    return row // plan.block_q * plan.block_q


@njit(**KERNEL)
def column_product(worker: int, plan: Any, operands: Any, tiles: Any) -> None:
    """target[ic] = sum over rows of weights[ir, ic] x[ir], by blocks of keys.

    `operands` is (weights, x, target), `tiles` (rows of x, accumulators of a block of keys).
    """
    weights, x, target = operands
    x_tile, acc = tiles
    batch, heads, keys, features = target.shape
    queries, group = x.shape[2], x.shape[1] // heads
    first_task, stop, step = share(worker, batch * heads * blocks_of(keys, plan.block_k), plan)
    for task in range(first_task, stop, step):
        b, kv, first, count = locate(task, heads, keys, plan.block_k)
        clear(acc, count)
        for h in range(kv * group, (kv + 1) * group):
            for start in range(first_row(first, queries, keys, plan), queries, plan.block_q):
                rows = min(plan.block_q, queries - start)
                pack(x_tile, x[b, h], start, rows)
                block = weights[b, h, start : start + rows, first : first + count]
                multiply_add(acc, block.T, x_tile, (count, rows, features))
        unpack(target[b, kv], first, count, acc, 1.0)


@njit(**KERNEL)
def column_sweep(worker: int, plan: Any, operands: Any, line: Any) -> None:
    """The same with one feature at a time; `line` holds that feature of a block of keys."""
    weights, x, target = operands
    batch, heads, keys, features = target.shape
    queries, group = x.shape[2], x.shape[1] // heads
    first_task, stop, step = share(worker, batch * heads * blocks_of(keys, plan.block_k), plan)
    for task in range(first_task, stop, step):
        b, kv, first, count = locate(task, heads, keys, plan.block_k)
        start = first_row(first, queries, keys, plan)
        for d in range(features):
            for j in range(count):
                line[j] = 0
            for h in range(kv * group, (kv + 1) * group):
                add_column(line, weights[b, h], x[b, h, :, d], (start, first, count))
            for j in range(count):
                target[b, kv, first + j, d] = line[j]


@njit(**INLINED)
def add_column(line: Any, weights: Any, x: Any, at: tuple[int, int, int]) -> None:
    """line[j] += sum over rows from at[0] of weights[i, at[1] + j] * x[i], four rows at a time.

    A ragged end repeats the last row with weight 0.
    """
    start, first, count = at
    stop, last = x.shape[0], first + count
    none = line.dtype.type(0)
    for i in range(start, stop, 4):
        i1, i2, i3 = min(i + 1, stop - 1), min(i + 2, stop - 1), min(i + 3, stop - 1)
        w0, w1 = weights[i, first:last], weights[i1, first:last]
        w2, w3 = weights[i2, first:last], weights[i3, first:last]
        x0 = x[i]
        x1 = x[i1] if i + 1 < stop else none
        x2 = x[i2] if i + 2 < stop else none
        x3 = x[i3] if i + 3 < stop else none
        for j in range(count):
            line[j] += x0 * w0[j] + x1 * w1[j] + x2 * w2[j] + x3 * w3[j]
