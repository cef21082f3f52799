"""Attention in plain NumPy, in the dtype of its inputs; in float64 the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_ELEMENTS = 1 << 22  # of the score matrix at a time


class _Block(NamedTuple):
    """Some query rows of one head, with their scaled scores; masked ones are -inf."""

    query: tuple[int, int, slice]
    key: tuple[int, int]
    scores: Array


def _blocks(q: Array, k: Array, causal: bool, scale: float) -> Iterator[_Block]:
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    rows = max(_ELEMENTS // max(keys, 1), 1)
    for b in range(batch):
        for h in range(heads):
            key = (b, h * k.shape[1] // heads)
            for start in range(0, queries, rows):
                query = (b, h, slice(start, start + rows))
                scores = (q[query] @ k[key].T) * q.dtype.type(scale)
                if causal:
                    last = np.arange(start, start + len(scores)) + keys - queries
                    scores[np.arange(keys) > last[:, None]] = -np.inf
                yield _Block(query, key, scores)


def _exponentials(scores: Array, shift: Array) -> Array:
    """exp(scores - shift) by rows, 0 where a row has nothing to attend (shift -inf)."""
    weights: Array = np.exp(scores - np.where(np.isneginf(shift), 0, shift)[:, None])
    return weights


def forward(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: float = 1.0
) -> tuple[Array, Array]:
    """Out (B,H,Nq,Dv) and lse (B,H,Nq), a block of query rows at a time."""
    out = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    lse = np.full(q.shape[:3], -np.inf, q.dtype)
    for query, key, scores in _blocks(q, k, causal, scale):
        peak = scores.max(axis=1, initial=-np.inf)
        weights = _exponentials(scores, peak)
        total = weights.sum(axis=1)
        seen = total > 0
        safe = np.where(seen, total, 1).astype(q.dtype)
        out[query] = (weights @ v[key]) / safe[:, None]
        lse[query] = np.where(seen, peak + np.log(safe), -np.inf)
    return out, lse


def backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    grad_out: Array,
    *,
    causal: bool = False,
    scale: float = 1.0,
) -> tuple[Array, Array, Array]:
    """GQ, GK and GV from the outputs of `forward`; GK and GV sum over the heads of a group."""
    grad_q, grad_k, grad_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for query, key, scores in _blocks(q, k, causal, scale):
        a = _exponentials(scores, lse[query])
        correction = (out[query] * grad_out[query]).sum(axis=1)
        ga = grad_out[query] @ v[key].T
        gs = a * (ga - correction[:, None]) * q.dtype.type(scale)
        grad_q[query] = gs @ k[key]
        grad_k[key] += gs.T @ q[query]
        grad_v[key] += a.T @ grad_out[query]
    return grad_q, grad_k, grad_v


def one_query(q: Array, k: Array, v: Array, *, scale: float = 1.0) -> Array:
    """Out (B,H,Dv) of one query per head against k (B,Hkv,N,D) and v (B,Hkv,N,Dv)."""
    return forward(q[:, :, None, :], k, v, scale=scale)[0][:, :, 0, :]
