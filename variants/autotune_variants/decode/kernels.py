"""Decode kernels: an online softmax over blocks of keys, whole or split over the cache."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from autotune_variants.attention.kernels_products import multiply_add
from autotune_variants.attention.kernels_tiles import (
    INLINED,
    KERNEL,
    clear,
    exponentials,
    largest,
    pack,
    scale_row,
)
from autotune_variants.fastmath import LOG2E, exp2
from autotune_variants.simd import fma, load, prefetch, splat, total
from autotune_variants.views import any_strides


class Tiles(NamedTuple):
    """Per worker: queries of a group, weights and sums of a block, room to pack strided rows."""

    queries: Any
    weights: Any
    sums: Any
    keys: Any
    values: Any


@njit(**KERNEL)
def dot_products(weights: Any, queries: Any, keys: Any, later: Any, ahead: int) -> None:
    """weights[g, i] = queries[g] . keys[i], four keys at a time; rows of keys are contiguous.

    Each key is read once for all queries of the group. A ragged end repeats the last key. Unless
    `ahead` is 0, key i + ahead and row i of `later` are prefetched meanwhile.
    """
    count, depth = keys.shape
    lanes = 64 // keys.itemsize
    whole = depth // lanes * lanes
    for i in range(0, count, 4):
        i1, i2, i3 = min(i + 1, count - 1), min(i + 2, count - 1), min(i + 3, count - 1)
        k0, k1, k2, k3 = keys[i], keys[i1], keys[i2], keys[i3]
        if ahead:
            prefetch_rows(keys, i + ahead)
            prefetch_rows(later, i)
        for g in range(queries.shape[0]):
            s0 = splat(queries.dtype.type(0))
            s1, s2, s3 = s0, s0, s0
            for d in range(0, whole, lanes):
                x = load(queries[g], d)
                s0, s1 = fma(x, load(k0, d), s0), fma(x, load(k1, d), s1)
                s2, s3 = fma(x, load(k2, d), s2), fma(x, load(k3, d), s3)
            t0, t1, t2, t3 = total(s0), total(s1), total(s2), total(s3)
            for d in range(whole, depth):
                x = queries[g, d]
                t0, t1, t2, t3 = t0 + x * k0[d], t1 + x * k1[d], t2 + x * k2[d], t3 + x * k3[d]
            weights[g, i], weights[g, i1], weights[g, i2], weights[g, i3] = t0, t1, t2, t3


@njit(**INLINED)
def prefetch_rows(rows: Any, i: int) -> None:
    """Ask for rows i to i + 3."""
    for d in range(0, rows.shape[1], 64 // rows.itemsize):
        prefetch(rows[i], d)
        prefetch(rows[i + 1], d)
        prefetch(rows[i + 2], d)
        prefetch(rows[i + 3], d)


@njit(**INLINED)
def attend(k: Any, v: Any, span: Any, tiles: Any, part: Any, stats: Any) -> None:
    """Online softmax of a group's queries over the keys of `span` = (first, end, block, ahead).

    Leaves in `part` (G, Dv) the sum of exponentials times values, in `stats` (2, G) the maximum
    and the sum of exponentials. Each block is summed from 0 and then added, so that rounding
    errors grow with the number of blocks, not of keys.
    """
    first, end, block, ahead = span
    queries, weights, sums = tiles.queries, tiles.weights, tiles.sums
    clear(part, part.shape[0])
    for g in range(queries.shape[0]):
        stats[0, g], stats[1, g] = -np.inf, 0
    for start in range(first, end, block):
        count = min(block, end - start)
        if k.strides[1] == k.itemsize:
            keys, values = any_strides(k[start : start + count]), any_strides(v[start:])
            dot_products(weights, queries, keys, values, ahead)
        else:
            pack(tiles.keys, k, start, count)
            keys = any_strides(tiles.keys[:count])
            dot_products(weights, queries, keys, keys, 0)
        clear(sums, sums.shape[0])
        for g in range(queries.shape[0]):
            peak = max(stats[0, g], largest(weights[g], count))
            shrink = exp2((stats[0, g] - peak) * weights.dtype.type(LOG2E))
            stats[1, g] = stats[1, g] * shrink + exponentials(weights[g], count, peak)
            stats[0, g] = peak
            for d in range(part.shape[1]):
                part[g, d] *= shrink
        shape = (sums.shape[0], count, v.shape[1])
        if v.strides[1] == v.itemsize:
            multiply_add(sums, weights, any_strides(v[start : start + count]), shape)
        else:
            pack(tiles.values, v, start, count)
            multiply_add(sums, weights, any_strides(tiles.values[:count]), shape)
        for g in range(part.shape[0]):
            for d in range(part.shape[1]):
                part[g, d] += sums[g, d]


@njit(**KERNEL)
def combine(out: Any, parts: Any, stats: Any) -> None:
    """out[g] from the parts (S, G, Dv) and stats (S, 2, G) of the splits, in their order."""
    splits, group, features = parts.shape
    for g in range(group):
        peak, total = stats[0, 0, g], stats.dtype.type(0)
        for s in range(1, splits):
            peak = max(peak, stats[s, 0, g])
        for d in range(features):
            out[g, d] = 0
        for s in range(splits):
            if stats[s, 1, g] != 0:  # a NaN counts
                weight = exp2((stats[s, 0, g] - peak) * stats.dtype.type(LOG2E))
                total += weight * stats[s, 1, g]
                for d in range(features):
                    out[g, d] += weight * parts[s, g, d]
        for d in range(features):
            out[g, d] /= total if total != 0 else 1


@njit(**INLINED)
def pack_scaled(queries: Any, q: Any, first: int, scale: float) -> None:
    """The queries of a group, from head `first` on, times scale."""
    pack(queries, q, first, queries.shape[0])
    for g in range(queries.shape[0]):
        scale_row(queries[g], queries.shape[1], scale)


@njit(**INLINED)
def attend_split(task: int, inputs: Any, partial: Any, tiles: Any, how: Any) -> None:
    """One split of one key-value head; `task` counts batch, head, split, how is (scale, ahead)."""
    q, k, v = inputs
    parts, stats = partial
    heads, splits, group = parts.shape[1], parts.shape[2], parts.shape[3]
    b, kv, split = task // (heads * splits), task // splits % heads, task % splits
    chunk = (k.shape[2] + splits - 1) // splits
    first = min(split * chunk, k.shape[2])
    end = min(first + chunk, k.shape[2])
    pack_scaled(tiles.queries, q[b], kv * group, how[0])
    span = (first, end, tiles.weights.shape[1], how[1])
    attend(k[b, kv], v[b, kv], span, tiles, parts[b, kv, split], stats[b, kv, split])


@njit(**INLINED)
def combine_head(head: int, out: Any, partial: Any) -> None:
    """The output of the query heads of one key-value head."""
    parts, stats = partial
    heads, group = parts.shape[1], parts.shape[3]
    b, kv = head // heads, head % heads
    combine(out[b, kv * group : (kv + 1) * group], parts[b, kv], stats[b, kv])
