"""Attention in plain NumPy, in the dtype of its inputs: references and plain implementations.

The plain ones sum every product in the opposite order, and come by their results another way, so
that the difference tells what rounding does in float64 too, where both run in the same dtype.
In 16 bits they compute in float32 and round what such an implementation stores: A, GS, outputs.
CuPy arrays run as well; everything here is called through NumPy's functions for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Product = Callable[[Array, Array], Array]

_ELEMENTS = 1 << 22  # of the score matrix at a time
_TERMS = 256  # of a product that a library may sum as it likes


class _Block(NamedTuple):
    """Some query rows of one head, with their scaled scores; masked ones are -inf."""

    query: tuple[int, int, slice]
    key: tuple[int, int]
    scores: Array


def _exact(a: Array, b: Array) -> Array:
    """a @ b for references: terms summed _TERMS at a time, and those sums in pairs.

    One chain of additions, as some libraries make of long rows, is off by more than what it judges.
    """
    terms = len(b)
    if terms <= _TERMS:
        whole: Array = np.matmul(a, b)
        return whole
    half = (terms // _TERMS + 1) // 2 * _TERMS
    product: Array = _exact(a[:, :half], b[:half])
    product += _exact(a[:, half:], b[half:])
    return product


def _opposite(a: Array, b: Array) -> Array:
    """a @ b, summed from the last term to the first."""
    product: Array = a[:, ::-1] @ b[::-1]
    return product


def _blocks(
    q: Array, k: Array, causal: bool, scale: float, product: Product = _exact
) -> Iterator[_Block]:
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    if not keys:
        return
    rows = max(_ELEMENTS // keys, 1)
    for b in range(batch):
        for h in range(heads):
            key = (b, h * k.shape[1] // heads)
            for start in range(0, queries, rows):
                query = (b, h, slice(start, start + rows))
                scores = product(q[query], k[key].T) * q.dtype.type(scale)
                if causal:
                    last = np.arange(start, start + len(scores), like=scores) + keys - queries
                    hidden = np.arange(keys, like=scores) > last[:, None]
                    scores = np.where(hidden, q.dtype.type(-np.inf), scores)
                yield _Block(query, key, scores)


def _exponentials(scores: Array, shift: Array) -> Array:
    """exp(scores - shift) by rows, 0 where a row has nothing to attend (shift -inf)."""
    finite = np.where(shift == -np.inf, shift.dtype.type(0), shift)
    weights: Array = np.exp(scores - finite[:, None])
    return weights


def _empty_rows(q: Array, v: Array) -> tuple[Array, Array]:
    """Out and lse of rows with nothing to attend."""
    out = np.zeros_like(q, shape=(*q.shape[:3], v.shape[3]))
    return out, np.full_like(q, -np.inf, shape=q.shape[:3])


def _widened(*arrays: Array) -> list[Array]:
    """16-bit arrays in float32, others as they are."""
    return [each.astype(np.float32) if each.dtype.itemsize < 4 else each for each in arrays]


def _rounded(array: Array, dtype: np.dtype[Any]) -> Array:
    """An array with the precision of `dtype`, in the dtype that products sum in."""
    return array.astype(dtype).astype(array.dtype) if dtype.itemsize < 4 else array


def forward(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: float = 1.0
) -> tuple[Array, Array]:
    """Out (B,H,Nq,Dv) and lse (B,H,Nq), a block of query rows at a time."""
    out, lse = _empty_rows(q, v)
    for query, key, scores in _blocks(q, k, causal, scale):
        peak = scores.max(axis=1)
        weights = _exponentials(scores, peak)
        total = weights.sum(axis=1)
        seen = total != 0  # NaN is seen
        safe = np.where(seen, total, 1).astype(q.dtype)
        out[query] = _exact(weights, v[key]) / safe[:, None]
        lse[query] = np.where(seen, peak + np.log(safe), -np.inf)
    return out, lse


def plain_forward(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: float = 1.0
) -> tuple[Array, Array]:
    """The same by way of A."""
    dtype = q.dtype
    q, k, v = _widened(q, k, v)
    out, lse = _empty_rows(q, v)
    for query, key, scores in _blocks(q, k, causal, scale, _opposite):
        peak = scores.max(axis=1)
        total = _exponentials(scores, peak)[:, ::-1].sum(axis=1)
        safe = np.where(total != 0, total, 1).astype(q.dtype)
        lse[query] = np.where(total != 0, peak + np.log(safe), -np.inf)
        a = _exponentials(scores, peak) / safe[:, None]
        out[query] = _opposite(_rounded(a, dtype), v[key])
    return out.astype(dtype, copy=False), lse


def gradients(
    q: Array, k: Array, v: Array, grad_out: Array, *, causal: bool = False, scale: float = 1.0
) -> tuple[Array, Array, Array]:
    """GQ, GK and GV; GK and GV sum over the query heads of a group."""
    found = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for block in _blocks(q, k, causal, scale):
        a = _exponentials(block.scores, block.scores.max(axis=1))
        total = a.sum(axis=1, keepdims=True)
        a /= np.where(total != 0, total, 1).astype(q.dtype)
        ga = grad_out[block.query] @ v[block.key].T
        # Not the sum of out * grad_out: where a row attends one key, this is exactly GA.
        correction = (a * ga).sum(axis=1, keepdims=True)
        gs = a * (ga - correction) * q.dtype.type(scale)
        _accumulate(found, block, (a, gs), (q, k, grad_out))
    return found


def plain_gradients(
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
    """The same from the outputs of `forward`, whose rounding it inherits."""
    dtype = q.dtype
    q, k, v, out, grad_out = _widened(q, k, v, out, grad_out)
    found = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for block in _blocks(q, k, causal, scale, _opposite):
        a = _exponentials(block.scores, lse[block.query])
        correction = (out[block.query] * grad_out[block.query]).sum(axis=1, keepdims=True)
        ga = _opposite(grad_out[block.query], v[block.key].T)
        gs = a * (ga - correction) * q.dtype.type(scale)
        weights = _rounded(a, dtype), _rounded(gs, dtype)
        _accumulate(found, block, weights, (q, k, grad_out), _opposite)
    grad_q, grad_k, grad_v = (each.astype(dtype, copy=False) for each in found)
    return grad_q, grad_k, grad_v


def plain_train(
    q: Array, k: Array, v: Array, grad_out: Array, *, causal: bool = False, scale: float = 1.0
) -> tuple[Array, Array, Array, Array]:
    """Out, GQ, GK and GV, the gradients from Out and lse."""
    out, lse = plain_forward(q, k, v, causal=causal, scale=scale)
    found = plain_gradients(q, k, v, out, lse, grad_out, causal=causal, scale=scale)
    return out, *found


def _accumulate(
    found: tuple[Array, Array, Array],
    block: _Block,
    weights: tuple[Array, Array],
    operands: tuple[Array, Array, Array],
    product: Product = _exact,
) -> None:
    (a, gs), (q, k, grad_out) = weights, operands
    found[0][block.query] = product(gs, k[block.key])
    found[1][block.key] += product(gs.T, q[block.query])
    found[2][block.key] += product(a.T, grad_out[block.query])


def one_query(q: Array, k: Array, v: Array, *, scale: float = 1.0) -> Array:
    """Out (B,H,Dv) of one query per head against k (B,Hkv,N,D) and v (B,Hkv,N,Dv)."""
    return forward(q[:, :, None, :], k, v, scale=scale)[0][:, :, 0, :]


def plain_one_query(q: Array, k: Array, v: Array, *, scale: float = 1.0) -> Array:
    """The same by way of A."""
    return plain_forward(q[:, :, None, :], k, v, scale=scale)[0][:, :, 0, :]
