"""Small steps around the tiled gradients: the row sums before, the sums of copies after."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_rows import sharers
from autotune_variants.attention.tiled_table import (
    DELTA,
    GRAD_K,
    GRAD_OUT,
    GRAD_Q,
    GRAD_V,
    KEY_PARTS,
    OUT,
    QUERY_PARTS,
    SETTINGS,
    STEP,
    VALUE_PARTS,
    K,
    entry,
    strided,
)
from autotune_variants.fastmath import INNER


@njit(fastmath={"contract", "nsz", "reassoc"}, **STEP)
def delta_step(w: Any, table: Any) -> Any:
    """delta[b,h,i] = sum over d of out * grad_out, on the share of rows of worker `w`."""
    workers = entry(table, SETTINGS, 3)
    out, grad_out, delta = strided(table, OUT), strided(table, GRAD_OUT), strided(table, DELTA)
    batch, heads, nq, dv = out.shape
    total = batch * heads * nq
    for row in range(w * total // workers, (w + 1) * total // workers):
        b, h, i = row // (heads * nq), row // nq % heads, row % nq
        value = out.dtype.type(0)
        for d in range(dv):
            value += out[b, h, i, d] * grad_out[b, h, i, d]
        delta[b, h, i, 0] = value


@njit(**INNER)
def add_copies(w: Any, workers: Any, kv_heads: Any, array: Any, parts: Any) -> Any:
    """Adds to an array (B,heads,N,D) the copies of it that further workers of a head filled.

    In a fixed order, on the share of rows of worker `w`.
    """
    batch, heads, count, depth = array.shape
    total = batch * heads * count
    for row in range(w * total // workers, (w + 1) * total // workers):
        b, h, i = row // (heads * count), row // count % heads, row % count
        first, last = sharers(b * kv_heads + h * kv_heads // heads, batch * kv_heads, workers)
        for part in range(last - first):
            for d in range(depth):
                array[b, h, i, d] += parts[part * batch + b, h, i, d]


@njit(**STEP)
def query_sum_step(w: Any, table: Any) -> Any:
    """grad_q from its copies."""
    workers, kv_heads = entry(table, SETTINGS, 3), entry(table, K, 2)
    add_copies(w, workers, kv_heads, strided(table, GRAD_Q), strided(table, QUERY_PARTS))


@njit(**STEP)
def key_sum_step(w: Any, table: Any) -> Any:
    """grad_k and grad_v from their copies."""
    workers, kv_heads = entry(table, SETTINGS, 3), entry(table, K, 2)
    add_copies(w, workers, kv_heads, strided(table, GRAD_K), strided(table, KEY_PARTS))
    add_copies(w, workers, kv_heads, strided(table, GRAD_V), strided(table, VALUE_PARTS))
